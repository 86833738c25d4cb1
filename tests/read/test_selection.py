"""Which records are wanted: whatever decides it, the same as asking each record."""

from __future__ import annotations

import json
import random
import re
from array import array
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.batch_header import read_header
from kfs.format.codecs import Codec
from kfs.format.columns import RecordColumns
from kfs.format.crc import crc32c
from kfs.format.decoders import default_decoder
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Rows, Selection, is_literal, required_text
from tests.cat.printing import offsets_in, printed
from tests.corpus import corpus_names
from tests.format.some_records import batches
from tests.implementations import EVERY_ROWS
from tests.logs import START, batch, record, write_partition

some_bytes = st.binary(max_size=3)
times = st.none() | st.integers(-(2**70), 2**70) | st.integers(1_700_000_000_000, 1_700_000_100_000)


def columns_of(records: list[Record]) -> RecordColumns:
    data = encode_batch(records)
    return default_decoder().decode(read_header(data, 0, 0), data, 1 << 24)


def is_wanted(
    one: Record, since: int | None, before: int | None, keys: frozenset[bytes] | None, text: bytes | None
) -> bool:
    return (
        (since is None or one.timestamp >= since)
        and (before is None or 0 <= one.timestamp < before)
        and (keys is None or one.key in keys)
        and (text is None or (one.value is not None and text in one.value))
    )


@EVERY_ROWS
@given(records=batches(), data=st.data())
def test_records_are_found_as_if_each_was_asked(rows: type[Rows], records: list[Record], data: st.DataObject) -> None:
    columns = columns_of(records)
    stamps = st.sampled_from([one.timestamp for one in records])
    since, before = data.draw(times | stamps), data.draw(times | stamps)
    present = [each.key for each in records if each.key is not None]
    key = st.sampled_from(present) | some_bytes if present else some_bytes
    keys = data.draw(st.none() | st.frozensets(key, min_size=1, max_size=3))
    values = [each.value for each in records if each.value]
    part = st.sampled_from(values).map(lambda value: value[1:]) if values else some_bytes
    text = data.draw(st.none() | some_bytes | part)
    first, stop = sorted((data.draw(st.integers(0, len(records))), data.draw(st.integers(0, len(records)))))
    among = data.draw(st.just(range(first, stop)) | st.just([*range(first, stop)][::2]))
    found = rows.wanted(columns, among, since, before, keys, text)
    assert [*found] == [index for index in among if is_wanted(records[index], since, before, keys, text)]
    assert list(rows.taken(columns, found)) == [records[index] for index in found]
    assert list(rows.taken(columns, [*found])) == [records[index] for index in found]


@EVERY_ROWS
def test_what_is_broken_stays_so(rows: type[Rows]) -> None:
    columns = columns_of([record(offset) for offset in range(4)])
    fault = CorruptData("broken")
    columns.faults = {1: fault, 2: fault}
    assert rows.taken(columns, array("i", [0, 2, 3])).faults == {1: fault}
    assert rows.taken(columns, array("i", [0, 3])).faults == {}


@pytest.mark.parametrize("pattern", [rb'"status":"failed"', b"a b-c", b""])
def test_text_that_stands_for_itself(pattern: bytes) -> None:
    assert is_literal(re.compile(pattern))
    assert required_text(re.compile(pattern)) == pattern
    assert not is_literal(re.compile(pattern, re.IGNORECASE))
    assert required_text(re.compile(pattern, re.IGNORECASE)) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (rb'"price":49[0-9][.]9.*"qty":[13]', b'"price":49'),
        (rb"^abc\.def$", b"abc.def"),
        (rb"abc(def)?ghij", b"ghij"),
        (rb"abc|abd", None),
        (rb"abcd|abce", b"abc"),
        (rb"abcd*", b"abc"),
        (rb"(?!abcd)efg", b"efg"),
        (rb"(?i:abcd)efg", b"efg"),
        (rb"(?i)abcd.", None),
        (rb"(?x) a b c .", b"abc"),
        (rb"[ab]cd", None),
        (rb"a.c", None),
        (rb"\d{3}", None),
    ],
)
def test_text_that_every_match_contains(pattern: bytes, text: bytes | None) -> None:
    assert not is_literal(re.compile(pattern))
    assert required_text(re.compile(pattern)) == text


_ATOMS = st.sampled_from([rb"a", rb"b", rb"ab", rb"bab", rb"aabb", rb".", rb"[ab]", rb"\x62", rb"^", rb"$", rb"\b"])


def _combined(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.tuples(inner, inner).map(b"".join),
        st.tuples(inner, inner).map(lambda pair: b"(?:%b|%b)" % pair),
        st.tuples(inner, st.sampled_from([b"?", b"*", b"+", b"{2}", b"{0}"])).map(lambda pair: b"(%b)%b" % pair),
        inner.map(lambda one: b"(?=%b)" % one),
        inner.map(lambda one: b"(?!%b)" % one),
        inner.map(lambda one: b"(?i:%b)" % one),
    )


