"""Fixtures for trees over logs that change."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.logs import look_every_time


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question about the disk is answered anew."""
    look_every_time(monkeypatch)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Nothing is logged: a property test meets more problems than anyone wants to read."""
    logger = logging.getLogger("kfs")
    logger.disabled = True
    yield
    logger.disabled = False
