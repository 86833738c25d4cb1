"""``__transaction_state`` as state: what the latest readable record of each transactional id says."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.format.checkpoint import TopicPartition
from kfs.format.java_text import java_hash
from kfs.internal.hanging import Judge, TransactionVerdict, abort_commands
from kfs.internal.transaction_state import STATES, TransactionalIds
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.read.isolation import last_stable_offset
from kfs.read.transactions import OpenTransaction, TransactionHistory, ended_transactions, open_transactions
from tests.internal.some_states import (
    STATE_TOPIC,
    in_partitions,
    key_of,
    value_of,
    write_open,
    write_state,
    write_states,
)
from tests.logs import START, open_log, set_high_watermark, set_log_start
from tests.read.some_transactions import Data, Event, abort, commit, committed_offsets, write_transactions

CorpusPath = Callable[[str], Path]
HOUR = 3_600_000


def ids_of(root: Path) -> TransactionalIds:
    return TransactionalIds(DataDir([str(root)], Storage()))


def states_of(root: Path) -> dict[str, str]:
    ids = ids_of(root)
    return {name: known.state for name in ids.names() if (known := ids.get(name)) is not None}


# --- recorded brokers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_each_id_is_what_kafkas_own_decoder_says_last(name: str, corpus: CorpusPath) -> None:
    said: dict[str, dict[str, object]] = {}
    for path in sorted((corpus(name) / "dump").glob(f"{STATE_TOPIC}-*/*.log.txt")) or sorted(
        (corpus(name) / "dump").rglob(f"*{STATE_TOPIC}*.log*")
    ):
        for line in path.read_text().splitlines():
            if " payload: {" not in line:
                continue
            key, _, value = line[line.index("key: {") + 5 :].partition(" payload: ")
            said[json.loads(key)["data"]["transactionalId"]] = json.loads(value)["data"]
    assert said
    ids = ids_of(corpus(name) / "data")
    assert ids.names() == sorted(said)
    for transactional_id, data in said.items():
        known = ids.get(transactional_id)
        assert known is not None
        assert known.producer_id == data["producerId"]
        assert known.producer_epoch == data["producerEpoch"]
        assert known.timeout_ms == data["transactionTimeoutMs"]
        assert known.state == STATES[int(str(data["transactionStatus"]))]
        assert known.start_timestamp == data["transactionStartTimestampMs"]
        assert known.last_update_timestamp == data["transactionLastUpdateTimestampMs"]
        places = data["transactionPartitions"]
        assert isinstance(places, list)
        numbers = [TopicPartition(place["topic"], at) for place in places for at in place["partitionIds"]]
        assert known.partitions == tuple(sorted(numbers))
        assert ids.of_producer(known.producer_id) == known
    assert not ids.may_be_elsewhere


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_what_a_broker_left_open_is_open_and_does_not_hang(name: str, corpus: CorpusPath) -> None:
    data_dir = DataDir([str(corpus(name) / "data")], Storage())
    judge = Judge(TransactionalIds(data_dir), now_ms=2**41)
    held_back = 0
    for log in data_dir.logs():
        found = open_transactions(log)
        assert found.last_stable_offset == last_stable_offset(log)
        for transaction in found.transactions:
            held_back += 1
            assert transaction.first_offset == found.last_stable_offset
            judged = judge.judge(log.topic_partition, transaction)
            assert (judged.standing, judged.transactional_id and judged.transactional_id.name) == (
                TransactionVerdict.OPEN,
                "given-tx-b",
            )
    assert held_back == len(TransactionalIds(data_dir).get("given-tx-b").partitions)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_the_aborted_ones_are_those_of_the_transaction_index(name: str, corpus: CorpusPath) -> None:
    for log in DataDir([str(corpus(name) / "data")], Storage()).logs():
        aborted = [(each.producer_id, each.first_offset, each.last_offset) for _, each in log.aborted_transactions()]
        ended = list(ended_transactions(log))
        assert [(e.producer_id, e.first_offset, e.last_offset) for e in ended if e.is_aborted] == aborted
        history = TransactionHistory(log).now()
        assert (history.aborted, history.committed) == (len(aborted), len(ended) - len(aborted))
        assert history.latest_aborted + history.latest_committed == tuple(sorted(ended, key=lambda e: not e.is_aborted))


# --- replay ---------------------------------------------------------------------------------------------------------


def test_the_latest_record_counts_and_one_without_a_value_deletes(tmp_path: Path) -> None:
    write_state(
        tmp_path,
        0,
        [
            (key_of("a"), value_of(0, transactionStatus=1)),
            (key_of("b"), value_of(1, producerId=8)),
            (key_of("c"), value_of(1, producerId=9)),
            (key_of("a"), value_of(1, transactionStatus=4, producerId=10, previousProducerId=7, nextProducerId=11)),
            (key_of("b"), None),
        ],
    )
    ids = ids_of(tmp_path)
    assert states_of(tmp_path) == {"a": "CompleteCommit", "c": "Ongoing"}
    assert (ids.of_producer(7), ids.of_producer(8)) == (None, None)
    known = ids.of_producer(10)
    assert known is not None
    assert (known.name, known.previous_producer_id, known.next_producer_id, known.offset) == ("a", 7, 11, 3)


def test_partitions_that_are_null_are_none(tmp_path: Path) -> None:
    write_state(tmp_path, 0, [(key_of("a"), value_of(1, transactionPartitions=None))])
    known = ids_of(tmp_path).get("a")
    assert known is not None
    assert known.partitions == ()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (key_of("a"), value_of()[:-3], ""),
        (key_of("a"), b"", "2 bytes"),
        (key_of("a"), (2).to_bytes(2, "big") + value_of()[2:], "unknown record version 2"),
        (key_of("a"), value_of(transactionStatus=8), "transaction state 8"),
        (key_of("a")[:-1], value_of(), ""),
        (b"", value_of(), ""),
        (b"\x00\x09\x00", value_of(), "unknown record type 9"),
        (None, value_of(), "without a key"),
        (bytes(range(200, 250)), bytes(range(100)), ""),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_what_cannot_be_read_is_kept_as_it_is_and_said(
    tmp_path: Path, key: bytes | None, value: bytes, reason: str
) -> None:
    write_state(tmp_path, 0, [(key_of("a"), value_of()), (key_of("b"), value_of(producerId=8)), (key, value)])
    ids = ids_of(tmp_path)
    ((log, record),) = ids.state_problems().unread
    assert (log.partition, record.offset, record.key, record.value) == (0, 2, key, value)
    assert reason in record.reason
    assert ids.names() == (["b"] if key == key_of("a") else ["a", "b"]), "what is known of a isn't true any more"
    assert ids.state_problems().loses_something
    assert ids.may_be_elsewhere


def test_unknown_tagged_fields_are_skipped(tmp_path: Path) -> None:
    plain = value_of(1)
    assert plain.endswith(b"\x00"), "no tagged fields"
    write_state(tmp_path, 0, [(key_of("a"), plain[:-1] + b"\x01\x63\x03abc")])
    ids = ids_of(tmp_path)
    assert states_of(tmp_path) == {"a": "Ongoing"}
    assert not ids.state_problems().unread


def test_what_could_not_be_read_is_forgotten_once_it_is_written_anew(tmp_path: Path) -> None:
    write_state(
        tmp_path, 0, [(key_of("a"), b"\x00"), (key_of("a"), value_of()), (b"\x00\x09", b"x"), (b"\x00\x09", None)]
    )
    ids = ids_of(tmp_path)
    assert ids.names() == ["a"]
    assert not ids.state_problems().unread
    assert not ids.state_problems().loses_something


@pytest.mark.usefixtures("quiet")
def test_a_corrupt_batch_costs_what_it_held(tmp_path: Path) -> None:
    entries = [(key_of(name), value_of(producerId=number)) for number, name in enumerate("abcde")]
    directory = write_state(tmp_path, 0, entries)
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    ids = ids_of(tmp_path)
    assert ids.names() == list("abde")
    assert ids.state_problems().loses_something
    assert ids.may_be_elsewhere


def test_a_log_whose_start_was_cut_says_what_is_left(tmp_path: Path) -> None:
    write_state(tmp_path, 0, [(key_of(name), value_of()) for name in "abc"])
    set_log_start(tmp_path, STATE_TOPIC, 0, 2)
    ids = ids_of(tmp_path)
    assert ids.names() == ["c"]
    assert ids.may_be_elsewhere, "who was cut off isn't known"


@pytest.mark.usefixtures("eager")
def test_it_is_followed_as_the_log_grows(tmp_path: Path) -> None:
    more = write_state(tmp_path / "more", 0, [(key_of("a"), value_of()), (key_of("b"), value_of())])
    log = write_state(tmp_path / "data", 0, [(key_of("a"), value_of())])
    ids = ids_of(tmp_path / "data")
    assert ids.names() == ["a"]
    (whole,), (path,) = more.glob("*.log"), log.glob("*.log")
    with path.open("ab") as file:
        file.write(whole.read_bytes()[path.stat().st_size :])
    assert ids.names() == ["a", "b"]
    shutil.rmtree(log)
    assert ids.names() == []


@settings(max_examples=60)
@given(content=st.lists(st.tuples(st.binary(max_size=40) | st.just(key_of("a")), st.binary(max_size=80) | st.none())))
@pytest.mark.usefixtures("quiet")
def test_any_bytes_are_an_id_or_are_said_not_to_be_read(content: list[tuple[bytes, bytes | None]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        write_state(Path(name), 0, [*content, (key_of("last"), value_of())])
        ids = ids_of(Path(name))
        assert "last" in ids.names()
        unread = {record.key for _, record in ids.state_problems().unread}
        known = {key_of(each) for each in ids.names()}
        latest = dict(content)
        assert {key for key, value in latest.items() if value is not None} <= unread | known
        assert not unread & known


# --- open, committed, aborted ---------------------------------------------------------------------------------------


def test_transactions_are_told_with_their_markers_and_times(tmp_path: Path) -> None:
    events: list[Event] = [Data(1, 2), Data(2), Data(1), abort(1), commit(2), commit(3), Data(2), Data(1)]
    write_transactions(tmp_path / "t-0", events)
    log = open_log(tmp_path / "t-0")
    first, second = ended_transactions(log)
    assert (first.producer_id, first.first_offset, first.last_offset, first.is_aborted) == (1, 0, 4, True)
    assert (first.start_timestamp, first.end_timestamp) == (START, START + 4000)
    assert (second.producer_id, second.first_offset, second.last_offset, second.is_aborted) == (2, 2, 5, False)
    found = open_transactions(log)
    assert found.last_stable_offset == 7
    assert [(each.producer_id, each.first_offset, each.coordinator_epoch) for each in found.transactions] == [
        (2, 7, 0),
        (1, 8, 0),
    ]


@pytest.mark.parametrize("snapshots_lost", [False, True])
def test_the_last_batch_of_an_open_transaction_counts_for_its_age(tmp_path: Path, snapshots_lost: bool) -> None:
    write_transactions(tmp_path / "t-0", [Data(1), Data(None, 3), Data(1, 2), Data(2)])
    if snapshots_lost:
        for path in (tmp_path / "t-0").glob("*.snapshot"):
            path.unlink()
    expected = OpenTransaction(1, 0, -1, 0, 5, START, START + 5)
    (first, _) = open_transactions(open_log(tmp_path / "t-0")).transactions
    assert (first.producer_id, first.first_offset, first.last_offset) == (1, 0, 5)
    assert first.start_timestamp == expected.start_timestamp
    assert first.last_timestamp > first.start_timestamp


def test_markers_above_the_high_watermark_have_ended_nothing_yet(tmp_path: Path) -> None:
    write_transactions(tmp_path / "t-0", [Data(1, 2), Data(None), commit(1), Data(None)])
    set_high_watermark(tmp_path, "t", 0, 3)
    log = DataDir([str(tmp_path)], Storage(), until_high_watermark=True).log("t", 0)
    assert log is not None
    assert open_transactions(log).last_stable_offset == 0
    assert not list(ended_transactions(log))


def test_a_history_goes_on_where_the_log_grows_and_names_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: None
) -> None:
    from tests.tree.test_read_committed import LiveLog

    monkeypatch.setattr("kfs.read.transactions.MOST_NAMED", 2)
    live = LiveLog(tmp_path, segment_bytes=400)
    live.append(Data(1))
    log = open_log(live.directory)
    history = TransactionHistory(log)
    assert len(history.now().open.transactions) == 1
    for _ in range(5):
        live.append(commit(1), Data(2), abort(2), Data(1))
        now = history.now()
    assert (now.committed, now.aborted) == (5, 5)
    assert len(now.latest_aborted) == 2
    assert now.latest_aborted[-1].last_offset == live.end - 2
    assert committed_offsets(live.append()) == [4 * number for number in range(5)]


# --- hanging --------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ids in all four partitions of their topic, and a partition with open transactions of theirs and of others."""
    write_states(
        tmp_path,
        4,
        {
            "here": value_of(producerId=1, transactionPartitions=in_partitions(("t", [0, 3]))),
            "elsewhere": value_of(producerId=2, transactionPartitions=in_partitions(("t", [1]), ("u", [0]))),
            "done": value_of(producerId=3, transactionStatus=4),
            "dying": value_of(producerId=4, transactionStatus=6, transactionPartitions=in_partitions(("t", [0]))),
        },
    )
    write_open(tmp_path / "t-0", [(1, 3), (2, 3), (3, 3), (4, 3), (99, 5)])
    return tmp_path


