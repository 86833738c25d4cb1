"""A log in one line: what Kafka itself read of the recorded brokers' logs says where they begin and end, and when."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_summary import LogSummary
from tests.corpus import corpus_names
from tests.expected import expected_by_partition
from tests.logs import START, dense, open_log, set_high_watermark, write_partition
from tests.read.some_transactions import Data, write_transactions

CorpusPath = Callable[[str], Path]
INTACT = [name for name in corpus_names() if name != "g_damage"]


@pytest.mark.parametrize("name", INTACT)
def test_it_says_what_kafka_read(name: str, corpus: CorpusPath) -> None:
    expected = expected_by_partition(corpus(name))
    with closing(DataDir([str(corpus(name) / "data")], Storage())) as data_dir:
        logs = list(data_dir.logs())
        for log in logs:
            summary = LogSummary.of(log, IsolationLevel.READ_UNCOMMITTED)
            everything = [each for each in expected.get((log.topic, log.partition), []) if each.file.endswith(".log")]
            shown = [
                each.record
                for each in everything
                if not each.is_control and each.record.offset >= summary.log_start_offset
            ]
            assert summary.first_timestamp == (shown[0].timestamp if shown else None), log.topic_partition
            assert summary.last_timestamp == (shown[-1].timestamp if shown else None)
            if everything:
                assert summary.log_end_offset >= everything[-1].record.offset + 1
            assert summary.log_start_offset <= summary.last_stable_offset <= summary.log_end_offset
            assert summary.size == sum(path.stat().st_size for path in Path(log.directory.path).glob("*.log"))
    assert logs


def test_an_open_transaction_holds_the_last_stable_offset(tmp_path: Path) -> None:
    write_transactions(tmp_path / "t-0", [Data(None, 2), Data(1, 3), Data(None, 1)])
    log = open_log(tmp_path / "t-0")
    whole, committed = (LogSummary.of(log, level) for level in IsolationLevel)
    assert (whole.last_stable_offset, whole.log_end_offset) == (2, 6)
    assert committed.last_timestamp is not None
    assert whole.last_timestamp is not None
    assert committed.last_timestamp < whole.last_timestamp


def test_a_checkpoint_says_the_high_watermark(tmp_path: Path) -> None:
    write_partition(tmp_path / "t-0", {5: dense(5, 9)})
    set_high_watermark(tmp_path, "t", 0, 8)
    with closing(DataDir([str(tmp_path)], Storage())) as data_dir:
        [log] = data_dir.logs()
        summary = LogSummary.of(log, IsolationLevel.READ_UNCOMMITTED)
    assert (summary.log_start_offset, summary.high_watermark, summary.log_end_offset) == (5, 8, 10)
    assert (summary.first_timestamp, summary.last_timestamp) == (START + 5000, START + 9000)
