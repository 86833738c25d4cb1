"""Replacing a small file as a whole, so that whoever looks sees the old or the new one (``CheckpointFile.write``)."""

from __future__ import annotations

import ctypes
import os


def write_atomically(path: str, content: bytes) -> None:
    """Write ``path``.tmp, bring it to the disk, give it its name, and bring that to the disk too."""
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Bring a directory's names to the disk."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_filesystem(path: str) -> None:
    """Bring everything on the filesystem of ``path`` to the disk: many files at once, instead of one by one.

    Raises:
        OSError: something could not be written.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):  # other systems than Linux
        os.sync()
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)
