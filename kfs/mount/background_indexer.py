"""The background indexer: a process that indexes segments while another serves them."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

_LOG: Final = logging.getLogger("kfs.mount")
#: Shorter mounts, in seconds, start no indexer.
_DELAY_SECONDS: Final = 3.0
_STOP_SECONDS: Final = 2.0
_NICEST: Final = 19


@contextmanager
def indexing_in_background(command: Sequence[str] | None) -> Iterator[None]:
    """Run ``command``, if given, starting a moment after the block begins, until it ends.

    It is a process rather than a thread, with the highest niceness, so that it takes no time from the server or from
    its readers. It has to notice itself that its parent is gone: a killed parent doesn't end it.
    """
    if command is None:
        yield
        return
    indexer = _Indexer(command)
    timer = threading.Timer(_DELAY_SECONDS, indexer.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        indexer.stop()


class _Indexer:
    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock:
            if self._is_over:
                return
            nothing = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(  # noqa: S603  our own command line
                    self._command, stdin=nothing, stdout=nothing, stderr=nothing
                )
                # If it set its own niceness, its imports would already have run: a third of a second of CPU time.
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICEST)
            except OSError as error:
                _LOG.warning("can't index in the background: %s: %s", self._command[0], error.strerror)

    def stop(self) -> None:
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):  # a stalled disk must not hold up an unmount
                    self._process.wait(_STOP_SECONDS)
