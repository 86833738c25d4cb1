"""``kfs offsets`` on every store: what it prints, what it sets, what it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import redis

from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets import ConsumedRange, StagedFile, WritableStore, WriterName, open_writable_store
from tests.cli.running import printed, refused
from tests.cli.test_command_line import EVIL, on_a_terminal
from tests.internal.group_logs import InternalPartition, commit
from tests.logs import START, dense, set_log_start, write_partition
from tests.servers.redis_server import RedisServer
from tests.servers.stores import STORES
from tests.spark.offsets.test_hostile import GROUP, PUT, put_in_zookeeper
from tests.spark.topics import A, B, make_topic
from tests.system.kafka_mount import kfs

FILES = (StagedFile("s/orders-7", "orders-7"),)
HERE = WriterName.of_this_process()
ELSEWHERE = WriterName("elsewhere", 77, START, "token")
GONE = WriterName(HERE.host, 2**22 + 1, START, "token")
URLS_OF_NOTHING = ("sqlite:///nowhere/at/all.db", "redis://127.0.0.1:1/0", "zookeeper://127.0.0.1:1")
URLS_WITH_PASSWORDS = (
    "redis://:s3cr3t@127.0.0.1:1/0",
    "redis://:s3cr3t@127.0.0.1:port/0",
    "redis://:s3cr3t@127.0.0.1:1/0/0",
    "redis://:s3cr3t@/0",
    "redis://:s3@cr3t@127.0.0.1:1/0?unknown=1",
    "redis://:s3?cr3t@127.0.0.1:1/0?prefix=1",
    "redis://:cr3t?s3=cr3t@127.0.0.1:1/0",
    "zookeeper://u:cr3t?s3=cr3t@127.0.0.1:1/0",
    "redis:/:s3cr3t@127.0.0.1/0",
    "rediss:u:s3cr3t@127.0.0.1",
    "zookeeper://u:s3cr3t@127.0.0.1:1",
    "zookeeper://u:s3cr3t@127.0.0.1:99999",
    "zookeeper://u:s3cr3t@127.0.0.1//x",
    "sqlite://u:s3cr3t@host/x",
    "mysql://u:s3cr3t@host/x",
    "//u:s3cr3t@host/x",
    "u:s3cr3t@host",
    "redis://u:s3cr3t/x@127.0.0.1:1/0",
)
SECRET = "s3cr3t-pass/word"


@pytest.fixture(scope="module")
def said_of() -> Mapping[str, str]:
    """What is said of each URL where no store is, asked at once: an answer is waited for."""

    def said(url: str) -> str:
        if url in URLS_OF_NOTHING:
            return refused("offsets", "show", url, "--group", "export")
        return refused("offsets", "set", url, "--group", "export", "orders/0=1")

    urls = [*URLS_OF_NOTHING, *URLS_WITH_PASSWORDS]
    with ThreadPoolExecutor(len(urls)) as pool:
        return dict(zip(urls, pool.map(said, urls), strict=True))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Log directories: orders-0 has the offsets 0 to 9, orders-1 20 to 29, returns-0 0 to 4; two groups read them."""
    root = tmp_path / "data"
    write_partition(root / "orders-0", {0: dense(0, 9)})
    write_partition(root / "orders-1", {10: dense(10, 29)})
    write_partition(root / "returns-0", {0: dense(0, 4)})
    set_log_start(root, "orders", 1, 20)
    log = InternalPartition(root)
    log.append(commit("billing", "orders", 0, 4), commit("billing", "orders", 1, 25), commit("mail", "returns", 0, 5))
    return root


def stored(url: str, group: str) -> dict[str, int]:
    """Return the positions of a group, by ``topic/partition``."""
    with open_writable_store(url) as store:
        return {f"{each.topic}/{each.partition}": at for each, at in store.load(group).positions.items()}


def put(url: str, group: str, positions: Mapping[str, int]) -> None:
    """Store positions as an operator would."""
    printed("offsets", "set", url, "--group", group, *(f"{where}={at}" for where, at in positions.items()))


def rows(*arguments: str | Path) -> list[dict[str, str]]:
    """Return what is printed for a program, by the names of its columns."""
    first, *lines = printed("offsets", *arguments).decode().splitlines()
    return [dict(zip(first.split("\t"), line.split("\t"), strict=True)) for line in lines]