@given(
    st.recursive(_ATOMS, _combined, max_leaves=12),
    st.lists(st.text("abAB\n", max_size=12).map(str.encode), min_size=1, max_size=20),
    st.sampled_from([0, re.IGNORECASE, re.DOTALL, re.MULTILINE]),
)
def test_a_pattern_finds_what_it_finds_in_each_value(pattern: bytes, values: list[bytes], flags: int) -> None:
    compiled = re.compile(pattern, flags)
    columns = columns_of([record(offset, value) for offset, value in enumerate(values)])
    found = Selection(value_pattern=compiled).indexes(columns, range(len(values)))
    assert [*found] == [index for index, value in enumerate(values) if compiled.search(value)]


def test_a_record_older_than_those_before_it_is_found(tmp_path: Path) -> None:
    stamps = [0, 9, 3, 20, 1, 21, 2, 5]
    content = [
        batch([record(2 * at, timestamp=START + first), record(2 * at + 1, timestamp=START + second)])
        for at, (first, second) in enumerate(zip(stamps[::2], stamps[1::2], strict=True))
    ]
    write_partition(tmp_path / "t-0", {0: content})
    for since in range(-1, 23):
        for before in range(since, 23):
            selection = Selection(since=START + since, before=START + before)
            expected = [offset for offset, stamp in enumerate(stamps) if since <= stamp < before]
            assert offsets_in(printed(tmp_path, "t", selection=selection)[0]) == expected


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(since=START + 97), [97, 98, 99]),
        (Selection(since=START + 40, before=START + 42), [40, 41]),
        (Selection(before=START + 2), [0, 1]),
    ],
)
def test_batches_that_are_too_old_or_too_late_are_not_decoded(
    selection: Selection, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = [batch([record(at, timestamp=START + at)]) for at in range(100)]
    write_partition(tmp_path / "t-0", {0: content})
    decoded: list[int] = []
    decoder = type(default_decoder())
    of_rows = decoder.decode_rows

    class Counting(decoder):  # type: ignore[misc, valid-type]
        def decode_rows(self, table: Any, row: int, stop: int, limit: int) -> Any:
            decoded.extend(range(row, stop))
            return of_rows(self, table, row, stop, limit)

    monkeypatch.setattr("kfs.log.storage.default_decoder", Counting)
    assert offsets_in(printed(tmp_path, "t", selection=selection)[0]) == expected
    assert len(expected) <= len(decoded) < 10


def test_a_late_batch_that_cannot_be_decoded_is_told(tmp_path: Path) -> None:
    late = batch([record(1, timestamp=START + 9)], codec=Codec.LZ4)
    broken = bytearray(late.data)
    broken[61:65] = bytes(4)  # where the frame begins
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    content = [
        batch([record(0, timestamp=START)]),
        replace(late, data=bytes(broken)),
        batch([record(2, timestamp=START + 10)]),
    ]
    write_partition(tmp_path / "t-0", {0: content})
    output, problems = printed(tmp_path, "t", selection=Selection(before=START + 5))
    assert offsets_in(output) == [0]
    assert ["lz4" in str(problem) for problem in problems] == [True]


@pytest.mark.parametrize("level", IsolationLevel)
@pytest.mark.parametrize("name", corpus_names())
def test_a_selection_is_a_filter_over_all_records(
    name: str, level: IsolationLevel, corpus: Callable[[str], Path]
) -> None:
    root = corpus(name) / "data"
    dice = random.Random(name)
    data_dir = DataDir([str(root)], Storage())
    topics = data_dir.topics()
    data_dir.close()
    for topic in topics:
        lines = printed(root, topic, isolation=level)[0].splitlines()
        records = [json.loads(line) for line in lines]
        stamps = sorted({one["timestamp"] for one in records if one["timestamp"] is not None}) or [0]
        for _ in range(6):
            ends = (dice.choice(stamps) + dice.randint(-1, 1) for _ in range(2))
            since, before = sorted(ends)
            both = Selection(since=since, before=before)
            expected = [
                line
                for line, one in zip(lines, records, strict=True)
                if one["timestamp"] is not None and since <= one["timestamp"] < before and one["timestamp"] >= 0
            ]
            assert printed(root, topic, selection=both, isolation=level)[0].splitlines() == expected
        keys = [key_of(one) for one in dice.sample(records, min(4, len(records)))]
        for key in {key for key in keys if key is not None}:
            expected = [line for line, one in zip(lines, records, strict=True) if key_of(one) == key]
            selection = Selection(keys=frozenset([key]), end=MAX_INT64)
            assert printed(root, topic, selection=selection, isolation=level)[0].splitlines() == expected


def key_of(one: dict[str, Any]) -> bytes | None:
    """Return the bytes of the key in a line."""
    key: str | None = one["key"]
    if key is None:
        return None
    return b64decode(key) if one.get("keyEncoding") == "base64" else key.encode()
