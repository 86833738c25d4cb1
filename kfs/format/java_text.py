"""Java's representation of text and numbers, for output that Kafka's tools produce with Java classes."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

# An encoded surrogate, complete or truncated: Java replaces it with one character, Python with one per byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
#: Double.toString writes an exponent from this value on, and below a thousandth.
_PLAIN_BELOW: Final = 10_000_000
_PLAIN_FROM: Final = 0.001


def java_text(data: bytes) -> str:
    """Return ``new String(data, UTF_8)``, which replaces invalid UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def java_double(value: float) -> str:
    """Return ``Double.toString``: the shortest digits that identify the number."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    magnitude = abs(value)
    if math.isinf(magnitude):
        return sign + "Infinity"
    if not magnitude:
        return sign + "0.0"
    if _PLAIN_FROM <= magnitude < _PLAIN_BELOW:
        text = format(Decimal(repr(magnitude)), "f")
        return sign + (text if "." in text else text + ".0")
    _, digits, exponent = Decimal(repr(magnitude)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return f"{sign}{text[0]}.{text[1:] or '0'}E{exponent + len(digits) - 1}"


def java_hash(text: str) -> int:
    """Return ``Utils.abs(text.hashCode())``, which selects the partition of a group or transactional id."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    if value >> 31:
        value = (1 << 32) - value
    return value & 0x7FFFFFFF  # Integer.MIN_VALUE becomes 0
