"""What a ``read_committed`` consumer gets, with transaction indexes as they were and in every wrong state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.export.selection import Selection
from kfs.format.aborted_transaction import ABORTED_TRANSACTION_SIZE
from kfs.log.isolation import IsolationLevel, last_stable_offset, visible_at
from tests.export.exporting import exported, offsets_in
from tests.logs import open_log

CorpusPath = Callable[[str], Path]
CORPORA = pytest.mark.parametrize("name", ["b_txn", "b39_txn"])


def as_it_is(_path: Path) -> None:
    pass


def removed(path: Path) -> None:
    path.unlink()


def short_of_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-ABORTED_TRANSACTION_SIZE])


def cut_inside_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(1, 256)))


def zeros(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


INDEXES = pytest.mark.parametrize("damage", [as_it_is, removed, short_of_an_entry, cut_inside_an_entry, garbage, zeros])


def copied(source: Path, tmp_path: Path, damage: Callable[[Path], None]) -> Path:
    """Return a copy of a log directory with every transaction index damaged."""
    root = tmp_path / "data"
    shutil.copytree(source, root)
    for path in root.glob("*/*.txnindex"):
        damage(path)
    return root


def split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


# --- recorded brokers -----------------------------------------------------------------------------------------------


@CORPORA
@INDEXES
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.usefixtures("small_pieces")
def test_what_is_read_is_what_a_consumer_got(
    name: str, damage: Callable[[Path], None], jobs: int, corpus: CorpusPath, tmp_path: Path
) -> None:
    root = copied(corpus(name) / "data", tmp_path, damage)
    for level, partitions in json.loads((corpus(name) / "consumed.json").read_text()).items():
        for partition, ranges in partitions.items():
            lines, problems = exported(root, *split(partition), isolation=IsolationLevel(level), jobs=jobs)
            assert offsets_in(lines) == [offset for first, last in ranges for offset in range(first, last + 1)]
            assert not problems


@CORPORA
@pytest.mark.parametrize("snapshots_lost", [0, 1, 99])
def test_the_last_stable_offset_is_what_the_broker_said(
    name: str, snapshots_lost: int, corpus: CorpusPath, tmp_path: Path
) -> None:
    root = copied(corpus(name) / "data", tmp_path, as_it_is)
    for partition, said in json.loads((corpus(name) / "offsets.json").read_text())["read_committed"].items():
        for path in sorted((root / partition).glob("*.snapshot"), reverse=True)[:snapshots_lost]:
            path.unlink()
        log = open_log(root / partition)
        assert last_stable_offset(log) == said["latest"][0]
        assert visible_at(log, IsolationLevel.READ_COMMITTED).start == said["earliest"][0]


@CORPORA
@INDEXES
def test_reading_begins_anywhere(name: str, damage: Callable[[Path], None], corpus: CorpusPath, tmp_path: Path) -> None:
    root = copied(corpus(name) / "data", tmp_path, damage)
    for partition, ranges in json.loads((corpus(name) / "consumed.json").read_text())["read_committed"].items():
        committed = [offset for first, last in ranges for offset in range(first, last + 1)]
        for start in range(0, committed[-1] + 2, 3):
            selection = Selection(start, start + 9)
            lines, _ = exported(root, *split(partition), selection=selection, isolation=IsolationLevel.READ_COMMITTED)
            assert offsets_in(lines) == [offset for offset in committed if start <= offset < start + 9]
