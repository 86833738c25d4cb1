"""What some tests need of the machine: without it they are skipped, or fail where it is required."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kfs.errors import MountFailed
from kfs.mount import fronts

REQUIRE_FUSE = "KFS_REQUIRE_FUSE"
REQUIRE_JAVA = "KFS_REQUIRE_JAVA"
REQUIRE_PYSPARK = "KFS_REQUIRE_PYSPARK"
REQUIRE_REDIS = "KFS_REQUIRE_REDIS"
REQUIRE_ZOOKEEPER = "KFS_REQUIRE_ZOOKEEPER"


def need_fuse() -> None:
    """Go on only where kfs can mount."""
    try:
        fronts.check("auto")
    except MountFailed as error:
        unmet(str(error), REQUIRE_FUSE)


def need_java() -> str:
    """Return the ``java`` command."""
    java = shutil.which("java")
    if java is None:
        unmet("there is no java", REQUIRE_JAVA)
    return java


def need_redis() -> str:
    """Return the ``redis-server`` command."""
    server = shutil.which("redis-server")
    if server is None:
        unmet("there is no redis-server", REQUIRE_REDIS)
    return server


def need_pyspark() -> None:
    """Go on only where there is PySpark."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        unmet("there is no pyspark", REQUIRE_PYSPARK)


def need_zookeeper(jars: Callable[[], Path]) -> tuple[str, Path]:
    """Return the ``java`` command and the directory of ZooKeeper's ``jars``, which may have to be fetched."""
    java = shutil.which("java")
    if java is None:
        unmet("there is no java for ZooKeeper", REQUIRE_ZOOKEEPER)
    try:
        return java, jars()
    except OSError as error:
        unmet(f"ZooKeeper's jars can't be fetched: {error}", REQUIRE_ZOOKEEPER)


def unmet(reason: str, variable: str) -> NoReturn:
    """Skip the test for ``reason``, or fail it where the environment variable is 1."""
    if os.environ.get(variable) == "1":
        pytest.fail(f"{variable} is set, but {reason}", pytrace=False)
    pytest.skip(reason)
