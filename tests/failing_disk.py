"""A disk that fails, or is out of something, wherever and whenever a test wants it to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

#: What is asked by a path.
CALLS: Final = ("open", "stat", "lstat", "scandir", "listdir")


class FailingDisk:
    """Refuses what is asked of a path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._refused: dict[str, tuple[int, int | None]] = {}
        for name in CALLS:
            monkeypatch.setattr(os, name, self._refusing(getattr(os, name)))

    def refuse(self, path: Path, number: int = errno.EIO, times: int | None = None) -> None:
        """Refuse everything from now on, or so many times, with an error of that number."""
        self._refused[str(path)] = number, times

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **options: Any) -> Any:
            path = arguments[0] if arguments else "."
            number, times = self._refused.get(path, (0, 0)) if isinstance(path, str) else (0, 0)
            if times == 0:
                return call(*arguments, **options)
            if times is not None:
                self._refused[path] = number, times - 1
            raise OSError(number, os.strerror(number), path)

        return asked
