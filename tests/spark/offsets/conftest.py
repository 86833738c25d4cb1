"""The stores, open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kfs.spark.offsets import WritableStore, open_writable_store


@pytest.fixture
def open_one() -> Iterator[Callable[[str], WritableStore]]:
    """Return the function that opens a store until the test ends."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(open_writable_store(url, patience=30))


@pytest.fixture
def store(url: str, open_one: Callable[[str], WritableStore]) -> WritableStore:
    """A store of each kind, with nothing in it."""
    return open_one(url)
