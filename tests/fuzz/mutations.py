"""Ways to spoil bytes: each takes a generator of random numbers and a ``bytearray``, and changes that."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.format.varint import encode_varint, encode_varlong

BYTES: Final = (0x00, 0x01, 0x02, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
INT32S: Final = (0, 1, -1, -2, 2, 7, 13, 14, 21, 22, 49, 127, 128, 255, 65535, MAX_INT32, MAX_INT32 - 1, -(2**31))
INT64S: Final = (0, 1, -1, -2, 2**31, 2**32, -(2**31) - 1, 2**53, MAX_INT64, MAX_INT64 - 1, -(2**63), 253402300800000)
#: Varints as no encoder writes them: padded, cut off, too long, with bits to spare; and the limits as one does.
VARINTS: Final = (
    *(encode_varint(number) for number in INT32S),
    *(encode_varlong(number) for number in INT64S),
    b"\x80\x00",
    b"\x82\x80\x80\x80\x00",
    b"\x80\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xff" * 11,
    b"\x80",
)
#: What a line of JSON has to escape, to refuse, or to take for what it is, at the edges of what is copied in blocks.
TEXTS: Final = tuple(
    text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    for text in (
        '"',
        "\\",
        '"\\"\\"\\"\\"',
        '\\\\\\\\\\\\\\\\"',
        '""""""""""""""""',
        "abcdefgh",
        "sixteen letters.",
        "\0\1\x1f\x7f",
        "\u0080\u009f\u00a0",
        "\u061c\u200d\u200e\u200f\u2010",
        "\u2027\u2028\u2029\u202a\u202e\u202f",
        "\u2065\u2066\u2069\u206a",
        "\ud7ff\ud800",
        "\udfff\ue000",
        "é東🙂\U0010ffff",
        b"\xc0\x80",
        b"\xc1\xbf\xc2\x80",
        b"\xe0\x9f\xbf",
        b"\xe0\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x80",
        b"\xf0\x9f\x99",
    )
)

Mutation = Callable[[Random, bytearray, Sequence[int]], None]


def _place(random: Random, data: bytearray, spots: Sequence[int]) -> int:
    """Choose a position: one where a length stands as often as any."""
    if spots and random.random() < 0.6:
        return min(random.choice(spots), max(len(data) - 1, 0))
    return random.randrange(len(data)) if data else 0


def flip(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Change a bit."""
    if data:
        data[_place(random, data, spots)] ^= 1 << random.randrange(8)


def overwrite_byte(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Put a byte at the limits of something."""
    if data:
        data[_place(random, data, spots)] = random.choice(BYTES)


def nudge(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Make a length or a count a little different."""
    if data:
        at = _place(random, data, spots)
        data[at] = (data[at] + random.choice((-4, -2, -1, 1, 2, 4))) & 0xFF


def overwrite_int32(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Put an int32 at its limits."""
    at = _place(random, data, spots)
    data[at : at + 4] = struct.pack(">i", random.choice(INT32S))


def overwrite_int64(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Put an int64 at its limits."""
    at = _place(random, data, spots)
    data[at : at + 8] = struct.pack(">q", random.choice(INT64S))


def replace_varint(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Put a varint where one byte was, or as many as it has."""
    at = _place(random, data, spots)
    varint = random.choice(VARINTS)
    data[at : at + random.choice((1, 1, len(varint)))] = varint


def overwrite_text(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Put text there that is hard to render."""
    at = _place(random, data, ())
    text = random.choice(TEXTS)[: max(len(data) - at, 0)]
    data[at : at + len(text)] = text


def truncate(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Leave out the end."""
    del data[_place(random, data, spots) :]


def take_out(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Leave out a part."""
    at = _place(random, data, spots)
    del data[at : at + random.choice((1, 2, 4, 8, 61, 100))]


def repeat(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Have a part twice."""
    at = _place(random, data, spots)
    part = data[at : at + random.choice((1, 2, 4, 8, 61, 100))]
    data[at:at] = part


def insert(random: Random, data: bytearray, spots: Sequence[int]) -> None:
    """Add zeros, or anything."""
    at = _place(random, data, spots)
    size = random.choice((1, 2, 4, 8, 12, 61))
    data[at:at] = bytes(size) if random.random() < 0.5 else random.randbytes(size)


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip,
    flip,
    overwrite_byte,
    nudge,
    nudge,
    overwrite_int32,
    overwrite_int64,
    replace_varint,
    replace_varint,
    overwrite_text,
    overwrite_text,
    truncate,
    take_out,
    repeat,
    insert,
)


def mutate(random: Random, data: bytes, spots: Sequence[int] = ()) -> bytes:
    """Return ``data`` after a mutation or a few; ``spots`` are where it hurts."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(MUTATIONS)(random, changed, spots)
    return bytes(changed)


def splice(random: Random, one: bytes, other: bytes) -> bytes:
    """Return the beginning of one and the end of the other."""
    return one[: random.randint(0, len(one))] + other[random.randint(0, len(other)) :]
