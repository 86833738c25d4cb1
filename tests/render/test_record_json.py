"""A record as a line of JSON: exact, harmless, and restored from it without loss."""

from __future__ import annotations

import base64
import json
import os
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.batch_header import read_header
from kfs.format.columns import RecordColumns
from kfs.format.decode import PythonDecoder
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch
from kfs.render.record_json import RecordJson, RenderedLines
from kfs.render.record_line import parse_line
from kfs.render.renderers import LineRenderer
from tests.format.faults import with_fault
from tests.format.integers import int64s
from tests.implementations import EVERY_RENDERER
from tests.logs import batch, record

#: What must never reach a terminal raw: C0, DEL, C1, line and paragraph separator, bidirectional controls.
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FIELDS = [
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "time",
    "key",
    "keyEncoding",
    "value",
    "valueEncoding",
    "headers",
]

texts = st.text(max_size=40).map(str.encode)
odd = st.sampled_from([b"", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\\\"'/\n\t\r\0"])
payloads = st.none() | st.binary(max_size=40) | texts | odd
header_keys = st.binary(max_size=10) | st.text(max_size=10).map(str.encode)
records = st.builds(
    Record,
    offset=st.integers(0, 2**63 - 2),
    timestamp=int64s,
    key=payloads,
    value=payloads,
    headers=st.lists(st.tuples(header_keys, payloads), max_size=3).map(tuple),
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
)


def columns_of(content: Sequence[Record]) -> RecordColumns:
    """Return records as a decoder gives them; all of one timestamp type."""
    append_time = content[0].timestamp if content[0].timestamp_type is TimestampType.LOG_APPEND_TIME else None
    data = encode_batch(content, timestamp_type=content[0].timestamp_type, append_time=append_time)
    return PythonDecoder().decode(read_header(data, 0, 0), data, 1 << 24)


def rendered(
    renderer: type[LineRenderer], content: Sequence[Record], topic: str = "t", partition: int = 0
) -> RenderedLines:
    return renderer(topic, partition).lines(columns_of(content), (content[0].offset, content[-1].offset))


def line_of(renderer: type[LineRenderer], one: Record, topic: str = "t", partition: int = 0) -> bytes:
    return rendered(renderer, [one], topic, partition).line(0)


