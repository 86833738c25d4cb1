"""Parsers of keys and values: decoders by name, and parsers of Kafka's internal topics.

Each returns the texts that ``kafka-dump-log`` prints after ``key:`` and ``payload:``, or None if it prints neither. For
a record that can't be decoded, the text says so; no parser raises an error.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from kfs.format.java_text import java_double, java_text
from kfs.internal.consumer_protocol import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
    PROTOCOL_TYPE,
    decode_protocol,
)
from kfs.internal.coordinator import CoordinatorRecord, RecordKinds, UnknownRecordType
from kfs.internal.message_json import Json, json_text, message_json
from kfs.internal.metadata import MetadataRecord
from kfs.internal.remote_log import remote_log_text
from kfs.internal.schema import Malformed
from kfs.internal.topics import (
    CLUSTER_METADATA_KINDS,
    GROUP_KINDS,
    REMOTE_LOG_KINDS,
    SHARE_STATE_KINDS,
    TRANSACTION_KINDS,
)

#: The texts of a key and of a value.
Texts = tuple[str | None, str | None]
Bytes = bytes | None


class MessageParser(Protocol):
    """Parses the records of a log."""

    def texts(self, offset: int, key: Bytes, value: Bytes) -> Texts:
        """Return the texts to print for a record's key and value."""
        ...

    def json(self, offset: int, key: Bytes, value: Bytes) -> Mapping[str, Json]:
        """Return the decoded fields to add to the record's JSON besides the raw bytes."""
        ...


#: Converts bytes to text; raises ValueError with Kafka's message if the bytes don't fit the type.
Decoder = Callable[[bytes], str]


def _number(name: str, layout: str, show: Callable[[float], str] = str) -> Decoder:
    size = struct.calcsize(layout)

    def decode(data: bytes) -> str:
        if len(data) != size:
            raise ValueError(f"Size of data received by {name}Deserializer is not {size}")
        return show(struct.unpack(layout, data)[0])

    return decode


#: The decoders by their names on the command line.
DECODERS: Final[Mapping[str, Decoder]] = {
    "string": java_text,
    "long": _number("Long", ">q"),
    "integer": _number("Integer", ">i"),
    "short": _number("Short", ">h"),
    "double": _number("Double", ">d", java_double),
    "base64": lambda data: b64encode(data).decode("ascii"),
    "hex": lambda data: data.hex(),
}
#: The packages of Kafka's equivalent decoders, from 4.0 on and before.
_KAFKA_PACKAGES: Final = ("org.apache.kafka.tools.api.", "kafka.serializer.")
_KAFKA_DECODERS: Final = {
    "StringDecoder": "string",
    "LongDecoder": "long",
    "IntegerDecoder": "integer",
    "DefaultDecoder": "hex",  # returns the bytes as they are; Kafka's tool then prints the Java object's identity
}


def decoder_name(name: str) -> str | None:
    """Return the name of our decoder for that name or for a Kafka class; None if there is no such decoder."""
    for package in _KAFKA_PACKAGES:
        if name.startswith(package):
            return _KAFKA_DECODERS.get(name.removeprefix(package))
    return name if name in DECODERS else None


class DecoderMessageParser:
    """Decodes keys and values with one decoder each."""

    def __init__(self, key: str = "string", value: str = "string") -> None:
        self.key_decoder = DECODERS[key]
        self.value_decoder = DECODERS[value]

    @property
    def is_text(self) -> bool:
        """Whether both decoders are for strings, so that lines can be made in bulk."""
        return self.key_decoder is self.value_decoder is java_text

    def texts(self, offset: int, key: Bytes, value: Bytes) -> Texts:
        """See :meth:`MessageParser.texts`."""
        return _decoded(self.key_decoder, offset, key), _decoded(self.value_decoder, offset, value)

    def json(self, offset: int, key: Bytes, value: Bytes) -> Mapping[str, Json]:
        """See :meth:`MessageParser.json`; strings add nothing to the raw bytes."""
        if self.is_text:
            return {}
        texts = self.texts(offset, key, value)
        return {"decodedKey": texts[0], "decodedValue": texts[1]}


def _decoded(decoder: Decoder, offset: int, data: Bytes) -> str | None:
    if data is None:
        return None
    try:
        return decoder(data)
    except ValueError as error:
        return f"Error at offset {offset}, skipping. {error}"


