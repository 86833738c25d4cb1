"""Lines that are no record's: each is named by its field and what was expected, never in Python's own words."""

from __future__ import annotations

import io
import json
import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import BadLine
from kfs.imports.lines import lines_of

GOOD: Final[dict[str, Any]] = {
    "topic": "t", "partition": 0, "offset": 7, "timestamp": 5, "timestampType": "CreateTime", "time": None,
    "key": "k", "value": "dsc=", "valueEncoding": "base64", "headers": [{"key": "h", "value": None}],
}  # fmt: skip
TYPES: Final = "one of NoTimestampType, CreateTime, LogAppendTime"
#: Everything that is ever said of a line.
SAYINGS: Final = (
    r"field (topic|partition|offset|timestamp|timestampType|key|value|headers) is missing, expected .+",
    r"field (topic|partition|offset|timestamp|timestampType|(key|value)(Encoding)?|headers(\[\d+\](\.\w+)?)?) is .+,"
    r" expected (an integer|text|text or null|a list|an object|one of .+|\"base64\" or nothing|base64, as \w+ says)",
    r"field headers\[\d+\]\.(key|value) is missing, expected text or null",
    r"field [][\w.]+ has half of a surrogate pair as its character \d+, expected text",
    r"not UTF-8 from byte \d+ on",
    r"not JSON from character \d+ on|truncated JSON|JSON that is nested too deeply",
    r"JSON with a number of too many digits",
    r"(a list|null|true|false|\".*|[-+.\de]+(\.\.\.)?|-?Infinity|NaN), expected the object of a record",
    r"'.*' is not the name of a topic",
    r"(offset|partition|timestamp) -?\d+, expected -?\d+ to \d+",
    r"an empty line, which stands for what could not be read",
)


def reason_of(line: bytes) -> str | None:
    """Return what is said of a line, None where it is a record's."""
    (found,) = lines_of(io.BytesIO(line), "input")
    if not isinstance(found, BadLine):
        return None
    assert str(found) == f"input: line 1: {found.reason}"
    return found.reason


def check(line: bytes) -> None:
    reason = reason_of(line)
    assert reason is None or any(re.fullmatch(saying, reason, re.DOTALL) for saying in SAYINGS), reason


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["key", "value"]) | st.text(), inner),
    max_leaves=5,
)
headers = st.lists(
    st.dictionaries(st.sampled_from(["key", "keyEncoding", "value", "encoding"]), anything) | anything, max_size=3
)


@given(name=st.sampled_from([*GOOD, "keyEncoding"]), value=anything | headers)
def test_a_field_of_any_other_value_is_named(name: str, value: object) -> None:
    check(json.dumps({**GOOD, name: value}).encode() + b"\n")


@given(names=st.sets(st.sampled_from([*GOOD])))
def test_fields_that_are_missing_are_named(names: set[str]) -> None:
    check(json.dumps({name: value for name, value in GOOD.items() if name not in names}).encode())


@given(value=anything)
def test_json_of_anything_is_not_taken_for_a_record(value: object) -> None:
    check(json.dumps(value).encode())


@given(data=st.data())
def test_a_line_with_other_bytes_in_it_is_named(data: st.DataObject) -> None:
    line = bytearray(json.dumps(GOOD).encode())
    at = data.draw(st.integers(0, len(line)))
    line[at : data.draw(st.integers(at, len(line)))] = data.draw(st.binary(max_size=4)).replace(b"\n", b"")
    if line:
        check(bytes(line))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"timestamp": "5"}, 'field timestamp is "5", expected an integer'),
        ({"offset": 7.0}, "field offset is 7.0, expected an integer"),
        ({"offset": True}, "field offset is true, expected an integer"),
        ({"topic": ["t"]}, "field topic is a list, expected text"),
        ({"value": "not base64!"}, 'field value is "not base64!", expected base64, as valueEncoding says'),
        ({"value": "dsc"}, 'field value is "dsc", expected base64, as valueEncoding says'),
        ({"valueEncoding": "hex"}, 'field valueEncoding is "hex", expected "base64" or nothing'),
        ({"key": "a\ud800"}, "field key has half of a surrogate pair as its character 2, expected text"),
        ({"key": "x" * 99, "keyEncoding": 5}, 'field keyEncoding is 5, expected "base64" or nothing'),
        ({"headers": {}}, "field headers is an object, expected a list"),
        ({"headers": [[]]}, "field headers[0] is a list, expected an object"),
        (
            {"headers": [{"key": "k", "value": None}, {"key": "k"}]},
            "field headers[1].value is missing, expected text or null",
        ),
        ({"headers": [{"key": None, "value": None}]}, "field headers[0].key is null, expected text"),
        ({"timestampType": {}}, f"field timestampType is an object, expected {TYPES}"),
        ({"timestampType": "x" * 99}, f'field timestampType is "{"x" * 39}..., expected {TYPES}'),
    ],
)
def test_what_is_wrong_with_a_field_is_said(changes: dict[str, object], reason: str) -> None:
    assert reason_of(json.dumps({**GOOD, **changes}).encode()) == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[]", "a list, expected the object of a record"),
        (b"5\n", "5, expected the object of a record"),
        (b'{"topic":', "truncated JSON"),
        (b'{"topic": ]}', "not JSON from character 11 on"),
        (b'{"topic":"\xff"}', "not UTF-8 from byte 11 on"),
        (b'{"a":' + b"[" * 100_000, "JSON that is nested too deeply"),
        (b'{"a":' + b"1" * 5_000 + b"}", "JSON with a number of too many digits"),
    ],
)
def test_what_is_no_object_is_said(line: bytes, reason: str) -> None:
    assert reason_of(line) == reason
