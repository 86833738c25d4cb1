"""``kfs groups``: what Kafka's own tool would say, from the disk alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs import open as kfs_open
from tests.cli.running import printed, refused
from tests.cli.test_command_line import EVIL, on_a_terminal
from tests.internal.group_logs import InternalPartition, classic_group, commit, member
from tests.logs import dense, write_partition
from tests.system.kafka_mount import kfs

Corpus = Callable[[str], Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    write_partition(root / "orders-0", {0: dense(0, 9)})
    log = InternalPartition(root)
    log.append(
        classic_group("billing", [member("m")]),
        commit("billing", "orders", 0, 4),
        commit("billing", "elsewhere", 1, 7),
        commit("mail", "orders", 0, 10),
    )
    return root


def rows(*arguments: str | Path) -> list[dict[str, str]]:
    """Return what is printed for a program, by the names of its columns."""
    first, *lines = printed("groups", *arguments).decode().splitlines()
    names = first.split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines]


def objects(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed("groups", "--json", *arguments).splitlines()]


def test_it_prints_offsets_and_lag(root: Path) -> None:
    found = rows(root)
    columns = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "OLDEST-UNREAD", "NOTE")
    assert [[row[name] for name in columns] for row in found] == [
        ["billing", "elsewhere", "1", "7", "-", "-", "-", "this partition is not here"],
        ["billing", "orders", "0", "4", "10", "6", "2023-11-14T22:13:24.000Z", "-"],
        ["mail", "orders", "0", "10", "10", "0", "-", "-"],
    ]


def test_every_lag_is_that_of_the_broker(corpus: Corpus) -> None:
    ends = json.loads((corpus("d_groups") / "offsets.json").read_text())["read_uncommitted"]
    groups = json.loads((corpus("d_groups") / "groups.json").read_text())
    expected = {
        (name, where): (str(offset["offset"]), str(ends[where]["latest"][0] - offset["offset"]))
        for name, group in groups.items()
        for where, offset in group["offsets"].items()
    }
    found = {
        (row["GROUP"], f"{row['TOPIC']}-{row['PARTITION']}"): (row["CURRENT-OFFSET"], row["LAG"])
        for row in rows(corpus("d_groups") / "data")
        if row["CURRENT-OFFSET"] != "-"
    }
    assert found == expected


def test_it_prints_members(root: Path) -> None:
    assert rows(root, "--members") == [
        {
            "GROUP": "billing",
            "CONSUMER-ID": "m",
            "GROUP-INSTANCE-ID": "-",
            "HOST": "/10.0.0.1",
            "CLIENT-ID": "m-client",
            "#PARTITIONS": "0",
            "ASSIGNMENT": "-",
        }
    ]


def test_it_prints_states(root: Path) -> None:
    found = rows(root, "--state")
    assert [(row["GROUP"], row["TYPE"], row["STATE"], row["#MEMBERS"], row["TOTAL-LAG"]) for row in found] == [
        ("billing", "Classic", "Stable", "1", "-"),
        ("mail", "Classic", "Empty", "0", "0"),
    ]


def test_a_total_of_which_a_part_is_unknown_is_unknown_everywhere_and_says_of_which_part(root: Path) -> None:
    unknown = "elsewhere-1: lag isn't known: this partition is not here"
    (row,) = rows(root, "--state", "--group", "billing")
    assert (row["TOTAL-LAG"], row["NOTE"]) == ("-", unknown)
    (group,) = objects(root, "--group", "billing")
    assert (group["totalLag"], group["notes"]) == (None, [unknown])
    with kfs_open(root) as data:
        assert (data.groups()["billing"].lag, data.groups()["billing"].notes) == (None, (unknown,))


def test_an_offset_above_the_log_end_takes_nothing_off_the_total_and_is_said(root: Path) -> None:
    write_partition(root / "orders-1", {0: dense(0, 9)})
    InternalPartition(root, partition=1).append(commit("ahead", "orders", 0, 4), commit("ahead", "orders", 1, 1000))
    assert [row["LAG"] for row in rows(root, "--group", "ahead")] == ["6", "-990"]
    note = "orders-1: lag -990 counts as 0: above the log's end 10: what was read is not here any more"
    (row,) = rows(root, "--state", "--group", "ahead")
    assert (row["TOTAL-LAG"], row["NOTE"]) == ("6", note)
    (group,) = objects(root, "--group", "ahead")
    assert (group["totalLag"], group["notes"]) == (6, [note])
    with kfs_open(root) as data:
        assert (data.groups()["ahead"].lag, data.groups()["ahead"].notes) == (6, (note,))


def test_of_many_unknown_parts_the_table_names_some(root: Path) -> None:
    InternalPartition(root, partition=1).append(*(commit("wide", "gone", number, 4) for number in range(9)))
    (row,) = rows(root, "--state", "--group", "wide")
    assert row["NOTE"].endswith("gone-2: lag isn't known: this partition is not here; and 6 more")
    assert len(objects(root, "--group", "wide")[0]["notes"]) == 9


def test_json_is_one_group_a_line_with_everything_in_it(root: Path) -> None:
    billing, mail = objects(root)
    assert (billing["group"], billing["state"], [each["lag"] for each in billing["offsets"]]) == (
        "billing",
        "Stable",
        [None, 6],
    )
    assert (mail["group"], mail["members"], mail["offsets"][0]["oldestUnread"]) == ("mail", [], None)


def test_groups_and_topics_are_chosen_by_patterns(root: Path) -> None:
    assert {row["GROUP"] for row in rows(root, "--group", "b*")} == {"billing"}
    assert {row["TOPIC"] for row in rows(root, "--topic", "else*")} == {"elsewhere"}
    assert len(rows(root, "--group", "b*", "--group", "mail", "--topic", "orders")) == 2
    assert [each["group"] for each in objects(root, "--topic", "elsewhere")] == ["billing"]


def test_lag_is_reckoned_to_the_high_watermark_if_that_is_asked_for(root: Path) -> None:
    (root / "replication-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    assert [row["LAG"] for row in rows(root, "--until", "hw", "--topic", "orders")] == ["2", "-4"]


def test_several_directories_are_one(tmp_path: Path, root: Path) -> None:
    write_partition(tmp_path / "other/elsewhere-1", {0: dense(0, 19)})
    assert [row["LAG"] for row in rows(root, tmp_path / "other")] == ["13", "6", "0"]


def test_no_group_of_that_name_is_an_error(root: Path) -> None:
    done = kfs("groups", root, "--group", "nobody")
    assert done.returncode == 1
    assert "no group matches 'nobody'" in done.stderr.decode()


def test_a_directory_without_groups_is_an_error(tmp_path: Path) -> None:
    write_partition(tmp_path / "data/orders-0", {0: dense(0, 9)})
    assert "no partition of __consumer_offsets" in refused("groups", tmp_path / "data")


def test_what_cannot_be_read_is_said_and_the_rest_is_printed(root: Path) -> None:
    log = InternalPartition(root, partition=1)
    log.append((b"\x00\x63new", b"x"), commit("late", "orders", 0, 1))
    done = kfs("groups", root)
    assert done.returncode == 1
    assert b"late\torders\t0\t1\t" in done.stdout
    assert done.stderr.decode() == "kfs: __consumer_offsets-1: offset 0: Found an unknown record type 99\n"


def test_damage_is_said_and_the_rest_is_printed(root: Path) -> None:
    log = InternalPartition(root, partition=1)
    log.append(commit("lost", "orders", 0, 1))
    data = log.active.read_bytes()
    log.active.write_bytes(data[:-1] + bytes([data[-1] ^ 0xFF]))
    log.append(commit("kept", "orders", 0, 1))
    done = kfs("groups", root, "--state")
    assert done.returncode == 1
    assert [line.split(b"\t")[0] for line in done.stdout.splitlines()[1:]] == [b"billing", b"kept", b"mail"]
    assert str(log.active) in done.stderr.decode()
    assert "position 0" in done.stderr.decode()


def test_nothing_in_a_name_drives_a_terminal_or_breaks_a_row(root: Path) -> None:
    InternalPartition(root, partition=1).append(commit(f"a\tb{EVIL}\n", "orders", 0, 1, metadata=EVIL))
    assert "a\\tb\\x1b[31m\\n" in {row["GROUP"] for row in rows(root)}
    for output in (printed("groups", root), printed("groups", "--json", root), on_a_terminal("groups", root)):
        assert EVIL.encode() not in output


def test_a_table_on_a_terminal_is_aligned_and_never_cut(root: Path) -> None:
    name = "a-group-whose-name-is-long-" * 5
    InternalPartition(root, partition=1).append(commit(name, "orders", 0, 1))
    text = on_a_terminal("groups", root).decode().replace("\r", "")
    lines = [line for line in text.split("\n") if "orders" in line]
    assert any(name in line for line in lines)
    assert len({line.index("orders") for line in lines}) == 1


def test_a_name_of_any_length_is_whole_in_a_pipe_and_bounded_on_a_terminal(root: Path) -> None:
    name = "g" * 30_000
    InternalPartition(root, partition=1).append(commit(name, "orders", 0, 1))
    assert {row["GROUP"] for row in rows(root)} == {"billing", "mail", name}
    assert [group["group"] for group in objects(root, "--group", "ggg*")] == [name]
    lines = on_a_terminal("groups", root).decode().replace("\r", "").split("\n")
    assert max(map(len, lines)) < 1000
    assert any("ggg\N{HORIZONTAL ELLIPSIS} " in line for line in lines)


def test_every_column_and_field_is_documented(root: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/GROUPS.md").read_text()
    names = {name for view in ("--offsets", "--members", "--state") for name in _columns(root, view)}
    for group in objects(root):
        names |= {*group, *group["offsets"][0]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []


def _columns(root: Path, view: str) -> list[str]:
    return printed("groups", root, view).decode().splitlines()[0].split("\t")


def test_the_source_may_be_one_partition_directory(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "__consumer_offsets-0", tmp_path / "__consumer_offsets-0")
    assert [row["NOTE"] for row in rows(tmp_path / "__consumer_offsets-0")] == ["this partition is not here"] * 3
