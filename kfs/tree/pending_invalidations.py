"""Names that the kernel has to forget, until it was told often enough."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

#: The names in a partition's directory with nodes below that are promised for ever.
_PROMISING: Final = ("offset", "segment", "value", "key", "time")
#: How often a change is reported. Nodes found just before it may be remembered for a moment, and a reply made of those
#: promises again what no longer holds.
_TIMES_TOLD: Final = 3


class PendingInvalidations:
    """Paths, of directories and files, whose cached data is no longer valid. Shared by threads."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
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
            self._times |= dict.fromkeys(paths, _TIMES_TOLD)

    def concerns(self, partition: str) -> bool:
        """Return whether any change of a partition is still to be reported."""
        return f"{partition}/{_PROMISING[0]}" in self._times or partition in self._expected

    def count(self) -> int:
        """Return how many partitions have changes still to be reported."""
        suffix = f"/{_PROMISING[0]}"
        with self._lock:
            noted = {path.removesuffix(suffix) for path in self._times if path.endswith(suffix)}
            return len(noted | set(self._expected))

    def take(self) -> list[str]:
        """Return the paths to report now."""
        with self._lock:
            told = list(self._times)
            self._times = {path: times - 1 for path, times in self._times.items() if times > 1}
            return told
