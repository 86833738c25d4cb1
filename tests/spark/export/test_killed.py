"""Exports that follow a growing log, killed at any point, have every record once in the end."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.spark.export.place import STORES, Place
from tests.spark.export.running import RECORDS, GrowingLog, Look, RunningExport

_LOG = logging.getLogger(__name__)


# --- where it is killed ---------------------------------------------------------------------------------------------


def while_it_starts(place: Place, export: RunningExport, chance: random.Random) -> None:
    time.sleep(chance.uniform(0, 6))


def while_tasks_write(place: Place, export: RunningExport, chance: random.Random) -> None:
    some = chance.randrange(1, 10)
    export.until(lambda look: look.staged >= some and not look.of_batch)


def at_any_time(place: Place, export: RunningExport, chance: random.Random) -> None:
    export.until(lambda look: look.staged > 0)
    export.go_on()
    time.sleep(chance.uniform(0, 1))


def when_a_batch_is_saved(place: Place, export: RunningExport, chance: random.Random) -> None:
    export.until(lambda look: look.of_batch > 0 and not look.renamed)


def between_renames(place: Place, export: RunningExport, chance: random.Random) -> None:
    export.until(lambda look: 0 < look.renamed < look.of_batch)


def before_the_store_is_told(place: Place, export: RunningExport, chance: random.Random) -> None:
    export.until(lambda look: 0 < look.renamed == look.of_batch)


def between_batches(place: Place, export: RunningExport, chance: random.Random) -> None:
    export.until(lambda look: look.of_batch > 0)
    export.until(lambda look: look.of_batch == 0)


def after_its_workers(place: Place, export: RunningExport, chance: random.Random) -> None:
    """The tasks are done again by others."""
    for _ in range(2):
        export.until(lambda look: look.staged > 0 and not look.of_batch)
        assert export.kill_workers() > 0
        export.go_on()
        export.until(lambda look: look.of_batch > 0)
        export.go_on()
    when_a_batch_is_saved(place, export, chance)


def after_its_jvm(place: Place, export: RunningExport, chance: random.Random) -> None:
    """It ends, with a sentence."""
    export.until(lambda look: look.staged > 0 and not look.of_batch)
    export.kill_jvm()
    export.go_on()
    status, said = export.wait()
    assert status == 1, said
    assert said.splitlines()[-1].startswith("kfs: Spark's JVM died"), said


def after_its_store(place: Place, export: RunningExport, chance: random.Random) -> None:
    """A server that is killed and comes back makes it wait, no more; a file can't be killed."""
    step: Callable[[Look], bool] = chance.choice(
        [lambda look: look.staged > 0, lambda look: look.of_batch > 0, lambda look: look.renamed > 0]
    )
    export.until(step)
    if place.server is not None:
        place.server.kill()
    export.go_on()
    time.sleep(chance.uniform(0, 1))
    if place.server is not None:
        place.server.start()
    when_a_batch_is_saved(place, export, chance)


POINTS = (
    while_it_starts,
    while_tasks_write,
    at_any_time,
    when_a_batch_is_saved,
    between_renames,
    before_the_store_is_told,
    between_batches,
    after_its_workers,
    after_its_jvm,
    after_its_store,
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("place", "points"),
    [
        # Each export starts a JVM; what a kill leaves in a server is looked at every day in test_killed_in_commit.py.
        ("sqlite", 2),
        *(pytest.param(kind, len(POINTS), marks=pytest.mark.long) for kind in STORES),
    ],
    indirect=["place"],
)
def test_an_export_killed_again_and_again_has_every_record_once(
    place: Place, points: int, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)

    def kill_them() -> Iterator[None]:
        for point in chance.sample(POINTS, points):
            export = place.start()
            point(place, export, chance)
            _LOG.info("killing it %s: %s", point.__name__, export.last_look)
            export.kill()
            yield

    place.outlive(kill_them())


def goes_on(look: Look) -> bool:
    return True


def is_writing(look: Look) -> bool:
    return look.staged > 0 and not look.of_batch


def is_saved(look: Look) -> bool:
    return look.of_batch > 0 and not look.renamed


def is_renaming(look: Look) -> bool:
    return 0 < look.renamed < look.of_batch


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("place", "held"),
    [
        ("sqlite", goes_on),
        *(
            pytest.param(kind, held, marks=pytest.mark.long)
            for kind in STORES
            for held in (goes_on, is_writing, is_saved, is_renaming)
            if (kind, held) != ("sqlite", goes_on)
        ),
    ],
    indirect=["place"],
)
def test_of_two_exports_of_a_group_the_first_stops_and_nothing_is_doubled(
    place: Place, held: Callable[[Look], bool]
) -> None:
    """The first one is held where it is, as by a machine that swaps, until the other has done all there is."""
    with GrowingLog(place.directory / "data", place.dataset) as log:
        first = place.start()
        first.until_exported(RECORDS)
        first.until(held)
        if held is goes_on:
            first.go_on()
        with first.waited_for() as ended:  # what it says is read meanwhile
            second = place.start()
            if held is not goes_on:
                log.stop()
                second.until_exported(len(log.expected))
                first.go_on()
        status, said = ended[0]
        assert status == 1, said
        [sentence] = said.splitlines()
        assert "this process must stop" in sentence
        log.stop()
    second.until_exported(len(log.expected))
    assert second.finish()[0] == 0
    place.check(log)
