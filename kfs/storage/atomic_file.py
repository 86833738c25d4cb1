"""Replacing a file as a whole, so that readers see the old or the new one (``CheckpointFile.write``)."""

from __future__ import annotations

import ctypes
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


def write_atomically(path: str, content: bytes) -> None:
    """Write ``path``.tmp, bring it to the disk, give it its name, and bring that to the disk too."""
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


@contextmanager
def replacing(path: str, *, is_durable: bool = True, is_private: bool = False) -> Iterator[BinaryIO]:
    """Give a new file, which gets the name ``path`` when the block is left, and is gone if that is by an error.

    Until then what has that name keeps it. A pipe, or anything else that isn't a regular file, is opened and written to
    itself. A ``durable`` file is on the disk when it gets its name; only its owner may read a ``private`` one.

    Raises:
        OSError: it can't be made, written to, or named.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            yield file
        return
    path = os.path.realpath(path)  # a link stays one
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
    """Return the mode of what is there, or else the one that a new file gets."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(path).st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


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
