"""Serving a tree to the kernel, and the life of a mount. Nothing here knows Kafka, only trees."""

from kfs.mount.fronts import FRONTS, available_fronts
from kfs.mount.life import mount
from kfs.mount.mounts import is_mounted
from kfs.mount.unmounting import unmount

__all__ = ["FRONTS", "available_fronts", "is_mounted", "mount", "unmount"]
