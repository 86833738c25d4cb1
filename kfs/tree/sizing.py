"""The sizes of segments' texts, found ahead of whoever goes through a directory, by a thread for each core."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kfs.cores import cores
from kfs.errors import KfsError

if TYPE_CHECKING:
    from kfs.tree.text import SegmentText, TextKey

#: Segments ahead of the one that was asked for, for each thread.
_AHEAD: Final = 2


class SizingAhead:
    """Measures texts in threads of its own, none until :meth:`start`.

    They end when there is nothing to do, and don't keep the process from ending.
    """

    def __init__(self) -> None:
        self._most = 0
        self._running = 0
        self._texts: deque[SegmentText] = deque()
        self._busy: set[TextKey] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """From now on measure what is asked for; with a single core there is nobody to do it."""
        self._most = cores() if cores() > 1 else 0

    @property
    def reach(self) -> int:
        """How many texts ahead to measure."""
        return self._most * _AHEAD

    @property
    def is_at_work(self) -> bool:
        """Whether anything is being measured, or will be."""
        return self._running > 0

    def ask(self, texts: Iterable[SegmentText]) -> None:
        """Have texts measured, the first of them first; what was asked for earlier, and isn't begun, is forgotten."""
        with self._lock:
            self._texts.clear()
            self._texts.extend(text for text in texts if text.key not in self._busy)
            missing = min(len(self._texts), self._most) - self._running
            for _ in range(missing):
                self._running += 1
                threading.Thread(target=self._work, name="kfs-sizing", daemon=True).start()

    def stop(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._most = 0
            self._texts.clear()

    def _work(self) -> None:
        try:
            while (text := self._next()) is not None:
                with suppress(KfsError):  # whoever asks for it hears of it
                    text.table()
                with self._lock:
                    self._busy.discard(text.key)
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    def _next(self) -> SegmentText | None:
        """Return what to measure next; None, and one thread fewer is counted, where there is nothing."""
        with self._lock:
            if not self._texts:
                self._running -= 1
                return None
            text = self._texts.popleft()
            self._busy.add(text.key)
            return text
