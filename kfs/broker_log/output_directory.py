"""Checks of output directories: nothing is overwritten, and no source is written to."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kfs.errors import KfsError
from kfs.log.log_dir import LOCK, is_log_dir

#: Linux ``struct flock``: type, whence, start, length, process.
_FLOCK: Final = struct.Struct("hhqqi0q")


def check_apart(source: str, output: str) -> None:
    """Raise :class:`KfsError` if the two paths are equal, or one contains the other."""
    one, other = os.path.realpath(source), os.path.realpath(output)
    if os.path.commonpath([one, other]) in (one, other):
        raise KfsError(f"{output}: lies in {source}, or contains it: choose a directory outside of it")


def make_empty_directory(path: str) -> None:
    """Create the directory ``path``; raise :class:`KfsError` if it exists and isn't an empty directory."""
    try:
        os.makedirs(path, exist_ok=True)
        if os.listdir(path):
            raise KfsError(f"{path}: the directory is not empty: name a new or an empty one")
    except OSError as error:
        raise KfsError(f"{path}: {error.strerror}") from error


@contextmanager
def log_directory(path: str) -> Iterator[None]:
    """Create the directory ``path`` if needed; if the block fails, remove the created directories.

    Raises:
        KfsError: it is neither empty nor a log directory, or can't be created.
    """
    made = _missing_directories(path)
    try:
        os.makedirs(path, exist_ok=True)
        names = [name for name in os.listdir(path) if name != LOCK]
    except OSError as error:
        _remove_directories(made)
        raise KfsError(f"{path}: {error.strerror}") from error
    if names and not is_log_dir(path, names):
        raise KfsError(f"{path}: neither empty nor a log directory")
    try:
        yield
    except BaseException:
        _remove_directories(made)
        raise


def _missing_directories(path: str) -> list[str]:
    """Return the directories to create for ``path``, the deepest first."""
    missing = []
    while path and not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _remove_directories(paths: list[str]) -> None:
    with suppress(OSError):  # something else was created in it
        for path in paths:
            os.rmdir(path)


def check_not_in_use(log_dir: str) -> None:
    """Raise :class:`KfsError` if a broker holds the lock of the directory; this takes no lock itself."""
    if sys.platform != "linux":
        return
    try:
        lock = os.open(os.path.join(log_dir, LOCK), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        wanted = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        in_the_way = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, wanted))[0]
    except OSError:  # the filesystem has no locks
        return
    finally:
        os.close(lock)
    if in_the_way != fcntl.F_UNLCK:
        raise KfsError(f"{log_dir}: a broker has it open: stop the broker first, or recover a copy")


@contextmanager
def locked(log_dir: str) -> Iterator[None]:
    """Hold the lock that a broker takes on a log directory (``LogManager.lockLogDirs``).

    If the block fails, the lock file is removed unless it existed before.

    Raises:
        KfsError: another process holds it.
    """
    path = os.path.join(log_dir, LOCK)
    was_there = os.path.lexists(path)
    with open(path, "ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise KfsError(f"{log_dir}: a broker has it open: stop the broker first") from None
        try:
            yield
        except BaseException:
            if not was_there:
                os.unlink(path)
            raise
