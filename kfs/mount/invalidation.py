"""Polling a tree for what was promised for ever and has changed after all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kfs.tree.node import LIVE, Invalidation, Tree

logger = logging.getLogger("kfs.mount")


class Invalidator:
    """Polls the tree for invalidations, and makes the kernel forget them.

    A separate thread does so: the kernel may hold a lock until the serving thread has answered another request.
    ``forget`` gets names: nothing cached of them, or below them, is valid any more. The tree keeps
    views of replaced partitions until it is polled.
    """

    def __init__(self, tree: Tree, forget: Callable[[frozenset[Invalidation]], None]) -> None:
        self._tree = tree
        self._forget = forget
        self._failed = ""
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kfs-invalidator", daemon=True)

    def start(self) -> None:
        """Start the thread; from now on it uses the tree."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; on return neither the tree nor ``forget`` is called any more."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def look_now(self) -> None:
        """Poll the tree soon: the kernel led a reader to a node that is gone."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            was_called = self._wake.wait(LIVE)
            if self._stopped.is_set():
                return
            self._look()
            # Invalidations are reported several times, because replies in progress may be outdated: space them out.
            if was_called and not self._stopped.wait(LIVE):
                self._wake.clear()

    def _look(self) -> None:
        try:
            invalidations = self._tree.invalidations()
            if invalidations:
                self._forget(invalidations)
            self._failed = ""
        except Exception as error:
            if repr(error) != self._failed:  # it may last for long, and this comes twice a second
                self._failed = repr(error)
                logger.exception("looking for changes")
