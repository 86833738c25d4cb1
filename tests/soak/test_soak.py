"""Over a real broker that changes everything, kfs says nothing wrong, and less than there is of nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from tests.requirements import need_fuse, need_kafka
from tests.soak.__main__ import summary
from tests.soak.plan import SHORT, Plan
from tests.soak.run import Soak, write

#: What a run takes beside its minutes: a broker that starts, topics that are filled, everything that is stopped.
_AROUND: Final = 600


def soak(
    directory: Path,
    minutes: float,
    fronts: tuple[str, ...],
    plan: Plan,
    *,
    small_caches: bool = False,
    kill_every: float = 0.0,
) -> None:
    """Run it; all that is found fails the test, and the report says how to repeat it."""
    for front in fronts:
        need_fuse(front)
    run = Soak(
        directory,
        minutes * 60,
        fronts,
        1,
        need_kafka(),
        plan=plan,
        small_caches=small_caches,
        kill_every=kill_every,
    )
    report = run.run()
    write(report, directory / "soak-report.json")
    assert not report["found"], "\n".join((*summary(report), json.dumps(report["details"][:20], indent=1, default=str)))
    assert report["seconds"] >= minutes * 60


@pytest.mark.fuse
@pytest.mark.timeout(60 + _AROUND)
def test_half_a_minute(tmp_path: Path) -> None:
    soak(tmp_path, 0.5, ("kernel", "mfusepy"), SHORT)


@pytest.mark.long
@pytest.mark.fuse
@pytest.mark.timeout(600 + _AROUND)
@pytest.mark.parametrize("fronts", [("kernel", "mfusepy"), ("mfusepy-fuse2", "fusepy")], ids="-and-".join)
def test_ten_minutes(fronts: tuple[str, ...], tmp_path: Path) -> None:
    soak(tmp_path, 10, fronts, Plan())


@pytest.mark.long
@pytest.mark.fuse
@pytest.mark.timeout(1200 + _AROUND)
def test_memory_is_flat_once_caches_are_full(tmp_path: Path) -> None:
    soak(tmp_path, 20, ("kernel",), Plan(), small_caches=True)


@pytest.mark.long
@pytest.mark.fuse
@pytest.mark.timeout(3600 + _AROUND)
def test_an_hour(tmp_path: Path) -> None:
    soak(tmp_path, 60, ("kernel",), Plan())


@pytest.mark.long
@pytest.mark.fuse
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can share mounts with another namespace")
@pytest.mark.timeout(3600 + _AROUND)
def test_an_hour_of_daemons_that_are_killed(tmp_path: Path) -> None:
    soak(tmp_path, 60, ("kernel",), Plan(), kill_every=300)
