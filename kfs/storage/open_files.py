"""Read-only file descriptors, pooled, and bound to the very file that was found in a listing."""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Iterator
from functools import reduce
from typing import Final, NamedTuple

from kfs.errors import CorruptData, Shortage
from kfs.format.layout import BATCH_OVERHEAD
from kfs.storage.descriptors import BUDGET, Descriptor
from kfs.storage.positioned import read_at
from kfs.storage.status import PathKind, Status, Version

_PAGE: Final = 4096
#: How much of the beginning of a file is remembered, in bytes: the header of its first batch, with the CRC of it all.
_HEAD: Final = BATCH_OVERHEAD
# O_NONBLOCK: a FIFO that calls itself a segment must not hang the open. Not every system has every flag.
_WANTED: Final = ("O_BINARY", "O_CLOEXEC", "O_NOINHERIT", "O_NONBLOCK", "O_NOCTTY")
#: What opening a file says that was there, and is gone.
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_FLAGS: Final = reduce(operator.or_, (getattr(os, name, 0) for name in _WANTED), os.O_RDONLY)


class FileChanged(CorruptData):
    """The path names another file now, none, or one that was cut or written anew: change, and no damage."""

    errno = errno.ESTALE


class FileGone(FileChanged):
    """The path names no file any more, or another one: a reader of the old one can't read on (ESTALE)."""


class FileReplaced(FileGone):
    """The path names another file now."""


_Key = tuple[str, int, int]


class _Left(NamedTuple):
    """What is remembered of a file that isn't open: its size, and how it begins."""

    size: int
    head: bytes

    @classmethod
    def of(cls, descriptor: Descriptor) -> _Left:
        try:
            return cls(os.fstat(descriptor.number).st_size, read_at(descriptor.number, _HEAD, 0))
        except OSError:  # a disk that fails
            return cls(0, b"")

    def may_be(self, descriptor: Descriptor, status: Status) -> bool:
        try:
            return status.size >= self.size and read_at(descriptor.number, len(self.head), 0) == self.head
        except OSError:
            return False


