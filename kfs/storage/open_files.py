"""Read-only files, pooled, each bound to the exact file that a listing found."""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Iterator
from functools import reduce
from threading import Lock
from typing import Final, NamedTuple

from kfs.errors import CorruptData, Shortage
from kfs.format.layout import BATCH_OVERHEAD
from kfs.storage.descriptors import BUDGET, Descriptor
from kfs.storage.status import PathKind, Status, Version

_PAGE: Final = 4096
#: How many bytes of the start of a file to remember: the header of its first batch, which includes the batch's CRC.
_HEAD: Final = BATCH_OVERHEAD
# O_NONBLOCK: opening a FIFO with a segment's name must not hang. Not every system has every flag.
_WANTED: Final = ("O_BINARY", "O_CLOEXEC", "O_NOINHERIT", "O_NONBLOCK", "O_NOCTTY")
#: Errors of opening a file that existed and is gone.
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
_FLAGS: Final = reduce(operator.or_, (getattr(os, name, 0) for name in _WANTED), os.O_RDONLY)

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


class FileChanged(CorruptData):
    """The path names another file now, or none, or one that was truncated or rewritten; this isn't damage."""

    errno = errno.ESTALE


class Patched(FileChanged):
    """The file is now read with a new patch, which moves positions in it; offsets stay the same."""


class FileGone(FileChanged):
    """The path names no file any more, or another one: a reader of the old file can't continue (ESTALE)."""


class GoneForGood(FileChanged):
    """The file isn't what it was at the moment that is shown: looking for it again is of no use."""


class FileReplaced(FileGone):
    """The path names another file now."""


_Key = tuple[str, int, int]


class _Left(NamedTuple):
    """What to remember of a file while it is closed: its size and its first bytes."""

    size: int
    head: bytes

    @classmethod
    def of(cls, descriptor: Descriptor) -> _Left:
        try:
            return cls(os.fstat(descriptor.number).st_size, read_at(descriptor.number, _HEAD, 0))
        except OSError:  # disk failure
            return cls(0, b"")

    def may_be(self, descriptor: Descriptor, status: Status) -> bool:
        try:
            return status.size >= self.size and read_at(descriptor.number, len(self.head), 0) == self.head
        except OSError:
            return False


class OpenFile:
    """A regular file open for reading; the descriptor is closed when the last reference goes.

    The file counts in the budget of descriptors, and may be closed at any time. It is then reopened on demand, if the
    path still leads to the same file. Because an inode number may be reused, the reopened file must also have the same
    first bytes and must not be shorter. ``kept`` is an object that a reader keeps with the file while it is open.
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
        """Open the file; a file in a ``pool``, under an ``owner``, leaves the pool when it is closed.

        Raises:
            FileChanged: it can't be opened, or is no regular file; :class:`FileGone`: the path doesn't exist.
            Shortage: no descriptor is available.
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
        """Return the descriptor; keep the reference while its number is in use.

        Raises:
            FileChanged: the file was closed meanwhile, and the path now leads to another one, or to none.
            Shortage: it was closed, and no descriptor is available to reopen it.
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
        except OSError:  # a device or server doesn't answer at the moment
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
        """The current status of the file."""
        return Status.of(self._stat())

    def version(self) -> Version:
        """The current version of the file."""
        return Version.of(self._stat())

    def size_and_time(self) -> tuple[int, int]:
        """The size in bytes and the mtime in nanoseconds: all that readers check after each read."""
        status = self._stat()
        return status.st_size, status.st_mtime_ns

    def size(self) -> int:
        """The current size in bytes."""
        return self._stat().st_size

    def _stat(self) -> os.stat_result:
        descriptor = self._descriptor or self._opened()  # keep the reference: another thread may release it now
        return os.fstat(descriptor.number)

    def read(self, position: int, length: int) -> bytes:
        """Read ``length`` bytes at ``position``, or fewer at the end of the file.

        Bytes that a failing disk can't read become 0xFF, which no header begins with. Their pages go to ``unreadable``,
        with the reason. So a bad sector costs only the batches on it.

        Raises:
            FileChanged: the file is gone, or another one has its name.
            Shortage: no descriptor or no memory is available.
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
        """Return the path of the file that the bytes at ``position`` come from, and their position in that file."""
        return self.path, position

    def extents(self, start: int, end: int) -> Iterator[tuple[OpenFile, int, int]]:
        """Yield the extents that make up the bytes from ``start`` to ``end``: a file, and the start and end in it."""
        yield self, start, end

    def end_of_extent(self, position: int) -> int | None:
        """Return the end of the extent at ``position``, in this file's positions; None if it reaches the end."""
        return None

    def sought(self, position: int, whence: int) -> int | None:
        """Return the ``lseek`` result for data or a hole; None if the query isn't supported.

        Raises:
            OSError: as ``lseek``.
        """
        descriptor = self.descriptor()
        return os.lseek(descriptor.number, position, whence)

    def read_error(self, position: int, length: int) -> str | None:
        """Return why bytes of a range could not be read, or None if all could."""
        if self.unreadable:
            for page in range(position // _PAGE, (position + length - 1) // _PAGE + 1):
                if page in self.unreadable:
                    return f"read failed at {page * _PAGE}: {self.unreadable[page]}"
        return None


def open_listed(path: str, inode: int, pool: dict[_Key, OpenFile] | None = None, owner: int = 0) -> OpenFile:
    """Open the file at ``path``, which a listing found with number ``inode``; the rest is as for :class:`OpenFile`.

    Raises:
        FileGone: it is gone; :class:`FileReplaced`: another file has its name.
        FileChanged: it can't be opened.
        Shortage: no descriptor is available.
    """
    file = OpenFile(path, pool, owner)
    if file.inode != inode:
        raise FileReplaced("replaced by another file", 0, path)
    return file


class FilePool:
    """Shares open files among all readers; the budget decides how many stay open."""

    def __init__(self) -> None:
        self._files: dict[_Key, OpenFile] = {}

    def open(self, path: str, inode: int, owner: int = 0, *, anew: bool = True) -> OpenFile:
        """Return the file at ``path``, which a listing found with number ``inode``.

        Each ``owner`` has its own file, because the number may have been reused since another owner opened its file. A
        file that isn't open is opened only with ``anew``.

        Raises:
            FileGone: it is gone, or another file has its name.
            FileChanged: it can't be opened.
            Shortage: no descriptor is available.
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
        """Close every file that isn't referenced elsewhere."""
        self._files.clear()
