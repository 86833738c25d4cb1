"""``kfs txn``: open transactions, those that hang, and what ends them, from the disk alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs import open as kfs_open
from kfs.errors import NotFound
from kfs.format.java_text import java_hash
from kfs.internal.message_json import Json
from tests.cli.running import printed, refused
from tests.cli.test_command_line import EVIL, on_a_terminal
from tests.internal.some_states import (
    STATE_TOPIC,
    in_partitions,
    key_of,
    value_of,
    write_open,
    write_state,
    write_states,
)
from tests.logs import set_high_watermark, set_log_start
from tests.read.some_transactions import Data, abort, commit, write_transactions
from tests.system.kafka_mount import kfs

Corpus = Callable[[str], Path]
_AGE = re.compile(r"[1-9][0-9]*d[0-9]+h")
_ABORT = "kafka-transactions.sh --bootstrap-server localhost:9092 abort --topic stuck --partition 0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A transaction that its coordinator will end, one that nobody will, and some that are over."""
    root = tmp_path / "data"
    write_states(
        root,
        4,
        {
            "pays": value_of(producerId=1, transactionPartitions=in_partitions(("stuck", [0]), ("t", [3, 4]))),
            "rests": value_of(producerId=2, transactionStatus=4, transactionStartTimestampMs=-1),
        },
    )
    write_open(root / "stuck-0", [(1, 3), (99, 5)])
    write_transactions(root / "over-0", [Data(None), Data(2, 2), Data(3), abort(3), commit(2)])
    return root


def rows(*arguments: str | Path) -> list[dict[str, str]]:
    """Return what is printed for a program, by the names of its columns."""
    first, *lines = printed("txn", *arguments).decode().splitlines()
    return [dict(zip(first.split("\t"), line.split("\t"), strict=True)) for line in lines]


def objects(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed("txn", "--json", *arguments).splitlines()]


def terminal_lines(*arguments: str | Path) -> list[str]:
    """Return the lines that a terminal shows, without their colours and the blanks behind them."""
    text = re.sub(rb"\x1b\[[0-9;]*m", b"", on_a_terminal("txn", *arguments)).decode()
    return [line.rstrip() for line in text.replace("\r", "").split("\n")]


def test_it_prints_what_is_open_the_oldest_first(root: Path) -> None:
    open_one, hanging = rows(root)
    assert _AGE.fullmatch(open_one.pop("AGE"))
    assert open_one == {
        "TOPIC": "stuck",
        "PARTITION": "0",
        "STATE": "open",
        "PRODUCER-ID": "1",
        "EPOCH": "3",
        "START-OFFSET": "0",
        "END-OFFSET": "-",
        "LSO": "0",
        "TRANSACTIONAL-ID": "pays",
        "LAST-OFFSET": "1",
        "STARTED": "2023-11-14T22:13:20.000Z",
        "LAST": "2023-11-14T22:13:20.000Z",
        "ENDED": "-",
        "COORDINATOR-EPOCH": "-1",
        "COORDINATOR-STATE": "Ongoing",
        "ABORT-COMMAND": "-",
    }
    said = [hanging[name] for name in ("STATE", "PRODUCER-ID", "START-OFFSET", "TRANSACTIONAL-ID", "ABORT-COMMAND")]
    assert said == ["hanging", "99", "2", "-", f"{_ABORT} --start-offset 2"]


def test_a_terminal_gets_a_table_and_the_commands_that_end_what_hangs(root: Path) -> None:
    head, open_one, hanging, *advice = terminal_lines(root)
    columns = ["TOPIC", "PARTITION", "STATE", "PRODUCER-ID", "EPOCH", "START-OFFSET", "AGE", "LSO", "TRANSACTIONAL-ID"]
    assert head.split() == columns, "those with an entry"
    assert open_one.split()[:6] == ["stuck", "0", "open", "1", "3", "0"]
    assert open_one.split()[-2:] == ["0", "pays"]
    assert hanging.split()[:6] == ["stuck", "0", "hanging", "99", "5", "2"]
    assert open_one.index("open") == hanging.index("hanging") == head.index("STATE")
    assert advice == [
        "",
        "To abort hanging transactions:",
        f"  {_ABORT} --start-offset 2",
        "",
        "before Kafka 3.0:",
        f"  {_ABORT} --producer-id 99 --producer-epoch 5 --coordinator-epoch 0",
        "",
    ]


