"""The examples of ARROW.md, FSSPEC.md, PYTHON.md and docstrings, run as they are printed beside the demo's data."""

from __future__ import annotations

import doctest
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import kfs

PAGES = Path(__file__).parents[2] / "docs"
MODULES = [
    "kfs",
    "kfs.api.data",
    "kfs.api.groups",
    "kfs.api.partition_log",
    "kfs.api.record",
    "kfs.api.transactions",
    pytest.param("kfs.api.scannable", marks=pytest.mark.skipif(not find_spec("pyarrow"), reason="needs pyarrow")),
]


@pytest.fixture
def opened(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kfs.Data]:
    monkeypatch.chdir(demo)
    with kfs.open("data") as data:
        yield data


def examples_in(page: str) -> str:
    """Return the Python of a page's fenced blocks, one behind another."""
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))


def run(test: doctest.DocTest) -> int:
    """Run examples, fail where one prints something else, and return how many there were."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    failed, attempted = runner.run(test, out=said.append)
    assert not failed, "".join(said)
    return attempted


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_are_true(name: str, opened: kfs.Data) -> None:
    module: ModuleType = importlib.import_module(name)
    log = opened["launch_info"][0]
    found = doctest.DocTestFinder().find(module, globs={"kfs": kfs, "data": opened, "log": log})
    assert sum(run(test) for test in found) > 0


@pytest.mark.parametrize("name", ["ARROW.md", "FSSPEC.md", "PYTHON.md"])
def test_the_examples_of_a_page_are_true(name: str, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyarrow", "duckdb", "pandas", "polars", "fsspec"):
        pytest.importorskip(package)
    monkeypatch.chdir(demo)
    page = PAGES / name
    test = doctest.DocTestParser().get_doctest(examples_in(page.read_text(encoding="utf-8")), {}, name, str(page), 0)
    assert run(test) > 10
