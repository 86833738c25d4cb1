"""Ways to damage the bytes of a segment, and what of it is then still as it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.batch_header import is_intact, read_header
from kfs.format.layout import LOG_OVERHEAD, MAGIC_OFFSET, MAGIC_V2
from kfs.format.record import Record
from tests.logs import Batch


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a damaged segment, and the batch that they were; None for what was put there.

    The offset and, in v2, the leader epoch lie outside of the CRC: a batch is ``intact`` if its records, size and
    offset are there, whatever stands before them, and ``moved`` if only its offset isn't.
    """

    data: bytes
    was: Batch | None

    @property
    def is_intact(self) -> bool:
        return self._is_whole and self.data[: self._covered].endswith(self._overhead)

    @property
    def is_moved(self) -> bool:
        return self._is_whole and not self.is_intact

    @property
    def is_of_other_epoch(self) -> bool:
        """Whether it is intact but for its leader epoch: then it may as well be one of another history."""
        if self.was is None or not self.is_intact or _start(self.was) == LOG_OVERHEAD:
            return False
        at = self.data.find(self.was.data[MAGIC_OFFSET:])
        return self.data[max(at - 4, 0) : at] != self.was.data[LOG_OVERHEAD:MAGIC_OFFSET]

    @property
    def _is_whole(self) -> bool:
        """Whether the bytes that matter are there, and the size before them is right."""
        if self.was is None or self._covered < 0:
            return False
        return self.data[: self._covered].endswith(self._overhead[8:]) or self._covered < len(self._overhead)

    @property
    def _covered(self) -> int:
        """Where the bytes begin from which on everything matters; -1 where they are not there any more."""
        assert self.was is not None
        at = self.data.find(self.was.data[_start(self.was) :])
        return at if at < 0 else at - (_start(self.was) - LOG_OVERHEAD)

    @property
    def _overhead(self) -> bytes:
        assert self.was is not None
        return self.was.data[:LOG_OVERHEAD]


def _start(batch: Batch) -> int:
    return MAGIC_OFFSET if batch.data[MAGIC_OFFSET] == MAGIC_V2 else LOG_OVERHEAD


Parts = list[Part]
Damage = Callable[[Parts], Parts]


def parts_of(content: Iterable[Batch]) -> Parts:
    return [Part(one.data, one) for one in content]


def joined_parts(parts: Iterable[Part]) -> bytes:
    return b"".join(part.data for part in parts)


def written(content: Iterable[Batch]) -> dict[int, Record]:
    return {record.offset: record for one in content for record in one.records}


def is_ambiguous(parts: Sequence[Part]) -> bool:
    """Whether a damaged batch is whole again with bytes of its neighbours, as where one zero was taken out of many.

    Or holds, or has become, a message that is whole: a codec stores as it is what it can't compress. Or
    has again the size that it claims, with a batch and junk behind it: as a message with a batch in its value.
    """
    data = joined_parts(parts)
    if any(_is_filled_up(parts, number) for number in range(len(parts))):
        return True
    damaged = [part for part in parts if part.was is not None and not part.is_intact]
    if any(part.was.data[0 if part.is_moved else _start(part.was) :] in data for part in damaged if part.was):
        return True
    return any(_is_batch_at(at, part.data) for part in damaged for at in range(len(part.data) - LOG_OVERHEAD))


def may_be_in_the_making(parts: Sequence[Part]) -> bool:
    """Whether a message (v0, v1) that was cut claims more than all that follows it, with offsets below its own.

    At the end of a log it may be one that is just being written, which holds what follows.
    """
    for number, part in enumerate(parts):
        if (
            part.was is None
            or part.is_intact
            or part.was.data[MAGIC_OFFSET] == MAGIC_V2
            or len(part.data) < LOG_OVERHEAD
        ):
            continue
        claimed = int.from_bytes(part.data[8:LOG_OVERHEAD], "big") + LOG_OVERHEAD
        if claimed <= sum(len(each.data) for each in parts[number:]):
            continue
        offset = int.from_bytes(part.data[:8], "big")
        if any(each.was is not None and each.was.last_offset <= offset for each in parts[number + 1 :]):
            return True
    return False


def _is_filled_up(parts: Sequence[Part], number: int) -> bool:
    """Whether what is left of a batch is as long as it was with the next parts, not all of them intact."""
    part = parts[number]
    if part.was is None or part.is_intact or len(part.data) < LOG_OVERHEAD:
        return False
    left = int.from_bytes(part.data[8:LOG_OVERHEAD], "big") + LOG_OVERHEAD - len(part.data)
    taken = 0
    while left > 0 and number + taken + 1 < len(parts):
        taken += 1
        left -= len(parts[number + taken].data)
    swallowed = parts[number + 1 : number + taken + 1]
    return left == 0 and taken > 0 and not all(each.is_intact for each in swallowed)


