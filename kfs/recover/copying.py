"""Copies a broker's files: shares blocks if the filesystem supports that, else keeps holes as holes."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from typing import Final

from kfs.storage.holes import data_extents
from kfs.storage.open_files import OpenFile
from kfs.storage.status import Status

_FICLONE: Final = 0x40049409  # linux/fs.h
_CHUNK_BYTES: Final = 4 * 1024 * 1024
#: The errors of a filesystem that can't share blocks, or not between these two files.
_NOT_CLONED: Final = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EBADF}


def copy_file(source: str, target: str) -> dict[int, str]:
    """Copy a regular file with its mode, times and, if permitted, owner.

    Pages that a failing disk can't read are 0xFF in the copy. Returns the numbers of these 4 KiB pages, and the errors.
    """
    file = OpenFile(source)
    with open(target, "xb") as copy:
        if not _clone(file, copy.fileno()):
            _copy_extents(file, copy.fileno())
    shutil.copystat(source, target)
    keep_owner(file.status(), target)
    return file.unreadable


def can_share_blocks(source: str, directory: str) -> bool:
    """Whether a copy of a file to a directory would share its blocks, instead of taking as many again.

    Raises:
        CorruptData: the file can't be read.
        OSError: the directory can't be written to.
    """
    with tempfile.TemporaryFile(dir=directory) as copy:
        return _clone(OpenFile(source), copy.fileno())


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
    """Write the bytes from ``start`` to ``end`` to the descriptor ``target``, at its current position."""
    for source, first, last in file.extents(start, end):
        for position in range(first, last, _CHUNK_BYTES):
            rest = memoryview(source.read(position, min(_CHUNK_BYTES, last - position)))
            while rest:
                rest = rest[os.write(target, rest) :]


def keep_owner(status: Status, path: str) -> None:
    """Give a file the owner in ``status`` if run as root, because a broker must be able to write it."""
    if os.geteuid() == 0:
        os.chown(path, status.uid, status.gid)