def test_a_terminal_is_told_when_nothing_is_open(root: Path) -> None:
    assert terminal_lines(root, "--topic", "over") == ["No transaction is open.", ""]
    assert printed("txn", root, "--topic", "over").count(b"\n") == 1, "the names of the columns"


def test_a_terminal_is_told_why_it_is_not_known(root: Path) -> None:
    for directory in root.glob(f"{STATE_TOPIC}-*"):
        shutil.rmtree(directory)
    lines = terminal_lines(root)
    assert [line.split()[2] for line in lines if line.startswith("stuck")] == ["unknown", "unknown"]
    assert f"unknown: only its coordinator knows whether it hangs, and its {STATE_TOPIC} isn't here." in lines
    assert "To abort hanging transactions:" not in lines


def test_the_commands_name_the_broker_that_is_given(root: Path) -> None:
    (_, hanging) = objects(root, "--bootstrap-server", "b:1; rm -r /")
    start = "kafka-transactions.sh --bootstrap-server 'b:1; rm -r /' abort --topic stuck --partition 0 "
    assert hanging["abortCommand"] == start + "--start-offset 2"
    assert hanging["abortCommandBefore30"] == start + "--producer-id 99 --producer-epoch 5 --coordinator-epoch 0"


def test_json_is_one_transaction_a_line_with_everything_in_it(root: Path) -> None:
    open_one, hanging = objects(root)
    assert (hanging["state"], hanging["transactionalId"], hanging["coordinatorState"]) == ("hanging", None, None)
    assert "abortCommand" not in open_one
    assert open_one.pop("ageMs") > 0
    assert open_one == {
        "topic": "stuck",
        "partition": 0,
        "state": "open",
        "producerId": 1,
        "producerEpoch": 3,
        "coordinatorEpoch": -1,
        "startOffset": 0,
        "lastOffset": 1,
        "startTimestamp": 1_700_000_000_000,
        "startTime": "2023-11-14T22:13:20.000Z",
        "lastTimestamp": 1_700_000_000_000,
        "lastTime": "2023-11-14T22:13:20.000Z",
        "transactionalId": "pays",
        "coordinatorState": "Ongoing",
        "lastStableOffset": 0,
    }


def test_those_that_are_over_are_printed_if_that_is_asked_for(root: Path) -> None:
    columns = ("TOPIC", "STATE", "PRODUCER-ID", "START-OFFSET", "END-OFFSET", "LSO", "AGE")
    found = [[row[name] for name in columns] for row in rows(root, "--all")]
    assert found[:2] == [["over", "aborted", "3", "3", "4", "6", "-"], ["over", "committed", "2", "1", "5", "6", "-"]]
    assert [row[1] for row in found[2:]] == ["open", "hanging"]
    over = objects(root, "--all", "--topic", "over")
    assert [(each["state"], each["endTime"]) for each in over] == [
        ("aborted", "2023-11-14T22:13:24.000Z"),
        ("committed", "2023-11-14T22:13:25.000Z"),
    ]


def test_how_long_a_transaction_may_take_can_be_said(root: Path) -> None:
    assert {row["STATE"] for row in rows(root, "--max-transaction-timeout", str(2**40))} == {"open"}


def test_where_logs_end_can_be_the_high_watermark(root: Path) -> None:
    set_high_watermark(root, "stuck", 0, 2)
    assert [row["START-OFFSET"] for row in rows(root, "--until", "hw")] == ["0"]


