"""What the system says of a file or directory without reading it: what it is, how large, and in which version.

Elsewhere than on a local disk an answer may cost a request, and there may be neither owners nor numbers of files. So
nothing outside of this package asks the system itself, and versions are only compared, never taken apart.
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

#: What the system says of a path that leads to nothing; any other error says nothing of what is there.
_NOTHING: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})


class PathKind(Enum):
    """What a path leads to."""

    FILE = auto()
    DIRECTORY = auto()
    OTHER = auto()
    NOTHING = auto()
    UNKNOWN = auto()  # it can't be asked: no permission, a disk or a server that fails

    @property
    def may_be_directory(self) -> bool:
        """Whether it is a directory, or may be one: who lists it learns why it can't be asked."""
        return self in (PathKind.DIRECTORY, PathKind.UNKNOWN)

    @property
    def may_be_file(self) -> bool:
        """Whether it is a regular file, or may be one: who opens it learns why it can't be asked."""
        return self in (PathKind.FILE, PathKind.UNKNOWN)


class Version(NamedTuple):
    """What tells a file from what had its name before, and from what it was before it was written to.

    The number of its inode, its size in bytes, and when it was last written to and changed, in nanoseconds. The number
    of a file that is gone is given to another one; no device is in it, which another machine may number otherwise.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Version:
        """Take it from what the system says."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Status(NamedTuple):
    """What is known of a file or directory: what a :class:`Version` is made of, where it lies, and who may read it."""

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
        """Take it from what the system says."""
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
        """Which version of which file it is."""
        return Version(self.inode, self.size, self.mtime_ns, self.ctime_ns)

    @property
    def number(self) -> tuple[int, int]:
        """Which file or directory it is, whatever is in it: the device and the inode."""
        return self.device, self.inode

    @property
    def kind(self) -> PathKind:
        """What it is."""
        return kind_of_mode(self.mode)


def kind_of_mode(mode: int) -> PathKind:
    """Return what a mode (``st_mode``) says."""
    if stat.S_ISREG(mode):
        return PathKind.FILE
    return PathKind.DIRECTORY if stat.S_ISDIR(mode) else PathKind.OTHER


def kind_of_error(error: OSError) -> PathKind:
    """Return what is at a path of which the system says that."""
    return PathKind.NOTHING if error.errno in _NOTHING else PathKind.UNKNOWN


def status_at(path: str) -> Status:
    """Return the status of what a path leads to.

    Raises:
        OSError: there is nothing, or it can't be asked.
        Shortage: the system has no descriptor, or no memory for the answer.
    """
    return _asked(os.stat, path)


def link_status_at(path: str) -> Status:
    """Return the status of a path, a link's own where it is one; errors are those of :func:`status_at`."""
    return _asked(os.lstat, path)


def _asked(ask: Callable[[str], os.stat_result], path: str) -> Status:
    try:
        return Status.of(ask(path))
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
    return Status.of(BUDGET.attempt(partial(ask, path), path))


def status_if_there(path: str) -> Status | None:
    """Return the status of what a path leads to, None where that is nothing.

    Raises:
        OSError: it can't be asked.
        Shortage: see :func:`status_at`.
    """
    try:
        return status_at(path)
    except OSError as error:
        if kind_of_error(error) is PathKind.NOTHING:
            return None
        raise


def kind_at(path: str) -> PathKind:
    """Return what a path leads to; what can't be asked is of :attr:`PathKind.UNKNOWN` kind, and no error."""
    try:
        return kind_of_mode(os.stat(path).st_mode)
    except OSError as error:
        return kind_of_error(error)
    except ValueError:  # a zero byte in it: no path at all
        return PathKind.NOTHING


def is_there(path: str) -> bool:
    """Whether there is something of that name, be it a link that leads nowhere; what can't be asked is taken for it.

    So nothing is held to be missing that can't be looked at: who opens it learns why.
    """
    try:
        os.lstat(path)
    except OSError as error:
        return kind_of_error(error) is PathKind.UNKNOWN
    except ValueError:  # a zero byte in it: no path at all
        return False
    return True


def size_at(path: str) -> int:
    """Return how many bytes a file has, for who needs no more than a guess: 0 where it is gone or can't be asked."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
