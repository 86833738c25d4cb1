"""``kfs diff``: copies of partitions side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from tests.cli.running import printed
from tests.corpus import take_manifest
from tests.logs import dense, log_name, set_high_watermark, write_partition
from tests.system.kafka_mount import kfs


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Two brokers' disks: of ``t-0`` the second has less, ``t-1`` is the same, ``t-2`` is on the first only."""
    content = dense(0, 99)
    one, two = tmp_path / "one", tmp_path / "two"
    for root, kept in ((one, content), (two, content[:12])):
        write_partition(root / "t-0", {0: kept})
        write_partition(root / "t-1", {0: content[:4], 20: content[4:]})
        set_high_watermark(root, "t", 0, 60)
    write_partition(one / "t-2", {0: content})
    return one, two


def test_each_partition_is_judged_and_named(disks: tuple[Path, Path]) -> None:
    one, two = disks
    before = take_manifest(one), take_manifest(two)
    done = kfs("diff", one, two)
    assert (done.returncode, done.stderr) == (1, b"")
    size = len(b"".join(each.data for each in dense(0, 99)))
    part = len(b"".join(each.data for each in dense(0, 59)))
    assert done.stdout.decode().splitlines() == [
        "t-0: 2 copies differ",
        f"  keep     {one}/t-0",
        f"    offsets 0 to 100, leader epoch -1, {size:,} bytes",
        f"  partial  {two}/t-0",
        f"    offsets 0 to 60, leader epoch -1, {part:,} bytes",
        "    lacks offsets 60 to 99: after the end of this copy",
        "t-1: 2 copies are the same",
        f"  keep     {one}/t-1",
        f"    offsets 0 to 100, leader epoch -1, {size:,} bytes",
        f"  same     {two}/t-1",
        f"    offsets 0 to 100, leader epoch -1, {size:,} bytes",
        f"t-2: only one copy, {one}/t-2",
        "3 partitions, 5 copies: 1 the same, 2 differ",
    ]
    assert (take_manifest(one), take_manifest(two)) == before


def test_copies_that_are_the_same_are_success(disks: tuple[Path, Path], tmp_path: Path) -> None:
    one, _ = disks
    copytree(one, tmp_path / "backup")
    assert printed("diff", one, tmp_path / "backup").endswith(b"3 partitions, 6 copies: 3 the same, 0 differ\n")


def test_json_is_a_line_for_each_partition(disks: tuple[Path, Path]) -> None:
    one, two = disks
    epochs = encode_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(3, 40)])
    (one / "t-0" / "leader-epoch-checkpoint").write_bytes(epochs)
    done = kfs("diff", "--json", "--topic", "t", one, two)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["topic"], each["partition"], each["differs"]) for each in reports] == [
        ("t", 0, True),
        ("t", 1, False),
        ("t", 2, True),
    ]
    kept, partial = reports[0]["copies"]
    assert kept["leaderEpochs"] == [{"leaderEpoch": 0, "startOffset": 0}, {"leaderEpoch": 3, "startOffset": 40}]
    assert (kept["path"], kept["state"], kept["lastLeaderEpoch"]) == (f"{one}/t-0", "keep", 3)
    assert (partial["state"], partial["logEndOffset"], partial["divergence"]) == ("partial", 60, None)
    assert partial["lacks"] == [
        {
            "first": 60,
            "last": 99,
            "records": -1,
            "why": "after the end of this copy",
            "place": None,
            "isNormal": False,
            "completed": 0,
        }
    ]


def test_partition_directories_of_different_names_are_copies(disks: tuple[Path, Path], tmp_path: Path) -> None:
    one, _ = disks
    copytree(one / "t-0", tmp_path / "t-0.backup")
    assert printed("diff", one / "t-0", tmp_path / "t-0.backup").startswith(b"t-0: 2 copies are the same\n")


def test_what_cannot_be_read_is_exit_code_2(disks: tuple[Path, Path], tmp_path: Path) -> None:
    done = kfs("diff", disks[0], tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"nowhere: No such file or directory" in done.stderr


def test_a_name_that_could_drive_a_terminal_is_escaped(tmp_path: Path) -> None:
    for root in ("one", "two"):
        write_partition(tmp_path / root / "t\x1b[2J-0", {0: dense(0, 4)})
    assert b"\x1b" not in printed("diff", tmp_path / "one", tmp_path / "two")


def test_damage_is_said_once_and_hides_nothing_else(disks: tuple[Path, Path]) -> None:
    one, two = disks
    path = two / "t-1" / log_name(20)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    done = kfs("diff", "--topic", "t", one, two)
    assert done.returncode == 1
    assert done.stderr.count(str(path).encode()) == 1
    assert (
        b"    lacks offsets 20 to 24, 5 records: damaged in this copy\n    problems: 1, see kfs verify\n" in done.stdout
    )


def test_a_recovery_that_cut_nothing_cost_nothing(corpus: Callable[[str], Path]) -> None:
    """After the kill -9 every tail was whole; the broker only went on in a new leader epoch."""
    root = corpus("g_kill9")
    printed_lines = printed("diff", root / "data", root / "recovered" / "data").decode().splitlines()
    assert printed_lines[-1] == "9 partitions, 18 copies: 9 the same, 0 differ"
    kept = [line for line in printed_lines if line.startswith("  keep")]
    assert len(kept) == 9
    assert all("/recovered/" in line for line in kept)


def test_what_copies_complete_is_said(disks: tuple[Path, Path]) -> None:
    one, two = disks
    for root in disks:
        epochs = encode_leader_epoch_checkpoint([EpochEntry(0, 0), *([EpochEntry(3, 100)] if root == one else [])])
        (root / "t-1" / "leader-epoch-checkpoint").write_bytes(epochs)
    path = one / "t-1" / log_name(20)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    done = kfs("diff", "--topic", "t", one, two)
    said = (
        "    only here: offsets 20 to 24, 5 records: damaged in the copy to keep; "
        "all are read from other copies, given beside it\n"
    )
    assert said in done.stdout.decode()
    assert done.stderr.count(b"\n") == 1, "the damage"
    assert str(path).encode() in done.stderr
    reports = [json.loads(line) for line in kfs("diff", "--json", "--topic", "t", one, two).stdout.splitlines()]
    assert reports[1]["partition"] == 1
    assert [each["completed"] for each in reports[1]["copies"][1]["onlyHere"]] == [5]
    assert kfs("cat", one, "t/1", "--also", two).stdout == printed("cat", two, "t/1")
