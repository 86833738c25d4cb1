"""Exports cut into the smallest pieces there are, so that small logs have many."""

from __future__ import annotations

import pytest

from kfs.read import plan


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever the offset index allows it."""
    monkeypatch.setattr(plan, "PIECE_BYTES", 1)
