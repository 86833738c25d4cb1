"""Kafka's variable-length integers (``ByteUtils.java``).

Each byte has seven bits, the lowest first; the top bit is set on every byte but the last. ``varint`` (int32) and
``varlong`` (int64) are zigzag-encoded first, so that small negative numbers stay short; ``unsigned varint`` is not.

The decoders accept exactly what Kafka accepts. An encoding padded with zero bits is valid up to 5 (10) bytes. Bits of
the last byte beyond the 32nd (64th) are dropped, as by Java's shift. A longer encoding is corrupt.
"""

from __future__ import annotations

from typing import Final

from kfs.errors import CorruptData

Buffer = bytes | bytearray | memoryview

MAX_VARINT_LENGTH: Final = 5
MAX_VARLONG_LENGTH: Final = 10

_INT32_BITS: Final = 32
_INT64_BITS: Final = 64
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def encode_unsigned_varint(value: int) -> bytes:
    """Encode a value from 0 to 2^32-1; raise :class:`ValueError` outside that range."""
    if not 0 <= value < 1 << _INT32_BITS:
        raise ValueError(f"{value} does not fit an unsigned varint")
    return _encode(value)


def encode_varint(value: int) -> bytes:
    """Encode an int32 with zigzag; raise :class:`ValueError` outside its range."""
    if not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} does not fit a varint (int32)")
    return _encode(value << 1 ^ value >> 31)


def encode_varlong(value: int) -> bytes:
    """Encode an int64 with zigzag; raise :class:`ValueError` outside its range."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit a varlong (int64)")
    return _encode(value << 1 ^ value >> 63)


def decode_unsigned_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the value (0 to 2^32-1) at ``position`` and the position after it.

    It reads nothing at or past ``end``. Raises :class:`CorruptData` if the encoding is truncated or too long.
    """
    return _decode(buffer, position, end, MAX_VARINT_LENGTH, _INT32_BITS)


def decode_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the zigzag int32 at ``position`` and the position after it; for errors see above."""
    if position < end and (byte := buffer[position]) < 0x80:  # the usual case
        return byte >> 1 ^ -(byte & 1), position + 1
    value, position = _decode(buffer, position, end, MAX_VARINT_LENGTH, _INT32_BITS)
    return value >> 1 ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the zigzag int64 at ``position`` and the position after it; for errors see above."""
    value, position = _decode(buffer, position, end, MAX_VARLONG_LENGTH, _INT64_BITS)
    return value >> 1 ^ -(value & 1), position


def _encode(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode(buffer: Buffer, position: int, end: int, max_length: int, bits: int) -> tuple[int, int]:
    start = position
    value = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << bits) - 1, position
        if position - start == max_length:
            raise CorruptData(f"variable-length int{bits} longer than {max_length} bytes", start)
        shift += 7
    raise CorruptData(f"variable-length int{bits} cut off by the end at {end}", start)
