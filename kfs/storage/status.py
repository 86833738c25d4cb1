"""File metadata, obtained without reading the file: its kind, its size and its version.

On storage other than a local disk, a query may cost a request, and there may be no owners or inode numbers. So only
this package queries the system, and versions are only compared, never interpreted.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, NamedTuple

from kfs.storage.descriptors import BUDGET, SHORTAGES

#: Errors for a path that doesn't exist; after any other error it is unknown what exists there.
_NOTHING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class PathKind(Enum):
    """The kind of file that a path leads to."""

    FILE = auto()
    DIRECTORY = auto()
    OTHER = auto()
    NOTHING = auto()
    UNKNOWN = auto()  # it can't be queried: no permission, a failing disk or server

    @property
    def may_be_directory(self) -> bool:
        """Whether it is, or may be, a directory; if it can't be queried, listing it raises the error."""
        return self in (PathKind.DIRECTORY, PathKind.UNKNOWN)

    @property
    def may_be_file(self) -> bool:
        """Whether it is, or may be, a regular file; if it can't be queried, opening it raises the error."""
        return self in (PathKind.FILE, PathKind.UNKNOWN)


class Version(NamedTuple):
    """What distinguishes a file from its predecessor of the same name, and from its own earlier content.

    It has the inode number, the size in bytes, and the mtime and ctime in nanoseconds. All are needed, because inode
    numbers are reused. The device isn't included, because its number may differ on another machine.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Version:
        """Return the version in a system's status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Status(NamedTuple):
    """The metadata of a file or directory: the parts of a :class:`Version`, its device, and its permissions."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    device: int
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, status: os.stat_result) -> Status:
        """Return the status from a system's status."""
        return cls(
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_dev,
            status.st_mode,
            status.st_uid,
            status.st_gid,
        )

    @property
    def version(self) -> Version:
        """The version of the file."""
        return Version(self.inode, self.size, self.mtime_ns, self.ctime_ns)

    @property
    def number(self) -> tuple[int, int]:
        """The identity of the file or directory, independent of its content: the device and the inode."""
        return self.device, self.inode

    @property
    def kind(self) -> PathKind:
        """The kind of file."""
        return kind_of_mode(self.mode)


def kind_of_mode(mode: int) -> PathKind:
    """Return the kind in a mode (``st_mode``)."""
    if stat.S_ISREG(mode):
        return PathKind.FILE
    return PathKind.DIRECTORY if stat.S_ISDIR(mode) else PathKind.OTHER


def kind_of_error(error: OSError) -> PathKind:
    """Return the kind of a path whose query failed with an error."""
    return PathKind.NOTHING if error.errno in _NOTHING else PathKind.UNKNOWN


def status_at(path: str) -> Status:
    """Return the status of a path's target.

    Raises:
        OSError: it doesn't exist, or can't be queried.
        Shortage: the system has no descriptor or memory available.
    """
    return _asked(os.stat, path)


def link_status_at(path: str) -> Status:
    """Return the status of a path, of a link itself if it is one; the errors are those of :func:`status_at`."""
    return _asked(os.lstat, path)


def _asked(ask: Callable[[str], os.stat_result], path: str) -> Status:
    try:
        return Status.of(ask(path))
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
    return Status.of(BUDGET.attempt(partial(ask, path), path))


def status_if_there(path: str) -> Status | None:
    """Return the status of a path's target, or None if it doesn't exist.

    Raises:
        OSError: it can't be queried.
        Shortage: see :func:`status_at`.
    """
    try:
        return status_at(path)
    except OSError as error:
        if kind_of_error(error) is PathKind.NOTHING:
            return None
        raise


def kind_at(path: str) -> PathKind:
    """Return the kind of a path's target; if it can't be queried, return :attr:`PathKind.UNKNOWN`."""
    try:
        return kind_of_mode(os.stat(path).st_mode)
    except OSError as error:
        return kind_of_error(error)
    except ValueError:  # a zero byte in it: no path at all
        return PathKind.NOTHING


def is_there(path: str) -> bool:
    """Whether a path exists, even as a dangling link; a path that can't be queried counts as existing.

    So nothing that can't be queried counts as missing: opening it raises the error.
    """
    try:
        os.lstat(path)
    except OSError as error:
        return kind_of_error(error) is PathKind.UNKNOWN
    except ValueError:  # a zero byte in it: no path at all
        return False
    return True


def size_at(path: str) -> int:
    """Return a file's size in bytes, as an estimate: 0 if it is gone or can't be queried."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