class OpenFile:
    """A regular file, open to be read; the descriptor is closed when the last reference goes.

    It counts in the budget of descriptors and may have been let go: it is then opened again, if the path still leads
    to the same file. That has the same number, which another may have been given meanwhile; so it also begins as that
    did, and isn't shorter. ``kept`` is what a reader keeps with the file for as long as it is open.
    """

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_device",
        "_left",
        "_owner",
        "_pool",
        "gone_since",
        "inode",
        "kept",
        "path",
        "unreadable",
        "was_used",
    )

    def __init__(self, path: str, pool: dict[_Key, OpenFile] | None = None, owner: int = 0) -> None:
        """Open the file; one that is in a ``pool``, for an ``owner``, leaves it when it is let go.

        Raises:
            FileChanged: it can't be opened, or is no regular file; :class:`FileGone`: there is none of that path.
            Shortage: there is no descriptor for it.
        """
        self.path = path
        self.unreadable: dict[int, str] = {}
        self.was_used = False
        self.gone_since = 0.0
        self.kept: object = None
        self._pool = pool
        self._owner = owner
        self._left = _Left(0, b"")
        self._device = self.inode = -1
        self._descriptor: Descriptor | None = None
        self.descriptor()

    def descriptor(self) -> Descriptor:
        """Return the descriptor, to be held on to while its number is used.

        Raises:
            FileChanged: the file was let go meanwhile, and the path leads to another one now, or to none.
            Shortage: it was, and there is no descriptor to open it again.
        """
        descriptor = self._descriptor
        return self._opened() if descriptor is None else descriptor

    def _opened(self) -> Descriptor:
        if self.gone_since:
            raise FileGone("file is gone", 0, self.path)
        try:
            descriptor = BUDGET.open(self.path, _FLAGS, self)
            status = Status.of(os.fstat(descriptor.number))
        except (FileNotFoundError, NotADirectoryError):
            raise FileGone("file is gone", 0, self.path) from None
        except OSError as error:
            kind = FileChanged if error.errno in _GONE else CorruptData
            raise kind(error.strerror or str(error), 0, self.path) from None
        if status.kind is not PathKind.FILE:
            raise FileChanged("not a regular file", 0, self.path)
        if self.inode < 0:
            self._device, self.inode = status.number
        elif (self._device, self.inode) != status.number or not self._left.may_be(descriptor, status):
            raise FileReplaced("replaced by another file", 0, self.path)
        self._descriptor = descriptor
        return descriptor

    def is_there(self) -> bool:
        """See :class:`~kfs.storage.descriptors.Holder`."""
        try:
            status = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # of a device or a server that doesn't answer just now
            return True
        return (status.st_dev, status.st_ino) == (self._device, self.inode)

    def forget(self) -> None:
        """See :class:`~kfs.storage.descriptors.Holder`."""
        if self._pool is not None:
            self._pool.pop((self.path, self.inode, self._owner), None)

    def let_go(self) -> None:
        """See :class:`~kfs.storage.descriptors.Holder`."""
        self.forget()
        self.kept = None
        descriptor = self._descriptor
        if descriptor is not None:
            self._left = _Left.of(descriptor)
        self._descriptor = None

    def status(self) -> Status:
        """What is known of the file, now."""
        return Status.of(self._stat())

    def version(self) -> Version:
        """Which version of which file it is, now."""
        return Version.of(self._stat())

    def size_and_time(self) -> tuple[int, int]:
        """The size in bytes, and when it was last written to, in nanoseconds: all that is asked after each read."""
        status = self._stat()
        return status.st_size, status.st_mtime_ns

    def size(self) -> int:
        """The size in bytes, now."""
        return self._stat().st_size

    def _stat(self) -> os.stat_result:
        descriptor = self._descriptor or self._opened()  # held on to: another thread may have it let go now
        return os.fstat(descriptor.number)

    def read(self, position: int, length: int) -> bytes:
        """Read ``length`` bytes at ``position``, fewer at the end of the file.

        What a failing disk won't give is 0xFF (which no header begins with), its pages noted in
        ``unreadable`` with the reason: a bad sector then costs the batches on it and no others.

        Raises:
            FileChanged: the file is gone, or another one has its name.
            Shortage: there is no descriptor, or no memory.
        """
        descriptor = self._descriptor or self._opened()
        try:
            data = read_at(descriptor.number, length, position)
        except OSError as error:
            if error.errno == errno.ENOMEM:
                raise Shortage(f"{self.path}: position {position}: {error.strerror}") from None
            return self._read_around(position, length)
        if len(data) == length or not data:
            return data
        return data + self.read(position + len(data), length - len(data))

    def _read_around(self, position: int, length: int) -> bytes:
        descriptor = self.descriptor()
        parts = []
        end = min(position + length, self.size())
        while position < end:
            stop = min(end, (position // _PAGE + 1) * _PAGE)
            try:
                parts.append(read_at(descriptor.number, stop - position, position))
            except OSError as error:
                self.unreadable[position // _PAGE] = error.strerror or str(error)
                parts.append(b"\xff" * (stop - position))
            position = stop
        return b"".join(parts)

    def where(self, position: int) -> tuple[str, int]:
        """Return the path of the file that the bytes at a position are of, and their position there."""
        return self.path, position

    def extents(self, start: int, end: int) -> Iterator[tuple[OpenFile, int, int]]:
        """Yield what the bytes from ``start`` to ``end`` consist of: files, and from where to where in each."""
        yield self, start, end

    def end_of_extent(self, position: int) -> int | None:
        """Return up to where bytes from a position on are of one file, in the same place there; None: to the end."""
        return None

    def sought(self, position: int, whence: int) -> int | None:
        """``lseek`` to data or to a hole; None where that can't be asked.

        Raises:
            OSError: as ``lseek``.
        """
        descriptor = self.descriptor()
        return os.lseek(descriptor.number, position, whence)

    def read_error(self, position: int, length: int) -> str | None:
        """Return why bytes of that range could not be read, None where all could."""
        if self.unreadable:
            for page in range(position // _PAGE, (position + length - 1) // _PAGE + 1):
                if page in self.unreadable:
                    return f"read failed at {page * _PAGE}: {self.unreadable[page]}"
        return None


def open_listed(path: str, inode: int, pool: dict[_Key, OpenFile] | None = None, owner: int = 0) -> OpenFile:
    """Open the file at ``path``, which a listing saw as ``inode``; the rest is as for :class:`OpenFile`.

    Raises:
        FileGone: it is gone; :class:`FileReplaced`: another file has its name.
        FileChanged: it can't be opened.
        Shortage: there is no descriptor for it.
    """
    file = OpenFile(path, pool, owner)
    if file.inode != inode:
        raise FileReplaced("replaced by another file", 0, path)
    return file


class FilePool:
    """Gives the same open file to all who want it. How many are open is for the budget to say."""

    def __init__(self) -> None:
        self._files: dict[_Key, OpenFile] = {}

    def open(self, path: str, inode: int, owner: int = 0, *, anew: bool = True) -> OpenFile:
        """Return the file at ``path``, which a listing saw as ``inode``.

        Each ``owner`` has a file of its own: the number may have been given to another file since another owner opened
        his. What isn't open is opened only if ``anew`` says so.

        Raises:
            FileGone: it is gone, or another file has its name.
            FileChanged: it can't be opened.
            Shortage: there is no descriptor for it.
        """
        file = self._files.get((path, inode, owner))
        if file is not None:
            file.was_used = True
            return file
        if not anew:
            raise FileGone("file is gone", 0, path)
        file = open_listed(path, inode, self._files, owner)
        self._files[path, inode, owner] = file
        BUDGET.watch()
        return file

    def close(self) -> None:
        """Close every file that isn't held elsewhere."""
        self._files.clear()
