"""A test that needs what the machine lacks is skipped, or fails where it was required."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import requirements


def need_zookeeper() -> None:
    requirements.need_zookeeper(Path)


def need_zookeeper_offline() -> None:
    def jars() -> Path:
        raise OSError("no network")

    requirements.need_zookeeper(jars)


NEEDS = [
    (requirements.need_java, requirements.REQUIRE_JAVA, "there is no java"),
    (requirements.need_redis, requirements.REQUIRE_REDIS, "there is no redis-server"),
    (need_zookeeper, requirements.REQUIRE_ZOOKEEPER, "there is no java for ZooKeeper"),
]


@pytest.mark.parametrize(("need", "variable", "reason"), NEEDS)
def test_without_what_they_need_tests_are_skipped(
    need: Callable[[], object], variable: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(pytest.skip.Exception, match=reason):
        need()


@pytest.mark.parametrize(("need", "variable", "reason"), NEEDS)
def test_without_what_they_need_tests_fail_where_it_is_required(
    need: Callable[[], object], variable: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(variable, "1")
    with pytest.raises(pytest.fail.Exception, match=f"{variable} is set, but {reason}"):
        need()


def test_without_pyspark_tests_are_skipped_or_fail_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delenv(requirements.REQUIRE_PYSPARK, raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no pyspark"):
        requirements.need_pyspark()
    monkeypatch.setenv(requirements.REQUIRE_PYSPARK, "1")
    with pytest.raises(pytest.fail.Exception, match="KFS_REQUIRE_PYSPARK is set, but there is no pyspark"):
        requirements.need_pyspark()


def test_zookeeper_needs_its_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _command: "/usr/bin/java")
    monkeypatch.setenv(requirements.REQUIRE_ZOOKEEPER, "1")
    with pytest.raises(pytest.fail.Exception, match="ZooKeeper's jars can't be fetched: no network"):
        need_zookeeper_offline()
    monkeypatch.delenv(requirements.REQUIRE_ZOOKEEPER)
    with pytest.raises(pytest.skip.Exception, match="ZooKeeper's jars can't be fetched: no network"):
        need_zookeeper_offline()


def test_pyspark_is_here_where_it_is_required() -> None:
    """Modules that are skipped without it can't tell."""
    requirements.need_pyspark()


@pytest.mark.fuse
def test_a_marked_test_runs_only_where_kfs_can_mount() -> None:
    requirements.need_fuse()
