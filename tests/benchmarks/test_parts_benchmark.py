"""The benchmark of parts of a log, with few records: does each question still run, and does its peer?"""

from __future__ import annotations

import pytest

from benchmarks.parts import HEAD, QUESTIONS, Logs, Place, Question, rows
from tests.requirements import need_kafka, unmet


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    return Logs.below(tmp_path_factory.mktemp("logs"), 6000, 3)


def measured_beside_its_peer(question: Question, logs: Logs) -> None:
    if missing := question.missing():
        unmet("a benchmark's peer", f"there is no {' and no '.join(missing)}")
    [row] = rows([question], logs, 1)
    assert len(row) == len(HEAD)
    assert row[0] == question.name
    assert all(row)


def of(place: Place) -> pytest.MarkDecorator:
    questions = [each for each in QUESTIONS if each.place is place]
    return pytest.mark.parametrize("question", questions, ids=lambda each: each.name)


@of(Place.DISK)
def test_a_question_is_measured_beside_its_peer(question: Question, logs: Logs) -> None:
    measured_beside_its_peer(question, logs)


@pytest.mark.fuse
@of(Place.MOUNT)
def test_a_question_to_a_mount_is_measured_beside_its_peer(question: Question, logs: Logs) -> None:
    measured_beside_its_peer(question, logs)


@pytest.mark.long
@of(Place.BROKER)
def test_a_question_to_a_broker_is_measured_beside_its_peer(question: Question, logs: Logs) -> None:
    need_kafka()
    measured_beside_its_peer(question, logs)
