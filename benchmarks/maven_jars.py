"""Jars from Maven Central, each with the SHA-256 that it must have; Maven itself isn't needed."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

_CENTRAL: Final = "https://repo1.maven.org/maven2"
_LOCAL: Final = Path.home() / ".m2" / "repository"
#: Found before tests choose another cache directory for what they test.
CACHE: Final = user_cache_path("kfs-development", appauthor=False).resolve()
_AT_A_TIME: Final = 8
_SECONDS: Final = 60


def fetched_jars(names: Path, cache: Path | None = None) -> Path:
    """Return the directory of the jars that a file names, fetched the first time.

    Each line has a SHA-256 and a path in the repository. By default they are in the user's cache directory.

    Raises:
        RuntimeError: a jar isn't the one it should be.
        OSError: one can't be fetched.
    """
    cache = cache or CACHE
    jars = cache / f"jars-{hashlib.sha256(names.read_bytes()).hexdigest()[:16]}"
    if not jars.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Several processes may be at it, each in a directory of its own; the first to be done has made it.
        partial_directory = Path(tempfile.mkdtemp(prefix=f"{jars.name}.partial-", dir=cache))
        lines = [line.split() for line in names.read_text().splitlines()]
        try:
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                list(pool.map(partial(_fetch, partial_directory, names.name), *zip(*lines, strict=True)))
            partial_directory.rename(jars)
        except OSError:
            if not jars.exists():
                raise
        finally:
            shutil.rmtree(partial_directory, ignore_errors=True)
    return jars


def _fetch(directory: Path, names: str, sha256: str, path: str) -> None:
    local = _LOCAL / path
    content = local.read_bytes() if local.exists() else _download(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise RuntimeError(f"{path}: not the jar that {names} names")
    (directory / Path(path).name).write_bytes(content)


def _download(path: str) -> bytes:
    with urllib.request.urlopen(f"{_CENTRAL}/{path}", timeout=_SECONDS) as response:
        content: bytes = response.read()
    return content