def objects(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed("offsets", "show", "--json", *arguments).splitlines()]


@pytest.fixture
def acquired(url: str) -> Iterator[Callable[[WriterName], WritableStore]]:
    """Return the function that has a writer take the group ``export`` and leave a batch whose files it didn't name."""
    with open_writable_store(url) as store:

        def acquire(writer: WriterName) -> WritableStore:
            fence, _ = store.acquire("export", writer)
            store.save(fence, [ConsumedRange("orders", 0, 3, 7)], FILES)
            return store

        yield acquire


# --- show -------------------------------------------------------------------------------------------------------------


def test_it_shows_positions_and_how_far_they_are_behind(url: str, root: Path) -> None:
    put(url, "export", {"orders/0": 4, "orders/1": 12, "elsewhere/3": 1})
    put(url, "another", {"returns/0": 5})
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-START-OFFSET", "LOG-END-OFFSET", "LAG", "NOTE")
    assert [[row[name] for name in columns] for row in rows("show", url, root)] == [
        ["another", "returns", "0", "5", "0", "5", "0", "-"],
        ["export", "elsewhere", "3", "1", "-", "-", "-", "this partition is not here"],
        ["export", "orders", "0", "4", "0", "10", "6", "-"],
        [
            "export",
            "orders",
            "1",
            "12",
            "20",
            "30",
            "18",
            "below the log start offset 20: the next record to read was deleted",
        ],
    ]


def test_it_shows_without_log_directories_what_is_stored(url: str) -> None:
    put(url, "export", {"orders/0": 4})
    assert printed("offsets", "show", url).decode() == (
        "GROUP\tTOPIC\tPARTITION\tCURRENT-OFFSET\tLOG-START-OFFSET\tLOG-END-OFFSET\tLAG\tTOPIC-ID\tLEADER-EPOCH\t"
        "EPOCH\tWRITER\tNOTE\n"
        "export\torders\t0\t4\t-\t-\t-\t-\t-\t1\t-\t-\n"
    )


def test_it_shows_partitions_that_nobody_has_begun_with(url: str, root: Path) -> None:
    put(url, "export", {"orders/0": 4})
    found = rows("show", url, root, "--group", "export")
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["NOTE"]) for row in found] == [
        ("0", "4", "-"),
        ("1", "-", "no position yet"),
    ]


def test_json_has_everything(url: str, root: Path, acquired: Callable[[WriterName], WritableStore]) -> None:
    acquired(ELSEWHERE)
    (found,) = objects(url, root)
    assert found["store"] == url.partition("?")[0]
    assert found["group"] == "export"
    assert found["epoch"] == 1
    assert found["writer"] == {"host": "elsewhere", "pid": 77, "since": "2023-11-14T22:13:20.000Z", "ended": False}
    assert found["unfinishedFiles"] == ["orders-7"]
    assert found["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "position": 7,
        "logStartOffset": 0,
        "logEndOffset": 10,
        "lag": 3,
        "topicId": None,
        "leaderEpoch": None,
        "note": "files up to offset 7 may not be in place yet",
    }
    assert found["partitions"][1]["position"] is None


@pytest.mark.parametrize(("writer", "ended"), [(GONE, ", which has ended"), (ELSEWHERE, "")])
def test_it_says_who_has_a_group(
    writer: WriterName, ended: str, url: str, acquired: Callable[[WriterName], WritableStore]
) -> None:
    acquired(writer)
    (row,) = rows("show", url)
    assert row["WRITER"] == f"process {writer.pid} on {writer.host} since 2023-11-14T22:13:20.000Z{ended}"
    assert (row["CURRENT-OFFSET"], row["NOTE"]) == ("7", "files up to offset 7 may not be in place yet")


def test_a_group_without_positions_is_shown(url: str) -> None:
    with open_writable_store(url) as store:
        store.acquire("export", ELSEWHERE)
    (row,) = rows("show", url)
    assert (row["GROUP"], row["TOPIC"], row["NOTE"]) == ("export", "-", "no positions yet")


