"""``--until now``: a tree of a log that goes on shows one state of it, and what is gone of that is ESTALE."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kfs.errors import KfsError
from kfs.format.layout import MAX_INT64
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.node import Attributes, Directory, File, Symlink
from kfs.tree.source import TreeSource
from tests.compactions import Compacted
from tests.logs import (
    content_of,
    directory_at,
    log_name,
    look_every_time,
    names,
    set_high_watermark,
    set_log_start,
)
from tests.read.live import LivePartition, rename_away
from tests.read.some_transactions import Data, abort, commit


@pytest.fixture(autouse=True)
def _no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)


@pytest.fixture
def live(tmp_path: Path) -> LivePartition:
    live = LivePartition(tmp_path / "data")
    for _ in range(3):
        live.append(10)
        live.roll()
    live.append(7)
    return live


def opened(*roots: Path, isolation: str = "read_uncommitted", views: bool = True) -> KafkaTree:
    source = TreeSource(until="now", isolation=isolation, views=views)
    return source.open([str(root) for root in roots], LineIndexStore(str(roots[0].parent / "kept lines")))


def everything(tree: KafkaTree, path: str = "") -> dict[str, tuple[Attributes, bytes | str | None]]:
    """Return attributes and content of all that is frozen, by path."""
    found: dict[str, tuple[Attributes, bytes | str | None]] = {}
    for name in names(directory_at(tree, path)):
        below = f"{path}/{name}".strip("/")
        if name in (".kfs", "raw", "problems.jsonl"):
            continue
        node = tree.resolve(below)
        attributes = node.attributes()
        if isinstance(node, Directory):
            found[below] = attributes, None
            found |= everything(tree, below)
        elif isinstance(node, Symlink):
            found[below] = attributes, node.target()
        else:
            assert isinstance(node, File)
            found[below] = attributes, content_of(tree, below)
    return found


def errno_at(tree: KafkaTree, path: str) -> int:
    """Return the errno of looking something up and reading all of it, 0 where that succeeds."""
    try:
        node = tree.resolve(path)
        if isinstance(node, File):
            node.read(0, MAX_INT64)
        elif isinstance(node, Directory):
            names(node)
    except KfsError as error:
        return error.errno
    return 0


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_whatever_is_appended_it_shows_one_state(live: LivePartition, isolation: str) -> None:
    root = live.directory.parent
    live.change(Data(1, 3), abort(1), Data(1, 2), commit(1), Data(2, 2))
    set_high_watermark(root, "t", 0, 30)
    set_log_start(root, "t", 0, 3)
    LivePartition(root, "t-1").append(3)
    tree = opened(root, isolation=isolation)
    before = everything(tree)
    assert ("t/0/offset/3.json" in before, "t/0/offset/2.json" in before) == (True, False)
    assert f"t/0/offset/{live.end - 1}.json" in before or isolation == "read_committed"
    live.change(commit(2), Data(None, 4))
    live.epoch = 5
    live.append(10)
    live.roll()
    live.change(Data(3, 1), abort(3))
    live.append(10)
    set_high_watermark(root, "t", 0, 60)
    set_log_start(root, "t", 0, 12)
    LivePartition(root, "t-2").append(1)
    LivePartition(root, "u-0").append(1)
    assert everything(tree) == before
    assert errno_at(tree, f"t/0/offset/{live.end - 1}.json") == errno.ENOENT
    assert errno_at(tree, "u") == errno.ENOENT


def test_a_raw_log_ends_where_it_did(live: LivePartition) -> None:
    tree, path = opened(live.directory.parent), f"t/0/raw/{live.active.name}"
    before = content_of(tree, path)
    live.append(10)
    assert content_of(tree, path) == before == live.active.read_bytes()[: len(before)]


def test_it_begins_anew_when_opened_again(live: LivePartition) -> None:
    root = live.directory.parent
    tree = opened(root)
    live.append(1)
    again = opened(root)
    path = f"t/0/offset/{live.end - 1}.json"
    assert (errno_at(tree, path), errno_at(again, path)) == (errno.ENOENT, 0)


def test_an_empty_log_stays_empty(tmp_path: Path) -> None:
    live = LivePartition(tmp_path / "data")
    tree = opened(tmp_path / "data")
    before = everything(tree)
    live.append(3)
    assert everything(tree) == before
    assert names(directory_at(tree, "t/0/offset")) == []


@pytest.fixture
def seen(live: LivePartition) -> dict[str, tuple[Attributes, bytes | str | None]]:
    """Everything in the log directory of ``live``, by a tree that isn't used any more."""
    return everything(opened(live.directory.parent, views=False))


