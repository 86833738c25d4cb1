"""A ``kfs cat --follow`` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Final

from tests.system.kafka_mount import KFS

#: Longer than anything takes that is to come.
_SECONDS: Final = 120


class Following:
    """A ``kfs cat --follow``, and what it prints."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [KFS, "cat", "--follow", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._timer = threading.Timer(_SECONDS, self.process.kill)  # what doesn't come within that doesn't come
        self._timer.daemon = True
        self._timer.start()
        self.out, self.errors = self.process.stdout, self.process.stderr

    def lines(self, count: int) -> list[bytes]:
        """Return the next lines, which must come."""
        return [self.out.readline() for _ in range(count)]

    def end(self) -> tuple[int, bytes, bytes]:
        """Return the exit code of one that ends by itself, and what else it prints."""
        out, errors = self.process.communicate()
        self._timer.cancel()
        return self.process.returncode, out, errors

    def interrupt(self) -> tuple[int, bytes, bytes]:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def discard(self) -> None:
        """End it in any case."""
        self.process.kill()
        self.end()
