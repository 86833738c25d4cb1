"""What a mount keeps of segments goes with them: it is no larger after a thousand than after a few."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import pytest

from kfs.read.isolation_level import IsolationLevel
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.options import TreeOptions
from kfs.tree.partition_view import PartitionView
from tests.log.test_while_a_broker_works import SUFFIXES, rename_segment
from tests.logs import batch, content_of, directory_at, log_name, names, open_tree, record, write_segment

pytestmark = pytest.mark.usefixtures("quiet")

ROLLS = 1000
AT_ONCE = 20
DIRECTORIES = ("offset", "value", "key", "segment")


def look_at(tree: KafkaTree, path: str) -> None:
    """Have ids and attributes of whatever is below a partition, as it is now."""
    for view in tree.views.shown():
        view.log.look_again()
        view._range_until = -1.0
    for name in DIRECTORIES:
        first = names(directory_at(tree, f"{path}/{name}"))[0]
        tree.resolve(f"{path}/{name}/{first}").attributes()
    names(directory_at(tree, f"{path}/time"))
    content_of(tree, f"{path}/records.jsonl")


def kept(tree: KafkaTree) -> dict[str, int]:
    """Return how much is kept of segments, by what it is."""
    gc.collect()
    ids, data_dir, views = tree.context.ids, tree.data_dir, tree.views.shown()
    counts = {
        "slots": len(ids._slots),
        "second slots": len(ids._second_slots),
        "logs": len(data_dir._logs),
        "views": len(views),
    }
    counts["promised files"] = sum(len(view.lines.promised_files) for view in views)
    for name in ("stamps", "_owners"):
        counts[name] = sum(len(getattr(view, name)) for view in views)
    counts["cache slots"] = sum(len(view._cache_slots or ()) for view in views)
    text = tree.context.text
    counts["tables of lines"] = len(
        text._indexes.keys() - set(text._gone)
    )  # which are dropped with the next that is kept
    counts["objects"] = sum(isinstance(one, PartitionView) for one in gc.get_objects())
    return counts


@pytest.mark.parametrize("isolation", IsolationLevel)
def test_what_is_kept_of_segments_goes_with_them(isolation: IsolationLevel, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"

    def roll(base: int) -> None:
        write_segment(directory, base, [batch([record(base)])])

    for base in range(AT_ONCE):
        roll(base)
    tree = open_tree(tmp_path, options=TreeOptions(isolation=isolation))
    after: dict[int, dict[str, int]] = {}
    for base in range(0, ROLLS, AT_ONCE):
        look_at(tree, "t/0")
        for each in range(base, base + AT_ONCE):
            roll(each + AT_ONCE)
            rename_segment(directory, each)
        look_at(tree, ".kfs/deleted/t/0.deleted")
        for each in range(base, base + AT_ONCE):
            for suffix in SUFFIXES:
                (directory / log_name(each, f"{suffix}.deleted")).unlink()
        tree.invalidations()
        if base in (ROLLS // 5, ROLLS - AT_ONCE):
            after[base] = kept(tree)
    early, late = after.values()
    assert {name: count for name, count in late.items() if count > early[name] + 2 * AT_ONCE} == {}


@pytest.mark.usefixtures("eager")
def test_what_is_kept_of_a_topic_goes_when_it_is_made_anew(tmp_path: Path) -> None:
    tree = open_tree_of(tmp_path)
    after: dict[int, dict[str, int]] = {}
    for turn in range(60):
        look_at(tree, "t/0")
        shutil.rmtree(tmp_path / "t-0")
        assert names(tree.root) == ["other"]
        for _ in range(8):
            tree.invalidations()
        write_segment(tmp_path / "t-0", 0, [batch([record(0)])])
        if turn in (10, 59):
            after[turn] = kept(tree)
    early, late = after.values()
    assert {name: count for name, count in late.items() if count > early[name] + 8} == {}


def open_tree_of(root: Path) -> KafkaTree:
    for topic in ("t", "other"):
        write_segment(root / f"{topic}-0", 0, [batch([record(0)])])
    return open_tree(root)
