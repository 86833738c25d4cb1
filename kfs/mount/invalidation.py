"""Asking a tree what of that which was promised for ever has changed after all, so that it can be forgotten."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kfs.tree.node import LIVE, Invalidation, Tree

logger = logging.getLogger("kfs.mount")


class Invalidator:
    """Asks the tree now and then for its invalidations, and has the kernel forget it.

    It does so from a thread of its own: the kernel may hold a lock that it only gives back once the
    serving thread has answered another request. ``forget`` gets names: what was promised of them, and of
    anything below them, no longer holds. A tree keeps what has gone until it was asked.
    """

    def __init__(self, tree: Tree, forget: Callable[[frozenset[Invalidation]], None]) -> None:
        self._tree = tree
        self._forget = forget
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kfs-invalidator", daemon=True)

    def start(self) -> None:
        """Begin; the tree is asked from another thread from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Return once the tree isn't asked any more, and ``forget`` isn't called."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def look_now(self) -> None:
        """Have the tree asked soon: the kernel led a reader to what is gone."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            was_called = self._wake.wait(LIVE)
            if self._stopped.is_set():
                return
            self._look()
            # A change is reported several times, for replies made of what was known: not all of them at once.
            if was_called and not self._stopped.wait(LIVE):
                self._wake.clear()

    def _look(self) -> None:
        try:
            invalidations = self._tree.invalidations()
            if invalidations:
                self._forget(invalidations)
        except Exception:
            logger.exception("looking for changes")