def test_ids_are_printed_with_their_state(root: Path) -> None:
    pays, rests = rows(root, "--ids")
    assert _AGE.fullmatch(pays.pop("DURATION"))
    coordinators = pays.pop("COORDINATOR"), rests.pop("COORDINATOR")
    assert set(coordinators) <= set("0123")
    common = {"EPOCH": "3", "TIMEOUT-MS": "60000", "LAST-UPDATE": "2023-11-14T22:13:20.005Z"}
    assert pays == common | {
        "TRANSACTIONAL-ID": "pays",
        "PRODUCER-ID": "1",
        "STATE": "Ongoing",
        "STARTED": "2023-11-14T22:13:20.000Z",
        "PARTITIONS": "stuck-0,t-3,t-4",
    }
    assert rests == common | {
        "TRANSACTIONAL-ID": "rests",
        "PRODUCER-ID": "2",
        "STATE": "CompleteCommit",
        "STARTED": "-",
        "DURATION": "-",
        "PARTITIONS": "-",
    }


def test_ids_as_json_have_everything(root: Path) -> None:
    pays, rests = objects(root, "--ids")
    assert pays["partitions"] == [{"topic": "stuck", "partitions": [0]}, {"topic": "t", "partitions": [3, 4]}]
    assert (rests["startTimestamp"], rests["startTime"], rests["durationMs"]) == (-1, None, None)
    assert (pays["previousProducerId"], pays["nextProducerId"], pays["nextProducerEpoch"]) == (-1, -1, -1)