def test_a_group_that_nobody_stored_is_an_error(url: str) -> None:
    put(url, "export", {"orders/0": 4})
    expected = f"kfs: {url.partition('?')[0]}: no positions of group 'nobody'\n"
    assert refused("offsets", "show", url, "--group", "nobody") == expected
    assert refused("offsets", "show", url, "--group", "nobody", "--json") == expected


@pytest.mark.parametrize("kind", ["redis", "zookeeper"])
def test_a_server_with_nothing_stored_has_no_groups(kind: str, url_of: Callable[[str], str]) -> None:
    assert rows("show", url_of(kind)) == []


def test_what_an_older_job_left_in_redis_is_shown_and_copied(
    redis_server: RedisServer, url_of: Callable[[str], str]
) -> None:
    address = f"redis://127.0.0.1:{redis_server.port}/3"
    ranges = [{"topic": "orders", "partition": number, "fromOffset": 3, "untilOffset": 10} for number in range(2)]
    with redis.Redis.from_url(address) as client:
        client.set("wordcount", str(ranges))
        client.set("damaged", str(ranges)[:-3])
    found = rows("show", address, "--group", "wordcount")
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["NOTE"]) for row in found] == [
        (number, "10", "an older job has left them under the key wordcount") for number in ("0", "1")
    ]
    (everything,) = objects(address, "--group", "wordcount")
    assert everything["note"] == "an older job has left them under the key wordcount"
    url = url_of("sqlite")
    rows("copy", address, url, "--group", "wordcount", "--to-group", "new")
    assert stored(url, "new") == {"orders/0": 10, "orders/1": 10}
    reason = refused("offsets", "show", address, "--group", "damaged")
    assert reason.startswith(f"kfs: {address}: key damaged: not a list of ranges, as JSON or as Python writes it: ")


@pytest.mark.parametrize("kind", PUT)
def test_a_group_that_cannot_be_understood_is_named_and_hides_no_other(
    kind: str, root: Path, url_of: Callable[[str], str]
) -> None:
    url = url_of(kind)
    put(url, "good", {"orders/0": 4})
    place = PUT[kind](url, b"garbage")
    done = kfs("offsets", "show", url, root)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"kfs: {place}")
    assert b"good\torders\t0\t4\t" in done.stdout
    done = kfs("offsets", "show", url, "--json")
    assert (done.returncode, [json.loads(line)["group"] for line in done.stdout.splitlines()]) == (1, ["good"])
    done = kfs("offsets", "show", url, "--group", "nobody", "--group", "good")
    assert (done.returncode, b"good\torders\t0\t4\t" in done.stdout) == (1, True)
    assert "no positions of group 'nobody'" in done.stderr.decode()


@pytest.mark.parametrize("kind", PUT)
def test_what_cannot_be_understood_is_replaced_when_that_is_forced(
    kind: str, root: Path, url_of: Callable[[str], str]
) -> None:
    for command in (("set", "orders/0=7"), ("reset", root, "--to", "7", "--topic", "orders")):
        url = url_of(kind)
        place = PUT[kind](url, b"garbage")
        name, *rest = command
        arguments = ("offsets", name, url, *rest, "--group", GROUP)
        reason = refused(*arguments)
        assert reason.startswith(f"kfs: {place}")
        assert "--force replaces it" in reason
        done = kfs(*arguments, "--force", "--dry-run")
        assert (done.returncode, "would be replaced" in done.stderr.decode()) == (0, True)
        assert refused(*arguments).startswith(f"kfs: {place}")
        done = kfs(*arguments, "--force")
        assert (done.returncode, "is replaced" in done.stderr.decode()) == (0, True)
        assert stored(url, GROUP)["orders/0"] == 7


def test_a_position_that_cannot_be_understood_is_named_and_the_others_are_shown(
    root: Path, url_of: Callable[[str], str]
) -> None:
    url = url_of("zookeeper")
    put_in_zookeeper(url, b"x", "offsets/orders/0")
    put_in_zookeeper(url, b"25", "offsets/orders/1")
    done = kfs("offsets", "show", url, root)
    assert done.returncode == 1
    assert "offsets/orders/0: an offset as decimal text was expected, and b'x' is there" in done.stderr.decode()
    found = [line.split("\t") for line in done.stdout.decode().splitlines()[1:]]
    assert [(row[2], row[3], "its position can't be understood" in row[-1]) for row in found] == [
        ("0", "-", True),
        ("1", "25", False),
    ]
    assert "set the position of orders-0, too" in refused(
        "offsets", "set", url, "orders/1=3", "--group", GROUP, "--force"
    )
    done = kfs("offsets", "reset", url, root, "--group", GROUP, "--to", "earliest", "--force")
    assert (done.returncode, stored(url, GROUP)) == (0, {"orders/0": 0, "orders/1": 20})


