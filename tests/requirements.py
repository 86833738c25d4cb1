"""What some tests need of the machine: without it they are skipped, and the end of the run names it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from benchmarks.kafka_jars import kafka_jars
from kfs.errors import MountFailed
from kfs.mount import fronts


def need_fuse(front: str = "auto") -> None:
    """Go on only where kfs can mount with that front."""
    try:
        fronts.check(front)
    except MountFailed as error:
        unmet("FUSE", str(error))


def need_setuid_helper() -> None:
    """Go on only where others than root can mount."""
    helper = shutil.which("fusermount3")
    if helper is None or not os.stat(helper).st_mode & stat.S_ISUID:
        unmet("FUSE for users other than root", "there is no setuid fusermount3")


def need_java() -> str:
    """Return the ``java`` command."""
    java = shutil.which("java")
    if java is None:
        unmet("Java", "there is no java")
    return java


def need_kafka() -> str:
    """Return the ``java`` command, where Kafka's jars are there, too."""
    java = need_java()
    need_jars("Kafka", kafka_jars)
    return java


def need_redis() -> str:
    """Return the ``redis-server`` command."""
    server = shutil.which("redis-server")
    if server is None:
        unmet("Redis", "there is no redis-server")
    return server


def need_pyspark() -> None:
    """Go on only where there is PySpark."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        unmet("Spark", "there is no pyspark")


def need_jars(what: str, fetch: Callable[[], Path]) -> Path:
    """Return the directory of jars that may have to be fetched; ``what`` they are of."""
    try:
        return fetch()
    except OSError as error:
        unmet(what, f"its jars can't be fetched: {error}")


def unmet(what: str, reason: str) -> NoReturn:
    """Skip the test: ``what`` is not tested for that ``reason``."""
    pytest.skip(f"{what} ({reason})")
