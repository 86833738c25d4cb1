"""Text and numbers as Java writes them, where Kafka's tools print what its own classes make of them."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

# What would be a surrogate, whole or cut short: to Java one malformed character, to Python one for each byte.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
#: Double.toString writes an exponent from here on, and below a thousandth.
_PLAIN_BELOW: Final = 10_000_000
_PLAIN_FROM: Final = 0.001


def java_text(data: bytes) -> str:
    """Return ``new String(data, UTF_8)``: what isn't UTF-8 is replaced."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")


def java_double(value: float) -> str:
    """Return ``Double.toString``: the shortest digits that tell the number from every other."""
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
    """Return ``Utils.abs(text.hashCode())``: which partition groups and transactional ids are kept in."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    if value >> 31:
        value = (1 << 32) - value
    return value & 0x7FFFFFFF  # what has no positive twin becomes 0
