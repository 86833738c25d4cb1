"""What caches count is what they hold: a bound in bytes is one, however small the things are that are kept."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from kfs.tree.context import TreeContext, TreeOptions
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from tests.every_node import every_node
from tests.logs import dense, open_tree, write_partition

COUNT = 100


def tables(context: TreeContext) -> int:
    counted = int(context.text._tables.currsize)
    context.text._tables.clear()
    return counted


def hours(context: TreeContext) -> int:
    counted = int(context.hours.currsize)
    context.hours.clear()
    return counted


def blocks(context: TreeContext) -> int:
    counted = context.data_dir.storage.cache.nbytes
    context.data_dir.storage.cache.clear()
    return counted


def rendered(context: TreeContext) -> int:
    counted = context.rendered.nbytes
    context.rendered.clear()
    return counted


def generated(context: TreeContext) -> int:
    counted = int(context._generated.currsize)
    context._generated.clear()
    context._latest.clear()
    return counted


def read_everything(tree: KafkaTree) -> None:
    for listed in every_node(tree):
        if isinstance(listed.node, File):
            listed.node.read(0, listed.node.attributes().size)


def test_caches_count_what_they_hold(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {base: dense(base, base) for base in range(COUNT)})
    found = {}
    tracemalloc.start()
    try:
        tree = open_tree(tmp_path, options=TreeOptions(views=True))
        read_everything(tree)
        for clear in (tables, hours, blocks, rendered, generated):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            counted = clear(tree.context)
            gc.collect()
            found[clear.__name__] = counted, before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    for name, (counted, held) in found.items():
        assert held > COUNT * 50, name
        assert 0.7 * held < counted < 5 * held, name
