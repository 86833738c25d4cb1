"""What a reader sees is decided in ``kfs/read`` and ``kfs/log``: nothing that shows records walks over batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.test_layers import ROOT, imported

#: What is visible, and what is lost, is decided by these.
DECIDING_MODULES: Final = {
    *("kfs.log.walk", "kfs.log.completion"),
    *("kfs.read.aborted_transactions",),
}
DECIDING_NAMES: Final = {"Damage", "Undecodable", "TransactionReplay"}
DECIDING_CALLS: Final = {
    *("walk", "walk_from", "walk_spans", "bulk", "bulk_reader", "find_with_segment"),
    *("visible", "offset_for_time", "aborted_transactions"),
}
#: The packages that decide, and those that judge or mend files, whoever reads them.
DECIDING_PACKAGES: Final = {"log", "read"}
PACKAGES_OF_FILES: Final = {"broker_log", "diff", "recover", "verify"}
#: Who uses them all the same, and why.
EXCEPT: Final = {
    "dump.dumper": "prints what is in a file, whoever sees it",
    "dump.index_check": "compares a file with its index",
    "tree.lines.source": "meta/batches.jsonl lists what is in the files",
    "tree.meta_dir": "meta/aborted-transactions.jsonl lists what is in the files",
    "tree.lines.record_lines": "measures and renders a segment piece by piece; kfs.read.sight decides",
    "internal.cluster.metadata_log": "its snapshots are files of records, and not a partition's log",
    "fsspec": "walk() is fsspec's, over directories",
    "spark.exporting.frames": "os.walk",
    "spark.ranges": "an offset for a time is what a broker answers with, whoever sees the record",
}


def uses(source: str, modules: set[str]) -> Iterator[str]:
    """Yield what a module uses of those that decide."""
    yield from sorted(DECIDING_MODULES & modules)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("kfs.log.", "kfs.read.")):
            yield from sorted(DECIDING_NAMES & {alias.name for alias in node.names})
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in DECIDING_CALLS:
            yield f".{node.func.attr}()"


def test_only_the_reader_decides_what_is_seen() -> None:
    found = {}
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module.split(".")[0] not in DECIDING_PACKAGES | PACKAGES_OF_FILES:
            used = list(uses(path.read_text(), set(imported(path))))
            if used:
                found[module] = used
    assert {module: used for module, used in found.items() if module not in EXCEPT} == {}
    assert set(EXCEPT) == set(found)  # none of them is there for nothing


def test_it_finds_what_decides() -> None:
    assert list(uses("from kfs.log.block import Block, Damage\nlog.walk(offsets)", set())) == ["Damage", ".walk()"]
    assert list(uses("", {"kfs.log.walk"})) == ["kfs.log.walk"]
