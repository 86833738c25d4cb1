"""Workers that are there from the beginning, however little there is to check."""

from __future__ import annotations

from tests.eager_workers import eager_workers

__all__ = ["eager_workers"]
