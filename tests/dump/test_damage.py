"""Damaged files: everything that can be shown is, what can't is named, and no file stops the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.dump.forms import Printing
from kfs.dump.json_form import JsonForm
from kfs.dump.kinds import files_of
from kfs.format.codecs import Codec
from tests.corpus import CorpusStore
from tests.dump.dumping import Dumped, dump
from tests.logs import batch, dense, joined, positions, records, write_log

#: Damage that is none to a dump: indexes that are preallocated, emptied or gone, files that are left over or missing.
NO_FAULT = {
    "index-zeros",
    "index-missing",
    "timeindex-missing",
    "index-empty",
    "index-preallocated",
    "timeindex-zeros",
    "snapshot-missing",
    "epoch-missing",
    "partition-metadata-missing",
    "leftover-files",
    "swap-complete",
    "middle-segment-missing",
    "last-log-empty",
}


def test_every_damaged_file_of_the_corpus_is_named(corpus: Callable[[str], Path]) -> None:
    root = corpus("g_damage")
    damages = [json.loads(line) for line in (root / "damage.jsonl").read_text().splitlines()]
    named = 0
    for damage in damages:
        path = root / "data" / damage["partition_dir"] / damage["file"]
        if damage["damage"] in NO_FAULT or not path.exists():
            continue
        named += 1
        dumped = dump(path)
        assert dumped.is_bad, damage
        said = [*dumped.problems, *dumped.findings, dumped.lines.decode(errors="replace")]
        assert any(path.name in line for line in said), damage
    assert named > 20


def test_no_file_of_the_damaged_corpus_stops_a_dump(corpus: Callable[[str], Path]) -> None:
    files = list(files_of(str(corpus("g_damage") / "data")))
    text, objects = dump(*files), dump(*files, form=JsonForm)
    for file in files:
        assert f"Dumping {file}\n".encode() in text.lines
    assert text.problems == objects.problems
    assert text.findings == objects.findings
    lines = [json.loads(line) for line in objects.lines.split(b"\n")[:-1]]
    told = [line for line in lines if line["type"] == "problem"]
    # What is said of an index is said there, or in the lists at the end.
    assert {line["file"] for line in told} <= set(files)
    assert len(told) > 15


def test_a_broken_batch_is_shown_as_far_as_it_can_be_and_the_next_ones_follow(tmp_path: Path) -> None:
    content = [batch(records(0, 4)), batch(records(5, 9), codec=Codec.GZIP), batch(records(10, 12))]
    data = bytearray(joined(content))
    second, third = positions(content)[1:]
    data[second + 80] ^= 0x10
    log = write_log(tmp_path / "t-0", 0, bytes(data))
    dumped = dump(log)
    assert dumped.is_bad
    assert [line for line in dumped.problems if f"position {second}: " in line] == dumped.problems
    lines = dumped.lines.decode().splitlines()
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    assert [line.endswith("isvalid: true") for line in batches] == [True, False, True]
    assert [f"position: {position} " in line for line, position in zip(batches, [0, second, third], strict=True)]
    assert [line.split()[2] for line in lines if line.startswith("| offset: ")][-3:] == ["10", "11", "12"]


def test_the_records_of_a_batch_with_a_wrong_crc_are_shown_where_they_can_be_decoded(tmp_path: Path) -> None:
    data = bytearray(batch(records(0, 4)).data)
    data[17] ^= 0xFF
    dumped = dump(write_log(tmp_path / "t-0", 0, bytes(data)))
    assert dumped.is_bad
    assert dumped.lines.count(b"| offset: ") == 5
    assert b"isvalid: false" in dumped.lines


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"half a batch", batch(records(5, 9)).data[:-1]])
def test_what_ends_a_log_without_being_a_batch_is_counted(tail: bytes, tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", 0, batch(records(0, 4)).data + tail)
    dumped = dump(log)
    assert dumped.is_bad
    last = f"Found {len(tail)} invalid bytes at the end of {log.name}\n"
    assert dumped.lines.endswith(last.encode())


def test_a_file_that_is_not_there_does_not_stop_the_others(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", 0, batch(records(0, 4)).data)
    missing = tmp_path / "t-0" / "00000000000000000009.log"
    dumped = dump(missing, log)
    assert dumped.is_bad
    assert [str(missing) in line for line in dumped.problems] == [True]
    assert dumped.lines.count(b"| offset: ") == 5


def test_an_index_without_its_log_is_printed_and_the_log_missed(corpus: Callable[[str], Path]) -> None:
    orphan = corpus("g_damage") / "data/broken-32/00000000000000999999.index"
    dumped = dump(orphan)
    assert dumped.is_bad
    assert b"offset: " in dumped.lines


def test_a_timeindex_without_its_index_makes_no_index(tmp_path: Path, corpus: Callable[[str], Path]) -> None:
    source = corpus("a_v2") / "data/shapes-0"
    for suffix in (".log", ".timeindex"):
        shutil.copy(source / f"{0:020}{suffix}", tmp_path)
    dumped = dump(tmp_path / f"{0:020}.timeindex")
    assert not dumped.is_bad
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".log", ".timeindex"]


@pytest.mark.parametrize("form", [None, JsonForm])
@given(data=st.data())
def test_no_bytes_make_a_dump_fail(form: type[JsonForm] | None, data: st.DataObject, tmp_path_factory: object) -> None:
    assert isinstance(tmp_path_factory, pytest.TempPathFactory)
    content = bytearray(joined(dense(0, 9)) + batch(records(10, 12), magic=1, codec=Codec.GZIP).data)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    del content[data.draw(st.integers(0, len(content))) :]
    log = write_log(tmp_path_factory.mktemp("log"), 0, bytes(content))
    log.with_suffix(".index").write_bytes(data.draw(st.binary(max_size=40)))
    log.with_suffix(".timeindex").write_bytes(data.draw(st.binary(max_size=40)))
    log.with_suffix(".txnindex").write_bytes(data.draw(st.binary(max_size=80)))
    log.with_suffix(".snapshot").write_bytes(data.draw(st.binary(max_size=80)))
    files = sorted(str(path) for path in log.parent.iterdir())
    dumped: Dumped = dump(*files) if form is None else dump(*files, form=form)
    assert dumped.lines.count(b"Dumping " if form is None else b'"type":"file"') == len(files)
    if form is not None:
        for line in dumped.lines.split(b"\n")[:-1]:
            json.loads(line)


def test_the_corpus_is_left_alone(corpus_store: CorpusStore, corpus: Callable[[str], Path]) -> None:
    dump(*files_of(str(corpus("g_damage") / "data")), printing=Printing())
    assert corpus_store.changes() == []