def fields_of(line: bytes) -> dict[str, Any]:
    """Parse a line, and fail where a key comes twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    parsed: dict[str, Any] = json.loads(line, object_pairs_hook=unique)
    return parsed


# --- the line -------------------------------------------------------------------------------------------------------


@EVERY_RENDERER
def test_the_line_of_the_design_byte_for_byte(renderer: type[LineRenderer]) -> None:
    one = Record(368776, 1606446771205, None, b"4567890", ((b"trace", b"a1"),))
    assert line_of(renderer, one, "launch_info") == (
        b'{"topic":"launch_info","partition":0,"offset":368776,"timestamp":1606446771205,"timestampType":"CreateTime",'
        b'"time":"2020-11-27T03:12:51.205Z","key":null,"value":"4567890","headers":[{"key":"trace","value":"a1"}]}\n'
    )


@EVERY_RENDERER
def test_everything_that_is_not_utf_8_says_so(renderer: type[LineRenderer]) -> None:
    one = Record(7, 0, b"\xff\xfe", b"\x80", ((b"\xf0", b"\xf1"), (b"\xf2", None), (b"a", b"\xf3"), (b"b", b"")))
    assert line_of(renderer, one) == (
        b'{"topic":"t","partition":0,"offset":7,"timestamp":0,"timestampType":"CreateTime",'
        b'"time":"1970-01-01T00:00:00.000Z","key":"//4=","keyEncoding":"base64","value":"gA==","valueEncoding":"base64",'
        b'"headers":[{"key":"8A==","keyEncoding":"base64","value":"8Q==","encoding":"base64"},'
        b'{"key":"8g==","keyEncoding":"base64","value":null},{"key":"a","value":"8w==","encoding":"base64"},'
        b'{"key":"b","value":""}]}\n'
    )


@EVERY_RENDERER
def test_null_and_empty_are_told_apart(renderer: type[LineRenderer]) -> None:
    assert b'"key":null,"value":"","headers":[]' in line_of(renderer, Record(0, 0, None, b""))
    assert b'"key":"","value":null,"headers":[]' in line_of(renderer, Record(0, 0, b"", None))


@EVERY_RENDERER
def test_without_timestamps_there_is_no_time(renderer: type[LineRenderer]) -> None:
    lines = renderer("t", 3).lines(
        RecordColumns(
            b"v",
            array("q", [5]),
            array("q", [-1]),
            TimestampType.NO_TIMESTAMP,
            array("i", [0]),
            array("i", [-1]),
            array("i", [0]),
            array("i", [1]),
            array("i", [-1]),
        ),
        (5, 5),
    )
    assert lines.line(0) == (
        b'{"topic":"t","partition":3,"offset":5,"timestamp":-1,"timestampType":"NoTimestampType","time":null,'
        b'"key":null,"value":"v","headers":[]}\n'
    )


@EVERY_RENDERER
@given(one=records)
def test_a_record_is_restored_exactly(renderer: type[LineRenderer], one: Record) -> None:
    assert parse_line(line_of(renderer, one, "a.b-c_D", 17)) == ("a.b-c_D", 17, one)
    assert parse_line(line_of(renderer, one).decode()) == ("t", 0, one)


@EVERY_RENDERER
@given(one=records)
def test_a_line_is_json_on_one_line_that_drives_no_terminal(renderer: type[LineRenderer], one: Record) -> None:
    line = line_of(renderer, one)
    text = line.decode("utf-8")
    assert text.endswith("}\n")
    assert text.count("\n") == 1
    assert FORBIDDEN.search(text) is None
    fields = fields_of(line)
    assert list(fields) == [name for name in FIELDS if name in fields]
    assert {name for name in FIELDS if not name.endswith("Encoding")} <= set(fields)
    assert fields["timestampType"] == one.timestamp_type.label


def is_utf_8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@EVERY_RENDERER
@given(one=records)
def test_base64_stands_where_bytes_are_not_utf_8_and_only_there(renderer: type[LineRenderer], one: Record) -> None:
    fields = fields_of(line_of(renderer, one))
    for name, data in (("key", one.key), ("value", one.value)):
        if data is None:
            assert fields[name] is None
        elif is_utf_8(data):
            assert fields[name] == data.decode("utf-8")
        else:
            assert fields[name] == base64.b64encode(data).decode("ascii")
        assert (f"{name}Encoding" in fields) == (data is not None and not is_utf_8(data))
    for header, shown in zip(one.headers, fields["headers"], strict=True):
        assert ("keyEncoding" in shown) == (not is_utf_8(header[0]))
        assert ("encoding" in shown) == (header[1] is not None and not is_utf_8(header[1]))
        expected = ["key", "keyEncoding", "value", "encoding"]
        assert list(shown) == [name for name in expected if name in shown]


BIDIRECTIONAL = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))


@EVERY_RENDERER
@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *BIDIRECTIONAL])
def test_a_control_is_written_as_its_number(renderer: type[LineRenderer], code: int) -> None:
    one = Record(0, 0, f"a{chr(code)}b".encode(), None, ((chr(code).encode(), b""),))
    line = line_of(renderer, one)
    assert f'"key":"a\\u{code:04x}b"'.encode() in line
    assert chr(code).encode() not in line.removesuffix(b"\n")
    assert parse_line(line)[2] == one


@EVERY_RENDERER
@pytest.mark.parametrize(
    "text",
    [
        '"',
        "\\",
        "\\u0041",
        '\\"',
        "/",
        "</script>",
        "é",
        "東京",
        "🙂",
        "\ufeff",
        "\ufffd",
        "\ue000",
        "\u00a0",
        "\u00ad",
    ],
)
def test_other_characters_stand_for_themselves(renderer: type[LineRenderer], text: str) -> None:
    one = Record(0, 0, text.encode(), None)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    assert f'"key":"{escaped}"'.encode() in line_of(renderer, one)
    assert parse_line(line_of(renderer, one))[2] == one


@EVERY_RENDERER
@pytest.mark.parametrize("offset", [0, 2**53 - 1, 2**53 + 1, 2**63 - 2])
def test_integers_keep_every_digit(renderer: type[LineRenderer], offset: int) -> None:
    line = line_of(renderer, Record(offset, 2**62 + 1, None, None))
    assert f'"offset":{offset},"timestamp":4611686018427387905,'.encode() in line


@EVERY_RENDERER
@pytest.mark.parametrize(
    "topic", [".kfs", "a b", 'quote"', "back\\slash", "line\nbreak", "\u202eevil", "tópico", "%41"]
)
def test_odd_topic_names_are_quoted(renderer: type[LineRenderer], topic: str) -> None:
    line = line_of(renderer, record(1), topic, 2**31 - 1)
    assert FORBIDDEN.search(line.decode()) is None
    assert fields_of(line)["topic"] == topic
    assert fields_of(line)["partition"] == 2**31 - 1


@EVERY_RENDERER
def test_a_topic_name_that_is_not_utf_8_is_still_a_line(renderer: type[LineRenderer]) -> None:
    topic = b"caf\xe9".decode("utf-8", "surrogateescape")
    line = line_of(renderer, record(1), topic)
    assert fields_of(line)["topic"] == "caf\N{REPLACEMENT CHARACTER}"


# --- blocks of lines ------------------------------------------------------------------------------------------------


@EVERY_RENDERER
@given(content=st.lists(records, min_size=1, max_size=8))
def test_the_lines_of_a_block_are_those_of_its_records(renderer: type[LineRenderer], content: list[Record]) -> None:
    kind = content[0].timestamp_type
    same = kind is TimestampType.LOG_APPEND_TIME
    content = [
        Record(at, content[0].timestamp if same else one.timestamp // 2, one.key, one.value, one.headers, kind)
        for at, one in enumerate(content)
    ]
    lines = rendered(renderer, content)
    assert len(lines) == len(content)
    assert [lines.line(index) for index in range(len(lines))] == [line_of(renderer, one) for one in content]
    assert b"".join(lines.line(index) for index in range(len(lines))) == lines.buffer
    assert [lines.size(index) for index in range(len(lines))] == [len(line_of(renderer, one)) for one in content]
    assert list(lines.offsets) == [one.offset for one in content]
    assert lines.nbytes >= len(lines.buffer)
    assert (lines.first_offset, lines.last_offset) == (0, len(content) - 1)


@EVERY_RENDERER
def test_a_broken_record_in_an_intact_batch_is_an_empty_line(renderer: type[LineRenderer]) -> None:
    columns = columns_of(batch([record(at) for at in range(3)]).records)
    fault = CorruptData("broken")
    broken = with_fault(columns, 1, fault)
    lines = renderer("t", 0).lines(broken, (0, 2))
    assert [lines.line(index) for index in range(3)] == [
        line_of(renderer, record(0)),
        b"\n",
        line_of(renderer, record(2)),
    ]
    assert lines.faults == {1: fault}


# --- what is no such line -------------------------------------------------------------------------------------------

GOOD = fields_of(line_of(RecordJson, Record(7, 5, b"k", b"v", ((b"h", b"x"),))))


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_line_without_one_of_its_fields_is_refused(name: str) -> None:
    if name == "time":  # says again what timestamp says
        assert parse_line(json.dumps({**GOOD, "time": None}))[2].timestamp == 5
        return
    with pytest.raises(ValueError, match=f"^field {name} is missing, expected "):
        parse_line(json.dumps({key: value for key, value in GOOD.items() if key != name}))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "null",
        "[]",
        "5",
        '"text"',
        "{}",
        "{",
        json.dumps({**GOOD, "timestampType": "Other"}),
        json.dumps({**GOOD, "key": 5}),
        json.dumps({**GOOD, "headers": None}),
        json.dumps({**GOOD, "headers": [5]}),
        json.dumps({**GOOD, "headers": [{"key": None, "value": ""}]}),
        json.dumps({**GOOD, "offset": 7.0}),
        json.dumps({**GOOD, "timestamp": True}),
        json.dumps({**GOOD, "partition": "0"}),
        json.dumps({**GOOD, "topic": None}),
        json.dumps({**GOOD, "value": "00", "valueEncoding": "hex"}),
        json.dumps({**GOOD, "value": "\ud800"}),
        '{"headers":' + "[" * 100_000,
        json.dumps({**GOOD, "value": "not base64!", "valueEncoding": "base64"}),
        json.dumps({**GOOD, "value": "é", "valueEncoding": "base64"}),
    ],
)
def test_what_is_not_the_line_of_a_record_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse_line(line)


@EVERY_RENDERER
def test_renderers_of_many_partitions_keep_no_memory(renderer: type[LineRenderer]) -> None:
    """A mount has a renderer for each partition."""
    columns = columns_of([record(offset, b"x" * 1000) for offset in range(1000)])
    renderers = [renderer("t", number) for number in range(100)]
    before = resident_bytes()
    for each in renderers:
        assert each.text(columns)
    assert resident_bytes() - before < 20_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
