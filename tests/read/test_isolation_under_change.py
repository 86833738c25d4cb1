"""What became of a transaction is told of the log that the batch is in, or not at all: never "no marker" for a hole."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import KfsError
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.segment import Segment
from kfs.read.aborted_transactions import AbortedTransactions
from kfs.read.isolation import CommittedReader, last_stable_offset
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.read.split_reader import SplitReader, selected_in
from kfs.read.wanted_offsets import WantedOffsets
from kfs.storage.open_files import FileChanged
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from kfs.tree.options import TreeOptions
from tests.logs import content_of, file_at, log_name, open_log, open_tree, write_log
from tests.read.some_transactions import Data, Event, abort, commit, encoded, placed

pytestmark = pytest.mark.usefixtures("eager", "quiet")

COMMITTED = TreeOptions(isolation=IsolationLevel.READ_COMMITTED)
#: By segment: the transaction of 0 and 1 is aborted at 3; the producer's next one, from 5 on, is committed.
SEGMENTS: dict[int, list[Event]] = {
    0: [Data(1, 2), Data(None)],
    3: [abort(1), Data(None)],
    5: [Data(1, 2), commit(1), Data(None)],
    9: [Data(None, 2)],
}
SHOWN = [2, 4, 5, 6, 8, 9, 10]


def write(directory: Path, segments: dict[int, list[Event]]) -> None:
    for base, events in segments.items():
        write_log(directory, base, b"".join(encoded(one) for one in placed(events, base)))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "data" / "t-0"
    write(directory, SEGMENTS)
    return directory


def remove(directory: Path, *bases: int) -> None:
    for base in bases:
        path = directory / log_name(base)
        path.rename(f"{path}.deleted")


def retention_of_the_first(directory: Path) -> None:
    remove(directory, 0)


def retention_with_the_marker(directory: Path) -> None:
    remove(directory, 0, 3)


def compaction(directory: Path) -> None:
    """What was aborted goes; its marker, which ends nothing any more, goes later."""
    beside = directory.parent.parent / "cleaned"
    write(beside, {0: [Data(None)]})
    write(beside, {3: [Data(None)]})
    for base in (0, 3):
        os.replace(beside / log_name(base), directory / log_name(base))


CHANGES = pytest.mark.parametrize(
    "change",
    [retention_of_the_first, retention_with_the_marker, compaction],
    ids=lambda change: change.__name__,
)
Change = Callable[[Path], None]


def tree_of(directory: Path) -> KafkaTree:
    return open_tree(directory.parent, options=COMMITTED)


def outcome(file: File, start: int, size: int = 1 << 20) -> bytes:
    try:
        return file.read(start, size)
    except KfsError as error:
        return errno.errorcode[error.errno].encode()


@CHANGES
@pytest.mark.parametrize("path", ["t/0/records.jsonl", "t/0/segment/0.jsonl"])
def test_who_has_lines_open_never_gets_aborted_records(directory: Path, path: str, change: Change) -> None:
    tree = tree_of(directory)
    before = content_of(tree, path)
    tree = tree_of(directory)
    opened = file_at(tree, path)
    assert opened.attributes().size == len(before)
    change(directory)
    tree.context.text._chunks.clear()
    for start in (0, 10):
        assert outcome(opened, start) in (before[start:], b"ESTALE")


@CHANGES
def test_batches_of_a_segment_that_is_gone_have_no_verdict(directory: Path, change: Change) -> None:
    log = open_log(directory)
    segment = log.segments[0]
    headers = [item.header for item in segment.walk() if isinstance(item, Block)]
    committed = CommittedReader(log)
    aborted = AbortedTransactions(log)
    assert [committed.hides(segment, header) for header in headers] == [True, False]
    assert aborted.is_aborted(segment, 1, 0, 1)
    change(directory)
    assert aborted.is_aborted(segment, 1, 0, 1)  # of the log as it was looked at
    assert segment not in log.segments
    with pytest.raises(FileChanged):
        committed.hides(segment, headers[0])
    with pytest.raises(FileChanged):
        aborted.is_aborted(segment, 1, 0, 1)
    assert not committed.hides(segment, headers[1])


@CHANGES
def test_a_replay_that_was_not_begun_yet_has_no_verdict_either(directory: Path, change: Change) -> None:
    log = open_log(directory)
    segment = log.segments[0]
    assert segment.file().size()
    change(directory)
    with pytest.raises(FileChanged):
        AbortedTransactions(log).is_aborted(segment, 1, 0, 1)


def test_verdicts_are_not_kept_when_the_log_is_written_anew(directory: Path) -> None:
    """A follower cuts off a transaction that was aborted, and its leader has committed one there."""
    log = open_log(directory)
    aborted = AbortedTransactions(log)
    assert aborted.is_aborted(log.segments[0], 1, 0, 1)
    assert not aborted.is_aborted(log.segments[2], 1, 5, 6)
    os.truncate(directory / log_name(5), 0)
    write(directory, {5: [Data(1, 2), abort(1), Data(None)]})
    assert aborted.is_aborted(log.segments[2], 1, 5, 6)


def committed_offsets_of(log: Log) -> list[int]:
    reader = SplitReader(Selection(), IsolationLevel.READ_COMMITTED)
    wanted = WantedOffsets(0, last_stable_offset(log), MAX_INT64)
    return [
        chosen.records.columns.offsets[index]
        for _, chosen in selected_in(reader, log, wanted)
        if chosen.records is not None
        for index in chosen.indexes
    ]


def test_pieces_have_no_aborted_records(directory: Path) -> None:
    assert committed_offsets_of(open_log(directory)) == SHOWN


@CHANGES
def test_a_piece_whose_segment_goes_meanwhile_is_read_from_what_is_there(
    directory: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    reader = SplitReader(Selection(), IsolationLevel.READ_COMMITTED)
    pieces = selected_in(reader, log, WantedOffsets(0, MAX_INT64, MAX_INT64))
    segments = log.segments
    for segment in segments:
        assert segment.file().size()
    bulk = Segment.bulk

    def changing(segment: Segment, position: int, seen: int | None, end: int | None) -> object:
        items = bulk(segment, position, seen, end)
        if segment is segments[0]:
            change(directory)
        return items

    monkeypatch.setattr(Segment, "bulk", changing)
    shown: list[int] = []
    for _, chosen in pieces:
        assert not chosen.problems
        if chosen.records is not None:
            shown.extend(chosen.records.columns.offsets[index] for index in chosen.indexes)
    assert shown == committed_offsets_of(open_log(directory))


def test_a_log_that_begins_inside_a_transaction_is_read_from_there(directory: Path) -> None:
    """As a broker does it: what lies at or above the first base offset is asked for, and its marker is there."""
    write(directory, {11: [Data(7)], 12: [Data(7), Data(8), abort(7), commit(8), Data(None)]})
    remove(directory, 0, 3, 5, 9, 11)
    log = open_log(directory)
    assert log.segments[0].base_offset == 12
    assert last_stable_offset(log) == 17
    assert committed_offsets_of(log) == [13, 16]
    tree = tree_of(directory)
    assert [line.split(b",")[2] for line in content_of(tree, "t/0/records.jsonl").splitlines()] == [
        b'"offset":13',
        b'"offset":16',
    ]


def test_a_replay_goes_on_behind_what_retention_took_of_what_it_has_read(directory: Path) -> None:
    log = open_log(directory)
    committed = CommittedReader(log)
    assert committed.last_stable_offset() == 11
    remove(directory, 0, 3, 5)
    write(directory, {11: [Data(1)]})
    assert committed.last_stable_offset() == 11
    write(directory, {12: [commit(1), Data(None)]})
    assert committed.last_stable_offset() == 14
