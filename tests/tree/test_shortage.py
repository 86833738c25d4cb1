"""A tree whose process runs out of descriptors, at whatever point: each answer is all of it, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfs.errors import KfsError, Shortage
from kfs.read.isolation_level import IsolationLevel
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory, File, Symlink
from kfs.tree.options import TreeOptions
from tests.logs import batch, look_every_time, open_tree, record, set_high_watermark, set_log_start, write_partition
from tests.read.some_transactions import Data, abort, commit, write_transactions
from tests.shortages import REFUSALS, Shortages, runs

#: What changes from one moment to the next.
PASSING = ("stats.json", "metrics", "transactions.json", "transactions")
Answers = dict[str, Any]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with segments enough for indexes to be asked, checkpoints and transactions."""
    root = tmp_path_factory.mktemp("data")
    segments = {base: [batch([record(base + at)]) for at in range(4)] for base in (0, 4)}
    write_partition(root / "t-0", segments, interval=1)
    write_transactions(root / "x-0", [Data(1), Data(2), commit(1), abort(2), Data(1), Data(None)])
    set_log_start(root, "t", 0, 2)
    set_high_watermark(root, "t", 0, 8)
    return root


def asked(tree: KafkaTree, answers: Answers, path: str = "") -> None:
    """Ask for everything below a path: note what is answered, and what is wrong where something is."""
    try:
        node = tree.resolve(path)
    except KfsError as error:
        answers[path] = type(error)
        return
    if isinstance(node, Directory):
        for full in (False, True):
            try:
                listed = sorted(entry.name for entry in node.entries(with_attributes=full))
            except KfsError as error:
                answers[f"{path}/ {full}"] = type(error)
                continue
            answers[f"{path}/ {full}"] = listed
            if full:
                for name in listed:
                    if name not in PASSING:
                        asked(tree, answers, f"{path}/{name}")
        return
    try:
        answers[path] = node.target() if isinstance(node, Symlink) else read(node)
    except KfsError as error:
        answers[path] = type(error)


def read(node: object) -> bytes:
    assert isinstance(node, File)
    size = node.attributes().size
    return node.read(0, size + 1)


def assert_complete_or_error(answers: Answers, truth: Answers) -> None:
    """Hold that what was answered is true; what lies below a directory that couldn't be listed isn't asked for."""
    for path, answer in answers.items():
        if answer is not Shortage:
            assert answer == truth.get(path), path
    if Shortage not in answers.values():
        assert answers == truth


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_whatever_cannot_be_opened_an_answer_is_complete_or_an_error(
    isolation: IsolationLevel, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_every_time(monkeypatch)
    shortages = Shortages(monkeypatch, str(data))
    options = TreeOptions(views=True, isolation=isolation)
    truth: Answers = {}
    tree = open_tree(data, options=options)
    asked(tree, truth)
    again: Answers = {}
    shortages.begin()
    asked(tree, again)
    assert again == truth
    assert len(truth["/t/0/offset/ True"]) == 6
    calls = shortages.calls
    assert calls > 20

    @settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        where=st.lists(st.tuples(st.integers(0, calls), st.integers(1, 80)), min_size=1, max_size=4),
        number=st.sampled_from(REFUSALS),
    )
    def whatever(where: list[tuple[int, int]], number: int) -> None:
        shortages.begin()
        tree = open_tree(data, options=options)
        shortages.begin(runs(where), number)
        answers: Answers = {}
        asked(tree, answers)
        assert_complete_or_error(answers, truth)
        shortages.begin()
        after: Answers = {}
        asked(tree, after)
        assert after == truth  # nothing of it is remembered

    whatever()


def test_a_shortage_that_passes_while_it_is_waited_for_is_none(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    shortages = Shortages(monkeypatch, str(data))
    truth: Answers = {}
    asked(open_tree(data), truth)
    tree = open_tree(data)
    shortages.begin(range(0, 10_000, 2))
    answers: Answers = {}
    asked(tree, answers)
    assert answers == truth
