"""Where something is written that was not there before: nothing is overwritten, and no source is written to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kfs.errors import KfsError
from kfs.log.log_dir import LOCK, is_log_dir


def check_apart(source: str, output: str) -> None:
    """Raise :class:`KfsError` if one of the two paths lies in the other, or they are the same."""
    one, other = os.path.realpath(source), os.path.realpath(output)
    if os.path.commonpath([one, other]) in (one, other):
        raise KfsError(f"{output}: lies in {source}, or the other way round: name a place apart from it")


def make_empty_directory(path: str) -> None:
    """Make ``path`` a directory with nothing in it; raise :class:`KfsError` where it is something else."""
    try:
        os.makedirs(path, exist_ok=True)
        if os.listdir(path):
            raise KfsError(f"{path}: the directory is not empty, and nothing is overwritten: name a new or empty one")
    except OSError as error:
        raise KfsError(f"{path}: {error.strerror}") from error


def make_log_directory(path: str) -> None:
    """Make ``path`` a directory, unless it is empty or a log directory; raise :class:`KfsError` where it is neither."""
    try:
        os.makedirs(path, exist_ok=True)
        names = [name for name in os.listdir(path) if name != LOCK]
    except OSError as error:
        raise KfsError(f"{path}: {error.strerror}") from error
    if names and not is_log_dir(path, names):
        raise KfsError(f"{path}: neither empty nor a log directory")


@contextmanager
def locked(log_dir: str) -> Iterator[None]:
    """Hold the lock that a broker holds on a log directory (``LogManager.lockLogDirs``).

    Raises:
        KfsError: somebody holds it.
    """
    with open(os.path.join(log_dir, LOCK), "ab") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise KfsError(f"{log_dir}: a broker has it open: stop that first") from None
        yield
