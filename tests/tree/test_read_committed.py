"""A tree at ``read_committed``: every view of a partition shows what a consumer at that level gets, and no more."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import NotFound
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT64
from kfs.log.log import Log
from kfs.read import aborted_transactions, log_reader
from kfs.read.isolation_level import IsolationLevel
from kfs.render.record_line import parse_line
from kfs.render.timestamps import iso_time
from kfs.tree.closed_segments import closed_segments, is_kept, size_segment
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.lines import text
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.node import Directory
from kfs.tree.options import TreeOptions
from tests.cat.test_read_committed import INDEXES, copied, split
from tests.corpus import corpus_names
from tests.expected import expected_by_partition
from tests.logs import (
    START,
    content_of,
    directory_at,
    file_at,
    look_every_time,
    names,
    open_tree,
    set_log_start,
    target_of,
)
from tests.read.some_transactions import (
    Data,
    Event,
    Placed,
    abort,
    commit,
    committed_offsets,
    encoded,
    placed,
    some_transactions,
    stable_end,
    write_transactions,
)
from tests.thoroughness import examples

CorpusPath = Callable[[str], Path]
#: Recorded brokers of which it is known what consumers got.
CORPORA = ["a_v2", "b_txn", "b39_txn", "c_clean", "d_groups", "e_meta", "e39_meta", "f_mixed", "g_running"]
OLD_FORMATS = [name for name in corpus_names() if name.startswith("f_")]
#: What was written after the consumer had read, as README.txt of the corpus says.
APPENDED_LATER = {("g_running", "live-b-0"): range(100, 105)}
COMMITTED = TreeOptions(isolation=IsolationLevel.READ_COMMITTED)


def offsets_listed(tree: KafkaTree, path: str) -> list[int]:
    return [int(name.removesuffix(".json")) for name in names(directory_at(tree, path))]


def offsets_of_lines(lines: bytes) -> list[int]:
    return [json.loads(line)["offset"] for line in lines.splitlines()]


def times_listed(tree: KafkaTree, path: str) -> list[int]:
    """Return the offsets below ``time/``, which lists them by hour."""
    found: list[int] = []

    def walk(directory: Directory) -> None:
        for name in names(directory):
            node = directory.lookup(name)
            if isinstance(node, Directory):
                walk(node)
            else:
                found.append(int(name.removesuffix(".json")))

    walk(directory_at(tree, f"{path}/time"))
    return sorted(found)


def assert_shows(tree: KafkaTree, path: str, offsets: list[int], below: int) -> None:
    """Check every view of a partition whose offsets are all below a bound."""
    assert offsets_listed(tree, f"{path}/offset") == offsets
    lines = {offset: content_of(tree, f"{path}/offset/{offset}.json") for offset in offsets}
    assert [json.loads(line)["offset"] for line in lines.values()] == offsets
    for offset in set(range(below)) - set(offsets):
        for name in (f"offset/{offset}.json", f"value/{offset}", f"key/{offset}"):
            with pytest.raises(NotFound):
                tree.resolve(f"{path}/{name}")
    whole = b"".join(lines.values())
    segments = names(directory_at(tree, f"{path}/segment"))
    assert b"".join(content_of(tree, f"{path}/segment/{name}") for name in segments) == whole
    assert content_of(tree, f"{path}/records.jsonl") == whole
    for field in ("key", "value"):
        expected = [offset for offset, line in lines.items() if json.loads(line)[field] is not None]
        assert offsets_listed(tree, f"{path}/{field}") == expected
    assert times_listed(tree, path) == offsets
    if not offsets:
        with pytest.raises(NotFound):
            tree.resolve(f"{path}/first.json")
        return
    assert target_of(tree, f"{path}/first.json") == f"offset/{offsets[0]}.json"
    assert target_of(tree, f"{path}/last.json") == f"offset/{offsets[-1]}.json"


# --- recorded brokers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("level", list(IsolationLevel))
@pytest.mark.usefixtures("quiet")
def test_a_tree_shows_what_a_consumer_got(name: str, level: IsolationLevel, corpus: CorpusPath) -> None:
    consumed = json.loads((corpus(name) / "consumed.json").read_text())
    tree = open_tree(corpus(name) / "data", options=TreeOptions(isolation=level))
    for partition, ranges in consumed.get(level.value, {}).items():
        topic, number = split(partition)
        offsets = [offset for first, last in ranges for offset in range(first, last + 1)]
        offsets += APPENDED_LATER.get((name, partition), ())
        assert_shows(tree, f"{topic}/{number}", offsets, offsets[-1] + 20 if offsets else 20)


@pytest.mark.parametrize("name", OLD_FORMATS)
def test_of_old_formats_all_is_committed(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data", options=COMMITTED)
    partitions = expected_by_partition(corpus(name))
    assert {(log.topic, log.partition) for log in tree.data_dir.logs() if log.segments} >= partitions.keys()
    for (topic, number), expected in partitions.items():
        path = f"{topic}/{number}"
        records = [each.record for each in expected]
        assert offsets_listed(tree, f"{path}/offset") == [record.offset for record in records]
        files = [content_of(tree, f"{path}/offset/{record.offset}.json") for record in records]
        assert [parse_line(line)[2] for line in files] == records
        segments = names(directory_at(tree, f"{path}/segment"))
        assert b"".join(content_of(tree, f"{path}/segment/{each}") for each in segments) == b"".join(files)
        assert content_of(tree, f"{path}/records.jsonl") == b"".join(files)
        log = json.loads(content_of(tree, f"{path}/meta/log.json"))
        assert log["lastStableOffset"] == log["logEndOffset"] > records[-1].offset


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
@INDEXES
@pytest.mark.usefixtures("quiet")
def test_transaction_indexes_change_nothing(
    name: str, damage: Callable[[Path], None], corpus: CorpusPath, tmp_path: Path
) -> None:
    root = copied(corpus(name) / "data", tmp_path, damage)
    tree = open_tree(root, options=COMMITTED)
    for partition, ranges in json.loads((corpus(name) / "consumed.json").read_text())["read_committed"].items():
        topic, number = split(partition)
        offsets = [offset for first, last in ranges for offset in range(first, last + 1)]
        assert_shows(tree, f"{topic}/{number}", offsets, offsets[-1] + 20)


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "c_clean", "d_groups", "g_running"])
@pytest.mark.parametrize("level", list(IsolationLevel))
def test_the_last_stable_offset_is_shown_at_every_level(name: str, level: IsolationLevel, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data", options=TreeOptions(isolation=level))
    for partition, said in json.loads((corpus(name) / "offsets.json").read_text())["read_committed"].items():
        topic, number = split(partition)
        if not tree.data_dir.log(topic, number):
            continue
        shown = json.loads(content_of(tree, f"{topic}/{number}/meta/log.json"))
        assert shown["lastStableOffset"] == said["latest"][0] + len(APPENDED_LATER.get((name, partition), ()))


# --- a log that grows under the tree --------------------------------------------------------------------------------


class LiveLog:
    """A partition that is written to, event by event."""

    def __init__(self, root: Path, segment_bytes: int = 1 << 20) -> None:
        config = LogConfig(segment_bytes=segment_bytes, segment_ms=MAX_INT64, index_interval_bytes=100)
        root.mkdir(exist_ok=True)
        self.directory = root / "t-0"
        self._log = UnifiedLog.create(str(self.directory), config, first_offset=0, clock=lambda: START)
        self.events: list[Event] = []

    def append(self, *events: Event) -> list[Placed]:
        """Append events; return all that are in the log."""
        for event in events:
            self.events.append(event)
            self._log.append(encoded(placed(self.events)[-1]))
        self._log.flush()
        return placed(self.events)

    @property
    def end(self) -> int:
        return placed(self.events)[-1].offsets[-1] + 1 if self.events else 0


@settings(max_examples=examples(25, 200))
@given(
    events=some_transactions(most=18),
    segment_bytes=st.integers(300, 1500),
    chunk_bytes=st.sampled_from([1, 300, 64 * 1024]),
    far=st.booleans(),
    most=st.sampled_from([0, 1, 4096]),
    looks=st.sets(st.integers(0, 17)),
)
@pytest.mark.usefixtures("quiet")
def test_any_log_is_shown_as_a_naive_reader_reads_it_while_it_grows(
    events: list[Event], segment_bytes: int, chunk_bytes: int, far: bool, most: int, looks: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        look_every_time(patch)
        patch.setattr(text, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(log_reader, "_LOOK_BACK", (1, 2, 2**31))
        patch.setattr(aborted_transactions, "_MOST_REMEMBERED", most)
        if far:
            patch.setattr(aborted_transactions, "_FAR_BYTES", 0)
        log = LiveLog(Path(name), segment_bytes)
        log.append(events[0])
        tree = open_tree(Path(name), options=COMMITTED)
        for number, event in enumerate(events[1:]):
            if number in looks:
                assert_shows(tree, "t/0", committed_offsets(placed(log.events)), log.end)
            log.append(event)
        assert_shows(tree, "t/0", committed_offsets(placed(log.events)), log.end)
        shown = json.loads(content_of(tree, "t/0/meta/log.json"))
        assert shown["lastStableOffset"] == stable_end(placed(log.events))


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    return LiveLog(tmp_path)


@pytest.mark.usefixtures("eager")
def test_records_appear_when_their_transaction_commits(live: LiveLog, tmp_path: Path) -> None:
    live.append(Data(None), Data(1), Data(2), Data(None))
    tree = open_tree(tmp_path, options=COMMITTED)
    assert_shows(tree, "t/0", [0], live.end)
    live.append(commit(1))
    assert_shows(tree, "t/0", [0, 1], live.end)
    live.append(abort(2))
    assert_shows(tree, "t/0", [0, 1, 3], live.end)


@pytest.mark.usefixtures("eager")
def test_a_closed_segment_is_final_once_the_last_stable_offset_has_passed_it(tmp_path: Path) -> None:
    live = LiveLog(tmp_path, segment_bytes=300)
    live.append(Data(None), Data(1, 2), Data(2, 2), commit(2), Data(2, 2), Data(2, 2), Data(2, 2))
    tree = open_tree(tmp_path, options=COMMITTED)
    first = names(directory_at(tree, "t/0/segment"))
    assert first == ["00000000000000000000.jsonl"]
    assert len(list(live.directory.glob("*.log"))) > 1, "closed, with a transaction open from its first offset on"
    assert offsets_of_lines(content_of(tree, f"t/0/segment/{first[0]}")) == [0]
    lifetime = tree.resolve(f"t/0/segment/{first[0]}").attributes().lifetime
    live.append(commit(1))
    assert offsets_of_lines(content_of(tree, f"t/0/segment/{first[0]}"))[:3] == [0, 1, 2]
    live.append(abort(2))
    final = tree.resolve(f"t/0/segment/{first[0]}").attributes().lifetime
    assert lifetime < 1 < final
    assert_shows(tree, "t/0", [0, 1, 2, 3, 4], live.end)


@pytest.mark.usefixtures("eager")
def test_records_go_where_the_log_is_cut_and_their_transaction_ends_otherwise(tmp_path: Path) -> None:
    live = LiveLog(tmp_path, segment_bytes=300)
    events: list[Event] = [Data(1, 2), Data(1, 2), Data(1, 2)]
    live.append(*events, commit(1), Data(None, 2))
    tree = open_tree(tmp_path, options=COMMITTED)
    assert_shows(tree, "t/0", [0, 1, 2, 3, 4, 5, 7, 8], live.end)
    shutil.rmtree(live.directory)
    other = LiveLog(tmp_path / "other", segment_bytes=300)
    other.append(*events, abort(1), Data(None, 2))
    shutil.move(other.directory, live.directory)
    assert_shows(tree, "t/0", [7, 8], live.end)
    tail = sorted(live.directory.glob("*.log"))[-1]
    base = int(tail.stem)
    kept = tail.read_bytes()
    tail.write_bytes(b"")
    assert offsets_listed(tree, "t/0/offset") == []
    again = placed([*events, commit(1), Data(None, 2)])
    tail.write_bytes(b"".join(encoded(one) for one in again if one.offsets[0] >= base))
    assert len(tail.read_bytes()) == len(kept)
    assert_shows(tree, "t/0", [0, 1, 2, 3, 4, 5, 7, 8], live.end)


def test_a_tree_has_what_lies_below_the_log_start_at_its_level(tmp_path: Path) -> None:
    live = LiveLog(tmp_path)
    live.append(Data(1, 2), Data(2, 2), abort(1), commit(2), Data(1, 2), Data(2, 2), commit(2), abort(1))
    set_log_start(tmp_path, "t", 0, 6)
    tree = open_tree(tmp_path, options=COMMITTED)
    assert_shows(tree, "t/0", [8, 9], live.end)
    assert_shows(tree, ".kfs/deleted/t/0", [2, 3], live.end)


@pytest.mark.parametrize("level", list(IsolationLevel))
@pytest.mark.usefixtures("eager")
def test_what_is_deleted_ends_at_the_log_start_in_the_active_segment_too(level: IsolationLevel, tmp_path: Path) -> None:
    live = LiveLog(tmp_path)
    live.append(Data(None, 5), Data(None, 5, codec=Codec.LZ4), Data(None, 5))
    set_log_start(tmp_path, "t", 0, 7)
    tree = open_tree(tmp_path, options=TreeOptions(isolation=level))
    assert_shows(tree, ".kfs/deleted/t/0", list(range(7)), live.end)
    assert_shows(tree, "t/0", list(range(7, 15)), live.end)
    live.append(Data(None, 5))
    assert_shows(tree, ".kfs/deleted/t/0", list(range(7)), live.end)
    assert_shows(tree, "t/0", list(range(7, 20)), live.end)
    set_log_start(tmp_path, "t", 0, 16)
    assert_shows(tree, ".kfs/deleted/t/0", list(range(16)), live.end)
    assert_shows(tree, "t/0", list(range(16, 20)), live.end)


@pytest.mark.usefixtures("eager")
def test_nothing_is_shown_of_a_batch_that_the_log_start_lies_inside_of_behind_an_open_transaction(
    tmp_path: Path,
) -> None:
    write_transactions(tmp_path / "t-0", [Data(1), Data(None, 3)])
    set_log_start(tmp_path, "t", 0, 2)
    tree = open_tree(tmp_path, options=TreeOptions(isolation=IsolationLevel.READ_COMMITTED))
    assert names(directory_at(tree, "t/0/offset")) == []
    assert content_of(tree, "t/0/segment/0.jsonl") == content_of(tree, "t/0/records.jsonl") == b""


def test_of_many_partitions_those_read_lately_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: weakref.WeakSet[aborted_transactions.AbortedTransactions] = weakref.WeakSet()

    class Counted(aborted_transactions.AbortedTransactions):
        def __init__(self, log: Log) -> None:
            super().__init__(log)
            made.add(self)

    monkeypatch.setattr("kfs.read.isolation.AbortedTransactions", Counted)
    events: list[Event] = [Data(1, 2), Data(2), abort(1), commit(2)]
    count = 40
    for number in range(count):
        write_transactions(tmp_path / f"t-{number}", events)
    tree = open_tree(tmp_path, options=COMMITTED)
    for _ in range(2):
        for number in range(count):
            assert_shows(tree, f"t/{number}", [2], 5)
            assert 0 < len(made) <= 16


def test_a_time_leads_to_a_record_that_is_shown(live: LiveLog, tmp_path: Path) -> None:
    live.append(Data(None), Data(1, 3), Data(2, 2), abort(1), commit(2), Data(1))
    tree = open_tree(tmp_path, options=COMMITTED)

    def at(offset: int) -> str:
        return target_of(tree, f"t/0/at/{iso_time(START + offset * 1000)}.json")

    assert [at(offset) for offset in (0, 1, 3, 4, 5)] == [f"../offset/{offset}.json" for offset in (0, 4, 4, 4, 5)]
    with pytest.raises(NotFound):
        at(8)


# --- tables kept for later ------------------------------------------------------------------------------------------


@pytest.fixture
def worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "WORTH_KEEPING", 1)
    monkeypatch.setattr("kfs.tree.closed_segments.WORTH_KEEPING", 1)


def stored(root: Path, store: Path, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> KafkaTree:
    return open_tree(root, options=TreeOptions(index_store=lambda: LineIndexStore(str(store)), isolation=level))


@pytest.mark.usefixtures("worth_keeping", "eager")
def test_what_is_kept_of_a_segment_is_of_one_level(tmp_path: Path) -> None:
    live = LiveLog(tmp_path / "data", segment_bytes=300)
    live.append(Data(1, 2), Data(2, 2), abort(1), commit(2), Data(None, 2), Data(None, 2), Data(None, 2))
    for level, offsets in ((IsolationLevel.READ_UNCOMMITTED, [0, 1, 2, 3]), (IsolationLevel.READ_COMMITTED, [2, 3])):
        for _ in ("made", "kept"):
            tree = stored(tmp_path / "data", tmp_path / "store", level)
            assert offsets_of_lines(content_of(tree, "t/0/segment/0.jsonl"))[: len(offsets)] == offsets
            first, *_others = closed_segments(tree.context)
            assert is_kept(tree.context, first)


@pytest.mark.usefixtures("worth_keeping", "eager")
def test_what_is_kept_holds_as_long_as_the_marker_in_a_later_segment_does(tmp_path: Path) -> None:
    live = LiveLog(tmp_path / "data", segment_bytes=300)
    events: list[Event] = [Data(1, 2), Data(1, 2), Data(1, 2), commit(1), Data(None, 2)]
    live.append(*events)
    tree = stored(tmp_path / "data", tmp_path / "store")
    (closed,) = closed_segments(tree.context)
    assert size_segment(tree.context, closed)
    assert is_kept(tree.context, closed)
    later = stored(tmp_path / "data", tmp_path / "store")
    assert not size_segment(later.context, closed), "kept, and still true"
    tail = sorted(live.directory.glob("*.log"))[-1]
    events[3] = abort(1)
    tail.write_bytes(b"".join(encoded(one) for one in placed(events) if one.offsets[0] >= int(tail.stem)))
    other = stored(tmp_path / "data", tmp_path / "store")
    assert content_of(other, "t/0/segment/0.jsonl") == b""
    assert other.resolve("t/0/segment/0.jsonl").attributes().size == 0


@pytest.mark.usefixtures("worth_keeping", "eager")
def test_a_segment_with_open_transactions_is_not_measured_ahead(tmp_path: Path) -> None:
    live = LiveLog(tmp_path / "data", segment_bytes=300)
    live.append(Data(None, 2), Data(1, 2), Data(None, 2), Data(None, 2), Data(None, 2), Data(None, 2))
    tree = stored(tmp_path / "data", tmp_path / "store")
    assert not list(closed_segments(tree.context))
    assert offsets_of_lines(content_of(tree, "t/0/segment/0.jsonl")) == [0, 1]
    assert not os.path.exists(tmp_path / "store")
    live.append(commit(1))
    assert list(closed_segments(tree.context))
    assert offsets_of_lines(content_of(tree, "t/0/segment/0.jsonl"))[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["records.jsonl", "segment/0.jsonl"])
def test_a_file_that_is_held_while_the_log_start_moves_goes_on(
    name: str, live: LiveLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name leads to another file by then, so nobody but its reader asks how far it goes."""
    look_every_time(monkeypatch)
    live.append(Data(None, 3), Data(1))
    tree = open_tree(tmp_path, options=COMMITTED)
    held = file_at(tree, f"t/0/{name}")
    assert offsets_of_lines(held.read(0, 1 << 20)) == [0, 1, 2]
    set_log_start(tmp_path, "t", 0, 1)
    assert offsets_of_lines(content_of(tree, f"t/0/{name}")) == [1, 2]
    live.append(commit(1), Data(None), Data(2))
    size = held.attributes().size
    assert offsets_of_lines(held.read(0, 1 << 20)) == [0, 1, 2, 3, 5]
    assert len(held.read(0, 1 << 20)) == size
