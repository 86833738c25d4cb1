"""What a run found, and what it did: counted, with the first of each kind in detail."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

_DETAILS: Final = 25


@dataclass
class Findings:
    """Shared by all threads of a run. Each ``where`` is a front, or a command."""

    started: float = field(default_factory=time.time)
    reads: Counter[str] = field(default_factory=Counter)
    #: What is allowed but worth knowing: ESTALE to who holds something open, ENOENT for what was deleted.
    notes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    details: list[dict[str, Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, kind: str, where: str) -> None:
        """Count a read."""
        with self._lock:
            self.reads[f"{kind} {where}"] += 1

    def note(self, what: str, where: str) -> None:
        """Count something that isn't wrong."""
        with self._lock:
            self.notes[f"{what} {where}"] += 1

    def add(self, kind: str, where: str, **details: Any) -> None:
        """Keep something that must not be."""
        with self._lock:
            name = " | ".join((kind, str(details.get("read", "")), where))
            self.counts[name] += 1
            if self.counts[name] <= _DETAILS:
                second = round(time.time() - self.started, 2)
                self.details.append({"kind": kind, "where": where, "second": second, "time": time.time(), **details})
