"""The space that a copy needs, asked for before hours are spent on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from kfs.errors import CorruptData, KfsError
from kfs.recover.copying import can_share_blocks
from kfs.storage.holes import data_extents
from kfs.storage.open_files import OpenFile
from kfs.storage.status import size_at


def check_free_space(files: Sequence[str], directory: str) -> None:
    """Refuse a copy of ``files`` to a directory whose filesystem has too little space for their data.

    Holes take none, and nothing does where the copies share blocks with the files.

    Raises:
        KfsError: there is too little space.
        OSError: the directory can't be asked.
    """
    filesystem = os.statvfs(directory)
    free = filesystem.f_bavail * filesystem.f_frsize
    if sum(map(size_at, files)) <= free:
        return
    needed = sum(map(_data_bytes, files))
    if needed > free and not can_share_blocks(files[0], directory):
        raise KfsError(f"{directory}: the copy needs {needed:,} bytes, and {free:,} are free there")


def _data_bytes(path: str) -> int:
    with suppress(OSError, CorruptData):  # the copy itself says why it can't be read
        file = OpenFile(path)
        return sum(end - start for start, end in data_extents(file, 0, file.size()))
    return 0