class CoordinatorMessageParser:
    """The parser of the coordinators' topics (``DumpLogSegments.CoordinatorRecordMessageParser``)."""

    def __init__(self, kinds: RecordKinds) -> None:
        self.kinds = kinds

    def texts(self, offset: int, key: Bytes, value: Bytes) -> Texts:
        """See :meth:`MessageParser.texts`."""
        try:
            record = self._record(offset, key, value)
        except UnknownRecordType as error:
            return f"Unknown record type {error.type_id} at offset {offset}, skipping.", None
        except Malformed as error:
            return f"Error at offset {offset}, skipping. {error.kafka}", None
        value_json = _value_json(record)
        return json_text(_key_json(record)), "<DELETE>" if value_json is None else json_text(value_json)

    def json(self, offset: int, key: Bytes, value: Bytes) -> Mapping[str, Json]:
        """See :meth:`MessageParser.json`."""
        try:
            record = self._record(offset, key, value)
        except Malformed as error:
            return {"undecodable": error.reason}
        return {"kind": record.kind.name, "decodedKey": _key_json(record), "decodedValue": _value_json(record)}

    def _record(self, offset: int, key: Bytes, value: Bytes) -> CoordinatorRecord:
        if key is None:
            reason = (
                f"Failed to decode message at offset {offset} using the specified decoder (message had a missing key)"
            )
            raise Malformed(reason, 0, None, reason)
        return self.kinds.decode(key, value)


def _key_json(record: CoordinatorRecord) -> Mapping[str, Json]:
    return {"type": str(record.kind.id), "data": message_json(record.key)}


def _value_json(record: CoordinatorRecord) -> Mapping[str, Json] | None:
    value = record.value
    if value is None:
        return None
    data = message_json(value)
    if value.schema.name == "GroupMetadataValue" and value["protocolType"] == PROTOCOL_TYPE:
        _expand_members(data)
    return {"version": str(value.version), "data": data}


def _expand_members(group: dict[str, Json]) -> None:
    """Replace the members' subscription and assignment bytes in a consumer group by their decoded content."""
    members = group["members"]
    assert isinstance(members, list)
    for member in members:
        for field, schema in (
            ("subscription", CONSUMER_PROTOCOL_SUBSCRIPTION),
            ("assignment", CONSUMER_PROTOCOL_ASSIGNMENT),
        ):
            if field in member:
                expanded = decode_protocol(schema, b64decode(member[field]))
                member[field] = member[field] if expanded is None else message_json(expanded)


#: Kafka's tool prints these Java errors for a record without a value.
_NULL_FRAME: Final = "Error while reading frame version"
_NULL_POINTER: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of'
    ' "org.apache.kafka.common.record.internal.Record.value()" is null'
)


class ClusterMetadataMessageParser:
    """The parser of ``__cluster_metadata`` (``DumpLogSegments.ClusterMetadataLogMessageParser``)."""

    def texts(self, offset: int, key: Bytes, value: Bytes) -> Texts:
        """See :meth:`MessageParser.texts`."""
        try:
            return None, json_text(_metadata_json(CLUSTER_METADATA_KINDS.decode(_not_null(value, _NULL_FRAME))))
        except Malformed as error:
            return None, f"Error at {offset}, skipping. {error.kafka}"

    def json(self, offset: int, key: Bytes, value: Bytes) -> Mapping[str, Json]:
        """See :meth:`MessageParser.json`."""
        try:
            return {"decodedValue": _metadata_json(CLUSTER_METADATA_KINDS.decode(_not_null(value, _NULL_FRAME)))}
        except Malformed as error:
            return {"undecodable": error.reason}


class RemoteLogMessageParser:
    """The parser of ``__remote_log_metadata`` (``DumpLogSegments.RemoteMetadataLogMessageParser``)."""

    def texts(self, offset: int, key: Bytes, value: Bytes) -> Texts:
        """See :meth:`MessageParser.texts`."""
        try:
            return None, remote_log_text(REMOTE_LOG_KINDS.decode(_not_null(value, _NULL_POINTER)))
        except Malformed as error:
            return None, f"Error at offset {offset}, skipping. {error.kafka}"

    def json(self, offset: int, key: Bytes, value: Bytes) -> Mapping[str, Json]:
        """See :meth:`MessageParser.json`."""
        try:
            return {"decodedValue": _metadata_json(REMOTE_LOG_KINDS.decode(_not_null(value, _NULL_POINTER)))}
        except Malformed as error:
            return {"undecodable": error.reason}


def _not_null(value: Bytes, kafka: str) -> bytes:
    if value is None:
        raise Malformed("a record without a value", 0, None, kafka)
    return value


def _metadata_json(record: MetadataRecord) -> Mapping[str, Json]:
    message = record.message
    return {"type": record.kind.name, "version": record.version, "data": message_json(message)}


def offsets_message_parser() -> MessageParser:
    """Return the parser of ``__consumer_offsets``."""
    return CoordinatorMessageParser(GROUP_KINDS)


def transaction_message_parser() -> MessageParser:
    """Return the parser of ``__transaction_state``."""
    return CoordinatorMessageParser(TRANSACTION_KINDS)


def share_state_message_parser() -> MessageParser:
    """Return the parser of ``__share_group_state``."""
    return CoordinatorMessageParser(SHARE_STATE_KINDS)
