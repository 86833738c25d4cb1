"""``kfs verify``: what it prints, and the exit code."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.corpus import compare, take_manifest
from tests.logs import dense, log_name, write_partition
from tests.system.kafka_mount import KFS, kfs

CorpusPath = Callable[[str], Path]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A partition with a byte changed in its second batch."""
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    path = directory / log_name(0)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    return directory


def test_a_clean_log_ends_with_zero_and_a_summary(tmp_path: Path) -> None:
    size = sum(len(one.data) for one in dense(0, 9))
    write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    done = kfs("verify", tmp_path / "t-0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"1 segments, {size} bytes, 2 batches, 10 records: 0 errors, 0 warnings, 0 info\n"


def test_findings_end_with_one_and_a_line_each(damaged: Path) -> None:
    done = kfs("verify", damaged)
    assert (done.returncode, done.stderr) == (1, b"")
    *lines, summary = done.stdout.decode().splitlines()
    first = len(dense(0, 4)[0].data)
    expected = f"error   batch-crc {damaged}/{log_name(0)}, bytes {first} to {2 * first}, offsets 5 to 9: record batch"
    assert [line[: len(expected)] for line in lines] == [expected]
    assert summary.endswith("1 batches, 5 records: 1 error, 0 warnings, 0 info")


def test_information_alone_ends_with_zero(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    (directory / "notes.txt").touch()
    done = kfs("verify", directory)
    assert done.returncode == 0
    assert done.stdout.startswith(b"info    stray-file ")


def test_what_can_t_be_looked_at_ends_with_two(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        done = kfs("verify", path)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(f"kfs: {path}".encode())


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_json_has_a_finding_a_line_and_the_summary_last(damaged: Path, jobs: str) -> None:
    done = kfs("verify", "--json", "-j", jobs, damaged)
    assert done.returncode == 1
    finding, summary = map(json.loads, done.stdout.splitlines())
    size = len(dense(0, 4)[0].data)
    assert {**finding, "sentence": ""} == {
        "kind": "batch-crc",
        "severity": "error",
        "file": str(damaged / log_name(0)),
        "startByte": size,
        "endByte": 2 * size,
        "firstOffset": 5,
        "lastOffset": 9,
        "sentence": "",
    }
    assert summary == {
        "summary": {
            "segments": 1,
            "bytes": 2 * size,
            "batches": 1,
            "records": 5,
            "findings": {"error": 1, "warning": 0, "info": 0},
            "clean": False,
        }
    }


def test_topics_can_be_chosen_and_batches_bounded(tmp_path: Path, damaged: Path) -> None:
    write_partition(tmp_path / "u-0", {0: dense(0, 9)})
    assert kfs("verify", tmp_path, "--topic", "u").returncode == 0
    assert kfs("verify", tmp_path).returncode == 1
    done = kfs("verify", tmp_path / "u-0", "--max-batch-bytes", "100")
    assert done.returncode == 1
    assert b"batch-too-large" in done.stdout


def test_names_can_t_drive_a_terminal(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9)})
    (directory / "\x1b[31mred").touch()
    done = kfs("verify", directory)
    assert b"\x1b" not in done.stdout
    assert b"red" in done.stdout


@pytest.fixture
def read_only(corpus: CorpusPath, tmp_path: Path) -> Iterator[Path]:
    """A copy of a damaged log directory that can't be written to."""
    root = tmp_path / "copy"
    shutil.copytree(corpus("g_damage") / "data", root)
    paths = [root, *root.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(modes[path] & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield root
    for path in paths:
        path.chmod(modes[path])


def test_nothing_is_written_to_what_is_checked(read_only: Path) -> None:
    for path in [read_only, *read_only.rglob("*")]:
        os.utime(path, ns=(1_600_000_000_000_000_000, 1_600_000_000_000_000_000))
    before = take_manifest(read_only)
    assert kfs("verify", read_only).returncode == 1
    assert kfs("verify", *sorted(read_only.glob("broken-1/0*"))).returncode == 1
    assert compare(before, take_manifest(read_only)) == []


def on_terminal(*arguments: str | Path, stdout: int | None) -> bytes:
    """Run a command whose standard error is a terminal, and its output too unless it goes to ``stdout``."""
    master, terminal = pty.openpty()
    process = subprocess.Popen([KFS, *arguments], stdout=terminal if stdout is None else stdout, stderr=terminal)
    os.close(terminal)
    shown = bytearray()
    with suppress(OSError):  # how the end of a terminal shows
        while data := os.read(master, 65536):
            shown += data
    os.close(master)
    process.wait(30)
    return bytes(shown)


def test_a_terminal_gets_a_bar_and_the_output_stays_where_it_goes(damaged: Path, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        shown = on_terminal("verify", damaged, stdout=output.fileno())
    assert b"checking" in shown
    assert b"batch-crc" not in shown
    assert (tmp_path / "output").read_bytes() == kfs("verify", damaged).stdout
    shown = on_terminal("verify", damaged, stdout=None)
    assert b"checking" in shown
    assert b"batch-crc" in shown