def test_a_commit_that_cannot_be_read_hides_no_other(root: Path) -> None:
    InternalPartition(root, partition=1).append((commit("bad", "orders", 0, 1)[0], b"x"), commit("bad", "orders", 1, 3))
    done = kfs("offsets", "show", f"kafka:{root}")
    assert done.returncode == 1
    assert "the committed offset of orders-0 can't be read" in done.stderr.decode()
    found = [line.split("\t") for line in done.stdout.decode().splitlines()[1:]]
    assert {(row[0], row[2], row[3]) for row in found} >= {("bad", "0", "-"), ("bad", "1", "3"), ("mail", "0", "5")}


def test_a_file_that_is_not_there_is_an_error(url_of: Callable[[str], str]) -> None:
    url = url_of("sqlite")
    assert refused("offsets", "show", url) == f"kfs: {url}: no such file\n"
    assert not Path(url.removeprefix("sqlite://")).exists()


@pytest.mark.parametrize("url", URLS_OF_NOTHING)
def test_a_store_that_does_not_answer_is_an_error(url: str, said_of: Mapping[str, str]) -> None:
    assert said_of[url].startswith(f"kfs: {url}: ")


def test_it_shows_the_groups_of_log_directories(root: Path) -> None:
    found = rows("show", f"kafka:{root}", root)
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LAG")
    assert [[row[name] for name in columns] for row in found] == [
        ["billing", "orders", "0", "4", "6"],
        ["billing", "orders", "1", "25", "5"],
        ["mail", "returns", "0", "5", "0"],
    ]
    assert [row["GROUP"] for row in rows("show", "group:mail", root)] == ["mail"]
    assert "no group 'nobody'; there are: billing, mail" in refused("offsets", "show", "group:nobody", root)
    assert refused("offsets", "show", "group:mail") == (
        "kfs: group:mail: a group is read from log directories: name at least one; stores are "
        "sqlite:///path, redis://host:port/0, zookeeper://host:port, group:<name>, kafka:<log.dir>\n"
    )


def test_a_terminal_gets_a_table_that_cannot_drive_it(url_of: Callable[[str], str]) -> None:
    url = url_of("redis")
    put(url, "export", {"orders/0": 4})
    shown = on_a_terminal("offsets", "show", url).decode()
    assert "CURRENT" in shown
    assert "\t" not in shown
    assert "export" in shown
    assert EVIL.encode() not in on_a_terminal("offsets", "show", url, "--group", f"{EVIL}x")


# --- set --------------------------------------------------------------------------------------------------------------


def test_positions_are_set_and_others_stay(url: str) -> None:
    put(url, "export", {"orders/0": 4, "orders/1": 6})
    found = rows("set", url, "--group", "export", "orders/1=9", "returns/0=0")
    assert [list(row.values()) for row in found] == [
        ["export", "orders", "1", "6", "9", "-", "-", "-"],
        ["export", "returns", "0", "-", "0", "-", "-", "-"],
    ]
    assert stored(url, "export") == {"orders/0": 4, "orders/1": 9, "returns/0": 0}


def test_a_dry_run_sets_nothing(url: str) -> None:
    put(url, "export", {"orders/0": 4})
    done = kfs("offsets", "set", url, "--group", "export", "orders/0=9", "--dry-run")
    assert (done.returncode, done.stderr) == (0, b"kfs: nothing was set: --dry-run\n")
    assert b"export\torders\t0\t4\t9\t-\t-\t-\n" in done.stdout
    assert stored(url, "export") == {"orders/0": 4}


