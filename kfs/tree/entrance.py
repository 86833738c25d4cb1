"""Who may enter the tree: nobody who can't get to each LOG_DIR.

Files below a closed directory may themselves be open to all users, as few can reach them. In a mount, which is
elsewhere, all could.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kfs.storage.status import Status, status_at
from kfs.tree.context import Owner

_ROOT: Final = 0


def entrance(owner: Owner, log_dirs: Sequence[str]) -> Owner:
    """Return ``owner`` with the permissions of those (user, group, others) who get to all LOG_DIRs."""
    permissions = owner.permissions
    for log_dir in log_dirs:
        for status in _way_to(log_dir):
            permissions &= _passing(owner, status)
    return replace(owner, permissions=permissions)


def _way_to(path: str) -> Iterator[Status]:
    """Yield the directories that have to be passed to get into a directory, or to a file; none if it is gone."""
    path = os.path.realpath(path)
    try:
        status = status_at(path)
        if stat.S_ISDIR(status.mode):
            yield status
        while path != (path := os.path.dirname(path)):
            yield status_at(path)
    except OSError:  # then there is nothing to be read, either
        return


def _passing(owner: Owner, directory: Status) -> int:
    """Return the permissions of those classes of the owner's users who may pass a directory of any owner."""
    others = bool(directory.mode & stat.S_IXOTH)
    group = bool(directory.mode & stat.S_IXGRP) if owner.gid == directory.gid else others
    user = bool(directory.mode & stat.S_IXUSR) if owner.uid == directory.uid else group
    may_pass = ((user or owner.uid == _ROOT, stat.S_IRWXU), (group, stat.S_IRWXG), (others, stat.S_IRWXO))
    return sum(permissions for passes, permissions in may_pass if passes)
