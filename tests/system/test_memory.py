"""Directories of millions: the first entry at once, every one in its place, and memory that does not grow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.system.big_log import BATCH, VALUE, write_big_log
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount, mapped_files

pytestmark = pytest.mark.fuse

MOST: Final = 150 * 1024 * 1024

sizes: Final = pytest.mark.parametrize("count", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.long)])


@contextmanager
def big_log(directory: Path, count: int) -> Iterator[Path]:
    """A log root with one partition of ``count`` records, there for no longer than it is needed."""
    try:
        write_big_log(directory / "sensors-0", count)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def names_from(command: list[str]) -> Iterator[bytes]:
    """Yield what a command prints, line by line."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 20) as process:
        assert process.stdout is not None
        yield from process.stdout
        assert process.wait() == 0


@sizes
@pytest.mark.timeout(900)
def test_listing_millions_takes_no_memory_and_misses_none(tmp_path: Path, count: int, mount_kafka: MountKafka) -> None:
    with big_log(tmp_path / "big", count) as root:
        mounted = mount_kafka(root)
        names = names_from(["ls", "-f", str(mounted.path("sensors/0/offset"))])
        assert {next(names), next(names)} == {b".\n", b"..\n"}
        for offset in range(count):
            name = next(names)
            if name != b"%d.json\n" % offset:
                pytest.fail(f"{name!r} at the place of {offset}")
        assert next(names, None) is None
        assert mounted.peak_memory() < MOST
        mounted.stop()


@sizes
@pytest.mark.timeout(900)
def test_the_first_entry_comes_at_once(tmp_path: Path, count: int, mount_kafka: MountKafka) -> None:
    with big_log(tmp_path / "big", count) as root:
        mounted = mount_kafka(root)
        started = time.monotonic()
        with os.scandir(mounted.path("sensors/0/offset")) as listing:
            assert next(listing).name == "0.json"
        assert time.monotonic() - started < 1
        started = time.monotonic()
        last = mounted.path(f"sensors/0/offset/{count - 1}.json").read_bytes()
        assert time.monotonic() - started < 1
        assert VALUE in last
        mounted.stop()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_grep_over_many_files_takes_no_memory_and_reads_all(
    tmp_path: Path, count: int, mount_kafka: MountKafka
) -> None:
    with big_log(tmp_path / "big", count) as root:
        mounted = mount_kafka(root)
        directory = mounted.path("sensors/0/offset")
        found = [
            int(re.sub(rb".*/(\d+)\.json\n", rb"\1", name))
            for name in names_from(["grep", "-rlF", VALUE.decode(), str(directory)])
        ]
        assert sorted(found) == list(range(count))
        assert mounted.peak_memory() < MOST
        mounted.stop()


def test_a_listing_goes_on_where_it_was_left(tmp_path: Path, mount_kafka: MountKafka) -> None:
    with big_log(tmp_path / "big", 200_000) as root:
        mounted = mount_kafka(root)
        with os.scandir(mounted.path("sensors/0/offset")) as listing:
            seen = [next(listing).name for _ in range(70_001)]
            time.sleep(1.2)  # longer than anything is kept for those who come back
            seen += [entry.name for entry in listing]
        assert seen == [f"{offset}.json" for offset in range(200_000)]
        mounted.stop()


def test_a_segment_of_half_a_million_lines_is_read_in_bounded_memory(tmp_path: Path, mount_kafka: MountKafka) -> None:
    count = 500_000
    with big_log(tmp_path / "big", count) as root:
        mounted: KafkaMount = mount_kafka(root)
        path = mounted.path("sensors/0/records.jsonl")
        size = path.stat().st_size
        lines = 0
        read = 0
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                lines += chunk.count(b"\n")
                read += len(chunk)
        assert (lines, read) == (count, size)
        with path.open("rb") as file:
            file.seek(-200, os.SEEK_END)
            assert f'"offset":{count - 1},'.encode() in file.read()
        assert mounted.peak_memory() < MOST
        assert count % BATCH == 0
        mounted.stop()


#: What is large, and what the default front on Linux has no need of.
UNWANTED: Final = ("pyarrow", "pandas", "numpy", "pyspark", "fsspec", "mfusepy", "fuse", "rich")


def test_the_daemon_loads_nothing_that_it_does_not_need(
    tmp_path: Path, mount_kafka: MountKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    traps = tmp_path / "traps"
    traps.mkdir()
    sprung = tmp_path / "sprung"
    for name in UNWANTED:
        traps.joinpath(f"{name}.py").write_text(f"open({str(sprung)!r}, 'a').write({name!r})\nraise SystemExit\n")
    monkeypatch.setenv("PYTHONPATH", str(traps))
    with big_log(tmp_path / "big", 8000) as root:
        mounted = mount_kafka(root, front="kernel")
        assert not [name for name in mapped_files(mounted.pid) if name.startswith("libfuse")]
        partition = mounted.path("sensors/0")
        subprocess.run(["cp", "-rL", str(partition), str(tmp_path / "copy")], check=True)
        for name in ("records.jsonl", "value/5", "time", "at/2020-11-27.json", "raw", "../../.kfs/README"):
            assert os.path.lexists(partition / name)
        mounted.stop()
    assert not sprung.exists()
