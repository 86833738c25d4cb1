"""A query that starts where a consumer group of the same log directories stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kfs.errors import DataLoss, InvalidOption, NotFound, UnusableSource
from tests.internal.group_logs import InternalPartition, commit
from tests.logs import dense, write_partition
from tests.recorded_damage import CorpusPath
from tests.requirements import need_pyspark
from tests.spark.reads import rows_of

TOPICS = "payments,ledger"


@pytest.fixture
def groups(corpus: CorpusPath) -> dict[str, dict[str, int]]:
    """What each group had committed, by partition, as a broker said."""
    said = json.loads((corpus("d_groups") / "groups.json").read_text())
    return {
        name: {partition: each["offset"] for partition, each in group["offsets"].items()}
        for name, group in said.items()
        if group.get("offsets")
    }


def by_partition(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return found


def test_a_batch_starts_where_the_group_stopped_and_elsewhere_at_the_beginning(
    corpus: CorpusPath, groups: dict[str, dict[str, int]]
) -> None:
    data = corpus("d_groups") / "data"
    everything = by_partition(rows_of(data, subscribe=TOPICS))
    compared = 0
    for name, committed in groups.items():
        if not all(partition in everything for partition in committed):
            continue
        rows = by_partition(rows_of(data, subscribe=TOPICS, startingOffsets=f" group:{name}", failOnDataLoss=False))
        for partition, offsets in everything.items():
            start = committed.get(partition, 0)
            assert rows.get(partition, []) == [offset for offset in offsets if offset >= start], (name, partition)
        compared += len(committed)
    assert compared > 10


def test_a_stream_starts_there_and_elsewhere_at_the_end(corpus: CorpusPath) -> None:
    need_pyspark()
    from tests.spark.streams import Query

    query = Query(corpus("d_groups") / "data", subscribe="payments", startingOffsets="group:classic-grp")
    assert query.next() == []  # which only writes down where it starts
    rows = by_partition(query.rest())
    assert list(rows) == ["payments-2"]
    assert rows["payments-2"][0] == 74


def test_a_stream_that_crashed_in_its_first_micro_batch_starts_where_it_did_before(tmp_path: Path) -> None:
    need_pyspark()
    from tests.spark.streams import Query

    write_partition(tmp_path / "t-0", {0: dense(0, 99)})
    topic_of_groups = InternalPartition(tmp_path)
    topic_of_groups.append(commit("g", "t", 0, 20))
    query = Query(tmp_path, subscribe="t", startingOffsets="group:g")
    assert query.begin()
    topic_of_groups.append(commit("g", "t", 0, 60))  # the group goes on
    query.restart()
    assert query.do() == []
    rest = by_partition(query.rest())
    assert rest == {"t-0": list(range(20, 100))}


def test_what_the_group_has_read_and_the_log_has_not_is_data_loss(corpus: CorpusPath) -> None:
    data = corpus("d_groups") / "data"
    options = {"assign": '{"ledger":[1]}', "startingOffsets": "group:many-3"}
    with pytest.raises(DataLoss, match=r"group 'many-3' has read ledger-1 up to offset 40, and the log has 0 to 32"):
        rows_of(data, **options)
    assert rows_of(data, failOnDataLoss=False, **options) == []


def test_a_group_that_is_not_there_is_named_with_those_that_are(corpus: CorpusPath) -> None:
    with pytest.raises(NotFound, match=r"no group 'nobody'; there are: classic-grp, "):
        rows_of(corpus("d_groups") / "data", subscribe="payments", startingOffsets="group:nobody")


def test_without_the_topic_of_groups_there_is_none(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    with pytest.raises(UnusableSource, match="no partition of __consumer_offsets"):
        rows_of(tmp_path, subscribe="t", startingOffsets="group:g")


def test_a_time_wins(corpus: CorpusPath) -> None:
    everything = rows_of(corpus("d_groups") / "data", subscribe="payments")
    found = rows_of(
        corpus("d_groups") / "data", subscribe="payments", startingOffsets="group:nobody", startingTimestamp=0
    )
    assert found == everything != []


def test_a_group_is_no_end(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    with pytest.raises(InvalidOption, match="option 'endingOffsets' has to be like"):
        rows_of(tmp_path, subscribe="t", endingOffsets="group:g")
