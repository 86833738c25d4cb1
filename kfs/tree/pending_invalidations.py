"""Names that the kernel has to forget, until it was told often enough."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from kfs.tree.node import LIVE

#: The names in a partition's directory with nodes below that are promised for ever.
_PROMISING: Final = ("offset", "segment", "value", "key", "time")
#: How often a change is reported. Nodes found just before it may be remembered for a moment, and a reply made of those
#: promises again what no longer holds.
_TIMES_TOLD: Final = 3
#: The time from one report of a change to the next, in seconds: that is how long a node may be remembered.
_APART_SECONDS: Final = LIVE


class _Report(NamedTuple):
    """How many more ``times`` a change is to be reported, and when next (monotonic clock)."""

    times: int
    due: float


class PendingInvalidations:
    """Paths, of directories and files, whose cached data is no longer valid. Shared by threads."""

    def __init__(self) -> None:
        self._reports: dict[str, _Report] = {}
        self._expected: Counter[str] = Counter()
        self._lock = threading.Lock()

    def expect(self, partition: str) -> None:
        """Mark a partition as in doubt until :meth:`note_expected`."""
        with self._lock:
            self._expected[partition] += 1

    def note_expected(self, partition: str, files: Iterable[str]) -> None:
        """Note an expected partition, and the ``files`` in it that were promised by their own names."""
        self.note_partition(partition)
        self.note(files)
        with self._lock:
            self._expected[partition] -= 1
            self._expected = +self._expected

    def note_partition(self, partition: str) -> None:
        """Note everything that is promised for ever in a partition."""
        self.note(f"{partition}/{name}" for name in _PROMISING)

    def note(self, paths: Iterable[str]) -> None:
        """Note single paths."""
        with self._lock:
            self._reports |= dict.fromkeys(paths, _Report(_TIMES_TOLD, time.monotonic()))

    def concerns(self, partition: str) -> bool:
        """Return whether any change of a partition is still to be reported."""
        return f"{partition}/{_PROMISING[0]}" in self._reports or partition in self._expected

    def count(self) -> int:
        """Return how many partitions have changes still to be reported."""
        suffix = f"/{_PROMISING[0]}"
        with self._lock:
            noted = {path.removesuffix(suffix) for path in self._reports if path.endswith(suffix)}
            return len(noted | set(self._expected))

    def take(self) -> list[str]:
        """Return the paths to report now."""
        with self._lock:
            now = time.monotonic()
            told = [path for path, report in self._reports.items() if report.due <= now]
            for path in told:
                times = self._reports.pop(path).times - 1
                if times:
                    self._reports[path] = _Report(times, now + _APART_SECONDS)
            return told

    def due(self) -> float | None:
        """Return when the next path is to be reported (monotonic clock), None if there is none."""
        with self._lock:
            return min((report.due for report in self._reports.values()), default=None)
