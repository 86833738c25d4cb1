"""Serving through libfuse: version 3 or 2, and mfusepy or fusepy.

The bindings offer its high-level interface, which has one timeout for the whole mount: the one for nodes that may
change at any moment. Attributes aren't cached at all: otherwise a size cached for one reader of a path would end the
reads of another who has opened another file at that path.
"""

from __future__ import annotations

import os
from types import ModuleType

from kfs.errors import MountFailed
from kfs.mount.front import MountOptions, kernel_options
from kfs.mount.invalidation import Invalidator
from kfs.mount.libfuse.operations import Latin1Operations, Operations
from kfs.mount.systemd import notify
from kfs.tree.node import LIVE, Tree


class LibfuseFront:
    """Serves a tree through the class of mfusepy or fusepy.

    ``binding`` is the module, already imported with the wanted libfuse.
    """

    def __init__(self, name: str, binding: ModuleType, operations: type[Operations]) -> None:
        self.name = name
        self._binding = binding
        self._operations = operations

    def serve(self, tree: Tree, mountpoint: str, options: MountOptions) -> None:
        """Mount, and answer the kernel until unmounted or stopped by a signal."""
        settings: dict[str, object] = dict(kernel_options(options))
        if issubclass(self._operations, Latin1Operations):
            settings["fsname"] = os.fsencode(str(settings["fsname"])).decode("latin-1")
            settings["encoding"] = "latin-1"
            mountpoint_given = os.fsencode(mountpoint).decode("latin-1")
        else:
            mountpoint_given = mountpoint
        invalidator = Invalidator(tree, lambda _: None)  # nothing is promised for ever here
        invalidator.start()
        notify("WATCHDOG_USEC=0")  # libfuse's loop gives no sign of life, so none must be expected
        operations = self._operations(tree)
        tree.is_served(mountpoint, lambda: operations.metrics(self.name))
        try:
            self._binding.FUSE(
                operations,
                mountpoint_given,
                foreground=True,
                nothreads=True,
                use_ino=True,
                raw_fi=True,
                attr_timeout=0.0,
                entry_timeout=LIVE,
                **settings,
            )
        except RuntimeError as error:
            # libfuse 3 returns 8 if the loop ended other than by an unmount: by our own signal.
            if error.args != (8,):
                raise MountFailed(f"{mountpoint}: {self.name} could not mount (status {error.args[0]})") from error
        finally:
            invalidator.stop()
