"""Reads at a position of a file, also on systems without ``pread`` (Windows)."""

from __future__ import annotations

import os
from threading import Lock
from typing import Final

#: Without ``pread`` the file position is shared, so a seek and its read must not be interleaved with others.
_MOVING: Final = Lock()


def _moved_and_read(descriptor: int, length: int, position: int) -> bytes:
    with _MOVING:
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.read(descriptor, length)


def _read_at(descriptor: int, length: int, position: int) -> bytes:
    return os.pread(descriptor, length, position)


#: Return at most ``length`` bytes from ``position`` of an open file; raises OSError.
read_at: Final = _read_at if hasattr(os, "pread") else _moved_and_read
