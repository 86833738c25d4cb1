"""A language for Kafka's message definitions, and a decoder for the messages that they define.

Kafka generates its message classes from definitions: fields with types, the versions that have them, defaults, nested
structs, and tagged fields of flexible versions (KIP-482). A declaration here has the same content::

    OFFSET_COMMIT_VALUE = Message(
        "OffsetCommitValue", "0-4", "4+",            # name, versions, which of them are flexible
        Field("offset", INT64),
        Field("leaderEpoch", INT32, "3+", default=-1),
        Field("topicId", UUID, "4+", tag=0),
    )
    fields = OFFSET_COMMIT_VALUE.decode(reader, version)   # {"offset": 368776, "leaderEpoch": 5, ...}

The dictionary has every field, with the default if the version lacks it. Integers are int, strings str, UUIDs
:class:`~kfs.format.uuid.Uuid`, arrays tuples, and structs dictionaries; null is None. As in Kafka, invalid UTF-8 in
strings is replaced, unknown tagged fields are skipped (and counted), and bytes after the last field stay unread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

from kfs.errors import CorruptData
from kfs.format.flexible import FlexibleReader
from kfs.format.java_text import java_text
from kfs.format.layout import MAX_INT32
from kfs.format.uuid import ZERO_UUID, Uuid
from kfs.format.varint import MAX_VARINT_LENGTH

#: The value of a decoded field.
Value: TypeAlias = "bool | int | float | str | bytes | Uuid | tuple[Value, ...] | Fields | None"
Fields: TypeAlias = "Mapping[str, Value]"

_MAX_VERSION: Final = 2**15 - 1
_MAX_STRING: Final = 2**15 - 1
_UNDERFLOW: Final = "null"  # a BufferUnderflowException has no message


class Malformed(CorruptData):
    """Bytes that don't match a message; ``kafka`` is the exception message of Kafka's own reader."""

    def __init__(self, reason: str, position: int = 0, file: str | None = None, kafka: str = _UNDERFLOW) -> None:
        super().__init__(reason, position, file)
        self.kafka = kafka


class Versions(NamedTuple):
    """A range of versions, both ends inclusive; empty if ``last`` is below ``first``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse a range such as ``0-4``, ``3+``, ``1`` or ``none``."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _MAX_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class Primitive(Enum):
    """A primitive type."""

    BOOLEAN = auto()
    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    UINT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    UUID = auto()
    STRING = auto()
    BYTES = auto()


BOOLEAN: Final = Primitive.BOOLEAN
INT8: Final = Primitive.INT8
INT16: Final = Primitive.INT16
UINT16: Final = Primitive.UINT16
INT32: Final = Primitive.INT32
UINT32: Final = Primitive.UINT32
INT64: Final = Primitive.INT64
FLOAT64: Final = Primitive.FLOAT64
UUID: Final = Primitive.UUID
STRING: Final = Primitive.STRING
BYTES: Final = Primitive.BYTES

