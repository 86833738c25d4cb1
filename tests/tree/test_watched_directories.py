"""The watch's waits: what an event tells is told at once, and what makes no event isn't missed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfs.storage.changes import Changes
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.partition_view import PartitionView
from kfs.tree.watch import Watch
from tests.logs import (
    content_of,
    dense,
    directory_at,
    joined,
    log_name,
    names,
    open_tree,
    set_high_watermark,
    set_log_start,
    write_partition,
)
from tests.tree.test_watch import cut_segment, delete_partition, delete_segment, swap_segment

pytestmark = pytest.mark.usefixtures("eager", "quiet")

#: Far more than an event takes, in seconds: a wait that lasts as long has missed it.
LONG = 30.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for topic in ("a", "b"):
        write_partition(data / f"{topic}-0", {0: dense(0, 9), 10: dense(10, 19)})
    (data / "log-start-offset-checkpoint").write_text("0\n0\n")
    return data


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Only events end a wait that polling would end; returns the list of all waits, in seconds."""
    asked: list[float] = []
    wait = Changes.wait

    def noting(self: Changes, seconds: float, reader: int | None = None) -> dict[str, set[str]] | None:
        asked.append(seconds)
        return wait(self, seconds, reader)

    monkeypatch.setattr(Changes, "wait", noting)
    monkeypatch.setattr("kfs.tree.watch.SELDOM_SECONDS", LONG)
    monkeypatch.setattr("kfs.tree.watch._LEAST_SECONDS", 0.0)
    monkeypatch.setattr("kfs.tree.watch._LOOK_SECONDS", 60.0)
    monkeypatch.setattr("kfs.tree.pending_invalidations._APART_SECONDS", 0.0)
    return asked


@pytest.fixture
def tree(root: Path) -> Iterator[KafkaTree]:
    """A tree of which everything was shown, and seen by the watch."""
    tree = open_tree(root)
    show(tree)
    yield tree
    tree.close()


def show(tree: KafkaTree) -> None:
    for topic in names(tree.root):
        for name in names(directory_at(tree, f"{topic}/0/offset")):
            content_of(tree, f"{topic}/0/offset/{name}")
        _ = directory_at(tree, f"{topic}/0/segment").lookup("0.jsonl").attributes()
    tree.await_invalidations()
    while watch_of(tree)._due_at() - time.monotonic() < LONG / 2:
        tree.await_invalidations()


