"""Messages written by their schemas, and values to write: what the decoder is held to."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping

from kfs.format.uuid import Uuid
from kfs.format.varint import encode_unsigned_varint
from kfs.internal.schema import Array, Field, Message, Primitive, Struct, Type, Value

_INTEGERS = {
    Primitive.INT8: ">b",
    Primitive.INT16: ">h",
    Primitive.UINT16: ">H",
    Primitive.INT32: ">i",
    Primitive.UINT32: ">I",
    Primitive.INT64: ">q",
}
_TEXTS = ("", "a", "launch_info", "Łódź 🙂", 'quote " and \\', "tab\t\x01\x1f\x7f\u2028", "x" * 130)


def encode(message: Message, version: int, fields: Mapping[str, Value]) -> bytes:
    """Write a message as Kafka's generated classes do."""
    return _Encoder(version, version in message.flexible).struct(message, fields)


class _Encoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, schema: Struct, fields: Mapping[str, Value]) -> bytes:
        present = [field for field in schema.fields if self.version in field.versions]
        plain = [field for field in present if not field.is_tagged(self.version)]
        data = b"".join(self.field(field, fields[field.name]) for field in plain)
        if not self.flexible:
            return data
        tagged = sorted(
            (field.tag or 0, self.field(field, fields[field.name]))
            for field in present
            if field.is_tagged(self.version) and fields[field.name] != field.default
        )
        data += encode_unsigned_varint(len(tagged))
        for tag, content in tagged:
            data += encode_unsigned_varint(tag) + encode_unsigned_varint(len(content)) + content
        return data

    def field(self, field: Field, value: Value) -> bytes:
        if isinstance(field.type, Struct):
            nullable = self.version in field.nullable
            if value is None:
                assert nullable
                return b"\x00" if field.is_tagged(self.version) else b"\xff"
            assert isinstance(value, Mapping)
            return (b"\x01" if nullable else b"") + self.struct(field.type, value)
        if value is None:
            assert self.version in field.nullable
            return self.length(field.type, -1)
        return self.value(field.type, value)

    def value(self, kind: Type, value: Value) -> bytes:
        if isinstance(value, tuple):
            assert isinstance(kind, Array)
            return self.length(kind, len(value)) + b"".join(self.value(kind.element, element) for element in value)
        if isinstance(value, Mapping):
            assert isinstance(kind, Struct)
            return self.struct(kind, value)
        if isinstance(value, str | bytes):
            data = value.encode() if isinstance(value, str) else value
            return self.length(kind, len(data)) + data
        if isinstance(value, Uuid):
            return value.raw
        if kind is Primitive.BOOLEAN:
            return bytes((bool(value),))
        if kind is Primitive.FLOAT64:
            return struct.pack(">d", value)
        assert isinstance(kind, Primitive)
        return struct.pack(_INTEGERS[kind], value)

    def length(self, kind: Type, length: int) -> bytes:
        if self.flexible:
            return encode_unsigned_varint(length + 1)
        return struct.pack(">h" if kind is Primitive.STRING else ">i", length)


def random_fields(source: random.Random, schema: Struct, version: int) -> dict[str, Value]:
    """Return values for all fields: those that the version lacks have their defaults, as when read."""
    return {
        field.name: _random_value(source, field, version) if version in field.versions else field.default
        for field in schema.fields
    }


def _random_value(source: random.Random, field: Field, version: int) -> Value:
    if version in field.nullable and source.random() < 0.25:
        return None
    if field.is_tagged(version) and source.random() < 0.3:
        return field.default
    return _random_of(source, field.type, version)


def _random_of(source: random.Random, kind: Type, version: int) -> Value:
    if isinstance(kind, Array):
        return tuple(_random_of(source, kind.element, version) for _ in range(source.choice((0, 1, 1, 2, 3))))
    if isinstance(kind, Struct):
        return random_fields(source, kind, version)
    if kind is Primitive.BOOLEAN:
        return source.random() < 0.5
    if kind is Primitive.FLOAT64:
        return source.choice((0.0, -1.5, 1024.0, 1e7, 12345678.9, 0.001, 9.9e-5, 1e300, 2.0**70))
    if kind is Primitive.UUID:
        return Uuid(source.randbytes(16))
    if kind is Primitive.STRING:
        return source.choice(_TEXTS)
    if kind is Primitive.BYTES:
        return source.randbytes(source.choice((0, 1, 5, 140)))
    layout = _INTEGERS[kind]
    data = source.choice((b"\0" * 8, b"\xff" * 8, source.randbytes(8)))[: struct.calcsize(layout)]
    (value,) = struct.unpack(layout, data)
    return int(value)
