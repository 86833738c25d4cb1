"""What is in a directory, and what is called as a pattern says."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from fnmatch import filter as matching_names
from functools import partial
from typing import Final, NamedTuple

from kfs.storage.descriptors import BUDGET
from kfs.storage.status import PathKind, kind_of_error, kind_of_mode, link_status_at, status_at

#: What begins a part of a pattern that isn't a name.
_MAGIC: Final = frozenset("*?[")
#: What a directory says that a pattern passes over, as a shell does.
_PASSED_OVER: Final = frozenset({errno.EACCES, errno.EPERM})


class FoundFile(NamedTuple):
    """An entry of a directory, as a listing shows it.

    The number of its inode and its kind are, for a link, those of what it leads to; its own number where that is
    nothing, or can't be asked. The number is -1 where that isn't known.
    """

    path: str
    inode: int
    kind: PathKind = PathKind.FILE
    is_link: bool = False

    @property
    def name(self) -> str:
        """What it is called in its directory."""
        return self.path.rpartition(os.sep)[2]


def list_directory(path: str) -> list[FoundFile]:
    """Return what is in a directory, in no order.

    Raises:
        OSError: it can't be listed.
        Shortage: there is no descriptor for it.
    """
    with BUDGET.attempt(partial(os.scandir, path), path) as entries:
        return list(map(_found, entries))


def list_names(path: str) -> list[str]:
    """Return the names in a directory, in no order; errors are those of :func:`list_directory`."""
    return BUDGET.attempt(partial(os.listdir, path), path)


def list_files(path: str) -> list[str]:
    """Return the names of the regular files in a directory, links aside; errors are those of :func:`list_directory`.

    It is what little of a listing is asked for again and again.
    """
    with BUDGET.attempt(partial(os.scandir, path), path) as entries:
        return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]


def check_listable(path: str) -> None:
    """Raise what :func:`list_directory` would; nothing is listed."""
    BUDGET.attempt(partial(os.scandir, path), path).close()


def found_at(path: str) -> FoundFile | None:
    """Return what a path leads to as a listing shows it, None where that is nothing.

    What can't be asked is taken for a file, whose number isn't known: who opens it learns why.

    Raises:
        Shortage: see :func:`~kfs.storage.status.status_at`.
    """
    try:
        status = status_at(path)
    except OSError as error:
        kind = kind_of_error(error)
        return None if kind is PathKind.NOTHING else FoundFile(path, -1, kind)
    return FoundFile(path, status.inode, status.kind)


def matching(pattern: str) -> list[str]:
    """Return the paths that an absolute pattern matches (``*``, ``?``, ``[...]``), sorted.

    Only a pattern that begins with a dot matches names that do.

    Raises:
        OSError: a directory can't be listed, for another reason than that it isn't one or may not be.
        Shortage: there is no descriptor for it.
    """
    return sorted(_matching(pattern))


def _matching(pattern: str) -> Iterator[str]:
    parent, name = os.path.split(pattern)
    for directory in [parent] if _MAGIC.isdisjoint(parent) else _matching(parent):
        yield from _matching_in(directory, name)


def _matching_in(directory: str, name: str) -> Iterator[str]:
    try:
        if _MAGIC.isdisjoint(name):
            path = os.path.join(directory, name)
            link_status_at(path)
            yield path
            return
        names = list_names(directory)
    except OSError as error:
        if error.errno in _PASSED_OVER or kind_of_error(error) is PathKind.NOTHING:
            return
        raise
    for each in matching_names(names, name):
        if not each.startswith(".") or name.startswith("."):
            yield os.path.join(directory, each)


def _found(entry: os.DirEntry[str]) -> FoundFile:
    try:
        if entry.is_symlink():
            return _target(entry)
        if entry.is_file(follow_symlinks=False):
            kind = PathKind.FILE
        else:
            kind = PathKind.DIRECTORY if entry.is_dir(follow_symlinks=False) else PathKind.OTHER
    except OSError:  # where the listing doesn't say what it is, the disk is asked, and may fail
        kind = PathKind.UNKNOWN
    return FoundFile(entry.path, entry.inode(), kind)


def _target(entry: os.DirEntry[str]) -> FoundFile:
    try:
        status = os.stat(entry.path)
    except OSError as error:
        return FoundFile(entry.path, entry.inode(), kind_of_error(error), is_link=True)
    return FoundFile(entry.path, status.st_ino, kind_of_mode(status.st_mode), is_link=True)