_READ: Final[Mapping[Primitive, Callable[[FlexibleReader], Value]]] = {
    BOOLEAN: FlexibleReader.read_boolean,
    INT8: FlexibleReader.read_int8,
    INT16: FlexibleReader.read_int16,
    UINT16: FlexibleReader.read_uint16,
    INT32: FlexibleReader.read_int32,
    UINT32: FlexibleReader.read_uint32,
    INT64: FlexibleReader.read_int64,
    FLOAT64: FlexibleReader.read_float64,
    UUID: FlexibleReader.read_uuid,
}
_ZERO: Final[Mapping[Primitive, Value]] = {
    BOOLEAN: False,
    FLOAT64: 0.0,
    UUID: ZERO_UUID,
    STRING: "",
    BYTES: b"",
}


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of elements of one type."""

    element: Type


class Struct:
    """A sequence of fields."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._untagged: dict[int, tuple[Field, ...]] = {}
        self._tagged: dict[int, dict[int, Field]] = {}

    def plain_fields(self, version: int) -> tuple[Field, ...]:
        """Return the untagged fields of a version, in order."""
        known = self._untagged.get(version)
        if known is None:
            known = tuple(field for field in self.fields if version in field.versions and not field.is_tagged(version))
            self._untagged[version] = known
        return known

    def tagged_fields(self, version: int) -> dict[int, Field]:
        """Return the tagged fields of a version, by tag."""
        known = self._tagged.get(version)
        if known is None:
            tagged = (field for field in self.fields if version in field.versions and field.is_tagged(version))
            known = {field.tag: field for field in tagged if field.tag is not None}
            self._tagged[version] = known
        return known

    @cached_property
    def tags(self) -> frozenset[int]:
        """The tags of all versions."""
        return frozenset(field.tag for field in self.fields if field.tag is not None)

    @cached_property
    def defaults(self) -> Fields:
        """The default of every field."""
        return {field.name: field.default for field in self.fields}


Type: TypeAlias = Primitive | Array | Struct
_OF_THE_TYPE: Final = object()


class Field:
    """A field: the versions that have it, those in which it is nullable, and those in which it is tagged.

    ``tagged`` defaults to ``versions`` if there is a ``tag``. ``default`` defaults to the type's zero, empty string,
    array or struct.
    """

    def __init__(
        self,
        name: str,
        field_type: Type,
        versions: str = "0+",
        *,
        tag: int | None = None,
        tagged: str | None = None,
        nullable: str = "none",
        default: object = _OF_THE_TYPE,
    ) -> None:
        self.name = name
        self.type = field_type
        self.versions = Versions.parse(versions)
        self.tag = tag
        self.tagged = Versions.parse("none" if tag is None else tagged or versions)
        self.nullable = Versions.parse(nullable)
        self._default = default

    def is_tagged(self, version: int) -> bool:
        """Whether the field is tagged in a version, where it is present only if it isn't the default."""
        return version in self.tagged

    @cached_property
    def element(self) -> Field:
        """An element of the array as a field, with the name that Kafka's errors use."""
        assert isinstance(self.type, Array)
        return Field(f"{self.name} element", self.type.element)

    @cached_property
    def default(self) -> Value:
        """The value of the field if the message doesn't have it."""
        if self._default is not _OF_THE_TYPE:
            return self._default  # type: ignore[return-value]
        if isinstance(self.type, Array):
            return ()
        return self.type.defaults if isinstance(self.type, Struct) else _ZERO.get(self.type, 0)


