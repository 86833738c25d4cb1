"""Bytes as JSON text: UTF-8 as it is, everything else as base64, and no terminal control characters."""

from __future__ import annotations

import re
from binascii import b2a_base64

# C0, DEL and C1 controls, line and paragraph separator, and the bidirectional controls (UAX #9).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def quote(text: str) -> str:
    """Return ``text`` as a JSON string; control characters become ``u`` and four lower-case hex digits."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    if not text.isprintable():  # most text is printable, and this is cheaper than the search
        text = _CONTROL.sub(_escape, text)
    return f'"{text}"'


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def json_bytes(data: bytes) -> tuple[str, bool]:
    """Return ``data`` as a JSON string, and whether it is base64 because it isn't UTF-8."""
    try:
        return quote(data.decode()), False
    except UnicodeDecodeError:
        return f'"{b2a_base64(data, newline=False).decode("ascii")}"', True
