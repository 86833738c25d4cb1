"""When a mount was dead: what was open then stays dead, and what is asked meanwhile fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Outages:
    """The times, by the wall clock, at which one mount was killed and was there again; shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over_at: float | None = None
        self._is_down = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Have an outage for the length of a block."""
        with self._lock:
            self._is_down = True
        try:
            yield
        finally:
            with self._lock:
                self._is_down, self._over_at = False, time.time()

    def since(self, moment: float) -> bool:
        """Return whether the mount was down at that moment, or at any later one."""
        with self._lock:
            return self._is_down or (self._over_at is not None and self._over_at >= moment)
