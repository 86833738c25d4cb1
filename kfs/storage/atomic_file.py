"""Atomic replacement of a file: readers see either the old or the new one (``CheckpointFile.write``)."""

from __future__ import annotations

import ctypes
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


def write_atomically(path: str, content: bytes) -> None:
    """Write ``path``.tmp, sync it, rename it to ``path``, and sync the directory."""
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


@contextmanager
def replacing(path: str, *, is_durable: bool = True, is_private: bool = False) -> Iterator[BinaryIO]:
    """Yield a new file that is renamed to ``path`` when the block exits, or deleted if the block raises.

    Until then an existing file keeps that name. If ``path`` is a pipe, or anything else that isn't a regular file, it
    is opened and written to directly. With ``is_durable`` the file is synced before it gets its name. With
    ``is_private`` only its owner may read it.

    Raises:
        OSError: the file can't be created, written or renamed.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    path = os.path.realpath(path)  # keep a symbolic link
    descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)[:200]}.", dir=os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file:
            if not is_private:
                os.fchmod(descriptor, _mode_for(path))
            yield file
            if is_durable:
                file.flush()
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    if is_durable:
        sync_directory(os.path.dirname(path))


def _mode_for(path: str) -> int:
    """Return the mode of the existing file, or else the default mode of a new file."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(path).st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def sync_directory(path: str) -> None:
    """Sync the names in a directory."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_filesystem(path: str) -> None:
    """Sync the whole filesystem of ``path``: many files at once, instead of one by one.

    Raises:
        OSError: something could not be written.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):  # not Linux
        os.sync()
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)
