"""Each package of kfs imports only those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import kfs

#: From the bottom to the top; each knows only what stands before it.
LAYERS: Final = (
    *("__version__", "errors", "compiled", "metrics", "log_lines"),
    *("format", "storage", "log", "read"),
    *("broker_log", "verify", "recover"),
    *("render", "internal", "diff"),
    *("dump", "cat", "imports", "tree", "scan", "api", "fsspec", "demo", "mount", "spark", "cli", "__main__"),
)
ROOT: Final = Path(kfs.__file__).parent


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, wherever in it, be it for types alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for name in (f"{module}.{alias.name}" for alias in node.names):
                yield name if is_module(name) or module == "kfs" else module


def is_module(name: str) -> bool:
    first, *others = name.split(".")
    path = ROOT.joinpath(*others)
    return first == "kfs" and (path.is_dir() or path.with_suffix(".py").is_file())


def arrows() -> Iterator[tuple[str, str]]:
    """Yield each module of kfs, without ``kfs.``, and a package of kfs that it imports."""
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module == "__init__":  # what everybody sees
            continue
        for name in imported(path):
            first, _, rest = name.partition(".")
            if first == "kfs" and rest:
                yield module, rest.split(".")[0]


def test_no_package_imports_what_is_above_it() -> None:
    found = set(arrows())
    assert ("read.plan", "log") in found
    assert not [
        f"{module} -> {package}"
        for module, package in sorted(found)
        if LAYERS.index(package) > LAYERS.index(module.split(".")[0])
    ]


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module_of(path): {name for name in imported(path) if is_module(name)} for path in ROOT.rglob("*.py")}
    assert "kfs.format.layout" in graph["kfs.log.segment"]
    TopologicalSorter(graph).prepare()


def module_of(path: Path) -> str:
    return ".".join(("kfs", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def test_the_mount_knows_nothing_of_kafka() -> None:
    known = {package for module, package in arrows() if module.startswith("mount.")}
    assert known == {"compiled", "errors", "log_lines", "metrics", "mount", "storage", "tree"}


def test_the_engine_knows_nothing_of_what_its_jobs_do() -> None:
    engine = {
        name
        for path in (ROOT / "read" / "workers").glob("*.py")
        for name in imported(path)
        if name.startswith("kfs.") and not name.startswith("kfs.read.workers")
    }
    assert engine == {"kfs.errors", "kfs.storage.descriptors", "kfs.storage.memory"}
