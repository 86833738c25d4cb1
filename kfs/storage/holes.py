"""Data and holes of sparse files; a hole reads as zeros and takes no space, but may span 50 GiB.

Every reader skips holes with these functions, so that none is read through.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfs.storage.open_files import OpenFile


def next_data(file: OpenFile, position: int, size: int) -> int:
    """Return the first position at or after ``position`` that isn't in a hole; ``size`` if there is none below it.

    If the system doesn't support the query, everything counts as data.
    """
    return _sought(file, position, size, "SEEK_DATA", min(position, size))


def data_extents(file: OpenFile, position: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each data extent from ``position`` to ``size``; holes lie between them."""
    while (start := next_data(file, position, size)) < size:
        position = _sought(file, start, size, "SEEK_HOLE", size)
        yield start, position


def _sought(file: OpenFile, position: int, size: int, whence: str, unknown: int) -> int:
    """Return the next data or hole at or after ``position``, or ``unknown`` if the system doesn't support that."""
    if not hasattr(os, whence):
        return unknown
    try:
        found = file.sought(position, getattr(os, whence))
    except OSError as error:
        return size if error.errno == errno.ENXIO else unknown  # ENXIO: a hole to the end
    if found is None:
        return unknown
    return min(max(position, found), size)
