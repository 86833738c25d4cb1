"""Each package of kfs imports only those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kfs

#: From the bottom to the top; each knows only what stands before it.
LAYERS: Final = (
    *("__version__", "errors", "compiled"),
    *("format", "storage", "log", "read"),
    *("broker_log", "verify", "recover"),
    *("render", "internal", "diff"),
    *("dump", "cat", "imports", "tree", "scan", "api", "fsspec", "demo", "mount", "spark", "cli", "__main__"),
)
ROOT: Final = Path(kfs.__file__).parent


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "kfs":
            yield from (f"kfs.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


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


def test_the_mount_knows_nothing_of_kafka() -> None:
    known = {package for module, package in arrows() if module.startswith("mount.")}
    assert known == {"compiled", "errors", "mount", "storage", "tree"}


def test_the_engine_knows_nothing_of_what_its_jobs_do() -> None:
    engine = {
        name
        for path in (ROOT / "read" / "workers").glob("*.py")
        for name in imported(path)
        if name.startswith("kfs.") and not name.startswith("kfs.read.workers")
    }
    assert engine == {"kfs.errors", "kfs.storage.descriptors", "kfs.storage.memory"}
