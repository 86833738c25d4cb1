"""Kafka 4.3.1 itself: the jars of a broker and its tools from Maven Central, each with the SHA-256 that it must have.

``java/jars.sha256`` names them. After a change of ``java/pom.xml`` it is made anew from what Maven fetches::

    mvn dependency:copy-dependencies -Dmdep.useRepositoryLayout=true -DoutputDirectory=jars
    (cd jars && find . -name '*.jar' -printf '%P\\n' | sort | xargs sha256sum) > jars.sha256

The benchmarks run Kafka's readers, and tests a broker; what is needed is Java, and Maven is not.
"""

from __future__ import annotations

import hashlib
import shutil
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from platformdirs import user_cache_path

_LIST: Final = Path(__file__).with_name("java") / "jars.sha256"
_CENTRAL: Final = "https://repo1.maven.org/maven2"
_LOCAL: Final = Path.home() / ".m2" / "repository"
_AT_A_TIME: Final = 8
_SECONDS: Final = 60


def kafka_jars(cache: Path | None = None) -> Path:
    """Return the directory of the jars (55 MB), fetched the first time; by default in the user's cache directory.

    Raises:
        RuntimeError: a jar isn't the one it should be.
        OSError: one can't be fetched.
    """
    cache = cache or user_cache_path("kfs-development", appauthor=False)
    jars = cache / f"jars-{hashlib.sha256(_LIST.read_bytes()).hexdigest()[:16]}"
    if not jars.exists():
        partial_directory = jars.with_suffix(".partial")
        shutil.rmtree(partial_directory, ignore_errors=True)
        partial_directory.mkdir(parents=True)
        lines = [line.split() for line in _LIST.read_text().splitlines()]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            list(pool.map(partial(_fetch, partial_directory), *zip(*lines, strict=True)))
        partial_directory.rename(jars)
    return jars


def _fetch(directory: Path, sha256: str, path: str) -> None:
    local = _LOCAL / path
    content = local.read_bytes() if local.exists() else _download(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise RuntimeError(f"{path}: not the jar that {_LIST.name} names")
    (directory / Path(path).name).write_bytes(content)


def _download(path: str) -> bytes:
    with urllib.request.urlopen(f"{_CENTRAL}/{path}", timeout=_SECONDS) as response:
        content: bytes = response.read()
    return content
