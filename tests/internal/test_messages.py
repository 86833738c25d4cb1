"""Every schema against what Kafka 4.3.1's own generated classes make of the same bytes, and against its own writer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.flexible import FlexibleReader
from kfs.format.varint import encode_unsigned_varint
from kfs.internal.consumer_protocol import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION
from kfs.internal.message_json import json_text, message_json
from kfs.internal.schema import INT32, STRING, Array, Field, Malformed, Message
from kfs.internal.topics import (
    CLUSTER_METADATA_KINDS,
    GROUP_KINDS,
    REMOTE_LOG_KINDS,
    SHARE_STATE_KINDS,
    TRANSACTION_KINDS,
)
from tests.format.refusal import refused_at
from tests.internal.encoding import encode, random_fields

#: One line for each message: its bytes (written by :mod:`tests.internal.encoding`, some then broken), and what Kafka's
#: ``JsonConverter`` made of them, or the message of what its reader threw.
RECORDED = Path(__file__).with_name("messages_of_kafka.jsonl")


def all_messages() -> Iterator[Message]:
    for kinds in (GROUP_KINDS, TRANSACTION_KINDS, SHARE_STATE_KINDS):
        for kind in kinds.values():
            yield kind.key
            yield kind.value
    for metadata_kinds in (CLUSTER_METADATA_KINDS, REMOTE_LOG_KINDS):
        for metadata_kind in metadata_kinds.values():
            yield metadata_kind.schema
    yield CONSUMER_PROTOCOL_SUBSCRIPTION
    yield CONSUMER_PROTOCOL_ASSIGNMENT


MESSAGES = {message.name: message for message in all_messages()}
VERSIONS = [
    (message, version)
    for message in MESSAGES.values()
    for version in range(message.versions.first, message.versions.last + 1)
]
#: Kafka has no JSON form of these, its tool prints their fields otherwise.
WITHOUT_JSON = {kind.schema.name for kind in REMOTE_LOG_KINDS.values()}


def recorded(what: str) -> list[dict[str, str | int]]:
    lines = [json.loads(line) for line in RECORDED.read_text().rstrip().split("\n")]
    return [line for line in lines if what in line]


def test_json_is_what_kafka_writes() -> None:
    covered = set()
    for line in recorded("json"):
        message, version = MESSAGES[str(line["message"])], int(line["version"])
        covered.add((message.name, version))
        decoded = message.decode(FlexibleReader(bytes.fromhex(str(line["bytes"]))), version)
        if message.name not in WITHOUT_JSON:
            assert json_text(message_json(decoded)) == line["json"], line["message"]
        assert decoded.unknown_tags == 0
    assert covered == {(message.name, version) for message, version in VERSIONS}


def test_broken_messages_fail_with_the_words_of_kafka() -> None:
    lines = recorded("error")
    for line in lines:
        message, version = MESSAGES[str(line["message"])], int(line["version"])
        with pytest.raises(Malformed) as raised:
            message.decode(FlexibleReader(bytes.fromhex(str(line["bytes"]))), version)
        assert raised.value.kafka == line["error"], line["message"]
    assert len(lines) > 100


@given(st.sampled_from(VERSIONS), st.randoms(use_true_random=False))
def test_what_is_written_is_read(case: tuple[Message, int], source: random.Random) -> None:
    message, version = case
    fields = random_fields(source, message, version)
    data = encode(message, version, fields)
    reader = FlexibleReader(data + b"more")
    decoded = message.decode(reader, version)
    assert decoded.fields == fields
    assert {name: decoded[name] for name in fields} == fields
    assert reader.position == len(data)


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(case: tuple[Message, int], data: bytes) -> None:
    message, version = case
    position = refused_at(lambda data: json.loads(decoded_json(message, version, data)), data)
    assert position is None or 0 <= position <= len(data)


def decoded_json(message: Message, version: int, data: bytes) -> str:
    return json_text(message_json(message.decode(FlexibleReader(data), version)))


@given(st.sampled_from(VERSIONS), st.randoms(use_true_random=False), st.data())
def test_a_changed_message_is_read_or_refused(
    case: tuple[Message, int], source: random.Random, data: st.DataObject
) -> None:
    message, version = case
    written = bytearray(encode(message, version, random_fields(source, message, version)))
    if written:
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
        del written[data.draw(st.integers(0, len(written))) :]
    position = refused_at(lambda data: decoded_json(message, version, data), bytes(written))
    assert position is None or 0 <= position <= len(written)


FLEXIBLE = Message("Flexible", "0-1", "0+", Field("a", INT32), Field("b", STRING, "1+", tag=1, default="none"))


def test_unknown_tagged_fields_are_skipped_and_counted() -> None:
    unknown = encode_unsigned_varint(77) + encode_unsigned_varint(3) + b"abc"
    known = encode_unsigned_varint(1) + encode_unsigned_varint(2) + b"\x02x"
    data = b"\0\0\0\7" + encode_unsigned_varint(3) + known + unknown + unknown
    decoded = FLEXIBLE.decode(FlexibleReader(data), 1)
    assert decoded.fields == {"a": 7, "b": "x"}
    assert decoded.unknown_tags == 2


def test_a_tag_of_another_version_is_refused() -> None:
    data = b"\0\0\0\7" + encode_unsigned_varint(1) + encode_unsigned_varint(1) + encode_unsigned_varint(2) + b"\x02x"
    with pytest.raises(Malformed, match="Tag 1 is not valid for version 0"):
        FLEXIBLE.decode(FlexibleReader(data), 0)


@pytest.mark.parametrize("flexible", ["none", "0+"])
def test_a_count_above_what_is_left_costs_no_memory(flexible: str) -> None:
    message = Message("Hostile", "0", flexible, Field("many", Array(INT32)))
    data = b"\xff\xff\xff\xff\x07" if flexible == "0+" else b"\x7f\xff\xff\xff"
    with pytest.raises(Malformed, match="many has 2147483"):
        message.decode(FlexibleReader(data), 0)


def test_a_string_that_is_not_utf8_is_read_as_java_reads_it() -> None:
    message = Message("Text", "0", "none", Field("text", STRING))
    decoded = message.decode(FlexibleReader(b"\0\x06a\xff\xed\xa0\x80b"), 0)
    assert decoded["text"] == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"