def test_a_writer_that_may_be_running_is_in_the_way(url: str, acquired: Callable[[WriterName], WritableStore]) -> None:
    acquired(ELSEWHERE)
    for dry_run in ((), ("--dry-run",)):
        reason = refused("offsets", "set", url, "--group", "export", "orders/0=0", *dry_run)
        assert "group export: process 77 on elsewhere has it since 2023-11-14T22:13:20.000Z" in reason
        assert "go on with --force" in reason
    assert stored(url, "export") == {"orders/0": 7}
    done = kfs("offsets", "set", url, "--group", "export", "orders/0=0", "--force")
    assert done.returncode == 0
    assert done.stderr == b"kfs: 1 files of the last batch are put in place when its job starts again\n"
    assert stored(url, "export") == {"orders/0": 0}
    assert objects(url)[0]["unfinishedFiles"] == ["orders-7"]


def test_a_writer_that_has_ended_is_not(url: str, acquired: Callable[[WriterName], WritableStore]) -> None:
    acquired(GONE)
    assert kfs("offsets", "set", url, "--group", "export", "orders/0=0").returncode == 0
    assert stored(url, "export") == {"orders/0": 0}


@pytest.mark.parametrize(
    "position", ["orders", "orders/0", "orders/0=", "orders/0=-1", "orders/x=1", "/0=1", "../0=1", f"orders/0={2**63}"]
)
def test_what_is_no_position_is_wrong_usage(position: str) -> None:
    done = kfs("offsets", "set", "sqlite:///nowhere/x.db", "--group", "export", position)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Invalid value for 'TOPIC/PARTITION=OFFSET...'" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "sqlite:///nowhere/x.db", "orders/0=1"),
        ("set", "sqlite:///nowhere/x.db", "--group", "export"),
        ("set", "sqlite:///nowhere/x.db", "--group", "export", "orders/0=1", "orders/0=2"),
        ("copy", "sqlite:///nowhere/x.db"),
        ("reset", "sqlite:///nowhere/x.db", "--group", "export"),
        ("reset", "sqlite:///nowhere/x.db", "--group", "export", "--to", "yesterday"),
        ("reset", "sqlite:///nowhere/x.db", "--group", "export", "--to", "-1"),
        ("reset", "sqlite:///nowhere/x.db", "--group", "export", "--to", str(2**63)),
        ("show",),
        (),
    ],
)
def test_wrong_usage_is_exit_code_two(arguments: tuple[str, ...]) -> None:
    done = kfs("offsets", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Usage: kfs offsets" in done.stderr


@pytest.mark.parametrize("url", ["group:billing", "kafka:data"])
def test_log_directories_are_only_read(url: str, root: Path) -> None:
    url = url.replace("data", str(root))
    for arguments in (
        ("set", url, "--group", "billing", "orders/0=1"),
        ("reset", url, "--group", "billing", "--to", "5"),
        ("copy", f"kafka:{root}", url, "--group", "billing"),
    ):
        assert f"kfs: {url}: the groups of a log directory are read-only" in refused("offsets", *arguments)


# --- copy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), list(product(STORES, STORES)))
def test_positions_are_copied_from_store_to_store(source: str, target: str, url_of: Callable[[str], str]) -> None:
    from_url, to_url = url_of(source), url_of(target)
    put(from_url, "export", {"orders/0": 4, "orders/1": 6, "returns/0": 1})
    put(to_url, "copied", {"orders/1": 100, "returns/1": 7})
    found = rows("copy", from_url, to_url, "--group", "export", "--to-group", "copied", "--topic", "ord*")
    assert [list(row.values()) for row in found] == [
        ["copied", "orders", "0", "-", "4", "-", "-", "-"],
        ["copied", "orders", "1", "100", "6", "-", "-", "-"],
    ]
    assert stored(to_url, "copied") == {"orders/0": 4, "orders/1": 6, "returns/1": 7}
    assert stored(from_url, "export") == {"orders/0": 4, "orders/1": 6, "returns/0": 1}


def test_a_group_of_a_broker_is_copied(url: str, root: Path) -> None:
    rows("copy", "group:billing", url, root)
    rows("copy", f"kafka:{root}", url, "--group", "mail", "--to-group", "post")
    assert stored(url, "billing") == {"orders/0": 4, "orders/1": 25}
    assert stored(url, "post") == {"returns/0": 5}


def test_all_groups_are_copied_unless_some_are_named(url: str, root: Path) -> None:
    put(url, "mail", {"returns/0": 1})
    found = rows("copy", f"kafka:{root}", url)
    assert [list(row.values())[:5] for row in found] == [
        ["billing", "orders", "0", "-", "4"],
        ["billing", "orders", "1", "-", "25"],
        ["mail", "returns", "0", "1", "5"],
    ]
    assert stored(url, "billing") == {"orders/0": 4, "orders/1": 25}
    assert stored(url, "mail") == {"returns/0": 5}
    done = kfs("offsets", "copy", f"kafka:{root}", url, "--to-group", "both")
    assert done.returncode == 2
    assert b"--to-group names one group: choose one of 2 with --group" in done.stderr


def test_no_group_is_set_if_one_of_them_may_not_be(
    url: str, root: Path, acquired: Callable[[WriterName], WritableStore]
) -> None:
    acquired(ELSEWHERE)
    other = f"sqlite://{root}.db"
    put(other, "export", {"orders/0": 1})
    put(other, "another", {"orders/0": 1})
    assert "and may be running" in refused("offsets", "copy", other, url)
    assert stored(url, "another") == {}


def test_a_group_is_copied_to_a_file_that_sets_it_in_another_cluster(root: Path, tmp_path: Path) -> None:
    plan = tmp_path / "it's.csv"
    done = kfs("offsets", "copy", "group:billing", plan, root)
    assert done.returncode == 0
    assert plan.read_text() == "orders,0,4\norders,1,25\n"
    assert done.stdout.decode().splitlines()[1:] == [
        "billing\torders\t0\t-\t4\t-\t-\t-",
        "billing\torders\t1\t-\t25\t-\t-\t-",
    ]
    next_step = done.stderr.decode().partition("to set these: ")[2]
    assert shlex.split(next_step) == [
        *("kafka-consumer-groups", "--bootstrap-server", "HOST:PORT", "--reset-offsets"),
        *("--group", "billing", "--from-file", str(plan), "--execute"),
    ]


def test_lines_of_several_groups_begin_with_the_group(root: Path, tmp_path: Path) -> None:
    plan = tmp_path / "reset.csv"
    done = kfs("offsets", "copy", f"kafka:{root}", plan)
    assert done.returncode == 0
    assert plan.read_text() == "billing,orders,0,4\nbilling,orders,1,25\nmail,returns,0,5\n"
    assert b"--group billing --group mail --from-file" in done.stderr


def test_a_file_is_written_only_when_it_is_to_be(root: Path, tmp_path: Path) -> None:
    plan = tmp_path / "reset.csv"
    done = kfs("offsets", "copy", f"kafka:{root}", plan, "--dry-run")
    assert (done.returncode, done.stderr) == (0, b"kfs: nothing was written: --dry-run\n")
    assert b"mail\treturns\t0\t-\t5" in done.stdout
    assert kfs("offsets", "copy", f"kafka:{root}", plan, "--force").returncode == 2
    refused("offsets", "copy", "group:nobody", plan, root)
    assert not plan.exists()
    nowhere = tmp_path / "nowhere" / "reset.csv"
    reason = refused("offsets", "copy", "group:mail", nowhere, root)
    assert reason == f"kfs: can't write {nowhere}: No such file or directory\n"


def test_what_is_not_there_is_not_copied(url: str, url_of: Callable[[str], str]) -> None:
    put(url, "export", {"orders/0": 4})
    name = url.partition("?")[0]
    to_url = url_of("sqlite")
    reason = refused("offsets", "copy", url, to_url, "--group", "nobody")
    assert reason == f"kfs: {name}: no positions of group 'nobody'\n"
    reason = refused("offsets", "copy", url, to_url, "--group", "export", "--topic", "returns")
    assert reason == f"kfs: {name}: group export: no positions that match\n"
    assert not Path(to_url.removeprefix("sqlite://")).exists()


def test_positions_whose_files_may_not_be_in_place_are_not_copied(
    url: str, url_of: Callable[[str], str], acquired: Callable[[WriterName], WritableStore]
) -> None:
    acquired(GONE)
    reason = refused("offsets", "copy", url, url_of("sqlite"), "--group", "export")
    assert "group export: the files of its last batch may not all be in place" in reason


# --- reset ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("earliest", {"orders/0": 0, "orders/1": 20}),
        ("smallest", {"orders/0": 0, "orders/1": 20}),
        ("latest", {"orders/0": 10, "orders/1": 30}),
        ("largest", {"orders/0": 10, "orders/1": 30}),
        ("5", {"orders/0": 5, "orders/1": 20}),
        ("25", {"orders/0": 10, "orders/1": 25}),
        ("2023-11-14T22:13:26.500", {"orders/0": 7, "orders/1": 20}),
        ("2023-11-14T22:13:43Z", {"orders/0": 10, "orders/1": 23}),
    ],
)
def test_positions_are_reset(target: str, expected: dict[str, int], url: str, root: Path) -> None:
    put(url, "export", {"orders/0": 4})
    found = rows("reset", url, root, "--group", "export", "--to", target)
    assert {f"{row['TOPIC']}/{row['PARTITION']}": int(row["NEW-OFFSET"]) for row in found} == expected
    assert stored(url, "export") == expected


