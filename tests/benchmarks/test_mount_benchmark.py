"""The benchmark of the mount, with few records: does it still run, and does it measure what it says?"""

from __future__ import annotations

import argparse
import os
from itertools import product

import pytest

from benchmarks.mount import Measurement, measure, parse, report
from benchmarks.tables import aligned
from benchmarks.tasks import TASKS, choose
from tests.requirements import need_fuse

RECORDS, READS, LISTED = 220, 40, 1500
WARM = "the same again, warm"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> argparse.Namespace:
    directory = tmp_path_factory.mktemp("benchmark")
    sizes = {"--records": RECORDS, "--reads": READS, "--listed": LISTED, "--repeat": 1, "--directory": directory}
    return parse([f"{name}={value}" for name, value in sizes.items()])


@pytest.fixture(scope="module")
def measured(options: argparse.Namespace) -> list[Measurement]:
    need_fuse()
    return measure(options)


def test_every_task_is_measured_on_every_variant(measured: list[Measurement]) -> None:
    assert {(each.topic, each.task, each.variant) for each in measured} == {
        *product(("events-lz4", "events-none"), (task.name for task in TASKS), ("default", "libfuse", "files")),
        *product(("large",), ("ls -f",), ("default", "libfuse")),
    }


def test_all_records_are_listed(measured: list[Measurement]) -> None:
    dots = 2
    assert {each.result for each in measured if each.topic != "large" and each.task == "ls -f"} == {RECORDS + dots}
    assert {each.result for each in measured if each.topic == "large"} == {LISTED + dots}


def test_the_use_of_the_process_is_measured(measured: list[Measurement]) -> None:
    for each in measured:
        if each.variant == "files":
            assert (each.replies, each.cpu_seconds, each.peak_rss) == (None, None, None)
        else:
            assert (each.peak_rss or 0) > 10_000_000
            assert each.replies or each.task == WARM


def test_reading_again_what_cannot_change_asks_nothing(measured: list[Measurement]) -> None:
    assert [each.replies for each in measured if (each.task, each.variant) == (WARM, "default")] == [0, 0]


def test_there_is_a_table_for_each_topic(measured: list[Measurement], options: argparse.Namespace) -> None:
    lines = list(report(measured, options))
    for expected in ("events-lz4: 220 records", "events-none: 220 records", "a directory of 1500 records"):
        assert any(line.startswith(expected) for line in lines)
    for task in TASKS:
        assert len([line for line in lines if line.startswith(f"{task.name} ")]) == 2


def test_nothing_is_left_behind(measured: list[Measurement], options: argparse.Namespace) -> None:
    assert os.listdir(options.directory) == []


def test_chosen_records_are_different_ones_and_the_same_each_time() -> None:
    chosen = choose(1000, 100)
    assert len(set(chosen.names)) == 100
    assert chosen == choose(1000, 100)
    assert len(choose(10, 100).names) == 10


def test_tables_have_names_to_the_left_and_numbers_to_the_right() -> None:
    assert list(aligned(("task", "s"), [("cat", "0.5"), ("ls -f", "12.0")])) == [
        "task      s",
        "cat     0.5",
        "ls -f  12.0",
    ]
