"""What a front is: something that serves a tree to the kernel at a mount point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kfs.tree.node import Tree


@dataclass(frozen=True, slots=True)
class MountOptions:
    """What may be chosen about a mount, whichever front serves it.

    ``source`` is what ``mount`` and ``df`` show behind ``kfs:``. With ``allow_other`` users other
    than the one who mounts get in, as far as the modes of the files let them.
    """

    source: str = ""
    allow_other: bool = False


class Front(Protocol):
    """Serves one tree. A front knows its binding; nothing else does."""

    @property
    def name(self) -> str:
        """The name by which it is chosen."""

    def serve(self, tree: Tree, mountpoint: str, options: MountOptions) -> None:
        """Mount, and answer the kernel until unmounted or told to stop by a signal.

        ``mountpoint`` is an absolute path. Raises :class:`~kfs.errors.MountFailed`.
        """


def kernel_options(options: MountOptions) -> dict[str, str | bool]:
    """Return the mount options that every libfuse passes on or understands.

    ``ro`` lets the kernel itself refuse whatever writes. The kernel checks permissions only where
    strangers get in: for the user who mounts, it would cost a request for each directory on a path.
    """
    chosen: dict[str, str | bool] = {"ro": True, "fsname": _escaped(source_name(options)), "subtype": "kfs"}
    if options.allow_other:
        chosen |= {"allow_other": True, "default_permissions": True}
    return chosen


def source_name(options: MountOptions) -> str:
    """Return what the mount table shows as the source."""
    return f"kfs:{options.source}"


def _escaped(value: str) -> str:
    r"""Return ``value`` as libfuse wants it between commas: ``\`` and ``,`` behind a ``\``."""
    return value.replace("\\", "\\\\").replace(",", "\\,")
