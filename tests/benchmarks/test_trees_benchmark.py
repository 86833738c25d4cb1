"""The benchmark of two installations, with few records: does each task still run?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.events import event_log
from benchmarks.rounds import Sample
from benchmarks.trees import COMMANDS, HEAD, IN_A_MOUNT, Comparison, Logs, compare, measure, rows_of
from kfs.format.codecs import Codec

RECORDS = 3000


PYTHON = Path(sys.executable)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    log = event_log(tmp_path, Codec.LZ4, RECORDS)
    return Logs(log, log)


@pytest.mark.parametrize("task", COMMANDS)
def test_a_command_is_measured(task: str, logs: Logs) -> None:
    assert measure(task, PYTHON, logs).records == RECORDS


@pytest.mark.fuse
@pytest.mark.parametrize("task", IN_A_MOUNT)
def test_what_a_shell_does_in_a_mount_is_measured(task: str, logs: Logs) -> None:
    assert measure(task, PYTHON, logs).records == RECORDS


def test_both_take_turns(logs: Logs) -> None:
    [found] = compare(["--version"], PYTHON, PYTHON, logs, 2)
    assert [len(side) for side in (found.old, found.new)] == [2, 2]
    assert len(rows_of(found)) == len(HEAD)


def test_ratios_are_those_of_the_same_round() -> None:
    found = Comparison("a", [Sample(1, 1.0, 4.0), Sample(1, 2.0, 1.0)], [Sample(1, 2.0, 1.0), Sample(1, 3.0, 1.0)])
    assert found.ratios(lambda sample: sample.seconds) == [1.5, 2.0]
    assert rows_of(found)[-2:] == ["0.625", "0.250 to 1.000"]
