"""Exports that follow a growing log, killed inside of a commit, which their log proves, have every record once."""

from __future__ import annotations

import logging
import os
import random
import re
import select
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.export.place import STORES, Place
from tests.spark.export.running import GROUP, RunningExport

_LOG = logging.getLogger(__name__)
_SECONDS = 240
#: After so many misses of a moment between two renames, the one behind the last of them will do.
_MISSES = 10
#: Which step was done last when it is killed, and of renames the least share that was; ``done`` never is.
POINTS = (
    ("begins", 0.0),
    ("stored", 0.0),
    ("renamed", 0.0),
    ("synced", 0.0),
    ("renamed", 0.5),
    ("begins", 0.0),
    ("stored", 0.0),
    ("renamed", 0.8),
    ("synced", 0.0),
    ("renamed", 1.0),
)
_LINE = re.compile(r"commit of (?P<files>\d+) files: (?P<step>\w+)")


@dataclass(frozen=True, slots=True)
class Where:
    """The step of a commit that was done last, of how many files, and how many of them have their names."""

    step: str
    files: int
    renamed: int = 0

    def is_at(self, point: tuple[str, float], *, between: bool = False) -> bool:
        """Whether that is the point; ``between`` two renames, where it is one of them and not the last."""
        step, share = point
        if self.step != step or (step == "renamed" and self.renamed < share * self.files):
            return False
        return not (between and step == "renamed" and share < 1 and self.renamed == self.files)


@dataclass(slots=True)
class Commits:
    """What a process logs of its commits, and ``where`` it is inside of one that it began, None outside."""

    descriptor: int
    where: Where | None = None
    done: int = 0
    lines: list[str] = field(default_factory=list)
    _rest: bytes = b""

    def read(self, seconds: float) -> bool:
        """Take in what there is, if need be after some seconds; return whether there was anything."""
        if not select.select([self.descriptor], [], [], seconds)[0]:
            return False
        data = os.read(self.descriptor, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode())
        return bool(data)

    def _take(self, line: str) -> None:
        match = _LINE.match(line)
        assert match is not None, line
        self.lines.append(line)
        step = match["step"]
        if step == "begins":
            self.where = Where(step, int(match["files"]))
        elif self.where is not None:  # else it completes what another one began
            assert self.where.files == int(match["files"])
            self.where = replace(self.where, step=step, renamed=self.where.renamed + (step == "renamed"))
            if step == "done":
                self.where = None
                self.done += 1


@contextmanager
def logged(place: Place) -> Iterator[tuple[RunningExport, Commits]]:
    """Start an export that logs its commits."""
    ours, theirs = os.pipe()
    try:
        try:
            export = place.start(("-m", "tests.spark.export.logged", str(theirs)), (theirs,))
        finally:
            os.close(theirs)
        yield export, Commits(ours)
    finally:
        os.close(ours)


def held_at(export: RunningExport, commits: Commits, point: tuple[str, float]) -> Where:
    """Let an export go on until its log says that it is at a point; leave it stopped there.

    Where it went on before it stood still, it missed: the next commit is waited for.
    """
    until, misses = time.monotonic() + _SECONDS, 0
    while True:
        assert time.monotonic() < until, f"never at {point}: {commits.lines[-40:]}"
        commits.read(1)
        if commits.where is None or not commits.where.is_at(point, between=misses < _MISSES):
            continue
        export.hold()
        while commits.read(0):
            pass
        if commits.where is not None and commits.where.is_at(point, between=misses < _MISSES):
            return commits.where
        misses += 1
        _LOG.info("missed %s", point)
        export.go_on()


def kill_in_commit(place: Place, point: tuple[str, float], *, only_driver: bool) -> Where:
    """Start an export, and kill it inside of a commit; return where."""
    with logged(place) as (export, commits):
        where = held_at(export, commits, point)
        if only_driver:
            export.kill_driver()
        else:
            export.kill()
        while commits.read(0):  # nothing more: the step behind the point was never done
            pass
        assert commits.where == where
        _LOG.info(
            "killed %s after %s (%d commits before); its log ends: %s",
            "the driver" if only_driver else "all",
            where,
            commits.done,
            commits.lines[-3:],
        )
    begun = place.store.load(GROUP).batch
    if where.step in ("stored", "renamed"):
        assert begun is not None
        assert sum((place.dataset / file.final).exists() for file in begun.files) >= where.renamed
    return where


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("place", "kills"),
    [
        ("redis", 1),  # and the other two in test_killed.py
        *(pytest.param(kind, 1, marks=pytest.mark.long) for kind in STORES if kind != "redis"),
        *(pytest.param(kind, len(POINTS), marks=pytest.mark.long) for kind in STORES),
    ],
    indirect=["place"],
)
def test_an_export_killed_in_its_commits_has_every_record_once(
    place: Place, kills: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    killed: Counter[str] = Counter()

    def kill_them() -> Iterator[None]:
        for point in chance.sample(POINTS, kills):
            killed[kill_in_commit(place, point, only_driver=chance.random() < 0.5).step] += 1
            yield

    place.outlive(kill_them())
    if kills == len(POINTS):
        assert killed == Counter(step for step, _ in POINTS)