def test_what_a_reset_could_not_take_to_the_letter_is_said(url: str, root: Path) -> None:
    found = rows("reset", url, root, "--group", "export", "--to", "15", "--topic", "ord*")
    assert [list(row.values()) for row in found] == [
        ["export", "orders", "0", "-", "10", "-", "-", "15 is above the log's end"],
        ["export", "orders", "1", "-", "20", "-", "-", "15 is below the log's start"],
    ]
    found = rows("reset", url, root, "--group", "export", "--to", "2024-01-01", "--topic", "orders")
    assert [row["NOTE"] for row in found] == ["no record is of that time or later: the log's end"] * 2
    assert stored(url, "export") == {"orders/0": 10, "orders/1": 30}


def test_without_log_directories_positions_are_reset_to_an_offset_only(url: str) -> None:
    put(url, "export", {"orders/0": 4, "orders/7": 1})
    rows("reset", url, "--group", "export", "--to", "3")
    assert stored(url, "export") == {"orders/0": 3, "orders/7": 3}
    for target in ("earliest", "2023-11-14"):
        reason = refused("offsets", "reset", url, "--group", "export", "--to", target)
        assert reason == "kfs: a time, earliest and latest are looked up in log directories: name them\n"
    assert stored(url, "export") == {"orders/0": 3, "orders/7": 3}


