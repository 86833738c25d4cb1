"""Read-only file descriptors, pooled, and bound to the very file that was found in a listing."""

from __future__ import annotations

import errno
import operator
import os
import stat
import threading
from contextlib import suppress
from functools import reduce
from typing import Final

from cachetools import LRUCache

from kfs.errors import CorruptData
from kfs.log.positioned import read_at

_CAPACITY: Final = 256
_PAGE: Final = 4096
# O_NONBLOCK: a FIFO that calls itself a segment must not hang the open. Not every system has every flag.
_WANTED: Final = ("O_BINARY", "O_CLOEXEC", "O_NOINHERIT", "O_NONBLOCK", "O_NOCTTY")
#: What opening a file says that was there, and is gone.
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_FLAGS: Final = reduce(operator.or_, (getattr(os, name, 0) for name in _WANTED), os.O_RDONLY)


class FileChanged(CorruptData):
    """The path names another file now, none, or one that was cut or written anew: change, and no damage."""

    errno = errno.ESTALE


class OpenFile:
    """An open regular file; the descriptor is closed when the last reference goes."""

    __slots__ = ("fd", "inode", "path", "unreadable")

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.path = path
        self.unreadable: dict[int, str] = {}
        try:
            self.fd = os.open(path, _FLAGS)
            status = os.fstat(self.fd)
        except OSError as error:
            kind = FileChanged if error.errno in _GONE else CorruptData
            raise kind(error.strerror or str(error), 0, path) from None
        if not stat.S_ISREG(status.st_mode):
            raise FileChanged("not a regular file", 0, path)
        self.inode = status.st_ino

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def status(self) -> os.stat_result:
        """``fstat`` of the file."""
        return os.fstat(self.fd)

    def size(self) -> int:
        """The size in bytes, now."""
        return os.fstat(self.fd).st_size

    def read(self, position: int, length: int) -> bytes:
        """Read ``length`` bytes at ``position``, fewer at the end of the file.

        What a failing disk won't give is 0xFF (which no header begins with), its pages noted in
        ``unreadable`` with the reason: a bad sector then costs the batches on it and no others.
        """
        try:
            data = read_at(self.fd, length, position)
        except OSError:
            return self._read_around(position, length)
        if len(data) == length or not data:
            return data
        return data + self.read(position + len(data), length - len(data))

    def _read_around(self, position: int, length: int) -> bytes:
        parts = []
        end = min(position + length, self.size())
        while position < end:
            stop = min(end, (position // _PAGE + 1) * _PAGE)
            try:
                parts.append(read_at(self.fd, stop - position, position))
            except OSError as error:
                self.unreadable[position // _PAGE] = error.strerror or str(error)
                parts.append(b"\xff" * (stop - position))
            position = stop
        return b"".join(parts)

    def read_error(self, position: int, length: int) -> str | None:
        """Return why bytes of that range could not be read, None where all could."""
        if self.unreadable:
            for page in range(position // _PAGE, (position + length - 1) // _PAGE + 1):
                if page in self.unreadable:
                    return f"read failed at {page * _PAGE}: {self.unreadable[page]}"
        return None


class FilePool:
    """Keeps the files used last open, so that a walk over many segments holds few descriptors."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._files: LRUCache[tuple[str, int], OpenFile] = LRUCache(capacity)
        self._lock = threading.Lock()

    def open(self, path: str, inode: int) -> OpenFile:
        """Return the file at ``path``, which a listing saw as ``inode``.

        Raises:
            FileChanged: it is gone, or another file has its name.
        """
        key = (path, inode)
        with self._lock, suppress(KeyError):
            return self._files[key]
        file = OpenFile(path)
        if file.inode != inode:
            raise FileChanged("replaced by another file", 0, path)
        with self._lock:
            self._files[key] = file
        return file

    def close(self) -> None:
        """Close every file that nobody else holds."""
        with self._lock:
            self._files.clear()
