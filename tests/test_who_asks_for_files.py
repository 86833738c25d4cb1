"""Only kfs.storage asks the system for files: what may do so, too, does it for no log that is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import kfs

ROOT: Final = Path(kfs.__file__).parent

#: What asks the system for a file, or for what is known of one.
ASKING: Final = {
    "os": {
        *("stat", "lstat", "fstat", "statvfs", "access", "readlink"),
        *("scandir", "listdir", "walk", "fwalk", "open", "pread", "preadv"),
    },
    "os.path": {
        *("exists", "lexists", "isfile", "isdir", "islink", "ismount", "samefile"),
        *("getsize", "getmtime", "getctime", "getatime"),
    },
    "glob": {"glob", "iglob"},
    "io": {"open", "FileIO"},
    "pathlib": {"Path", "PosixPath"},
    "builtins": {"open"},
}

#: Modules, and packages with a dot behind them, that ask themselves, and why.
MAY_ASK: Final = {
    # Kafka's write side: directories and files of its own
    "broker_log.log_manager": "makes partitions in an output",
    "broker_log.log_segment": "writes segments",
    "broker_log.output_directory": "makes and locks outputs",
    "broker_log.producer_state_manager": "writes snapshots",
    "broker_log.transaction_index": "writes transaction indexes",
    "recover.copying": "writes copies",
    "recover.free_space": "the space that an output has",
    "recover.log_dir_recovery": "empties an output",
    "recover.reachable_end": "writes the last segment of a copy",
    "recover.salvage": "writes copies",
    "demo.partition_writer": "writes segments",
    # input and output that are no log's
    "cli.cat": "the file that is written",
    "cli.export": "the file of what was skipped",
    "cli.import_": "lines and tables that are imported",
    "cli.recover": "the report that is written",
    "spark.exporting.": "the dataset that is written, and Spark's own log",
    "spark.offsets.": "positions that are kept, and the dataset that is written",
    # memory, the kernel, what kfs keeps for itself
    "log_lines": "whether standard error is the journal's",
    "mount.": "mount points, devices and processes",
    "read.workers.forking": "the threads of this process, and /dev/null",
    "read.workers.shared": "memory that processes share",
    "tree.lines.index_store": "indexes that are kept for the next mount",
}


def asked_in(path: Path) -> Iterator[str]:
    """Yield what a module calls, or names, that asks the system for files, each with its line."""
    tree = ast.parse(path.read_text())
    modules = {"os": "os"}  # by the name that they have in the module
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in ASKING}
        elif isinstance(node, ast.ImportFrom) and node.module in ASKING:
            for alias in node.names:
                if alias.name in ASKING[node.module]:
                    yield f"{node.lineno}: {node.module}.{alias.name}"
                elif f"{node.module}.{alias.name}" in ASKING:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = _module(node.value, modules)
            if node.attr in ASKING.get(module, ()):
                yield f"{node.lineno}: {module}.{node.attr}"
        elif isinstance(node, ast.Name) and node.id in ASKING["builtins"] - own:
            yield f"{node.lineno}: {node.id}"


def _module(node: ast.expr, modules: dict[str, str]) -> str:
    """Return the module that an expression names, nothing where it names none."""
    if isinstance(node, ast.Name):
        return modules.get(node.id, "")
    if isinstance(node, ast.Attribute) and (above := _module(node.value, modules)):
        return f"{above}.{node.attr}"
    return ""


@cache
def asking() -> dict[str, list[str]]:
    """Return what is asked by module, those outside kfs.storage that ask."""
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): list(asked_in(path)) for path in ROOT.rglob("*.py")
    }
    return {module: asked for module, asked in found.items() if asked and not module.startswith("storage.")}


def is_of(module: str, entry: str) -> bool:
    return module.startswith(entry) if entry.endswith(".") else module == entry


def test_what_reads_a_log_asks_kfs_storage() -> None:
    strangers = [
        f"{module}:{asked}"
        for module, each in sorted(asking().items())
        for asked in each
        if not any(is_of(module, entry) for entry in MAY_ASK)
    ]
    assert not strangers


def test_who_may_ask_does() -> None:
    modules = asking()
    assert not [entry for entry in MAY_ASK if not any(is_of(module, entry) for module in modules)]


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("import os\nos.stat('x')", ["2: os.stat"]),
        ("import os\nx = map(os.path.isdir, y)", ["2: os.path.isdir"]),
        ("import os as system\nsystem.path.exists('x')", ["2: os.path.exists"]),
        ("from os import path\npath.getsize('x')", ["2: os.path.getsize"]),
        ("from os.path import lexists", ["1: os.path.lexists"]),
        ("def f():\n    from glob import glob", ["2: glob.glob"]),
        ("import glob\nglob.glob('x')", ["2: glob.glob"]),
        ("from pathlib import Path", ["1: pathlib.Path"]),
        ("import pathlib\npathlib.Path('x').read_bytes()", ["2: pathlib.Path"]),
        ("with open('x') as file: pass", ["1: open"]),
        ("def open(x): return x\nopen('x')", []),
        ("open = [1]\nopen.pop()", []),
        ("import os\nos.path.join('x', 'y')\nfile.open('x')\nself.stat()", []),
    ],
)
def test_it_is_seen_in_whatever_way_a_module_asks(source: str, asked: list[str], tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(source)
    assert list(asked_in(module)) == asked