def test_all_is_reset_or_nothing(url: str, root: Path) -> None:
    put(url, "export", {"orders/0": 4, "elsewhere/3": 1})
    reason = refused("offsets", "reset", url, root, "--group", "export", "--to", "latest")
    assert reason.startswith("kfs: elsewhere-3 is not in the log directories")
    assert stored(url, "export") == {"orders/0": 4, "elsewhere/3": 1}
    rows("reset", url, root, "--group", "export", "--to", "latest", "--topic", "orders")
    assert stored(url, "export") == {"orders/0": 10, "orders/1": 30, "elsewhere/3": 1}


def test_nothing_to_be_reset_is_an_error(url: str, root: Path) -> None:
    for topics in ((), ("--topic", "nothing*")):
        reason = refused("offsets", "reset", url, root, "--group", "export", "--to", "latest", *topics)
        assert reason.startswith("kfs: no partition to set: no stored position matches")
    with open_writable_store(url) as store:
        assert store.load("export").is_empty


def test_a_reset_fences_the_writer_when_it_is_forced(
    url: str, root: Path, acquired: Callable[[WriterName], WritableStore]
) -> None:
    store = acquired(ELSEWHERE)
    refused("offsets", "reset", url, root, "--group", "export", "--to", "earliest")
    assert kfs("offsets", "reset", url, root, "--group", "export", "--to", "earliest", "--force").returncode == 0
    progress = store.load("export")
    assert progress.positions == {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 20}
    assert (progress.epoch, progress.writer) == (2, None)


# --- what is secret ---------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that wants a password."""
    directory = tmp_path / "redis"
    directory.mkdir()
    server = RedisServer(directory, requirepass=SECRET).start()
    yield server
    server.stop()