def test_without_the_topic_there_are_no_ids(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_open(tmp_path / "data/stuck-0", [(1, 3)])
    assert f"no partition of {STATE_TOPIC}" in refused("txn", "--ids", tmp_path / "data")


@pytest.mark.parametrize("name", ["b_txn", "b39_txn", "c_clean", "d_groups"])
def test_the_last_stable_offset_of_what_is_held_back_is_the_brokers(name: str, corpus: Corpus) -> None:
    """All partitions whose last stable offset isn't their end are there, with that offset, and no other."""
    said = json.loads((corpus(name) / "offsets.json").read_text())
    stable, ends = said["read_committed"], said["read_uncommitted"]
    expected = {where: stable[where]["latest"][0] for where in stable if stable[where] != ends[where]}
    held_back = {where: last for where, last in expected.items() if last < ends[where]["latest"][0]}
    found = {
        f"{each['topic']}-{each['partition']}": each["lastStableOffset"] for each in objects(corpus(name) / "data")
    }
    assert {where: last for where, last in found.items() if where in stable} == held_back


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
def test_every_aborted_transaction_is_told_that_kafka_has_in_its_index(name: str, corpus: Corpus) -> None:
    entry = re.compile(r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+)")
    expected = {
        (path.parent.name, *map(int, match.groups()))
        for path in (corpus(name) / "dump").rglob("*.txnindex.txt")
        for match in entry.finditer(path.read_text())
    }
    assert expected
    found = {
        (f"{each['topic']}-{each['partition']}", each["producerId"], each["startOffset"], each["endOffset"])
        for each in objects(corpus(name) / "data", "--all")
        if each["state"] == "aborted"
    }
    assert found == expected


def test_what_cannot_be_read_is_said_and_the_rest_is_printed(root: Path) -> None:
    shutil.rmtree(root / f"{STATE_TOPIC}-1")
    write_state(root, 1, [(key_of("new"), value_of()[:-3]), (b"\x00\x09", b"x")])
    done = kfs("txn", root)
    assert done.returncode == 1
    assert done.stdout.count(b"\n") == 3
    first, second = done.stderr.decode().splitlines()
    assert first.startswith(f"kfs: {STATE_TOPIC}-1: offset 0: ")
    assert second == f"kfs: {STATE_TOPIC}-1: offset 1: Found an unknown record type 9"


def test_of_very_many_that_cannot_be_read_ten_are_said(root: Path) -> None:
    shutil.rmtree(root / f"{STATE_TOPIC}-1")
    write_state(root, 1, [(key_of(str(number)), b"\x00") for number in range(14)])
    lines = kfs("txn", "--ids", root).stderr.decode().splitlines()
    assert len(lines) == 11
    assert lines[-1] == "kfs: and 4 more records that can't be read: see .kfs/transactions/problems.jsonl of a mount"


def test_partitions_of_ids_that_are_not_here_are_named_where_they_matter(root: Path) -> None:
    shutil.rmtree(root / f"{STATE_TOPIC}-2")
    sentence = f"3 of the 4 partitions of {STATE_TOPIC} are here, by what is in them; not here: 2"
    done = kfs("txn", "--ids", root)
    assert (done.returncode, sentence in done.stderr.decode()) == (1, True)
    done = kfs("txn", root)
    assert b"\tunknown\t" in done.stdout
    assert (done.returncode, sentence in done.stderr.decode()) == (1, True)
    with kfs_open(root) as data:
        ids = data.transactional_ids()
        assert sentence in [problem.reason for problem in ids.problems]
        name = next(f"id-{number}" for number in range(99) if java_hash(f"id-{number}") % 4 == 2)
        with pytest.raises(NotFound, match=f"no transactional id '{name}': it would be in {STATE_TOPIC}-2"):
            ids[name]


def test_a_log_of_ids_without_its_beginning_is_said_to_be_one(root: Path) -> None:
    set_log_start(root, STATE_TOPIC, 0, 0)
    assert kfs("txn", root).stderr == b""
    write_more = root / f"{STATE_TOPIC}-0"
    shutil.rmtree(write_more)
    write_state(root, 0, [(key_of(name), value_of()) for name in "abc"])
    set_log_start(root, STATE_TOPIC, 0, 2)
    for arguments in ([root], ["--ids", root]):
        done = kfs("txn", *arguments)
        assert done.returncode == 0
        expected = f"kfs: {write_more}: begins at offset 2: state that was last written before it is unknown"
        assert done.stderr.decode().splitlines()[-1] == expected


@pytest.mark.usefixtures("quiet")
def test_damage_in_a_log_is_said_and_the_rest_is_printed(root: Path) -> None:
    (path,) = (root / "over-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF  # the marker of the transaction that began first
    path.write_bytes(data)
    done = kfs("txn", root, "--all")
    assert str(path) in done.stderr.decode()
    assert done.returncode == 1
    states = [line.split(b"\t")[2] for line in done.stdout.splitlines()]
    assert states == [b"STATE", b"aborted", b"hanging", b"open", b"hanging"]


def test_nothing_in_a_name_drives_a_terminal_or_breaks_a_row(tmp_path: Path) -> None:
    name = f"a\tb{EVIL}\n"
    places = in_partitions((f"t{EVIL}", [0]))
    # Beside these two there can be but one partition.
    others = {other: value_of(producerId=number) for number, other in enumerate("ab", 2)}
    write_states(tmp_path, 1, {name: value_of(producerId=1, transactionPartitions=places), **others})
    write_open(tmp_path / f"t{EVIL}-0", [(1, 3), (99, 3)])
    assert [row["TRANSACTIONAL-ID"] for row in rows(tmp_path)] == [r"a\tb\x1b[31m\n", "-"]
    assert [row["PARTITIONS"] for row in rows(tmp_path, "--ids")] == ["-", r"t\x1b[31m-0", "-"]
    for arguments in ([], ["--ids"], ["--json"]):
        assert EVIL.encode() not in printed("txn", tmp_path, *arguments)
        assert EVIL.encode() not in on_a_terminal("txn", tmp_path, *arguments)


def test_every_field_is_documented(root: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/TRANSACTIONS.md").read_text()
    found: list[dict[str, Json]] = [*objects(root, "--all"), *objects(root, "--ids")]
    names = {re.sub("Time$", "Timestamp", name) for each in found for name in each}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
