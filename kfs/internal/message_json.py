"""Messages as JSON, like Kafka's generated ``JsonConverter`` classes, and JSON text in Jackson's format."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kfs.format.java_text import java_double
from kfs.format.uuid import Uuid
from kfs.internal.schema import Array, Decoded, Field, Fields, Struct, Type, Value

#: Any JSON value.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord(character): "\\" + letter
    for character, letter in (("\b", "b"), ("\t", "t"), ("\n", "n"), ("\f", "f"), ("\r", "r"), ('"', '"'), ("\\", "\\"))
}


def message_json(message: Decoded) -> dict[str, Json]:
    """Return a message as a JSON object: all fields of its version, except tagged fields with default values.

    Bytes are base64, UUIDs are text.
    """
    return _struct_json(message.schema, message.fields, message.version)


def _struct_json(struct: Struct, values: Fields, version: int) -> dict[str, Json]:
    return {
        field.name: _value_json(field.type, values[field.name], version)
        for field in struct.fields
        if version in field.versions and not _is_left_out(field, values[field.name], version)
    }


def _is_left_out(field: Field, value: Value, version: int) -> bool:
    return field.is_tagged(version) and value == field.default


def _value_json(value_type: Type, value: Value, version: int) -> Json:
    if isinstance(value, tuple):
        assert isinstance(value_type, Array)
        return [_value_json(value_type.element, element, version) for element in value]
    if isinstance(value, Mapping):
        assert isinstance(value_type, Struct)
        return _struct_json(value_type, value, version)
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return str(value) if isinstance(value, Uuid) else value


def json_text(node: Json) -> str:
    """Return JSON text like ``JsonNode.toString``: no blanks; escapes only for controls, quotes and backslashes."""
    if isinstance(node, str):
        return f'"{node.translate(_ESCAPES)}"'
    if isinstance(node, Mapping):
        return "{" + ",".join([f"{json_text(name)}:{json_text(value)}" for name, value in node.items()]) + "}"
    if isinstance(node, Sequence):
        return "[" + ",".join(map(json_text, node)) + "]"
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    return java_double(node) if isinstance(node, float) else str(node)