def standings(root: Path, now_ms: int = START + HOUR) -> dict[int, TransactionVerdict]:
    data_dir = DataDir([str(root)], Storage())
    log = data_dir.log("t", 0)
    assert log is not None
    judge = Judge(TransactionalIds(data_dir), now_ms)
    judged = [judge.judge(log.topic_partition, each) for each in open_transactions(log).transactions]
    return {each.transaction.producer_id: each.standing for each in judged}


def test_a_transaction_hangs_that_no_coordinator_is_to_end(root: Path) -> None:
    hanging = TransactionVerdict.HANGING
    assert standings(root) == {1: TransactionVerdict.OPEN, 2: hanging, 3: hanging, 4: hanging, 99: hanging}


def test_nothing_hangs_that_is_younger_than_a_transaction_may_be(root: Path) -> None:
    assert set(standings(root, START + 15 * 60_000).values()) == {TransactionVerdict.OPEN}


def test_what_is_not_known_here_may_be_known_elsewhere(root: Path) -> None:
    lost = java_hash("here") % 4
    shutil.rmtree(root / f"{STATE_TOPIC}-{lost}")
    found = standings(root)
    assert found[99] is TransactionVerdict.UNKNOWN
    assert found[1] is TransactionVerdict.UNKNOWN
    assert found[2] is TransactionVerdict.HANGING, "its coordinator is here"


