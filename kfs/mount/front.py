"""The interface of a front: it serves a tree to the kernel at a mount point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kfs.tree.node import Tree


@dataclass(frozen=True, slots=True)
class MountOptions:
    """The options of a mount, common to all fronts.

    ``source`` is shown by ``mount`` and ``df``; by it and the mount point, ``mount -a`` knows what is mounted. With
    ``allow_other``, users other than the one who mounts have access, subject to the modes of the files.
    """

    source: str = ""
    allow_other: bool = False


class Front(Protocol):
    """Serves one tree. Only a front knows its binding."""

    @property
    def name(self) -> str:
        """The name for choosing it."""

    def serve(self, tree: Tree, mountpoint: str, options: MountOptions) -> None:
        """Mount, and answer the kernel until unmounted or stopped by a signal.

        ``mountpoint`` is an absolute path. Raises :class:`~kfs.errors.MountFailed`.
        """


def kernel_options(options: MountOptions) -> dict[str, str | bool]:
    """Return the mount options that every libfuse passes on or understands.

    ``ro`` makes the kernel itself refuse writes; there is nothing to execute. The kernel checks permissions only with
    ``allow_other``: for the user who mounts, that would cost a request for each directory on a path.
    """
    chosen: dict[str, str | bool] = {
        "ro": True,
        "noexec": True,
        "fsname": _escaped(source_name(options)),
        "subtype": "kfs",
    }
    if options.allow_other:
        chosen |= {"allow_other": True, "default_permissions": True}
    return chosen


def source_name(options: MountOptions) -> str:
    """Return the source for the mount table."""
    return options.source or "kfs"


def _escaped(value: str) -> str:
    r"""Return ``value`` escaped for libfuse's comma-separated options: ``\`` before ``\`` and ``,``."""
    return value.replace("\\", "\\\\").replace(",", "\\,")