def watch_of(tree: KafkaTree) -> Watch:
    assert tree._watch is not None
    return tree._watch


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the path of each partition that is looked at is added."""
    looked: list[str] = []
    look_at = Watch._look_at

    def noting(self: Watch, view: PartitionView) -> Iterator[None]:
        looked.append(view.path)
        return look_at(self, view)

    monkeypatch.setattr(Watch, "_look_at", noting)
    return looked


def told(tree: KafkaTree) -> set[str]:
    """Wait once; return the partitions of which something was told."""
    return {"/".join(each.path.split("/")[:2]) for each in tree.await_invalidations()}


def raise_log_start(root: Path) -> None:
    set_log_start(root, "a", 0, 5)


def test_a_moved_log_start_takes_line_files_back_while_the_visible_range_is_reused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfs.tree.visible_log._RANGE_SECONDS", LONG)
    tree = open_tree(root)
    show(tree)
    raise_log_start(root)
    assert "a/0/segment/0.jsonl" in {each.path for each in tree.await_invalidations()}
    tree.close()


def test_a_log_start_that_moved_just_before_it_is_watched_is_not_missed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfs.log.log_dir._LOOK_AGAIN_SECONDS", LONG)
    tree = open_tree(root)
    _ = directory_at(tree, "a/0/segment").lookup("0.jsonl").attributes()
    raise_log_start(root)
    assert "a/0/segment/0.jsonl" in {each.path for each in tree.await_invalidations()}
    tree.close()


@pytest.mark.parametrize("change", [delete_segment, swap_segment, cut_segment, delete_partition, raise_log_start])
def test_a_change_is_told_by_its_event(
    tree: KafkaTree, root: Path, waits: list[float], looks: list[str], change: Callable[[Path], None]
) -> None:
    change(root)
    waits.clear()
    assert told(tree) == {"a/0"}
    assert waits[0] > LONG / 2
    assert set(looks) <= {"a/0"}


def test_who_asks_for_a_look_gets_one_at_everything(tree: KafkaTree, looks: list[str]) -> None:
    tree.look_now()
    while not looks:
        assert told(tree) == set()
    assert looks == ["a/0", "b/0"]
    assert watch_of(tree)._due_at() - time.monotonic() > LONG / 2


def test_an_append_leads_to_no_look(tree: KafkaTree, root: Path, looks: list[str]) -> None:
    with (root / "a-0" / log_name(10)).open("ab") as log:
        log.write(joined(dense(20, 24)))
    assert told(tree) == set()
    assert looks == []


def test_a_roll_is_seen_at_once(tree: KafkaTree, root: Path) -> None:
    write_partition(root / "a-0", {20: dense(20, 29)})
    assert told(tree) == set()
    assert names(directory_at(tree, "a/0/segment"))[-1] == f"{20:020d}.jsonl"


def test_what_is_shown_later_is_watched_from_then_on(tree: KafkaTree, root: Path) -> None:
    write_partition(root / "c-0", {0: dense(0, 9), 10: dense(10, 19)})
    while "c" not in names(tree.root):
        pass
    show(tree)
    delete_segment_of(root / "c-0")
    assert told(tree) == {"c/0"}


def test_a_partition_that_is_made_again_is_watched(tree: KafkaTree, root: Path) -> None:
    delete_partition(root)
    assert told(tree) == {"a/0"}
    write_partition(root / "a-0", {0: dense(0, 9), 10: dense(10, 19)})
    while names(tree.root) != ["a", "b"]:
        pass
    show(tree)
    delete_segment(root)
    assert told(tree) == {"a/0"}


def test_a_change_that_a_reader_notices_is_told(tree: KafkaTree, root: Path, tmp_path: Path) -> None:
    """Of a write through another name of the file there is no event in this directory."""
    beside = tmp_path / "beside.log"
    os.link(root / "a-0" / log_name(0), beside)
    os.truncate(beside, 100)
    log = tree.data_dir.log("a", 0)
    assert log is not None
    assert log.find(12) is not None
    log.segments[0].size()  # notices it
    log.look_again()
    assert len(log.segments) == 2
    assert told(tree) == {"a/0"}


def test_what_makes_no_event_is_found_all_the_same(
    tree: KafkaTree, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "beside.log"
    os.link(root / "a-0" / log_name(0), beside)
    os.truncate(beside, 100)
    monkeypatch.setattr("kfs.tree.watch.SELDOM_SECONDS", 0.0)
    watch_of(tree)._others_due = 0.0
    assert "a/0" in {partition for _ in range(4) for partition in told(tree)}


def test_partitions_beyond_the_limit_of_watches_are_polled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfs.tree.watched_directories.fair_share_of_watches", lambda: 2)  # the log directory, and one
    tree = open_tree(root)
    for topic in ("a", "b"):
        content_of(tree, f"{topic}/0/offset/3.json")
    for _ in range(3):
        tree.await_invalidations()
    watch = watch_of(tree)
    assert [view.path for view in watch._polled] == ["b/0"]
    assert watch._due_at() - time.monotonic() < LONG / 2
    delete_segment_of(root / "b-0")
    assert "b/0" in {partition for _ in range(4) for partition in told(tree)}
    delete_segment_of(root / "a-0")
    assert "a/0" in {partition for _ in range(4) for partition in told(tree)}
    tree.close()


def test_lost_events_lead_to_a_look_at_everything(
    tree: KafkaTree, root: Path, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_segment(root)
    monkeypatch.setattr(Changes, "wait", lambda *_: None)
    while not (found := told(tree)):
        pass
    assert found == {"a/0"}
    assert looks == ["a/0", "b/0"]


def test_a_change_is_told_three_times_with_pauses(
    tree: KafkaTree, root: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfs.tree.pending_invalidations._APART_SECONDS", 0.05)
    delete_segment(root)
    waits.clear()
    answers: list[set[str]] = []
    while watch_of(tree)._pending.due() is not None or not answers:
        answers.append(told(tree))
    assert [each for each in answers if each] == [{"a/0"}] * 3
    assert [each > 1 for each in waits].count(True) == 1


def test_a_high_watermark_that_falls_is_told_by_its_event(root: Path, waits: list[float]) -> None:
    for topic in ("a", "b"):
        set_high_watermark(root, topic, 0, 20)
    tree = open_tree(root, until_high_watermark=True)
    show(tree)
    set_high_watermark(root, "a", 0, 5)
    waits.clear()
    assert "a/0" in {partition for _ in range(2) for partition in told(tree)}
    assert waits[0] > LONG / 2
    tree.close()


def delete_segment_of(directory: Path) -> None:
    for path in directory.glob(log_name(0, ".*")):
        path.rename(f"{path}.deleted")
