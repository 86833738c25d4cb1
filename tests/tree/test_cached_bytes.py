"""What caches count is what they hold: a bound in bytes is one, however small the things are that are kept."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType

from kfs.tree.context import TreeContext
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import File
from kfs.tree.options import TreeOptions
from tests.every_node import every_node
from tests.logs import dense, open_tree, write_partition

COUNT = 100


def caches(context: TreeContext) -> dict[str, tuple[float, Iterable[object]]]:
    """Return what each cache counts, and its keys and values."""
    blocks, rendered = context.data_dir.storage.cache, context.rendered
    tables, generated = context.text._indexes, context._generated
    return {
        "tables": (tables.currsize, tables.items()),
        "hours": (context.hours.currsize, context.hours.items()),
        "generated": (generated.currsize, generated.items()),
        "blocks": (blocks.nbytes, blocks._values.items()),
        "rendered": (rendered.nbytes, rendered._values.items()),
    }


def held_by(things: Iterable[object]) -> int:
    """Return the bytes of things and of all that they refer to, each once."""
    seen: set[int] = set()
    kept: list[object] = []  # or an address may become another's
    left = list(things)
    total = 0
    while left:
        one = left.pop()
        if id(one) not in seen and not isinstance(one, (type, ModuleType, FunctionType)):
            seen.add(id(one))
            kept.append(one)
            total += sys.getsizeof(one)
            left += gc.get_referents(one)
    return total


def read_everything(tree: KafkaTree) -> None:
    for listed in every_node(tree):
        if isinstance(listed.node, File):
            listed.node.read(0, listed.node.attributes().size)


def test_caches_count_what_they_hold(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {base: dense(base, base) for base in range(COUNT)})
    tree = open_tree(tmp_path, options=TreeOptions(views=True))
    read_everything(tree)
    for name, (counted, things) in caches(tree.context).items():
        held = held_by(things)
        assert held > COUNT // 2 * 100, name
        assert 0.7 * held < counted < 4 * held, name
