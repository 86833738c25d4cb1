"""What Kafka's small text files have in common: lines with byte positions, and plain decimal numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData, LimitExceeded

# Not int() alone, which also takes signs, underscores, other scripts' digits, and minutes for a million of them.
_DECIMAL: Final = re.compile(rb"[0-9]{1,19}")
_SHOWN_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class TextLine:
    """One line without its end, and the byte position where it begins."""

    text: bytes
    position: int


def split_lines(data: bytes, maximum_size: int) -> Iterator[TextLine]:
    r"""Yield the lines of ``data``, ended by ``\n`` or ``\r\n``, the last perhaps not; refuse too large a file."""
    if len(data) > maximum_size:
        raise LimitExceeded(f"a text file of {len(data)} bytes, the limit is {maximum_size}", maximum_size)
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        if end < 0:
            end = len(data)
        yield TextLine(data[position:end].removesuffix(b"\r"), position)
        position = end + 1


def parse_number(text: bytes, maximum: int, what: str, position: int) -> int:
    """Return the number from 0 to ``maximum`` that ``text`` is."""
    if not _DECIMAL.fullmatch(text) or int(text) > maximum:
        raise CorruptData(f"{what} is {shown(text)}, expected a number from 0 to {maximum}", position)
    return int(text)


def shown(text: bytes) -> str:
    """Quote ``text`` for a message, cut where it is long."""
    return repr(text[:_SHOWN_LENGTH].decode("ascii", "backslashreplace")) + ("…" if len(text) > _SHOWN_LENGTH else "")
