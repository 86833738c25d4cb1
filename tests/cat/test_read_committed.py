"""What a ``read_committed`` consumer gets, with transaction indexes as they were and in every wrong state."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.format.aborted_txn import ABORTED_TRANSACTION_SIZE, AbortedTxn, encode_aborted_transactions
from kfs.format.batch_header import computed_crc, read_header
from kfs.format.producer_snapshot import ProducerStateEntry, encode_producer_snapshot
from kfs.format.writer import encode_batch
from kfs.read import aborted_transactions, plan
from kfs.read.isolation import last_stable_offset, visible_at
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from tests.cat.printing import offsets_in, printed
from tests.logs import (
    START,
    bytes_read,
    log_name,
    open_log,
    records,
    set_high_watermark,
    set_log_start,
    watch_reads,
    write_log,
)
from tests.read.some_transactions import (
    Data,
    Event,
    Placed,
    abort,
    commit,
    committed_offsets,
    encoded,
    some_transactions,
    stable_end,
    write_transactions,
)
from tests.thoroughness import examples

CorpusPath = Callable[[str], Path]
CORPORA = pytest.mark.parametrize("name", ["b_txn", "b39_txn"])


def as_it_is(_path: Path) -> None:
    pass


def removed(path: Path) -> None:
    path.unlink()


def short_of_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-ABORTED_TRANSACTION_SIZE])


def cut_inside_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(1, 256)))


def zeros(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


INDEXES = pytest.mark.parametrize("damage", [as_it_is, removed, short_of_an_entry, cut_inside_an_entry, garbage, zeros])


def copied(source: Path, tmp_path: Path, damage: Callable[[Path], None]) -> Path:
    """Return a copy of a log directory with every transaction index damaged."""
    root = tmp_path / "data"
    shutil.copytree(source, root)
    for path in root.glob("*/*.txnindex"):
        damage(path)
    return root


def split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


# --- recorded brokers -----------------------------------------------------------------------------------------------


@CORPORA
@INDEXES
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.usefixtures("eager_processes")
def test_what_is_read_is_what_a_consumer_got(
    name: str, damage: Callable[[Path], None], jobs: int, corpus: CorpusPath, tmp_path: Path
) -> None:
    root = copied(corpus(name) / "data", tmp_path, damage)
    for level, partitions in json.loads((corpus(name) / "consumed.json").read_text()).items():
        for partition, ranges in partitions.items():
            lines, problems = printed(root, *split(partition), isolation=IsolationLevel(level), jobs=jobs)
            assert offsets_in(lines) == [offset for first, last in ranges for offset in range(first, last + 1)]
            assert not problems


@CORPORA
@pytest.mark.parametrize("snapshots_lost", [0, 1, 99])
def test_the_last_stable_offset_is_what_the_broker_said(
    name: str, snapshots_lost: int, corpus: CorpusPath, tmp_path: Path
) -> None:
    root = copied(corpus(name) / "data", tmp_path, as_it_is)
    for partition, said in json.loads((corpus(name) / "offsets.json").read_text())["read_committed"].items():
        for path in sorted((root / partition).glob("*.snapshot"), reverse=True)[:snapshots_lost]:
            path.unlink()
        log = open_log(root / partition)
        assert last_stable_offset(log) == said["latest"][0]
        assert visible_at(log, IsolationLevel.READ_COMMITTED).start == said["earliest"][0]


@CORPORA
@INDEXES
def test_reading_begins_anywhere(name: str, damage: Callable[[Path], None], corpus: CorpusPath, tmp_path: Path) -> None:
    root = copied(corpus(name) / "data", tmp_path, damage)
    for partition, ranges in json.loads((corpus(name) / "consumed.json").read_text())["read_committed"].items():
        committed = [offset for first, last in ranges for offset in range(first, last + 1)]
        for start in range(0, committed[-1] + 2, 3):
            selection = Selection(start, start + 9)
            lines, _ = printed(root, *split(partition), selection=selection, isolation=IsolationLevel.READ_COMMITTED)
            assert offsets_in(lines) == [offset for offset in committed if start <= offset < start + 9]


# --- any transactions -----------------------------------------------------------------------------------------------


def lies(path: Path) -> None:
    """Entries that stand in no log: committed transactions aborted, transactions of others."""
    base = int(path.name.split(".")[0])
    entries = [AbortedTxn(1 + number % 3, max(base - 3, 0), base + number, base) for number in range(8)]
    path.write_bytes(encode_aborted_transactions(entries))


def read_committed(root: Path, **options: Any) -> list[int]:
    lines, problems = printed(root, "t", isolation=IsolationLevel.READ_COMMITTED, **options)
    assert not problems
    return offsets_in(lines)


@settings(max_examples=examples(50, 400))
@given(
    events=some_transactions(),
    segment_bytes=st.integers(400, 1500),
    damage=st.sampled_from([as_it_is, removed, short_of_an_entry, cut_inside_an_entry, garbage, zeros, lies]),
    snapshots_lost=st.integers(0, 4),
    far=st.booleans(),
    start=st.integers(0, 40),
    size=st.integers(1, 40),
)
@pytest.mark.usefixtures("quiet")
def test_any_interleaving_reads_as_a_naive_reader_reads_it(
    events: list[Event],
    segment_bytes: int,
    damage: Callable[[Path], None],
    snapshots_lost: int,
    far: bool,
    start: int,
    size: int,
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "SPLIT_BYTES", 1)
        if far and damage is not lies:
            patch.setattr(aborted_transactions, "_FAR_BYTES", 0)  # the index is asked at once
        root = Path(name)
        log = write_transactions(root / "t-0", events, segment_bytes=segment_bytes)
        for path in root.glob("t-0/*.txnindex"):
            damage(path)
        if damage is lies:
            for path in root.glob("t-0/*.log"):
                damage(path.with_suffix(".txnindex"))
        for path in sorted(root.glob("t-0/*.snapshot"), reverse=True)[:snapshots_lost]:
            path.unlink()
        expected = committed_offsets(log)
        assert last_stable_offset(open_log(root / "t-0")) == stable_end(log)
        assert read_committed(root) == expected
        within = [offset for offset in expected if start <= offset < start + size]
        assert read_committed(root, selection=Selection(start, start + size)) == within
        assert read_committed(root, first=size) == expected[:size]
        assert read_committed(root, last=size) == expected[-size:]


@settings(max_examples=50)
@given(events=some_transactions(), segment_bytes=st.integers(400, 1500), lost=st.integers(0, 3), data=st.data())
@pytest.mark.usefixtures("quiet")
def test_a_log_may_begin_inside_of_transactions(
    events: list[Event], segment_bytes: int, lost: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        log = write_transactions(root / "t-0", events, segment_bytes=segment_bytes)
        for path in sorted(root.glob("t-0/*.log"))[:lost][: len(list(root.glob("t-0/*.log"))) - 1]:
            for beside in root.glob(f"t-0/{path.stem}.*"):
                beside.unlink()
        base = int(min(root.glob("t-0/*.log")).stem)
        start = data.draw(st.integers(base, log[-1].offsets[-1] + 1))
        set_log_start(root, "t", 0, start)
        assert read_committed(root) == [offset for offset in committed_offsets(log) if offset >= start]
        assert last_stable_offset(open_log(root / "t-0")) == max(start, stable_end(log))


# --- one at a time --------------------------------------------------------------------------------------------------


def test_what_a_producer_sends_outside_of_transactions_is_read(tmp_path: Path) -> None:
    write_transactions(tmp_path / "t-0", [Data(1), abort(), Data(1, transactional=False), Data(1), abort()])
    assert read_committed(tmp_path) == [2]


def test_up_to_the_high_watermark_a_marker_above_it_is_not_known(tmp_path: Path) -> None:
    write_transactions(tmp_path / "t-0", [Data(None), Data(1), Data(None), commit(), Data(None)])
    for high_watermark, expected in ((5, 5), (4, 4), (3, 1), (1, 1)):
        set_high_watermark(tmp_path, "t", 0, high_watermark)
        log = open_log(tmp_path / "t-0", until_high_watermark=True)
        assert last_stable_offset(log) == expected


def test_a_snapshot_that_the_log_contradicts_is_not_believed(tmp_path: Path) -> None:
    write_transactions(tmp_path / "t-0", [Data(None), Data(1), commit(), Data(None)])
    entry = ProducerStateEntry(1, 0, 0, 2, 0, START, 0, 0)  # open from offset 0, where something else is
    (tmp_path / "t-0" / log_name(4, ".snapshot")).write_bytes(encode_producer_snapshot([entry]))
    assert last_stable_offset(open_log(tmp_path / "t-0")) == 4


def broken(root: Path, batch: bytes) -> None:
    """Break the CRC of a batch wherever it is."""
    for path in root.glob("t-0/*.log"):
        data = path.read_bytes()
        at = data.find(batch)
        if at >= 0:
            path.write_bytes(data[: at + 30] + bytes([data[at + 30] ^ 1]) + data[at + 31 :])


@pytest.mark.parametrize("far", [True, False])
def test_an_abort_that_is_damaged_is_known_from_the_index(
    tmp_path: Path, far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if far:
        monkeypatch.setattr(aborted_transactions, "_FAR_BYTES", 0)
    log = write_transactions(tmp_path / "t-0", [Data(1), abort(), Data(None), Data(1), commit(), Data(2), abort(2)])
    broken(tmp_path, encoded(log[1]))
    expected = [2, 3]
    for end in (3, 9):  # the reader needn't meet the damage
        lines, _ = printed(tmp_path, "t", selection=Selection(0, end), isolation=IsolationLevel.READ_COMMITTED)
        assert offsets_in(lines) == [offset for offset in expected if offset < end]
    (tmp_path / "t-0" / log_name(0, ".txnindex")).unlink()
    lines, _ = printed(tmp_path, "t", isolation=IsolationLevel.READ_COMMITTED)
    assert offsets_in(lines) == [0, 2, 3]  # nobody knows any more: the next marker decides


def test_an_abort_that_is_cut_off_is_known_from_the_index_as_long_as_the_snapshot_is_believed(tmp_path: Path) -> None:
    log = write_transactions(tmp_path / "t-0", [Data(1), Data(None), abort()])
    path = tmp_path / "t-0" / log_name(0)
    os.truncate(path, path.stat().st_size - len(encoded(log[2])))
    assert read_committed(tmp_path) == []  # the snapshot is of a longer log, so the transaction is open
    (tmp_path / "t-0" / log_name(3, ".snapshot")).rename(tmp_path / "t-0" / log_name(2, ".snapshot"))
    assert read_committed(tmp_path) == [0, 1]  # over, as it says, and no marker where the index has one


def test_a_commit_that_is_damaged_does_not_join_an_aborted_transaction(tmp_path: Path) -> None:
    log = write_transactions(tmp_path / "t-0", [Data(1), commit(), Data(1), abort(), Data(None)])
    broken(tmp_path, encoded(log[1]))
    lines, _ = printed(tmp_path, "t", isolation=IsolationLevel.READ_COMMITTED)
    assert offsets_in(lines) == [0, 4]


def test_an_aborted_batch_that_is_damaged_inside_is_no_problem(tmp_path: Path) -> None:
    good = Placed(Data(1), range(1))
    header = read_header(encoded(good), 0, 0)
    broken_inside = encode_batch(records(0, 0), producer_id=1, producer_epoch=0, transactional=True, base_sequence=0)
    body = bytearray(broken_inside)
    body[header.size - 1] = 9  # so many headers as there is no room for
    body[17:21] = computed_crc(header, bytes(body)).to_bytes(4, "big")
    data = bytes(body) + encoded(Placed(abort(), range(1, 2))) + encode_batch(records(2, 2))
    write_log(tmp_path / "t-0", 0, data)
    assert read_committed(tmp_path) == [2]
    assert len(printed(tmp_path, "t")[1]) == 1


# --- what it costs --------------------------------------------------------------------------------------------------


def reads_of(root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    with monkeypatch.context() as patch:
        reads = watch_reads(patch)
        printed(root, "t", **options)
        return bytes_read(reads)


def test_without_transactions_no_more_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_transactions(tmp_path / "t-0", [Data(None, 3), Data(1, 3, False)] * 400, segment_bytes=20_000)
    for selection in (Selection(), Selection(1000, 1010)):
        plain = reads_of(tmp_path, monkeypatch, selection=selection)
        assert reads_of(tmp_path, monkeypatch, selection=selection, isolation=IsolationLevel.READ_COMMITTED) == plain


def test_a_range_reads_no_further_than_its_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_transactions(tmp_path / "t-0", [Data(1, 3), commit(), Data(2, 3), abort(2)] * 400, segment_bytes=20_000)
    whole = sum(path.stat().st_size for path in tmp_path.glob("t-0/*.log"))
    read = reads_of(tmp_path, monkeypatch, selection=Selection(800, 810), isolation=IsolationLevel.READ_COMMITTED)
    assert read < whole / 3


def test_the_index_spares_reading_to_the_end_of_a_long_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted_transactions, "_FAR_BYTES", 50_000)
    log = write_transactions(tmp_path / "t-0", [*[Data(1, 3)] * 5000, abort()], segment_bytes=50_000)
    whole = sum(path.stat().st_size for path in tmp_path.glob("t-0/*.log"))
    some = {"selection": Selection(6000, 6010), "isolation": IsolationLevel.READ_COMMITTED}
    assert reads_of(tmp_path, monkeypatch, **some) < whole / 3
    assert read_committed(tmp_path) == []
    for path in tmp_path.glob("t-0/*.txnindex"):
        path.unlink()
    assert whole / 3 < reads_of(tmp_path, monkeypatch, **some) < whole
    assert committed_offsets(log) == read_committed(tmp_path) == []
