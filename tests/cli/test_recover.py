"""``kfs recover`` from the command line: what it prints, asks and returns."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import printed, refused
from tests.corpus import compare, take_manifest
from tests.logs import dense, joined, log_name, positions, write_partition
from tests.system.kafka_mount import kfs

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "ab")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock as a broker does, in another process."""
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """A log directory whose last batch isn't complete."""
    partition = write_partition(tmp_path / "data" / "topic-0", {0: dense(0, 9)})
    (partition / log_name(0)).write_bytes(joined(dense(0, 9))[:-7])
    return tmp_path / "data"


def test_a_whole_log_is_copied_without_a_loss(tmp_path: Path) -> None:
    write_partition(tmp_path / "data" / "topic-0", {0: dense(0, 9)})
    told = printed("recover", tmp_path / "data", "--output", tmp_path / "copy").decode().splitlines()
    assert told[-1] == "1 partitions, 0 losses"
    assert (tmp_path / "copy" / "topic-0" / log_name(0)).read_bytes() == joined(dense(0, 9))


def test_a_loss_is_told_and_returned(torn: Path, tmp_path: Path) -> None:
    done = kfs("recover", torn, "--output", tmp_path / "copy")
    assert (done.returncode, done.stderr) == (1, b"")
    size = len(dense(5, 9)[0].data)
    start = len(dense(0, 4)[0].data)
    path = torn / "topic-0" / log_name(0)
    expected = (
        f"LOST {path}: bytes {start} to {start + size - 7}, offsets 5 to 9: an incomplete batch at the end of the log"
    )
    assert expected in done.stdout.decode().splitlines()


def test_the_report_is_there_for_programs(torn: Path, tmp_path: Path) -> None:
    done = kfs("recover", torn, "--output", tmp_path / "copy", "--json")
    *changes, partition = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(change.keys() == {"file", "what"} for change in changes)
    assert (partition["logStartOffset"], partition["logEndOffset"]) == (0, 5)
    assert [(loss["firstOffset"], loss["lastOffset"]) for loss in partition["losses"]] == [(5, 9)]
    assert (tmp_path / "copy" / "kfs-recovery-report.jsonl").read_bytes() == done.stdout


def test_what_a_broker_would_not_start_on_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "data" / "topic-0", {0: dense(0, 9)})
    (tmp_path / "data" / "lost+found").mkdir()
    reason = refused("recover", tmp_path / "data", "--output", tmp_path / "copy", "--mode", "kafka")
    assert "a broker would not start on this" in reason
    assert "lost+found" in reason


def test_one_place_to_write_to_is_named(torn: Path, tmp_path: Path) -> None:
    both = kfs("recover", torn, "--in-place", "--output", tmp_path / "copy")
    for done in (kfs("recover", torn), both):
        assert done.returncode == 2
        assert b"--output" in done.stderr


def test_in_place_asks_first(torn: Path) -> None:
    before = take_manifest(torn)
    assert kfs("recover", torn, "--in-place").returncode == 1  # nobody there to answer
    assert compare(before, take_manifest(torn)) == []
    assert kfs("recover", torn, "--in-place", "--yes").returncode == 1  # five records are lost
    assert (torn / "topic-0" / log_name(0)).read_bytes() == joined(dense(0, 4))


def test_in_place_leaves_a_log_alone_that_a_broker_has_open(torn: Path) -> None:
    with (torn / ".lock").open("ab") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert "a broker has it open" in refused("recover", torn, "--in-place", "--yes")


@pytest.mark.parametrize("mode", ["salvage", "kafka"])
@pytest.mark.parametrize("path", [".", "topic-0"])
def test_what_a_broker_has_open_isn_t_copied(mode: str, path: str, torn: Path, tmp_path: Path) -> None:
    (torn / ".lock").touch()
    before = take_manifest(torn)
    with held(torn / ".lock"):
        reason = refused("recover", torn / path, "--output", tmp_path / "copy", "--mode", mode)
    assert f"{torn}: a broker has it open: stop the broker first" in reason.replace("/.:", ":")
    assert not (tmp_path / "copy").exists()
    assert compare(before, take_manifest(torn)) == []
    assert kfs("recover", torn / path, "--output", tmp_path / "copy", "--mode", mode).returncode == 1  # a torn tail
    assert (tmp_path / "copy" / ".kafka_cleanshutdown").exists()


def test_what_another_copy_still_has_is_taken_and_told(tmp_path: Path) -> None:
    content = dense(0, 14)
    for name in ("one", "two"):
        write_partition(tmp_path / name / "topic-0", {0: content})
    path = tmp_path / "one" / "topic-0" / log_name(0)
    data = bytearray(path.read_bytes())
    data[positions(content)[1] + 70] ^= 1
    path.write_bytes(data)
    assert kfs("recover", tmp_path / "one", "--output", tmp_path / "alone").returncode == 1
    told = printed("recover", tmp_path / "one", "--also", tmp_path / "two", "-o", tmp_path / "copy").decode()
    source = tmp_path / "two" / "topic-0" / log_name(0)
    start, end = positions(content)[1:3]
    assert f"TAKEN offsets 5 to 9 of {path} from {source}: bytes {start} to {end}" in told.splitlines()
    assert (tmp_path / "copy" / "topic-0" / log_name(0)).read_bytes() == joined(content)
    line = (tmp_path / "copy" / "kfs-recovery-report.jsonl").read_text().splitlines()[-1]
    assert json.loads(line)["taken"] == [
        {"file": str(path), "firstOffset": 5, "lastOffset": 9, "source": str(source), "start": start, "end": end}
    ]


def test_other_copies_are_for_salvage_and_have_to_be_some(torn: Path, tmp_path: Path) -> None:
    done = kfs("recover", torn, "--also", torn, "--output", tmp_path / "copy", "--mode", "kafka")
    assert (done.returncode, b"--also" in done.stderr) == (2, True)
    assert "nowhere" in refused("recover", torn, "--also", tmp_path / "nowhere", "--output", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
