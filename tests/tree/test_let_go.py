"""What a tree keeps of partitions that were shown is little, and doesn't change what it shows of them."""

from __future__ import annotations

import gc
import os
import tracemalloc
from pathlib import Path

import pytest

from kfs.errors import Stale
from kfs.log.log import Log
from kfs.log.segment import Segment
from kfs.log.segment_files import PartitionFiles
from kfs.log.storage import ListedLogs
from kfs.tree.context import _PARTITION_BYTES as PARTITION_BYTES
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from kfs.tree.options import TreeOptions
from kfs.tree.partition_view import PartitionView
from tests.every_node import every_node
from tests.logs import content_of, dense, directory_at, file_at, log_name, names, open_tree, write_partition

pytestmark = pytest.mark.usefixtures("quiet")

PARTITIONS = 12
MOST = 14
#: A moment long ago, in seconds: a directory that was changed just now may change again within a tick of the clock.
START = 1_700_000_000
#: What may be kept of a partition of two segments in bytes, if all in it was listed; some of it is in caches.
MOST_BYTES = 12_000


def write(root: Path, partition: int) -> None:
    directory = root / f"t-{partition}"
    write_partition(directory, {0: dense(0, 9), 10: dense(10, 19)})
    os.utime(directory, (START, START))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for partition in range(PARTITIONS):
        write(tmp_path, partition)
    return tmp_path


@pytest.fixture
def tree(root: Path) -> KafkaTree:
    """A tree whose logs hold the segments of few partitions."""
    tree = open_tree(root)
    tree.data_dir.storage.listed = ListedLogs(MOST)
    return tree


def log_of(tree: KafkaTree, partition: int) -> Log:
    log = tree.data_dir.log("t", partition)
    assert log is not None
    return log


def show_others(tree: KafkaTree) -> None:
    """Have the first partition let go of its segments, as others are looked at after it."""
    _ = log_of(tree, 0).segments
    for partition in range(1, PARTITIONS):
        names(directory_at(tree, f"t/{partition}/offset"))
    gc.collect()
    assert log_of(tree, 0)._kept is not None


def test_a_listing_of_partitions_opens_no_log(tree: KafkaTree) -> None:
    assert len(names(directory_at(tree, "t"))) == PARTITIONS
    assert not tree.views.shown()
    assert not tree.data_dir._logs


def test_segments_are_held_of_few_partitions(tree: KafkaTree) -> None:
    assert sum(1 for _ in every_node(tree)) > PARTITIONS * 20
    gc.collect()
    storage = tree.data_dir.storage
    assert storage.listed.weight <= MOST
    assert sum(isinstance(each, Segment) and each.storage is storage for each in gc.get_objects()) <= MOST
    assert len(tree.context.ids._slots) <= MOST


@pytest.mark.parametrize(
    "name",
    ["offset/7.json", "value/7", "key/7", "segment/00000000000000000000.jsonl", "records.jsonl", "meta/log.json"],
)
def test_ids_stay_while_partitions_let_go(tree: KafkaTree, name: str) -> None:
    path = f"t/0/{name}"
    node_id = file_at(tree, path).attributes().node_id
    content = content_of(tree, path)
    show_others(tree)
    node = tree.node(node_id)  # as a kernel asks that has not forgotten it
    assert isinstance(node, File)
    assert node.read(0, 4096) == content[:4096]
    show_others(tree)
    assert tree.path(node_id) == path
    assert file_at(tree, path).attributes().node_id == node_id


@pytest.mark.parametrize("name", ["", "/offset", "/segment", "/meta", "/value", "/time", "/first.json", "/last.json"])
def test_ids_of_places_stay_and_lead_back(tree: KafkaTree, name: str) -> None:
    path = f"t/0{name}"
    node_id = tree.resolve(path).attributes().node_id
    show_others(tree)
    assert tree.resolve(path).attributes().node_id == node_id
    assert tree.path(node_id) == path
    assert tree.node(node_id).attributes().node_id == node_id


def test_ids_differ(tree: KafkaTree) -> None:
    seen = [listed.node.attributes().node_id for listed in every_node(tree)]
    assert len(set(seen)) == len(seen)


def test_a_file_that_is_read_goes_on_while_its_partition_lets_go(tree: KafkaTree) -> None:
    file = file_at(tree, "t/0/offset/7.json")
    before = file.read(0, 4096)
    file.content = None  # type: ignore[attr-defined]
    tree.context.rendered.clear()
    show_others(tree)
    assert file.read(0, 4096) == before


def test_a_segment_that_was_cut_meanwhile_is_another(tree: KafkaTree, root: Path) -> None:
    node_id = file_at(tree, "t/0/offset/2.json").attributes().node_id
    show_others(tree)
    assert not tree.invalidations()
    path = root / "t-0" / log_name(0)
    os.truncate(path, path.stat().st_size - 1)
    told = {each.path for _ in range(3) for each in tree.invalidations()}
    assert "t/0/offset" in told
    with pytest.raises(Stale):
        tree.node(node_id)
    assert file_at(tree, "t/0/offset/2.json").attributes().node_id != node_id


def test_watching_lists_nothing_that_is_as_it_was(tree: KafkaTree, monkeypatch: pytest.MonkeyPatch) -> None:
    file_at(tree, "t/0/offset/7.json").attributes()
    show_others(tree)
    listed: list[str] = []
    found = Log._found

    def noting(self: Log, mtime_ns: int) -> tuple[PartitionFiles, bool]:
        listed.append(self.directory.path)
        return found(self, mtime_ns)

    monkeypatch.setattr(Log, "_found", noting)
    for _ in range(3):
        tree.invalidations()
    assert not listed
    assert log_of(tree, 0)._kept is not None


def test_little_is_kept_of_each_partition(tmp_path: Path) -> None:
    """Two trees, one over five times as many partitions; both have shown everything once."""
    few, many = tmp_path / "few", tmp_path / "many"
    for partition in range(50):
        write(many, partition)
        if partition < 10:
            write(few, partition)
    used = []
    for root in (few, few, many):  # the first time is for what is made once
        tree = open_tree(
            root,
            options=TreeOptions(rendered_bytes=1),
        )
        storage = tree.data_dir.storage
        storage.listed = ListedLogs(MOST)
        gc.collect()
        tracemalloc.start()
        try:
            for _ in every_node(tree):
                pass
            storage.cache.clear()
            storage.files.close()
            tree.context._generated.clear()
            gc.collect()
            used.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
            tree.close()
    assert (used[2] - used[1]) / 40 < MOST_BYTES
    assert sum(isinstance(each, PartitionView) for each in gc.get_objects()) < 1000


def test_caches_of_blocks_give_way_to_what_is_kept_of_partitions(root: Path) -> None:
    tree = open_tree(root, options=TreeOptions(rendered_bytes=8 * PARTITION_BYTES))
    decoded, rendered = tree.data_dir.storage.cache, tree.context.rendered
    most = decoded.capacity, rendered.capacity
    names(directory_at(tree, "t/0/offset"))
    one = decoded.capacity, rendered.capacity
    assert sum(most) - PARTITION_BYTES - 2 <= sum(one) <= sum(most) - PARTITION_BYTES
    assert one[0] / one[1] == pytest.approx(most[0] / most[1], abs=0.01)
    tree.context.make_room(1_000_000)
    assert (decoded.capacity, rendered.capacity) == (most[0] // 8, most[1] // 8)
    content_of(tree, "t/0/offset/7.json")
