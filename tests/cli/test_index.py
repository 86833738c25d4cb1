"""``kfs index``: the line indexes of closed segments, made ahead of time."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kfs.cli import index
from kfs.cli.main import main
from kfs.format.codecs import Codec
from kfs.tree.lines.index_store import LineIndexStore
from tests.cli.running import printed, refused
from tests.system.kafka_mount import KFS, KafkaMount, kfs
from tests.system.toy_broker import ToyPartition, message


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """Keep line indexes in a directory of the test's own; return what lists them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda: sorted((tmp_path / "cache").rglob("*.index"))


@pytest.fixture
def large(tmp_path: Path) -> ToyPartition:
    """A partition of three closed segments of some 300 KB and an active one."""
    partition = ToyPartition(tmp_path / "data", "large")
    for _ in range(3):
        for _ in range(3):
            offset = partition.next_offset
            partition.append([message(offset + at, os.urandom(1000)) for at in range(100)], Codec.LZ4)
        partition.roll()
    partition.append_messages(5)
    return partition


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_every_closed_segment_is_read_once(large: ToyPartition, cache: Callable[[], list[Path]], jobs: str) -> None:
    size = sum(large.file(base).stat().st_size for base in large.bases[:-1])
    root = large.directory.parent
    assert printed("index", root, "-j", jobs).decode() == (
        f"3 closed segments, {size:,} bytes: 3 read, 0 known before\n"
    )
    assert len(cache()) == 3
    assert b"0 read, 3 known before" in printed("index", root, "-j", jobs)
    written = [path.stat().st_ctime_ns for path in cache()]
    expected = b"".join(large.line(offset) for offset in large.records)
    assert printed("cat", root, "large/0/records.jsonl") == expected
    assert len(cache()) == len(written)


def test_a_segment_that_has_changed_is_read_again(large: ToyPartition, cache: Callable[[], list[Path]]) -> None:
    root = large.directory.parent
    printed("index", root)
    os.utime(large.file(0))
    assert b"1 read, 2 known before" in printed("index", root)


def test_several_log_directories_and_only_some_topics(tmp_path: Path, cache: Callable[[], list[Path]]) -> None:
    for name in ("one", "two"):
        partition = ToyPartition(tmp_path / name, name)
        partition.append([message(0, os.urandom(400_000))])
        partition.roll()
    assert b": 1 read" in printed("index", "--topic", "o*", tmp_path / "one", tmp_path / "two")
    assert b": 1 read, 1 known" in printed("index", tmp_path / "one", tmp_path / "two")


def test_damage_is_said_and_stands_in_the_table(large: ToyPartition, cache: Callable[[], list[Path]]) -> None:
    data = bytearray(large.file(0).read_bytes())
    data[100] ^= 0xFF
    large.file(0).write_bytes(data)
    done = kfs("index", large.directory.parent, "-j", "2")
    assert (done.returncode, b"3 read" in done.stdout) == (0, True)
    assert done.stderr.decode().startswith(f"kfs: {large.file(0)}: position 0: record batch with stored CRC ")


def test_what_there_was_no_room_for_is_said(
    large: ToyPartition, cache: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(large.directory.parent)
    printed("index", root)
    capacity = sum(path.stat().st_size for path in cache()) - 1
    for path in cache():
        path.unlink()
    monkeypatch.setattr(
        "kfs.tree.lines.index_store.LineIndexStore", lambda directory: LineIndexStore(directory, capacity)
    )
    done = CliRunner().invoke(main, ["index", "-j", "1", root])
    assert done.exit_code == 0
    assert done.stdout.endswith(": 3 read, 0 known before\n")
    dropped = 3 - len(cache())
    assert dropped > 0
    assert f"keeps {capacity:,} bytes at most: the line indexes of {dropped} of 3 segments didn't fit" in (done.stderr)


def test_one_in_the_background_reads_a_segment_once_although_there_is_no_room(
    large: ToyPartition, cache: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sized: list[int] = []
    monkeypatch.setattr(index, "size_segment", lambda _context, closed: sized.append(closed.base_offset))
    monkeypatch.setattr(index, "_LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(os, "nice", lambda _increment: 0)
    parents = iter([1] * 20)
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 2))
    assert CliRunner().invoke(main, ["index", "--background", str(large.directory.parent)]).exit_code == 0
    assert sized == large.bases[:-1]


def test_a_cache_that_cannot_be_written_leaves_nothing_to_do(
    large: ToyPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "can't keep line indexes there" in refused("index", large.directory.parent)
    assert "can't keep line indexes there" in refused("index", "--background", large.directory.parent)


def test_one_in_the_background_goes_with_its_parent(large: ToyPartition, cache: Callable[[], list[Path]]) -> None:
    command = f"'{KFS}' index --background '{large.directory.parent}' >/dev/null 2>&1 & echo $!; read line"
    with subprocess.Popen(["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        wait_for(lambda: len(cache()) == 3)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        shell.kill()
        wait_for(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.fuse
def test_a_mount_sizes_closed_segments_by_itself(
    large: ToyPartition, cache: Callable[[], list[Path]], tmp_path: Path
) -> None:
    mount = KafkaMount(tmp_path / "point", large.directory.parent)
    mount.start()
    try:
        assert cache() == []
        wait_for(lambda: len(cache()) == 3)
        mount.stop()
    finally:
        mount.discard()
