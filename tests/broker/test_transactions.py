"""What ``kafka-transactions`` says of the recorded brokers' transactions, and of some that hang, is what kfs says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.internal.hanging import Judge, TransactionVerdict
from kfs.internal.transaction_state import TRANSACTION_STATE_TOPIC, TransactionalIds
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.read.transactions import open_transactions
from tests.broker.real_broker import RealBroker
from tests.internal.some_states import write_open
from tests.requirements import need_kafka

CorpusPath = Callable[[str], Path]
#: So that the broker lets everything be as it was.
SETTINGS = {
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transactional.id.expiration.ms": 2**31 - 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2**31 - 1,
    "producer.id.expiration.ms": 2**31 - 1,
}


def rows_of(broker: RealBroker, *arguments: str) -> list[dict[str, str]]:
    """Return what the tool prints, by the heads of its columns."""
    done = subprocess.run(broker.tool("org.apache.kafka.tools.TransactionsCommand", *arguments), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    lines = [line for line in done.stdout.decode().splitlines() if line.endswith("\t")]  # the others are its log
    head, *rows = [[cell.strip() for cell in line.split("\t")] for line in lines]
    return [dict(zip(head, row, strict=False)) for row in rows]


@pytest.mark.parametrize("name", ["b_txn", pytest.param("b39_txn", marks=pytest.mark.long)])
def test_the_tool_that_asks_a_broker_says_the_same(name: str, corpus: CorpusPath, tmp_path: Path) -> None:
    directories = [corpus(name) / "data" / f"{TRANSACTION_STATE_TOPIC}-{number}" for number in range(4)]
    directories += [
        corpus(name) / "data" / partition for partition in ("ledger-0", "ledger-1", "ledger-2", "payments-0")
    ]
    # Of a producer that nobody knows, of one whose transaction is over, of one whose transaction is elsewhere.
    write_open(tmp_path / "stuck-0", [(99, 5), (0, 2), (1, 0)])
    directories.append(tmp_path / "stuck-0")
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    broker.take_over(directories)
    with broker.running():
        listed = rows_of(broker, "list")
        described = {
            row["TransactionalId"]: rows_of(broker, "describe", "--transactional-id", row["TransactionalId"])
            for row in listed
        }
        hanging = [
            row
            for topic in ("ledger", "payments", "stuck")
            for row in rows_of(broker, "find-hanging", "--topic", topic)
        ]
    data_dir = DataDir([str(broker.data)], Storage())
    ids = TransactionalIds(data_dir)
    assert sorted(described) == ids.names()
    for transactional_id, (row,) in described.items():
        known = ids.get(transactional_id)
        assert known is not None
        assert (row["ProducerId"], row["ProducerEpoch"]) == (str(known.producer_id), str(known.producer_epoch))
        assert (row["TransactionState"], row["TransactionTimeoutMs"]) == (known.state, str(known.timeout_ms))
        assert row["CurrentTransactionStartTimeMs"] == str(known.start_timestamp)
        assert sorted(filter(None, row["TopicPartitions"].split(","))) == sorted(map(str, known.partitions))
    judge = Judge(ids, now_ms=2**41)
    found = []
    for log in data_dir.logs():
        for judged in (judge.judge(log.topic_partition, each) for each in open_transactions(log).transactions):
            if judged.standing is TransactionVerdict.HANGING:
                each = judged.transaction
                found.append(
                    (
                        log.topic,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.first_offset,
                        each.last_timestamp,
                    )
                )
    columns = ("ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp")
    assert sorted(found) == sorted((row["Topic"], *(int(row[column]) for column in columns)) for row in hanging)
    assert len(found) == 3
