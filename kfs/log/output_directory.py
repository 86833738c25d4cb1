"""Where something is written that was not there before: nothing is overwritten, and no source is written to."""

from __future__ import annotations

import os

from kfs.errors import KfsError


def check_apart(source: str, output: str) -> None:
    """Raise :class:`KfsError` if one of the two directories lies in the other, or they are the same."""
    one, other = os.path.realpath(source), os.path.realpath(output)
    if os.path.commonpath([one, other]) in (one, other):
        raise KfsError(f"{output}: lies in {source}, or the other way round: name a directory apart from it")


def make_empty_directory(path: str) -> None:
    """Make ``path`` a directory with nothing in it; raise :class:`KfsError` where it is something else."""
    try:
        os.makedirs(path, exist_ok=True)
        if os.listdir(path):
            raise KfsError(f"{path}: the directory is not empty, and nothing is overwritten: name a new or empty one")
    except OSError as error:
        raise KfsError(f"{path}: {error.strerror}") from error
