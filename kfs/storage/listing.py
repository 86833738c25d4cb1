"""Directory listings, and paths that match a pattern."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from fnmatch import filter as matching_names
from functools import partial
from typing import Final, NamedTuple

from kfs.storage.descriptors import BUDGET
from kfs.storage.status import PathKind, kind_of_error, kind_of_mode, link_status_at, status_at

#: Characters that make a part of a pattern more than a plain name.
_MAGIC: Final = frozenset("*?[")
#: Errors of directories that a pattern skips, as a shell does.
_PASSED_OVER: Final = frozenset({errno.EACCES, errno.EPERM})


class FoundFile(NamedTuple):
    """An entry of a directory listing.

    For a link, the inode number and the kind are those of its target. If the target is missing or can't be queried, the
    inode number is the link's own. An unknown number is -1.
    """

    path: str
    inode: int
    kind: PathKind = PathKind.FILE
    is_link: bool = False

    @property
    def name(self) -> str:
        """The name in its directory."""
        return self.path.rpartition(os.sep)[2]


def list_directory(path: str) -> list[FoundFile]:
    """Return the entries of a directory, unsorted.

    Raises:
        OSError: it can't be listed.
        Shortage: no descriptor is available.
    """
    with BUDGET.attempt(partial(os.scandir, path), path) as entries:
        return list(map(_found, entries))


def list_names(path: str) -> list[str]:
    """Return the names in a directory, unsorted; the errors are those of :func:`list_directory`."""
    return BUDGET.attempt(partial(os.listdir, path), path)


def list_files(path: str) -> list[str]:
    """Return the names of the regular files in a directory, without links; errors as for :func:`list_directory`.

    It skips everything else in a listing, for callers that call it frequently.
    """
    with BUDGET.attempt(partial(os.scandir, path), path) as entries:
        return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]


def list_sizes(path: str, suffix: str) -> dict[str, int]:
    """Return the sizes in bytes of the files in a directory whose names end with ``suffix``, by name.

    Errors are those of :func:`list_directory`.
    """
    with BUDGET.attempt(partial(os.scandir, path), path) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.name.endswith(suffix)}


def check_listable(path: str) -> None:
    """Raise the errors of :func:`list_directory` without listing."""
    BUDGET.attempt(partial(os.scandir, path), path).close()


def found_at(path: str) -> FoundFile | None:
    """Return the target of a path as a listing shows it, or None if it doesn't exist.

    A target that can't be queried counts as a file with an unknown inode number; opening it raises the error.

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
    """Return the paths that match an absolute pattern (``*``, ``?``, ``[...]``), sorted.

    Only a pattern part that begins with a dot matches such names.

    Raises:
        OSError: a directory can't be listed, although it is a directory and permissions allow it.
        Shortage: no descriptor is available.
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
        if entry.is_file(follow_symlinks=False):  # nearly all are
            kind = PathKind.FILE
        elif entry.is_symlink():
            return _target(entry)
        else:
            kind = PathKind.DIRECTORY if entry.is_dir(follow_symlinks=False) else PathKind.OTHER
    except OSError:  # if the listing lacks the type, scandir queries the disk, which may fail
        kind = PathKind.UNKNOWN
    return FoundFile(entry.path, entry.inode(), kind)


def _target(entry: os.DirEntry[str]) -> FoundFile:
    try:
        status = os.stat(entry.path)
    except OSError as error:
        return FoundFile(entry.path, entry.inode(), kind_of_error(error), is_link=True)
    return FoundFile(entry.path, status.st_ino, kind_of_mode(status.st_mode), is_link=True)
