"""Logs drawn at random: batches of every format and codec, holes between them, times that go back."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from kfs.format.codecs import Codec
from kfs.format.record import Record
from tests.logs import START, Batch, batches

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if codec != Codec.ZSTD or magic == 2]
_BASES = (0, 7, 2**31 - 20, 2**40)


def _payload(random: Random) -> bytes | None:
    kind = random.randrange(3)
    if kind == 0:
        return None
    return random.randbytes(random.randint(0, 12)) if kind == 1 else bytes([random.randrange(256)]) * 300


def _record(random: Random) -> Record:
    """Draw a record; its second after START is one of few, so that two may have the same."""
    return Record(0, START + random.randint(0, 30) * 1000, _payload(random), _payload(random))


def draw_batches(
    random: Random, first_offset: int = 0, most: int = 8, most_records: int = 6, *, has_holes: bool = True
) -> list[Batch]:
    """Draw batches with ascending offsets from ``first_offset`` on, as compaction may leave them: with holes."""
    result: list[Batch] = []
    offset = first_offset
    for number in range(random.randint(1, most)):
        content = []
        for _ in range(random.randint(1, most_records)):
            record = _record(random)
            offset += random.randint(0, 4) if has_holes else 0
            # A value that no other record has: what is found somewhere else is noticed.
            value = record.value if record.value is None else b"%d %d " % (number, offset) + record.value
            content.append(replace(record, offset=offset, value=value))
            offset += 1
        magic, codec = random.choice(FORMATS)
        result += batches(content, magic=magic, codec=codec)
    return result


def draw_segments(
    random: Random, most: int = 3, most_batches: int = 6, most_records: int = 6, *, has_holes: bool = True
) -> dict[int, list[Batch]]:
    """Draw the segments of a log, by base offset; those that a leader wrote, and nobody compacted, have no holes."""
    segments: dict[int, list[Batch]] = {}
    base = random.choice(_BASES)
    for _ in range(random.randint(1, most)):
        first = base + (random.randint(0, 2) if has_holes else 0)
        content = draw_batches(random, first, most_batches, most_records, has_holes=has_holes)
        segments[base] = content
        base = content[-1].last_offset + 1 + (random.randint(0, 3) if has_holes else 0)
    return segments


def some_batches(first_offset: int = 0, most: int = 8) -> st.SearchStrategy[list[Batch]]:
    """For Hypothesis: see :func:`draw_batches`."""
    return st.randoms(use_true_random=False).map(lambda random: draw_batches(random, first_offset, most))


def some_segments(most: int = 3) -> st.SearchStrategy[dict[int, list[Batch]]]:
    """For Hypothesis: see :func:`draw_segments`."""
    return st.randoms(use_true_random=False).map(lambda random: draw_segments(random, most))
