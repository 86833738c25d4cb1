"""The demo's data directory, which the examples in docstrings and in docs/PYTHON.md read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfs.demo import write_demo
from tests.corpus import CorpusStore


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, corpus_store: CorpusStore) -> Path:
    """Return a directory in which ``data`` is what ``kfs demo data`` writes, and ``broker`` what brokers keep."""
    directory = tmp_path_factory.mktemp("demo")
    write_demo(str(directory / "data"))
    (directory / "broker").symlink_to(corpus_store.path("d_groups") / "data")
    return directory
