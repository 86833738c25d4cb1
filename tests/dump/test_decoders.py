"""Keys and values: those of Kafka's own topics against what its tool makes of them, and decoders by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from kfs.dump.forms import Printing
from kfs.dump.json_form import JsonForm
from kfs.dump.message_parsers import (
    DECODERS,
    ClusterMetadataMessageParser,
    DecoderMessageParser,
    MessageParser,
    RemoteLogMessageParser,
    decoder_name,
    offsets_message_parser,
    share_state_message_parser,
    transaction_message_parser,
)
from tests.dump.dumping import dump

DECODED = Path(__file__).with_name("decoded")
LOG = f"{0:020}.log"
CONTENTS: dict[str, MessageParser] = {
    "offsets": offsets_message_parser(),
    "transaction-log": transaction_message_parser(),
    "share-group-state": share_state_message_parser(),
    "cluster-metadata": ClusterMetadataMessageParser(),
    "remote-log-metadata": RemoteLogMessageParser(),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_every_type_and_version_is_printed_as_kafka_prints_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DECODED)
    dumped = dump(f"{name}/{LOG}", printing=Printing(True, CONTENTS[name]))
    assert dumped.text == (DECODED / name / "kafka.txt").read_text()
    assert not dumped.is_bad  # what a decoder can't read is no damage of the file


@pytest.mark.parametrize("name", ["cluster-metadata", "remote-log-metadata"])
def test_records_without_a_value_and_frames_of_garbage_are_printed_as_kafka_prints_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DECODED)
    dumped = dump(f"frames/{LOG}", printing=Printing(True, CONTENTS[name]))
    assert dumped.text == (DECODED / "frames" / f"kafka-{name}.txt").read_text()
    assert not dumped.is_bad


@pytest.mark.parametrize("name", CONTENTS)
def test_json_has_the_decoded_fields_beside_the_bytes(name: str) -> None:
    dumped = dump(DECODED / name / LOG, printing=Printing(True, CONTENTS[name]), form=JsonForm)
    records = [json.loads(line) for line in dumped.lines.split(b"\n") if b'"type":"record"' in line]
    decoded = [record for record in records if "decodedValue" in record]
    assert all("value" in record for record in records)
    assert all(("decodedValue" in record) != ("undecodable" in record) for record in records)
    assert len(decoded) > len(records) / 4
    assert all(isinstance(record["decodedValue"]["data"], dict) for record in decoded if record["decodedValue"])


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("string", "naïve".encode(), "naïve"),
        ("string", b"\xff", "\N{REPLACEMENT CHARACTER}"),
        ("long", struct.pack(">q", -5), "-5"),
        ("integer", struct.pack(">i", 2**31 - 1), "2147483647"),
        ("short", struct.pack(">h", -1), "-1"),
        ("double", struct.pack(">d", 1.0), "1.0"),
        ("base64", b"\0\xff", "AP8="),
        ("hex", b"\0\xff", "00ff"),
        ("long", b"abc", "Error at offset 7, skipping. Size of data received by LongDeserializer is not 8"),
    ],
)
def test_a_decoder_by_name(name: str, data: bytes, text: str) -> None:
    parser = DecoderMessageParser(value=name)
    assert parser.texts(7, b"k", data) == ("k", text)
    assert parser.texts(7, None, None) == (None, None)


def test_kafkas_classes_are_known_by_their_names() -> None:
    assert decoder_name("org.apache.kafka.tools.api.LongDecoder") == "long"
    assert decoder_name("kafka.serializer.StringDecoder") == "string"
    assert decoder_name("org.apache.kafka.tools.api.DefaultDecoder") == "hex"
    assert decoder_name("org.apache.kafka.tools.api.DoubleDecoder") is None  # there is no such class
    assert decoder_name("com.example.LongDecoder") is None
    assert {decoder_name(name) for name in DECODERS} == set(DECODERS)
