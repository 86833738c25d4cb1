"""Fixtures for exports in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import need_java
from tests.spark.export.place import Place


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for each kind of store."""
    need_java()
    place = Place(tmp_path, request.param)
    yield place
    place.close()