class Message(Struct):
    """A message: a struct with a name, its versions, and its flexible versions."""

    def __init__(self, name: str, versions: str, flexible: str, *fields: Field) -> None:
        super().__init__(*fields)
        self.name = name
        self.versions = Versions.parse(versions)
        self.flexible = Versions.parse(flexible)

    def decode(self, reader: FlexibleReader, version: int) -> Decoded:
        """Decode the message, in an existing version, from the reader's position.

        Raises:
            Malformed: the bytes don't match the message; the position is the reader's.
        """
        decoder = _Decoder(reader, version, version in self.flexible, self.versions.last)
        return Decoded(self, version, decoder.struct(self), decoder.unknown_tags)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded message: its schema and version, its fields by name, and the number of unknown tags."""

    schema: Message
    version: int
    fields: Fields
    unknown_tags: int = 0

    def __getitem__(self, name: str) -> Value:
        return self.fields[name]


class _Decoder:
    """Decodes one message."""

    def __init__(self, reader: FlexibleReader, version: int, flexible: bool, latest: int) -> None:
        self.reader = reader
        self.version = version
        self.latest = latest
        self.flexible = flexible
        self.unknown_tags = 0

    def struct(self, struct: Struct) -> Fields:
        values = dict(struct.defaults)
        for field in struct.plain_fields(self.version):
            values[field.name] = self._field(field)
        if self.flexible:
            self._tagged(struct, values)
        return values

    def _tagged(self, struct: Struct, values: dict[str, Value]) -> None:
        known = struct.tagged_fields(self.version)
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            field = known.get(tag)
            if field is not None:
                values[field.name] = self._field(field)  # like Kafka, which ignores the declared size of known fields
            elif tag in struct.tags:
                reason = f"Tag {tag} is not valid for version {self.version}"
                raise Malformed(reason, self.reader.position, None, reason)
            else:
                self._raw(size)
                self.unknown_tags += 1

    def _field(self, field: Field) -> Value:
        field_type = field.type
        if isinstance(field_type, Struct):
            return None if self._is_null(field) else self._inner(field_type)
        if isinstance(field_type, Primitive) and field_type in _READ:
            return self._primitive(field_type)
        return self._sized(field, field_type)

    def _inner(self, struct: Struct) -> Fields:
        """Read a nested struct; Kafka's generated classes check the version only in these."""
        if self.version > self.latest:
            reason = f"version {self.version} of a structure, the latest known is {self.latest}"
            raise Malformed(reason, self.reader.position)
        return self.struct(struct)

    def _is_null(self, field: Field) -> bool:
        """Whether a struct is null, according to a byte or, in a tagged field, a varint."""
        if self.version not in field.nullable:
            return False
        return not self._varint() if field.is_tagged(self.version) else self._integer(INT8) < 0

    def _sized(self, field: Field, field_type: Type) -> Value:
        start = self.reader.position
        length = self._length(field_type)
        if length < 0:
            if self.version in field.nullable:
                return None
            reason = f"non-nullable field {field.name} was serialized as null"
            raise Malformed(f"{field.name} is null", start, None, reason)
        if isinstance(field_type, Array):
            left = self.reader.remaining
            if length > left:  # each element takes at least a byte
                reason = f"{field.name} has {length} elements where {left} bytes are left"
                raise Malformed(reason, start, None, _too_many(length, left))
            return tuple([self._field(field.element) for _ in range(length)])
        if field_type is STRING and length > _MAX_STRING:
            reason = f"string field {field.name} had invalid length {length}"
            raise Malformed(f"{field.name} of length {length}", start, None, reason)
        data = self._raw(length)
        return java_text(data) if field_type is STRING else data

    def _length(self, field_type: Type) -> int:
        """Return the next length, or -1 for null."""
        if self.flexible:
            length = self._varint() - 1
            return length if length <= MAX_INT32 else -1  # like a Java int
        return self._integer(INT16 if field_type is STRING else INT32)

    def _integer(self, field_type: Primitive) -> int:
        value = self._primitive(field_type)
        assert isinstance(value, int)
        return value

    def _primitive(self, field_type: Primitive) -> Value:
        try:
            return _READ[field_type](self.reader)
        except CorruptData as error:
            raise Malformed(error.reason, error.position) from None

    def _varint(self) -> int:
        try:
            return self.reader.read_unsigned_varint()
        except CorruptData as error:
            raise Malformed(error.reason, error.position, None, self._varint_error()) from None

    def _varint_error(self) -> str:
        if self.reader.remaining < MAX_VARINT_LENGTH:
            return _UNDERFLOW
        data = self.reader.read_raw(MAX_VARINT_LENGTH)
        value = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(data)) & 0xFFFFFFFF
        return f"Varint is too long, the most significant bit in the 5th byte is set, converted value: {value:x}"

    def _raw(self, size: int) -> bytes:
        left = self.reader.remaining
        try:
            return self.reader.read_raw(size)
        except CorruptData as error:
            reason = f"Error reading byte array of {size} byte(s): only {left} byte(s) available"
            raise Malformed(error.reason, error.position, None, reason) from None


def _too_many(count: int, left: int) -> str:
    return f"Tried to allocate a collection of size {count}, but there are only {left} bytes remaining."
