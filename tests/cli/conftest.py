"""A log directory to list and print, written once for each process that tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.corpus import compare, take_manifest
from tests.system.shop import Shop


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A log directory that no command may change."""
    made = Shop(tmp_path_factory.mktemp("shop"))
    before = take_manifest(made.root)
    yield made
    assert compare(before, take_manifest(made.root)) == []