def test_what_retention_takes_is_stale(live: LivePartition, seen: dict[str, tuple[Attributes, bytes | None]]) -> None:
    tree = opened(live.directory.parent, views=False)
    live.delete_first_segment()
    assert names(directory_at(tree, "t/0")) == ["offset", "segment", "first.json", "last.json", "meta"]
    assert names(directory_at(tree, "t/0/segment")) == [f"{base:020d}.jsonl" for base in (0, 10, 20, 30)]
    stale = {path for path in seen if errno_at(tree, path) == errno.ESTALE}
    assert stale == {
        *(f"t/0/offset/{offset}.json" for offset in range(10)),
        *("t/0/offset", f"t/0/segment/{0:020d}.jsonl", "t/0/first.json"),
        *("t/0/meta/segments.jsonl", "t/0/meta/batches.jsonl", "t/0/meta/transactions.json"),
    }
    there = [path for path in seen if path.startswith(("t/0/offset/", "t/0/segment/")) and path not in stale]
    assert len(there) == 27 + 3
    assert {path: content_of(tree, path) for path in there} == {path: seen[path][1] for path in there}


def test_what_compaction_replaces_is_stale(tmp_path: Path) -> None:
    compacted = Compacted(tmp_path)
    tree = opened(tmp_path)
    compacted.compact([0, 10], [5, 15])
    assert [errno_at(tree, f"t/0/offset/{offset}.json") for offset in (5, 6, 15)] == [errno.ESTALE] * 3
    assert errno_at(tree, "t/0/offset/25.json") == 0


def test_what_is_cut_off_the_active_segment_is_stale(live: LivePartition) -> None:
    tree = opened(live.directory.parent)
    live.cut(32)
    live.append(20)
    assert errno_at(tree, "t/0/offset/36.json") == errno.ESTALE
    assert errno_at(tree, f"t/0/segment/{30:020d}.jsonl") == errno.ESTALE
    assert errno_at(tree, "t/0/offset/29.json") == 0


def test_a_deleted_topic_is_stale(live: LivePartition) -> None:
    root = live.directory.parent
    LivePartition(root, "u-0")
    tree = opened(root)
    live.remove()
    assert names(tree.root) == ["t", "u", ".kfs"]
    assert errno_at(tree, "t/0/offset/6.json") == errno.ESTALE
    assert errno_at(tree, "t/0/offset") == errno.ESTALE
    assert len(names(directory_at(tree, "t/0/segment"))) == 4


def test_records_lost_in_one_copy_still_come_from_another(live: LivePartition, tmp_path: Path) -> None:
    root, other = live.directory.parent, tmp_path / "other"
    shutil.copytree(root, other)
    path = live.directory / log_name(0)
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    tree = opened(root, other)
    live.append(3)
    assert [errno_at(tree, f"t/0/offset/{offset}.json") for offset in (2, 7, 12, 36)] == [0] * 4
    assert errno_at(tree, "t/0/offset/37.json") == errno.ENOENT
    assert errno_at(opened(root), "t/0/offset/2.json") == errno.EIO


def test_the_moment_of_a_data_directory_stays(live: LivePartition) -> None:
    data_dir = DataDir([str(live.directory.parent)], Storage())
    data_dir.freeze()
    live.append(3)
    data_dir.freeze()
    log = data_dir.log("t", 0)
    assert log is not None
    assert (log.visible().end, log.segments[-1].size()) == (37, log.segments[-1].tail()[0])


def test_a_directory_that_could_not_be_listed_then_is_lost(live: LivePartition, tmp_path: Path) -> None:
    other = tmp_path / "other"
    LivePartition(other, "u-0").append(1)
    data_dir = DataDir([str(live.directory.parent), str(other)], Storage())
    assert data_dir.topics() == ["t", "u"]
    away = rename_away(other)
    data_dir.freeze()
    away.rename(other)
    log = data_dir.log("u", 0)
    assert log is not None
    assert not log.can_be_listed