def _is_batch_at(at: int, data: bytes) -> bool:
    size = int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big") + LOG_OVERHEAD
    if at + size > len(data):
        return False
    try:
        return is_intact(read_header(data, at, 0), data[at : at + size])
    except CorruptData:
        return False


def intact_records(parts: Sequence[Part]) -> dict[int, Record]:
    """Return the records of the batches that are as they were."""
    return written(part.was for part in parts if part.was is not None and part.is_intact)


def _changed(parts: Parts, index: int, change: Callable[[bytes], bytes]) -> Parts:
    index %= len(parts)
    return [*parts[:index], replace(parts[index], data=change(parts[index].data)), *parts[index + 1 :]]


def _flip(index: int, position: int, mask: int) -> Damage:
    def change(data: bytes) -> bytes:
        at = position % len(data) if data else 0
        return data[:at] + bytes(byte ^ mask for byte in data[at : at + 1]) + data[at + 1 :]

    return lambda parts: _changed(parts, index, change)


def _zero(index: int, position: int, length: int) -> Damage:
    def change(data: bytes) -> bytes:
        at = position % len(data) if data else 0
        return data[:at] + bytes(len(data[at : at + length])) + data[at + length :]

    return lambda parts: _changed(parts, index, change)


def _insert_inside(index: int, position: int, garbage: bytes) -> Damage:
    def change(data: bytes) -> bytes:
        at = position % len(data) if data else 0
        return data[:at] + garbage + data[at:]

    return lambda parts: _changed(parts, index, change)


def _take_away(index: int, position: int, length: int) -> Damage:
    def change(data: bytes) -> bytes:
        at = position % len(data) if data else 0
        return data[:at] + data[at + length :]

    return lambda parts: _changed(parts, index, change)


def _insert(index: int, garbage: bytes) -> Damage:
    return lambda parts: [*parts[: index % (len(parts) + 1)], Part(garbage, None), *parts[index % (len(parts) + 1) :]]


def _cut(index: int, position: int) -> Damage:
    def apply(parts: Parts) -> Parts:
        at = index % len(parts)
        return [*parts[:at], replace(parts[at], data=parts[at].data[: position % (len(parts[at].data) + 1)])]

    return apply


def _drop(index: int) -> Damage:
    return lambda parts: parts[: index % len(parts)] + parts[index % len(parts) + 1 :]


def _repeat(index: int, to: int) -> Damage:
    def apply(parts: Parts) -> Parts:
        copy, at = parts[index % len(parts)], to % (len(parts) + 1)
        return [*parts[:at], copy, *parts[at:]]

    return apply


def _swap(index: int, other: int) -> Damage:
    def apply(parts: Parts) -> Parts:
        one, two = index % len(parts), other % len(parts)
        swapped = list(parts)
        swapped[one], swapped[two] = parts[two], parts[one]
        return swapped

    return apply


def _index(random: Random) -> int:
    return random.randrange(41)


def _position(random: Random) -> int:
    """Return where in a batch; the header is where it hurts."""
    return random.randrange(71 if random.randrange(2) else 2001)


def _mask(random: Random) -> int:
    return 1 << random.randrange(8) if random.randrange(2) else random.randint(1, 255)


def _length(random: Random) -> int:
    return random.randint(1, 100)


def _garbage(random: Random) -> bytes:
    return random.randbytes(random.randint(1, 80)) if random.randrange(2) else bytes(random.randint(1, 200))


_LOCAL: tuple[Callable[[Random], Damage], ...] = (
    lambda random: _flip(_index(random), _position(random), _mask(random)),
    lambda random: _zero(_index(random), _position(random), _length(random)),
    lambda random: _insert_inside(_index(random), _position(random), _garbage(random)),
    lambda random: _take_away(_index(random), _position(random), _length(random)),
    lambda random: _insert(_index(random), _garbage(random)),
    lambda random: _cut(_index(random), _position(random)),
    lambda random: _drop(_index(random)),
)
_DISORDER: tuple[Callable[[Random], Damage], ...] = (
    lambda random: _repeat(_index(random), _index(random)),
    lambda random: _swap(_index(random), _index(random)),
)


def draw_local_damage(random: Random) -> Damage:
    """Draw a damage that leaves what it doesn't touch in its place and order."""
    return random.choice(_LOCAL)(random)


def draw_disorder(random: Random) -> Damage:
    """Draw batches that stand twice, or where they don't belong."""
    return random.choice(_DISORDER)(random)


#: For Hypothesis: see :func:`draw_local_damage`.
local_damage: st.SearchStrategy[Damage] = st.randoms(use_true_random=False).map(draw_local_damage)
#: For Hypothesis: see :func:`draw_disorder`.
disorder: st.SearchStrategy[Damage] = st.randoms(use_true_random=False).map(draw_disorder)


def damaged(content: Iterable[Batch], damages: Iterable[Damage]) -> Parts:
    """Return the parts of a segment after all that was done to it."""
    parts = parts_of(content)
    for damage in damages:
        if parts:
            parts = damage(parts)
    return parts
