"""A test that needs what the machine lacks is skipped and named at the end, or fails where all is required."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import MountFailed
from kfs.mount import fronts
from tests import requirements
from tests.missing import REQUIRE_ALL

TESTS = """
import pytest
from tests.requirements import unmet

@pytest.mark.parametrize("number", [1, 2])
def test_redis(number):
    unmet("Redis", "there is no redis-server")

@pytest.mark.skipif(True, reason="only root can")
def test_root():
    pass

@pytest.mark.xfail
def test_fails_as_expected():
    assert False

def test_passes():
    pass
"""
MODULE = """
import pytest
pytest.importorskip("no_such_package")
"""


def run(directory: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_some.py").write_text(TESTS)
    (directory / "test_module.py").write_text(MODULE)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", REQUIRE_ALL))}
    command = [sys.executable, "-m", "pytest", "-p", "tests.missing", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command,
        cwd=directory,
        env=inherited | {"PYTHONPATH": str(Path(__file__).parents[1])} | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_what_is_skipped_is_named_once_at_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "2")
    assert [line for line in done.stdout.splitlines() if line.startswith("not tested: ")] == [
        "not tested: Redis (there is no redis-server): 2 tests",
        "not tested: could not import 'no_such_package': No module named 'no_such_package': 1 whole module",
        "not tested: only root can: 1 test",
    ]
    assert done.returncode == pytest.ExitCode.OK


def test_where_all_is_required_what_would_be_skipped_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "--continue-on-collection-errors", KFS_REQUIRE_ALL="1")
    said = "KFS_REQUIRE_ALL is set, but this is not tested: "
    assert done.stdout.count(f"\n{said}Redis (there is no redis-server)\n") == 2
    assert done.stdout.count(f"\n{said}only root can\n") == 1
    assert f"{said}could not import 'no_such_package'" in done.stdout
    assert "2 failed, 1 passed, 1 xfailed, 2 errors" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("need", "reason"),
    [
        (requirements.need_java, r"^Java \(there is no java\)$"),
        (requirements.need_kafka, r"^Java \(there is no java\)$"),
        (requirements.need_redis, r"^Redis \(there is no redis-server\)$"),
        (requirements.need_setuid_helper, r"^FUSE for users other than root \(there is no setuid fusermount3\)$"),
    ],
)
def test_a_test_that_needs_a_command_is_skipped_without_it(
    need: Callable[[], object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(pytest.skip.Exception, match=reason):
        need()


def test_a_test_that_needs_pyspark_is_skipped_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(pytest.skip.Exception, match=r"^Spark \(there is no pyspark\)$"):
        requirements.need_pyspark()


def test_a_test_that_needs_a_mount_is_skipped_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(front: str) -> None:
        raise MountFailed(f"{front}: there is no /dev/fuse")

    monkeypatch.setattr(fronts, "check", refuse)
    with pytest.raises(pytest.skip.Exception, match=r"^FUSE \(kernel: there is no /dev/fuse\)$"):
        requirements.need_fuse("kernel")


def test_a_test_that_needs_jars_is_skipped_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch() -> Path:
        raise OSError("no network")

    monkeypatch.setattr(shutil, "which", lambda _command: "/usr/bin/java")
    monkeypatch.setattr(requirements, "kafka_jars", fetch)
    with pytest.raises(pytest.skip.Exception, match=r"^Kafka \(its jars can't be fetched: no network\)$"):
        requirements.need_kafka()
