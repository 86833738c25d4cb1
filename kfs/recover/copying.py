"""Copying a broker's files: sharing their blocks where the filesystem can, leaving holes as holes where it can't."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from typing import Final

from kfs.storage.holes import data_extents
from kfs.storage.open_files import OpenFile
from kfs.storage.status import Status

_FICLONE: Final = 0x40049409  # linux/fs.h
_CHUNK_BYTES: Final = 4 * 1024 * 1024
#: What a filesystem says that can't share blocks, or not between these two files.
_NOT_CLONED: Final = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EBADF}


def copy_file(source: str, target: str) -> dict[int, str]:
    """Copy a regular file with its mode, times and, where that is allowed, owner.

    Pages that a failing disk won't give are 0xFF in the copy; returns their numbers (of 4 KiB) and why.
    """
    file = OpenFile(source)
    with open(target, "xb") as copy:
        if not _clone(file, copy.fileno()):
            _copy_extents(file, copy.fileno())
    shutil.copystat(source, target)
    keep_owner(file.status(), target)
    return file.unreadable


def _clone(source: OpenFile, target: int) -> bool:
    descriptor = source.descriptor()
    try:
        fcntl.ioctl(target, _FICLONE, descriptor.number)
    except OSError as error:
        if error.errno in _NOT_CLONED:
            return False
        raise
    return True


def _copy_extents(file: OpenFile, target: int) -> None:
    size = file.size()
    for start, end in data_extents(file, 0, size):
        os.lseek(target, start, os.SEEK_SET)
        copy_range(file, start, end, target)
    os.ftruncate(target, size)


def copy_range(file: OpenFile, start: int, end: int, target: int) -> None:
    """Write the bytes from ``start`` to ``end`` to the descriptor ``target``, where that is."""
    for source, first, last in file.extents(start, end):
        for position in range(first, last, _CHUNK_BYTES):
            rest = memoryview(source.read(position, min(_CHUNK_BYTES, last - position)))
            while rest:
                rest = rest[os.write(target, rest) :]


def keep_owner(status: Status, path: str) -> None:
    """Give a file the owner that ``status`` names, where root runs this: a broker must be able to write it."""
    if os.geteuid() == 0:
        os.chown(path, status.uid, status.gid)
