"""Options ``path`` and ``paths``: the log directories."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from kfs.errors import InvalidOption, UnusableSource
from kfs.storage.listing import matching
from kfs.storage.status import is_there

_MAGIC: Final = frozenset("*?[")
_FILE: Final = "file:"
#: A scheme (RFC 3986) and a path. A single letter is a drive.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_WINDOWS: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def parse_paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths and patterns in the options, whose names are in lower case.

    ``path`` is one, or a JSON array of them; ``paths``, where Spark puts a list given to ``load``, is always an array.

    Raises:
        InvalidOption: there is none, or one that isn't of a filesystem.
    """
    paths = [*_listed("path", options.get("path", "")), *_listed("paths", options.get("paths", ""))]
    if not paths:
        raise InvalidOption("option 'path' has to name the log directories to read: .load('/var/lib/kafka/data')")
    return tuple(map(_local, paths))


def _listed(name: str, text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [text] if text else []
    try:
        paths = json.loads(text)
    except ValueError:
        return [text]  # a pattern may begin like that
    if not all(isinstance(path, str) and path for path in paths):
        raise InvalidOption(f"option {name!r} has to be a path, or a JSON array of paths, not {text}")
    return list(paths)


def _local(path: str) -> str:
    """Return a path in the form for opening it, without ``file:``."""
    if path[: len(_FILE)].lower() == _FILE:
        rest = path[len(_FILE) :]
        host, slash, below = rest[2:].partition("/") if rest.startswith("//") else ("", "", "")
        if host not in ("", "localhost"):
            raise InvalidOption(f"{path}: a file URL has no host: an absolute path begins with three slashes")
        return unquote(slash + below if rest.startswith("//") else rest)
    check_is_file(path)
    return path


def is_url(path: str) -> bool:
    """Return whether a path looks like a URL of any scheme."""
    return _URL.match(path) is not None


def check_is_file(path: str) -> None:
    """Raise :class:`InvalidOption` if a path looks like a URL or a Windows path.

    A file of such a name can be given with ``./`` in front.
    """
    if is_url(path):
        raise InvalidOption(
            f"log directories are read as files: {path} has to be mounted, on this machine and on every executor's"
        )
    if _WINDOWS.match(path):
        raise InvalidOption(f"{path} is a Windows path, and kfs doesn't run on Windows")


def expand_paths(paths: Iterable[str]) -> list[str]:
    """Return the absolute paths, with patterns replaced by their matches, each once.

    Raises:
        UnusableSource: a pattern matches nothing, or a directory can't be listed.
        Shortage: there is no descriptor to list it.
    """
    found: dict[str, None] = {}
    for path in paths:
        path = os.path.abspath(path)
        if _MAGIC.isdisjoint(path) or is_there(path):
            found[path] = None
            continue
        try:
            paths_found = matching(path)
        except OSError as error:
            raise UnusableSource(f"{path}: {error.filename}: {error.strerror}") from None
        if not paths_found:
            raise UnusableSource(f"{path}: nothing matches this pattern")
        found.update(dict.fromkeys(paths_found))
    return list(found)
