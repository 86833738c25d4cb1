"""``kfs`` with caches that are full within a minute: what grows after that is no cache.

``python -m tests.soak.small_caches mount ...`` is ``kfs mount ...``. Bounds of caches that aren't options of the mount
are set to what a minute of the soak fills.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import kfs.log.index_file
import kfs.mount.kernel.growing_files
import kfs.read.aborted_transactions
import kfs.tree.context
import kfs.tree.lines.cache
from kfs.cli.main import main

_KIBIBYTE: Final = 1024
#: Beside the options of ``kfs mount``.
OPTIONS: Final = ("--cache-bytes", "4M")


def shrink() -> None:
    """Set what modules keep."""
    kfs.mount.kernel.growing_files._FILES_KEPT = 512  # type: ignore[misc]
    kfs.tree.context._TEXT_BYTES = 512 * _KIBIBYTE  # type: ignore[misc]
    kfs.tree.context._GENERATED_BYTES = 512 * _KIBIBYTE  # type: ignore[misc]
    kfs.tree.context._HOURS_BYTES = 128 * _KIBIBYTE  # type: ignore[misc]
    kfs.tree.context._VERSIONS_KEPT = 256  # type: ignore[misc]
    kfs.tree.lines.cache._INDEX_BYTES = 512 * _KIBIBYTE  # type: ignore[misc]
    kfs.tree.lines.cache._READERS_KEPT = 128  # type: ignore[misc]
    kfs.log.index_file._COPIED_BYTES = 256 * _KIBIBYTE  # type: ignore[misc]
    kfs.read.aborted_transactions._MOST_REMEMBERED = 512  # type: ignore[misc]


def drop_kernel_caches() -> None:
    """Have the kernel forget the names and inodes that nothing has open: libfuse has a node for each; needs root."""
    Path("/proc/sys/vm/drop_caches").write_text("2")


if __name__ == "__main__":
    shrink()
    main(prog_name="kfs")
