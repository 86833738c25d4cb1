"""The mount table, ``/proc/self/mountinfo``. Reading it touches no filesystem, dead or alive."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: The filesystem type of our mounts: FUSE's, and our subtype.
FILESYSTEM_TYPE: Final = "fuse.kfs"

#: Errors of a mount whose daemon is gone; the second if the daemon died during the request.
DEAD: Final = (errno.ENOTCONN, errno.ECONNABORTED)

_MOUNTINFO: Final = "/proc/self/mountinfo"
_OCTAL_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mounted:
    """One line of the mount table."""

    mount_id: int
    mountpoint: str
    filesystem_type: str
    source: str
    #: Major and minor number, as in ``0:42``.
    device: str = field(default="", compare=False)

    @property
    def is_ours(self) -> bool:
        return self.filesystem_type == FILESYSTEM_TYPE

    def contains(self, path: str) -> bool:
        """Return whether an absolute path lies at or below the mount point."""
        return path == self.mountpoint or path.startswith(f"{self.mountpoint.rstrip('/')}/")


def mount_at(mountpoint: str | os.PathLike[str]) -> Mounted | None:
    """Return the mount at ``mountpoint`` (the topmost, if there are several), or None."""
    table = mount_table(Path(_MOUNTINFO).read_bytes())
    wanted = _canonical(mountpoint, table)
    return next((mounted for mounted in reversed(table) if mounted.mountpoint == wanted), None)


def canonical(mountpoint: str | os.PathLike[str]) -> str:
    """Return the absolute path of ``mountpoint`` as the mount table has it, or would have it."""
    return _canonical(mountpoint, mount_table(Path(_MOUNTINFO).read_bytes()))


def is_mounted(mountpoint: str | os.PathLike[str]) -> bool:
    """Return whether kfs is mounted at ``mountpoint``, alive or left by a killed daemon."""
    mounted = mount_at(mountpoint)
    return mounted is not None and mounted.is_ours


def is_automounted(mountpoint: str | os.PathLike[str]) -> bool:
    """Return whether autofs waits for a mount at ``mountpoint``: opening that directory blocks until then."""
    table = mount_table(Path(_MOUNTINFO).read_bytes())
    path = _canonical(mountpoint, table)
    above = [mounted for mounted in table if mounted.contains(path)]
    # Of two at the same place the later one hides the other.
    return max(above, key=lambda mounted: len(mounted.mountpoint)).filesystem_type == "autofs" if above else False


def mount_table(mountinfo: bytes) -> list[Mounted]:
    """Parse the content of ``/proc/<pid>/mountinfo``, whose last lines are the latest mounts."""
    table = []
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        # Optional fields end at a lone hyphen; type and source follow it.
        separator = fields.index(b"-", 6)
        point, kind, source = (_unescaped(fields[at]) for at in (4, separator + 1, separator + 2))
        table.append(Mounted(int(fields[0]), point, kind, source, fields[2].decode()))
    return table


def _canonical(mountpoint: str | os.PathLike[str], table: list[Mounted]) -> str:
    """Resolve symlinks without accessing the mount point itself.

    Accessing a dead mount fails, and accessing one with a stuck daemon never returns.
    """
    above, name = os.path.split(os.path.abspath(mountpoint))
    path = os.path.join(os.path.realpath(above), name)
    if any(mounted.mountpoint == path for mounted in table):
        return path
    return os.path.realpath(path)


def _unescaped(field: bytes) -> str:
    """Undo the octal escapes of spaces, tabs, newlines and backslashes."""
    return os.fsdecode(_OCTAL_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))
