"""One name for one thing: the JSON of ``kfs dump``, that of ``meta/``, and the columns of Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.dump.json_form import JsonForm
from kfs.render.arrow_columns import Column, needs_batches
from tests.dump.dumping import dump
from tests.logs import content_of, open_tree

#: What only one of them says: where a batch is, and what was looked at.
_OF_META = {"segment", "snapshotOffset"}
_OF_DUMP = {"type", "file", "isValid"}


def dumped(directory: Path, suffix: str, kind: str) -> tuple[Path, set[str]]:
    """Return a partition that has something of a kind in its files, and the fields that it has in a dump."""
    for path in sorted(directory.rglob(f"*-[0-9]*/*{suffix}")):
        for row in map(json.loads, dump(path, form=JsonForm).lines.splitlines()):
            if row["type"] == kind:
                return path.parent, set(row)
    raise AssertionError(f"no {kind} in {directory}")


def listed(partition: Path, name: str) -> set[str]:
    """Return the fields of the first line of a file in ``meta/``."""
    topic, _, number = partition.name.rpartition("-")
    return set(json.loads(content_of(open_tree(partition), f"{topic}/{number}/meta/{name}").splitlines()[0]))


@pytest.mark.parametrize(
    ("suffix", "kind", "name"),
    [
        (".log", "batch", "batches.jsonl"),
        (".snapshot", "producer", "producers.jsonl"),
        (".txnindex", "abortedTransaction", "aborted-transactions.jsonl"),
        ("leader-epoch-checkpoint", "leaderEpoch", "leader-epochs.jsonl"),
    ],
)
def test_a_dump_and_meta_have_the_same_fields(suffix: str, kind: str, name: str, corpus: Callable[[str], Path]) -> None:
    partition, fields = dumped(corpus("b_txn"), suffix, kind)
    assert listed(partition, name) - _OF_META == fields - _OF_DUMP


def test_columns_of_batches_are_fields_of_batches(corpus: Callable[[str], Path]) -> None:
    partition, _ = dumped(corpus("b_txn"), ".log", "batch")
    of_batch = {column.label for column in Column if needs_batches([column])}
    # A record has a sequence; that of the first one is the batch's base sequence.
    assert of_batch - listed(partition, "batches.jsonl") == {"sequence"}
