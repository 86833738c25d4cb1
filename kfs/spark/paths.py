"""Options ``path`` and ``paths``: which log directories are meant."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from kfs.errors import InvalidOption, UnusableSource

_MAGIC: Final = frozenset("*?[")


def parse_paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths and patterns that the options, whose names are in lower case, give.

    ``path`` is one, or a JSON array of them; ``paths``, where Spark puts what is loaded as a list, is always an array.

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
    """Return a path as it is opened; ``file:`` in front of it says nothing, and another scheme is none of ours."""
    if path.startswith("file:"):
        return unquote(urlsplit(path).path)
    scheme, separator, _ = path.partition("://")
    if separator and scheme.isalnum():
        raise InvalidOption(
            f"log directories are read as files: {path} has to be mounted, on this machine and on every executor's"
        )
    return path


def expand_paths(paths: Iterable[str]) -> list[str]:
    """Return the absolute paths that are there, patterns replaced by what matches them, each once.

    Raises:
        UnusableSource: a pattern matches nothing.
    """
    found: dict[str, None] = {}
    for path in paths:
        path = os.path.abspath(path)
        if _MAGIC.isdisjoint(path) or os.path.lexists(path):
            found[path] = None
            continue
        matching = sorted(glob.glob(path))
        if not matching:
            raise UnusableSource(f"{path}: nothing matches this pattern")
        found.update(dict.fromkeys(matching))
    return list(found)
