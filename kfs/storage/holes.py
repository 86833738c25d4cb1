"""Where a file has blocks, and where it has a hole, which reads as zeros and takes no room: of 50 GiB, perhaps.

Every reader passes holes by what is here, so that none of them reads one through.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfs.storage.open_files import OpenFile


def next_data(file: OpenFile, position: int, size: int) -> int:
    """Return the first position from ``position`` on, below ``size``, that is in no hole; ``size`` if there is none.

    Where the system doesn't tell, nothing is in a hole.
    """
    return _sought(file, position, size, "SEEK_DATA", min(position, size))


def data_extents(file: OpenFile, position: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where data begins and ends, from ``position`` on and below ``size``; what is between is holes."""
    while (start := next_data(file, position, size)) < size:
        position = _sought(file, start, size, "SEEK_HOLE", size)
        yield start, position


def _sought(file: OpenFile, position: int, size: int, whence: str, unknown: int) -> int:
    """Return where the file has data, or a hole, from ``position`` on: ``unknown`` where the system doesn't say."""
    if not hasattr(os, whence):
        return unknown
    try:
        found = file.sought(position, getattr(os, whence))
    except OSError as error:
        return size if error.errno == errno.ENXIO else unknown  # ENXIO: a hole to the end
    if found is None:
        return unknown
    return min(max(position, found), size)
