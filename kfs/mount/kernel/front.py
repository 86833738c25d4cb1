"""Our own front, which needs only Linux."""

from __future__ import annotations

from kfs.mount.front import MountOptions
from kfs.mount.kernel import mounting
from kfs.mount.kernel.request_loop import Stopped, stopped_by_signals
from kfs.mount.kernel.session import Session
from kfs.mount.systemd import watchdog
from kfs.storage.memory import share_one_heap
from kfs.tree.node import Tree


class KernelFront:
    """Serves a tree on ``/dev/fuse``."""

    name = "kernel"

    def serve(self, tree: Tree, mountpoint: str, options: MountOptions) -> None:
        """Mount, and answer the kernel until unmounted or told to stop by a signal."""
        share_one_heap()
        device = mounting.mount_device(mountpoint, options)
        mounting.read_further_ahead(mountpoint)
        session = Session(tree, device, watchdog())
        tree.is_served(mountpoint, session.metrics)
        try:
            with stopped_by_signals():
                session.run()
        except Stopped:
            mounting.take_away(mountpoint)
        finally:
            session.end()
