"""Makes the system refuse descriptors and maps, as long and whenever a test wants it to."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest

from kfs.storage import descriptors
from kfs.storage.descriptors import BUDGET

#: What a system says that has none.
REFUSALS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Shortages:
    """Counts the calls that need a descriptor or a map, and refuses some; between them nothing is kept open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
        self._below = below
        self.calls = 0
        self._refused: frozenset[int] = frozenset()
        self._errno = errno.EMFILE
        for name in ("open", "scandir", "listdir"):
            monkeypatch.setattr(os, name, self._refusing(getattr(os, name)))
        monkeypatch.setattr(mmap, "mmap", self._refusing(mmap.mmap))
        monkeypatch.setattr(descriptors, "_WAIT_SECONDS", 0)

    def begin(self, refused: Iterable[int] = (), number: int = errno.EMFILE) -> None:
        """Count from 0 again, refuse those calls, and let all go that is open."""
        self.calls, self._refused, self._errno = 0, frozenset(refused), number
        BUDGET.let_all_go()

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            target = arguments[0] if arguments else "."
            if isinstance(target, int) or str(target).startswith(self._below):
                self.calls += 1
                if self.calls - 1 in self._refused:
                    raise OSError(self._errno, os.strerror(self._errno), str(target))
            return call(*arguments, **options)

        return counted


def runs(pairs: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Return the numbers of the calls in runs, each from a number on and so many."""
    return frozenset(number for start, length in pairs for number in range(start, start + length))