def test_a_password_opens_the_store_and_is_never_printed(guarded_redis: RedisServer) -> None:
    address = f"127.0.0.1:{guarded_redis.port}/0"
    quoted = SECRET.replace("/", "%2F")
    put(f"redis://:{quoted}@{address}", "export", {"orders/0": 4})
    environment = {"KFS_STORE_PASSWORD": SECRET}
    for url, more in ((f"redis://default:{quoted}@{address}", {}), (f"redis://{address}", environment)):
        done = kfs("offsets", "show", url, "--json", environment=more)
        assert (done.returncode, done.stderr) == (0, b"")
        (found,) = [json.loads(line) for line in done.stdout.splitlines()]
        assert (found["store"], found["partitions"][0]["position"]) == (f"redis://{address}", 4)


def test_who_is_not_let_in_is_told_without_the_password(guarded_redis: RedisServer) -> None:
    address = f"127.0.0.1:{guarded_redis.port}/0"
    for login in ("", ":wr0ng@", "someone:wr0ng@"):
        reason = refused("offsets", "show", f"redis://{login}{address}", "--group", "export")
        assert reason.startswith(f"kfs: redis://{address}: access denied: ")
        assert "wr0ng" not in reason
        assert ("a password is needed, in the URL or in KFS_STORE_PASSWORD" in reason) == (login == "")


@pytest.mark.parametrize("url", URLS_WITH_PASSWORDS)
def test_a_url_that_will_not_do_is_named_without_its_password(url: str, said_of: Mapping[str, str]) -> None:
    assert said_of[url].startswith("kfs: ")
    assert "cr3t" not in said_of[url]


# --- which logs positions are of --------------------------------------------------------------------------------------

OF_A_LOG = ("CURRENT-OFFSET", "TOPIC-ID", "LEADER-EPOCH", "NOTE")


def of_logs(url: str, root: Path) -> list[str]:
    (row,) = rows("show", url, root)
    return [row[name] for name in OF_A_LOG]


def test_positions_are_shown_reset_set_and_copied_with_the_logs_that_they_are_of(
    url: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    root, other = tmp_path / "logs", url_of("sqlite")
    make_topic(root, 100, A, {0: 0, 50: 2})
    rows("reset", url, root, "--group", "export", "--topic", "t", "--to", "60")
    assert of_logs(url, root) == ["60", str(A), "2", "-"]
    (found,) = objects(url, root)
    assert (found["partitions"][0]["topicId"], found["partitions"][0]["leaderEpoch"]) == (str(A), 2)
    (row,) = rows("copy", url, other, "--group", "export")
    assert (row["TOPIC-ID"], row["LEADER-EPOCH"]) == (str(A), "2")
    assert of_logs(other, root) == ["60", str(A), "2", "-"]
    (row,) = rows("set", url, "--group", "export", "t/0=70")
    assert (row["TOPIC-ID"], row["LEADER-EPOCH"]) == (str(A), "-")
    assert of_logs(url, root) == ["70", str(A), "-", "-"]
    make_topic(root, 100, A, {0: 0, 50: 3})
    assert "the record before it was written in leader epoch 2, and" in of_logs(other, root)[-1]
    make_topic(root, 250, B)
    note = f"committed for topic id {A}, but the topic here has id {B}"
    assert of_logs(url, root) == ["70", str(A), "-", note]
    rows("reset", url, root, "--group", "export", "--to", "70")
    assert of_logs(url, root) == ["70", str(B), "0", "-"]


def test_a_position_that_is_copied_from_who_knows_no_log_is_of_none(url: str, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    make_topic(root, 100, A)
    rows("reset", url, root, "--group", "export", "--topic", "t", "--to", "60")
    put(url, "by-hand", {"t/0": 10})
    rows("copy", url, url, "--group", "by-hand", "--to-group", "export")
    with open_writable_store(url) as store:
        assert store.load("export").identities == {}


def test_what_a_consumer_committed_is_copied_with_the_id_of_its_topic(url: str, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    make_topic(root, 100, A)
    log = InternalPartition(root)
    log.append(commit("billing", "t", 0, 40, topicId=A, leaderEpoch=5))
    rows("copy", "group:billing", url, root)
    assert of_logs(url, root) == ["40", str(A), "-", "-"]
