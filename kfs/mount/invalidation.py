"""Waiting for what was promised for ever and has changed after all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from kfs.tree.node import Invalidation, Tree

logger = logging.getLogger("kfs.mount")

#: The pause after an error, in seconds: it may last for long.
_PAUSE_SECONDS: Final = 0.5


class Invalidator:
    """Waits for invalidations of the tree, and makes the kernel forget them.

    A separate thread does so: the kernel may hold a lock until the serving thread has answered another request.
    ``forget`` gets names: nothing cached of them, or below them, is valid any more. The tree keeps
    views of replaced partitions until it is asked.
    """

    def __init__(self, tree: Tree, forget: Callable[[frozenset[Invalidation]], None]) -> None:
        self._tree = tree
        self._forget = forget
        self._failed = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kfs-invalidator", daemon=True)

    def start(self) -> None:
        """Start the thread; from now on it uses the tree."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; on return neither the tree nor ``forget`` is called any more."""
        self._stopped.set()
        if self._thread.is_alive():
            self._tree.look_now()
            self._thread.join()

    def look_now(self) -> None:
        """Have the tree look for changes soon: the kernel led a reader to a node that is gone."""
        self._tree.look_now()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
                self._failed = ""
            except Exception as error:
                if repr(error) != self._failed:
                    self._failed = repr(error)
                    logger.exception("looking for changes")
                self._stopped.wait(_PAUSE_SECONDS)

    def _look(self) -> None:
        invalidations = self._tree.await_invalidations()
        if invalidations and not self._stopped.is_set():
            self._forget(invalidations)
