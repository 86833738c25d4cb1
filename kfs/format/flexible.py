"""Kafka's flexible messages (KIP-482): the encoding of its generated message classes since "flexible versions".

Integers are big-endian. Strings, bytes and arrays begin with their length plus one as an unsigned varint; zero means
null. Every struct ends with its tagged fields, and readers skip unknown ones. A message class is read and written field
by field, in the order of its JSON definition::

    reader = FlexibleReader(value)
    version = reader.read_int16()
    voters = reader.read_array(read_voter)
    reader.read_tagged_fields()
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from kfs.errors import CorruptData
from kfs.format.uuid import UUID_SIZE, Uuid
from kfs.format.varint import decode_unsigned_varint, encode_unsigned_varint

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_FLOAT64: Final = struct.Struct(">d")

_NO_TAGGED_FIELDS: Final[Mapping[int, bytes]] = {}

Element = TypeVar("Element")


class FlexibleReader:
    """Reads one message from ``data``, front to back.

    Every method raises :class:`CorruptData` if the field exceeds the remaining data, or is null although its type
    doesn't allow it. The error has the position in ``data`` where the field begins.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    @property
    def position(self) -> int:
        """The byte position of the next field."""
        return self._position

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return len(self._data) - self._position

    def read_boolean(self) -> bool:
        return self.read_int8() != 0

    def read_int8(self) -> int:
        return self._integer(_INT8)

    def read_int16(self) -> int:
        return self._integer(_INT16)

    def read_uint16(self) -> int:
        return self._integer(_UINT16)

    def read_int32(self) -> int:
        return self._integer(_INT32)

    def read_uint32(self) -> int:
        return self._integer(_UINT32)

    def read_int64(self) -> int:
        return self._integer(_INT64)

    def read_float64(self) -> float:
        (value,) = _FLOAT64.unpack(self._take(_FLOAT64.size))
        return float(value)

    def read_unsigned_varint(self) -> int:
        value, self._position = decode_unsigned_varint(self._data, self._position, len(self._data))
        return value

    def read_uuid(self) -> Uuid:
        return Uuid(self._take(UUID_SIZE))

    def read_raw(self, size: int) -> bytes:
        """Read bytes without a length prefix."""
        return self._take(size)

    def read_nullable_bytes(self) -> bytes | None:
        length = self._length("bytes")
        return None if length is None else self._take(length)

    def read_bytes(self) -> bytes:
        return self._never_null(self.read_nullable_bytes, "bytes")

    def read_nullable_string(self) -> str | None:
        start = self._position
        encoded = self.read_nullable_bytes()
        try:
            return None if encoded is None else encoded.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptData(f"a string that is not UTF-8: {error}", start) from error

    def read_string(self) -> str:
        return self._never_null(self.read_nullable_string, "string")

    def read_nullable_array(self, read_element: Callable[[FlexibleReader], Element]) -> tuple[Element, ...] | None:
        """Read an array; ``read_element`` reads each element."""
        # Each element takes at least a byte, so a wrong count is detected before memory is allocated for it.
        count = self._length("array")
        return None if count is None else tuple(read_element(self) for _ in range(count))

    def read_array(self, read_element: Callable[[FlexibleReader], Element]) -> tuple[Element, ...]:
        """Read a non-null array; ``read_element`` reads each element."""
        return self._never_null(lambda: self.read_nullable_array(read_element), "array")

    def read_tagged_fields(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a struct, undecoded; the caller picks the tags that it knows."""
        fields = {}
        for _ in range(self.read_unsigned_varint()):
            tag = self.read_unsigned_varint()
            fields[tag] = self._take(self.read_unsigned_varint())
        return fields

    def _integer(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self._take(layout.size))
        return int(value)

    def _length(self, what: str) -> int | None:
        start = self._position
        length = self.read_unsigned_varint() - 1
        if length > self.remaining:
            raise CorruptData(f"{what} of length {length} where {self.remaining} bytes are left", start)
        return None if length < 0 else length

    def _never_null(self, read: Callable[[], Element | None], what: str) -> Element:
        start = self._position
        value = read()
        if value is None:
            raise CorruptData(f"null where there must be {what}", start)
        return value

    def _take(self, size: int) -> bytes:
        if size > self.remaining:
            raise CorruptData(f"a field of {size} bytes where {self.remaining} are left", self._position)
        start = self._position
        self._position += size
        return self._data[start : self._position]


class FlexibleWriter:
    """Writes one message, field by field; the counterpart of :class:`FlexibleReader`.

    Every method raises :class:`ValueError` for a value outside its type's range.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def getvalue(self) -> bytes:
        """Return the bytes written so far."""
        return b"".join(self._parts)

    def write_boolean(self, value: bool) -> None:
        self.write_int8(int(value))

    def write_int8(self, value: int) -> None:
        self._pack(_INT8, value)

    def write_int16(self, value: int) -> None:
        self._pack(_INT16, value)

    def write_uint16(self, value: int) -> None:
        self._pack(_UINT16, value)

    def write_int32(self, value: int) -> None:
        self._pack(_INT32, value)

    def write_uint32(self, value: int) -> None:
        self._pack(_UINT32, value)

    def write_int64(self, value: int) -> None:
        self._pack(_INT64, value)

    def write_float64(self, value: float) -> None:
        self._pack(_FLOAT64, value)

    def write_unsigned_varint(self, value: int) -> None:
        self._parts.append(encode_unsigned_varint(value))

    def write_uuid(self, value: Uuid) -> None:
        self._parts.append(value.raw)

    def write_bytes(self, value: bytes | None) -> None:
        if value is None:
            self.write_unsigned_varint(0)
            return
        self.write_unsigned_varint(len(value) + 1)
        self._parts.append(value)

    def write_string(self, value: str | None) -> None:
        self.write_bytes(None if value is None else value.encode("utf-8"))

    def write_array(
        self, elements: Iterable[Element] | None, write_element: Callable[[FlexibleWriter, Element], None]
    ) -> None:
        """Write an array; ``write_element`` writes each element."""
        if elements is None:
            self.write_unsigned_varint(0)
            return
        elements = tuple(elements)
        self.write_unsigned_varint(len(elements) + 1)
        for element in elements:
            write_element(self, element)

    def write_tagged_fields(self, fields: Mapping[int, bytes] = _NO_TAGGED_FIELDS) -> None:
        """Write the tagged fields at the end of a struct, in the order of their tags, as Kafka does."""
        self.write_unsigned_varint(len(fields))
        for tag, value in sorted(fields.items()):
            self.write_unsigned_varint(tag)
            self.write_unsigned_varint(len(value))
            self._parts.append(value)

    def _pack(self, layout: struct.Struct, value: float) -> None:
        try:
            self._parts.append(layout.pack(value))
        except struct.error as error:
            raise ValueError(f"{value} does not fit its field: {error}") from None
