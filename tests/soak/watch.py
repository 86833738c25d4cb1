"""Watches what the processes of kfs hold: descriptors, maps, memory, and files that the broker has deleted."""

from __future__ import annotations

import os
import re
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.soak.findings import Findings

#: Seconds that a deleted file may be kept, and what a look every second and a busy machine add to them.
_KEPT_SECONDS: Final = 5.0
_SLACK: Final = 2.0
_EVERY: Final = 1.0
_DELETED: Final = " (deleted)"
#: Too short a run says nothing of what grows: caches fill.
_SECONDS_FOR_TRENDS: Final = 300
#: By how much, of what it was and in bytes, memory may grow while caches fill, and once they are full.
_MEMORY: Final = {True: (1.25, 48 * 2**20), False: (1.05, 3 * 2**20)}
_GROWTH: Final = 1.25
_RSS: Final = re.compile(r"^VmRSS:\s+([0-9]+) kB$", re.MULTILINE)

#: A process, what holds the file (a descriptor or a map), and which file it is.
_Held = tuple[int, str, str]


class Watch:
    """Looks once a second at the processes that ``roots`` names, and all that they have started."""

    def __init__(
        self, data: Path, roots: Callable[[], dict[str, int]], findings: Findings, limit: int, *, may_grow: bool = True
    ) -> None:
        self._limit = limit
        self._memory = _MEMORY[may_grow]
        self._data = str(data)
        self._roots = roots
        self._findings = findings
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._held: dict[_Held, float] = {}
        self._said: set[_Held] = set()
        #: By name of the process: time, descriptors, maps, bytes of memory.
        self.samples: dict[str, list[tuple[float, int, int, int]]] = defaultdict(list)
        self.longest_kept = 0.0
        self.deleted_now = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End, and judge what was measured in so many seconds."""
        self._over.set()
        self._thread.join(30)
        for name, samples in self.samples.items():
            if "worker" not in name:
                self._judge(name, samples, seconds)

    def _run(self) -> None:
        while not self._over.wait(_EVERY):
            try:
                self._look()
            except Exception as error:
                self._findings.add("soak-error", "watch", error=repr(error))
                raise

    def _look(self) -> None:
        now = time.monotonic()
        held: dict[_Held, float] = {}
        parents = _parents()
        for name, root in self._roots().items():
            for pid in _family(root, parents):
                kind = name if pid == root else f"{name} worker"
                with suppress(OSError):
                    self._look_at(pid, kind, now, held)
        self._held = held
        self.deleted_now = len(held)

    def _look_at(self, pid: int, name: str, now: float, held: dict[_Held, float]) -> None:
        descriptors, kept = self._descriptors(pid)
        maps = Path(f"/proc/{pid}/maps").read_text()
        kept += [(pid, "map", path) for path in self._mapped(maps)]
        for each in set(kept):
            held[each] = self._held.get(each, now)
            age = now - held[each]
            self.longest_kept = max(self.longest_kept, age)
            if age > _KEPT_SECONDS + _SLACK and each not in self._said:
                self._said.add(each)
                _, what, path = each
                path = path.removeprefix(self._data + "/")
                self._findings.add("deleted file kept", name, what=what, path=path, seconds=round(age, 1))
        found = _RSS.search(Path(f"/proc/{pid}/status").read_text())
        if found:
            self.samples[name].append((now, descriptors, maps.count("\n"), int(found[1]) * 1024))

    def _descriptors(self, pid: int) -> tuple[int, list[_Held]]:
        directory = f"/proc/{pid}/fd"
        names = os.listdir(directory)
        kept = []
        for name in names:
            with suppress(OSError):
                path = os.readlink(f"{directory}/{name}")
                if path.endswith(_DELETED) and path.startswith(self._data):
                    inode = os.stat(f"{directory}/{name}").st_ino
                    kept.append((pid, f"descriptor {name}", f"{path} {inode}"))
        return len(names), kept

    def _mapped(self, maps: str) -> list[str]:
        lines = [line.split(maxsplit=5) for line in maps.splitlines() if line.endswith(_DELETED)]
        return [f"{line[5]} {line[4]}" for line in lines if line[5].startswith(self._data)]

    def _judge(self, name: str, samples: list[tuple[float, int, int, int]], seconds: float) -> None:
        most = max(sample[1] for sample in samples)
        if most > self._limit:
            self._findings.add("too many descriptors", name, most=most)
        if seconds < _SECONDS_FOR_TRENDS or len(samples) < 30:
            return
        third = len(samples) // 3
        for column, what, growth, slack in (
            *((1, "descriptors", _GROWTH, 64), (2, "maps", _GROWTH, 64)),
            (3, "memory", *self._memory),
        ):
            # What the first minute has is a mount that was just made.
            early = statistics.median(sample[column] for sample in samples[third : 2 * third])
            late = statistics.median(sample[column] for sample in samples[-third:])
            if late > early * growth + slack:
                self._findings.add("grows", name, what=what, early=early, late=late)

    def summary(self) -> dict[str, Any]:
        """Return the medians of the three thirds and of ten parts, and the most there ever was, of every process."""
        found: dict[str, Any] = {}
        for name, samples in sorted(self.samples.items()):
            found[name] = {
                what: {
                    "thirds": _medians(samples, column, 3),
                    "tenths": _medians(samples, column, 10),
                    "most": max(sample[column] for sample in samples),
                }
                for column, what in ((1, "descriptors"), (2, "maps"), (3, "memory"))
            }
        return found


def _medians(samples: list[tuple[float, int, int, int]], column: int, parts: int) -> list[float]:
    length = max(1, -(-len(samples) // parts))
    slices = (samples[start : start + length] for start in range(0, len(samples), length))
    return [statistics.median(sample[column] for sample in part) for part in slices]


def _parents() -> dict[int, int]:
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError):
            found[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _family(root: int, parents: dict[int, int]) -> list[int]:
    family = [root]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family
