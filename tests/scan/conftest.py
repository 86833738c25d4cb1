"""Scans cut into the smallest pieces there are, so that small logs have many, for whoever does them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kfs.read import plan
from kfs.scan import ahead, pool


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever the offset index allows it."""
    monkeypatch.setattr(plan, "PIECE_BYTES", 1)


@pytest.fixture
def eager_processes(small_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes work on anything that has several pieces, and this one only wait for them."""
    monkeypatch.setattr(ahead, "_WORTH_PROCESSES", 2)
    becomes_ready = ahead._Hand.becomes_ready

    def ready(self: ahead._Hand) -> bool:
        while not becomes_ready(self):
            self.member.channel.has_message(1)  # instead of asking without end: that takes a core from them
        return True

    monkeypatch.setattr(ahead._Hand, "becomes_ready", ready)


@pytest.fixture
def own_pool(eager_processes: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes of this test alone, which are gone when it is over."""
    own = pool.Pool()
    monkeypatch.setattr(pool, "POOL", own)
    yield
    own.end()
