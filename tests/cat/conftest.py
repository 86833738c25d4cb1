"""Exports cut into the smallest pieces there are, so that small logs have many."""

from __future__ import annotations

from tests.eager_workers import eager_processes, eager_workers, own_pool, small_pieces

__all__ = ["eager_processes", "eager_workers", "own_pool", "small_pieces"]