def test_a_missing_last_partition_shows_in_where_ids_are_kept(root: Path) -> None:
    assert any(java_hash(name) % 3 != java_hash(name) % 4 for name in ("here", "elsewhere", "done", "dying"))
    shutil.rmtree(root / f"{STATE_TOPIC}-3")
    assert standings(root)[99] is TransactionVerdict.UNKNOWN


def test_without_the_topic_nothing_is_said_to_hang(root: Path) -> None:
    for path in root.glob(f"{STATE_TOPIC}-*"):
        shutil.rmtree(path)
    assert set(standings(root).values()) == {TransactionVerdict.UNKNOWN}


def test_the_commands_that_end_it_are_those_of_new_and_old_brokers() -> None:
    partition = TopicPartition("t", 3)
    transaction = OpenTransaction(99, 5, -1, 8, 9, START, START)

    class Nobody:
        may_be_elsewhere = False

        def of_producer(self, _producer_id: int) -> None:
            return None

    judged = Judge(Nobody(), START + HOUR).judge(partition, transaction)  # type: ignore[arg-type]
    common = "kafka-transactions.sh --bootstrap-server b:9092 abort --topic t --partition 3"
    assert judged.standing is TransactionVerdict.HANGING
    assert abort_commands(judged, "b:9092") == (
        f"{common} --start-offset 8",
        f"{common} --producer-id 99 --producer-epoch 5 --coordinator-epoch 0",
    )
