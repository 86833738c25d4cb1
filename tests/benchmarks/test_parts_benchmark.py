"""The benchmark of parts of a log, with few records: does each question still run, and does its peer?"""

from __future__ import annotations

import pytest

from benchmarks.parts import HEAD, QUESTIONS, Logs, Question, rows


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    return Logs.below(tmp_path_factory.mktemp("logs"), 6000, 3)


@pytest.mark.parametrize("question", [each for each in QUESTIONS if not each.of_mount], ids=lambda each: each.name)
def test_a_question_is_measured_beside_its_peer(question: Question, logs: Logs) -> None:
    [row] = rows([question], logs, 1)
    assert len(row) == len(HEAD)
    assert row[0] == question.name


@pytest.mark.fuse
@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.of_mount], ids=lambda each: each.name)
def test_a_question_to_a_mount_is_measured_beside_its_peer(question: Question, logs: Logs) -> None:
    [row] = rows([question], logs, 1)
    assert len(row) == len(HEAD)
