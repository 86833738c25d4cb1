"""Helpers for Kafka's small text files: lines with byte positions, and plain decimal numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kfs.errors import CorruptData, LimitExceeded

# int() alone also accepts signs, underscores and other scripts' digits, and takes minutes for a million digits.
_DECIMAL: Final = re.compile(rb"[0-9]{1,19}")
_SHOWN_LENGTH: Final = 60


class TextLine(NamedTuple):
    """A line without its line end, and the byte position of its start."""

    text: bytes
    position: int


def split_lines(data: bytes, maximum_size: int) -> Iterator[TextLine]:
    r"""Yield the lines of ``data``, ended by ``\n`` or ``\r\n`` (optional for the last); reject too large a file."""
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
    """Parse ``text`` as a number from 0 to ``maximum``."""
    if not _DECIMAL.fullmatch(text) or int(text) > maximum:
        raise CorruptData(f"{what} is {shown(text)}, expected a number from 0 to {maximum}", position)
    return int(text)


def shown(text: bytes) -> str:
    """Quote ``text`` for a message, truncated if it is long."""
    return repr(text[:_SHOWN_LENGTH].decode("ascii", "backslashreplace")) + ("…" if len(text) > _SHOWN_LENGTH else "")
