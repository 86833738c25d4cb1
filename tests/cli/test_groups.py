"""``kfs groups``: what Kafka's own tool would say, from the disk alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfs import open as kfs_open
from kfs.errors import NotFound
from kfs.format.java_text import java_hash
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


def more_of(root: Path) -> InternalPartition:
    """Return the partition that groups are kept in, to be gone on with."""
    return InternalPartition(root, first_offset=4)


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
    more_of(root).append(commit("ahead", "orders", 0, 4), commit("ahead", "orders", 1, 1000))
    assert [row["LAG"] for row in rows(root, "--group", "ahead")] == ["6", "-990"]
    note = "orders-1: lag -990 counts as 0: above the log's end 10: records that were read are no longer here"
    (row,) = rows(root, "--state", "--group", "ahead")
    assert (row["TOTAL-LAG"], row["NOTE"]) == ("6", note)
    (group,) = objects(root, "--group", "ahead")
    assert (group["totalLag"], group["notes"]) == (6, [note])
    with kfs_open(root) as data:
        assert (data.groups()["ahead"].lag, data.groups()["ahead"].notes) == (6, (note,))


def test_of_many_unknown_parts_the_table_names_some(root: Path) -> None:
    more_of(root).append(*(commit("wide", "gone", number, 4) for number in range(9)))
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


NAMES = [f"group-{number}" for number in range(18)]


def partition_of(name: str, count: int = 8) -> int:
    return java_hash(name) % count


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """4 of 8 partitions that 18 groups are in."""
    for partition in (0, 2, 3, 5):
        names = [name for name in NAMES if partition_of(name) == partition]
        InternalPartition(tmp_path / "half", partition=partition).append(*(commit(name, "t", 0, 1) for name in names))
    return tmp_path / "half"


def test_partitions_that_are_not_here_are_named_and_make_the_answer_incomplete(half: Path) -> None:
    for options in ([], ["--json"], ["--state"], ["--members"], ["--group", "group*"]):
        done = kfs("groups", half, *options)
        assert (done.returncode, done.stderr.decode()) == (
            1,
            f"kfs: {half}: 4 of the 8 partitions of __consumer_offsets are here, by what is in them; "
            "not here: 1, 4, 6 to 7\n",
        )
    with kfs_open(half) as data:
        groups = data.groups()
        assert ["4 of the 8 partitions" in problem.reason for problem in groups.problems] == [True]
        with pytest.raises(NotFound, match=r"it would be in __consumer_offsets-4, which is not here"):
            groups[next(name for name in NAMES if partition_of(name) == 4)]


def test_a_group_whose_partition_is_here_is_all_there_is_of_it(half: Path) -> None:
    found = [name for name in NAMES if partition_of(name) in (0, 2, 3, 5)]
    arguments = [argument for name in found for argument in ("--group", name)]
    done = kfs("groups", half, *arguments)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == len(found) + 1


def test_a_group_that_is_not_found_is_said_to_be_in_a_partition_that_is_not_here(half: Path) -> None:
    lost = next(name for name in NAMES if partition_of(name) == 6)
    there = next(name for name in NAMES if partition_of(name) == 2)
    reason = f"no group matches '{lost}': it would be in __consumer_offsets-6, which is not here\n"
    assert refused("groups", half, "--group", lost) == f"kfs: {reason}"
    done = kfs("groups", half, "--group", lost, "--group", there)
    assert (done.returncode, reason in done.stderr.decode(), there.encode() in done.stdout) == (1, True, True)
    surely = next(f"x{number}" for number in range(99) if partition_of(f"x{number}") == 2)
    assert refused("groups", half, "--group", surely) == f"kfs: no group matches {surely!r}\n"
    assert "4 of the 8 partitions" in refused("groups", half, "--group", "nobody*")


def test_the_metadata_says_how_many_partitions_there_are(corpus: Corpus, tmp_path: Path) -> None:
    root = shutil.copytree(corpus("g_running") / "data", tmp_path / "data")
    for partition in (2, 3):
        shutil.rmtree(root / f"__consumer_offsets-{partition}")
    assert (
        "2 of the 4 partitions of __consumer_offsets are here, by the cluster's metadata; not here: 2 to 3"
        in kfs("groups", root).stderr.decode()
    )


def test_a_share_group_rests_on_where_its_shares_are_kept_too(corpus: Corpus, tmp_path: Path) -> None:
    root = shutil.copytree(corpus("d_groups") / "data", tmp_path / "data")
    assert kfs("groups", root, "--group", "share-grp").returncode == 0
    shutil.rmtree(root / "__share_group_state-22")
    done = kfs("groups", root, "--group", "share-grp")
    assert done.returncode == 1
    assert "group 'share-grp' is incomplete: " in done.stderr.decode()
    assert "__share_group_state" in done.stderr.decode()
    assert kfs("groups", root, "--group", "classic-grp").returncode == 0


def test_a_directory_without_groups_is_an_error(tmp_path: Path) -> None:
    write_partition(tmp_path / "data/orders-0", {0: dense(0, 9)})
    assert "no partition of __consumer_offsets" in refused("groups", tmp_path / "data")


def test_what_cannot_be_read_is_said_and_the_rest_is_printed(root: Path) -> None:
    log = more_of(root)
    log.append((b"\x00\x63new", b"x"), commit("late", "orders", 0, 1))
    done = kfs("groups", root)
    assert done.returncode == 1
    assert b"late\torders\t0\t1\t" in done.stdout
    assert done.stderr.decode() == "kfs: __consumer_offsets-0: offset 4: Found an unknown record type 99\n"


def test_damage_is_said_and_the_rest_is_printed(root: Path) -> None:
    log = more_of(root)
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
    more_of(root).append(commit(f"a\tb{EVIL}\n", "orders", 0, 1, metadata=EVIL))
    assert "a\\tb\\x1b[31m\\n" in {row["GROUP"] for row in rows(root)}
    for output in (printed("groups", root), printed("groups", "--json", root), on_a_terminal("groups", root)):
        assert EVIL.encode() not in output


def test_a_table_on_a_terminal_is_aligned_and_never_cut(root: Path) -> None:
    name = "a-group-whose-name-is-long-" * 5
    more_of(root).append(commit(name, "orders", 0, 1))
    text = on_a_terminal("groups", root).decode().replace("\r", "")
    lines = [line for line in text.split("\n") if "orders" in line]
    assert any(name in line for line in lines)
    assert len({line.index("orders") for line in lines}) == 1


def test_a_name_of_any_length_is_whole_in_a_pipe_and_bounded_on_a_terminal(root: Path) -> None:
    name = "g" * 30_000
    more_of(root).append(commit(name, "orders", 0, 1))
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
