"""Files cut, replaced, removed and re-created under a mount: the new truth or an error, and never a wrong record.

The kernel keeps records of closed segments without asking again: so each test reads all of them before the
change, and what it asks afterwards goes through the same paths.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.tree.node import LIVE
from tests.corpus import compare, take_manifest
from tests.mount.conftest import ONE_OF_EACH_KIND
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.expectation import line_of
from tests.system.kafka_mount import content
from tests.system.toy_broker import ToyPartition, message

pytestmark = pytest.mark.fuse

#: Within so many seconds the mount shows what is there.
PROMISE: Final = 3.0


class Changing:
    """A mounted log root with a partition that changes and one that nobody touches."""

    def __init__(self, root: Path, mount_kafka: MountKafka, front: str = "auto") -> None:
        self.root = root
        self.log = ToyPartition(root, "changing")
        for codec in (Codec.NONE, Codec.LZ4, Codec.NONE, Codec.GZIP):
            self.log.append_messages(40, codec=codec)
            self.log.roll()
        self.log.append_messages(30)
        self.quiet = ToyPartition(root, "quiet")
        self.quiet.append_messages(30)
        self.quiet.roll()
        self.quiet.append_messages(10)
        self.mounted = mount_kafka(root, front=front)
        self.read_all()

    def read_all(self) -> None:
        """Read everything twice, so that the kernel has what it may keep."""
        for _ in range(2):
            assert self.mounted.lines(self.log.name) == self.log.lines()
            assert self.has_right_segments()
            assert self.mounted.lines(self.quiet.name) == self.quiet.lines()

    def has_right_segments(self) -> bool:
        """Whether ``segment/`` and ``records.jsonl`` have what the log has, and nothing else."""
        wanted = {self.segment(base): self.log.segment_text(base) for base in self.log.bases}
        return (
            sorted(os.listdir(self.mounted.path("changing/0/segment"))) == [path.name for path in wanted]
            and {path: content(path) for path in wanted} == wanted
            and content(self.mounted.path("changing/0/records.jsonl")) == b"".join(self.log.lines().values())
        )

    def record(self, offset: int) -> Path:
        return self.mounted.path(f"changing/0/offset/{offset}.json")

    def segment(self, base_offset: int) -> Path:
        return self.mounted.path(f"changing/0/segment/{base_offset:020d}.jsonl")

    def answers(self, offsets: list[int]) -> dict[int, bytes | int]:
        return {offset: content(self.record(offset)) for offset in offsets}

    def settles(self, wanted: dict[int, bytes], gone: list[int], errors: tuple[int, ...] = (errno.ENOENT,)) -> bool:
        """Whether in time ``wanted`` is what is listed and read, and those ``gone`` answer with one of ``errors``."""

        def is_settled() -> bool:
            return (
                self.mounted.offsets(self.log.name) == sorted(wanted)
                and self.answers(sorted(wanted)) == wanted
                and set(self.answers(gone).values()) <= set(errors)
            )

        return soon(is_settled)

    def assert_others_unaffected(self) -> None:
        assert self.mounted.lines(self.quiet.name) == self.quiet.lines()
        assert self.mounted.is_alive()

    def problems(self) -> list[dict[str, object]]:
        text = self.mounted.path("changing/0/meta/problems.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def soon(condition: Callable[[], bool]) -> bool:
    return eventually(condition, PROMISE)


def answers(path: Path, *contents: bytes | int) -> bool:
    """Whether the file is soon one of these, contents or errnos."""
    return soon(lambda: content(path) in contents)


@pytest.fixture
def changing(request: pytest.FixtureRequest, tmp_path: Path, mount_kafka: MountKafka) -> Changing:
    """Through the front that keeps most, or the one that the test says."""
    return Changing(tmp_path / "log-root", mount_kafka, getattr(request, "param", "auto"))


through_each_kind_of_front: Final = pytest.mark.parametrize("changing", ONE_OF_EACH_KIND, indirect=True)


@through_each_kind_of_front
def test_a_segment_deleted_by_retention_disappears(changing: Changing) -> None:
    log = changing.log
    gone = log.delete_first_segment()
    assert gone == list(range(40))
    assert changing.settles(log.lines(), gone)
    assert answers(changing.segment(0), errno.ENOENT)
    assert soon(lambda: os.readlink(changing.mounted.path("changing/0/first.json")) == "offset/40.json")
    assert soon(changing.has_right_segments)
    changing.assert_others_unaffected()


def test_segments_deleted_one_after_another_leave_only_the_rest(changing: Changing) -> None:
    gone: list[int] = []
    while len(changing.log.bases) > 1:
        gone += changing.log.delete_first_segment()
        assert changing.settles(changing.log.lines(), gone)
    assert len(gone) == 160
    changing.assert_others_unaffected()


@through_each_kind_of_front
def test_a_file_that_is_open_can_be_read_to_its_end_after_retention(changing: Changing) -> None:
    text = changing.log.segment_text(0)
    with changing.segment(0).open("rb", buffering=0) as file:
        start = file.read(100)
        changing.log.delete_first_segment()
        assert soon(lambda: changing.mounted.offsets("changing/0")[0] == 40)
        assert start + file.read() == text
    assert answers(changing.segment(0), errno.ENOENT)
    changing.assert_others_unaffected()


@through_each_kind_of_front
def test_names_disappear_although_a_file_beside_them_is_open(changing: Changing) -> None:
    with changing.record(3).open("rb"):
        changing.log.delete_first_segment()
        assert answers(changing.segment(0), errno.ENOENT)
        assert answers(changing.record(5), errno.ENOENT)


@through_each_kind_of_front
def test_a_log_that_is_removed_takes_its_records_with_it_and_no_other(changing: Changing) -> None:
    log = changing.log
    log.file(80).unlink()
    gone = list(range(80, 120))
    kept = {offset: line for offset, line in log.lines().items() if offset not in gone}
    assert changing.settles(kept, gone, (errno.ENOENT, errno.EIO))
    assert answers(changing.segment(80), errno.ENOENT, errno.EIO)
    changing.assert_others_unaffected()


@pytest.mark.parametrize("cut", ["between batches", "inside a batch"])
def test_a_closed_log_that_is_cut_keeps_what_lies_before_the_cut(changing: Changing, cut: str) -> None:
    log = changing.log
    size = log.file(80).stat().st_size
    batch = size // 4  # equal messages in four equal batches
    kept_batches = 2
    os.truncate(log.file(80), kept_batches * batch + (0 if cut == "between batches" else batch // 2))
    gone = list(range(80 + kept_batches * 10, 120))
    kept = {offset: line for offset, line in log.lines().items() if offset not in gone}
    assert changing.settles(kept, gone, (errno.ENOENT, errno.EIO))
    changing.assert_others_unaffected()


def test_a_closed_log_that_is_emptied_is_empty(changing: Changing) -> None:
    os.truncate(changing.log.file(80), 0)
    gone = list(range(80, 120))
    kept = {offset: line for offset, line in changing.log.lines().items() if offset not in gone}
    assert changing.settles(kept, gone, (errno.ENOENT, errno.EIO))
    assert answers(changing.segment(80), b"", errno.EIO)
    changing.assert_others_unaffected()


def test_an_active_log_that_is_cut_and_written_on_shows_what_was_written(changing: Changing) -> None:
    log = changing.log
    base = log.bases[-1]
    for suffix in ("", ".index", ".timeindex"):
        os.truncate(log.file(base, suffix or ".log"), 0)
    gone = log.segment_offsets(base)
    for offset in gone:
        del log.records[offset]
    assert changing.settles(log.lines(), gone)
    log.next_offset = base
    log.append([altered(offset) for offset in range(base, base + 15)])
    assert changing.settles(log.lines(), gone[15:])
    assert soon(changing.has_right_segments)
    changing.assert_others_unaffected()


def altered(offset: int) -> Record:
    return message(offset, b"another value of %d, and longer than it was" % offset)


@through_each_kind_of_front
@pytest.mark.parametrize("how", ["renamed over", "written in place"])
def test_a_log_that_is_replaced_shows_the_new_records(changing: Changing, how: str, tmp_path: Path) -> None:
    log = changing.log
    other = ToyPartition(tmp_path / "elsewhere", "changing", first_offset=40)
    other.append([altered(offset) for offset in range(40, 80) if offset % 3])
    for suffix in (".index", ".timeindex", ".log"):
        if how == "renamed over":
            other.file(40, suffix).rename(log.file(40, suffix))
        else:
            # Shorter than it was first, as when a file is copied over another.
            log.file(40, suffix).write_bytes(other.file(40, suffix).read_bytes())
    gone = [offset for offset in range(40, 80) if offset % 3 == 0]
    wanted = {offset: line for offset, line in log.lines().items() if offset not in gone} | other.lines()
    assert changing.settles(wanted, gone)
    assert answers(changing.segment(40), other.segment_text(40))
    changing.assert_others_unaffected()


def test_an_index_can_be_cut_removed_or_overwritten_without_effect(changing: Changing) -> None:
    log = changing.log
    for base in log.bases[:-1]:
        os.truncate(log.file(base, ".index"), 5)
        os.truncate(log.file(base, ".timeindex"), 0)
    changing.read_all()
    for base in log.bases:
        log.file(base, ".index").unlink()
        log.file(base, ".timeindex").unlink()
    changing.read_all()
    for base in log.bases:
        log.file(base, ".index").write_bytes(b"\x7f\xff\x00\x10" * 500)
        log.file(base, ".timeindex").write_bytes(bytes(range(256)) * 3)
    changing.read_all()
    for number, base in enumerate(log.bases):
        log.file(base, ".index").write_bytes(bytes([0, 0, 0, 8 * number, 0, 0, 0, 77]) * 3)
    changing.read_all()
    changing.assert_others_unaffected()


def test_indexes_changed_before_anything_was_read_have_no_effect(tmp_path: Path, mount_kafka: MountKafka) -> None:
    log = ToyPartition(tmp_path / "log-root", "indexed")
    for _ in range(3):
        log.append_messages(300)
        log.roll()
    for base, damage in zip(log.bases, (b"", b"\xff" * 80, bytes(800), b"x" * 13), strict=True):
        log.file(base, ".index").write_bytes(damage)
        log.file(base, ".timeindex").write_bytes(damage)
    mounted = mount_kafka(tmp_path / "log-root")
    for offset in (899, 450, 300, 299, 0, 600, 733):
        assert mounted.path(f"indexed/0/offset/{offset}.json").read_bytes() == log.line(offset)
    assert mounted.lines("indexed/0") == log.lines()


def test_a_partition_that_is_removed_disappears(changing: Changing) -> None:
    shutil.rmtree(changing.log.directory)
    assert soon(lambda: changing.mounted.partitions() == ["quiet/0"])
    for path in (changing.record(5), changing.segment(40), changing.mounted.path("changing/0/last.json")):
        assert answers(path, errno.ENOENT)
    assert soon(lambda: not changing.mounted.path("changing").exists())
    changing.assert_others_unaffected()


@pytest.mark.skipif(
    tuple(map(int, os.uname().release.split(".")[:2])) < (6, 16), reason="this kernel keeps the names of what is open"
)
def test_a_record_that_is_open_does_not_stand_for_the_one_that_replaced_it(changing: Changing) -> None:
    old = changing.log
    with changing.record(3).open("rb") as file, changing.record(5).open("rb"):
        shutil.rmtree(old.directory)
        new = ToyPartition(changing.root, "changing")
        new.append([altered(offset) for offset in range(5)])
        new.roll()
        assert soon(lambda: content(changing.record(3)) == new.line(3))
        assert answers(changing.record(5), errno.ENOENT)
        with contextlib.suppress(OSError):  # the file is gone
            assert file.read() == old.line(3)


@through_each_kind_of_front
@pytest.mark.parametrize("how", ["removed", "renamed as Kafka does"])
def test_a_topic_that_is_made_again_shows_only_what_is_new(changing: Changing, how: str) -> None:
    old = changing.log
    if how == "removed":
        shutil.rmtree(old.directory)
    else:
        old.directory.rename(old.directory.with_name(f"changing-0.{'0a' * 16}-delete"))
    changing.log = new = ToyPartition(changing.root, "changing")
    new.append([altered(offset) for offset in range(60)])
    new.roll()
    new.append([altered(offset) for offset in range(60, 70)], Codec.ZSTD)
    assert changing.settles(new.lines(), [offset for offset in old.records if offset >= 70])
    assert soon(changing.has_right_segments)
    changing.assert_others_unaffected()
    if how != "removed":
        deleted = changing.mounted.path(f".kfs/deleted/changing/0.{'0a' * 16}-delete/offset")
        assert answers(deleted / "3.json", line_of("changing", 0, old.records[3]))


def test_records_below_a_raised_log_start_offset_disappear(changing: Changing) -> None:
    checkpoint = changing.root / "log-start-offset-checkpoint"
    for start in (13, 95):
        beside = checkpoint.with_suffix(".tmp")
        beside.write_text(f"0\n1\nchanging 0 {start}\n")
        beside.rename(checkpoint)
        gone = [offset for offset in changing.log.records if offset < start]
        for offset in gone:
            del changing.log.records[offset]
        assert changing.settles(changing.log.lines(), gone)
        base = max(base for base in changing.log.bases if base <= start)
        assert answers(changing.segment(base), changing.log.segment_text(base))
    changing.assert_others_unaffected()


def test_a_compaction_that_swaps_segments_in_shows_what_remains(changing: Changing, tmp_path: Path) -> None:
    log = changing.log
    survivors = [record for offset, record in log.records.items() if offset < 120 and offset % 7 == 0]
    cleaned = ToyPartition(tmp_path / "elsewhere", "changing")
    cleaned.append(survivors, Codec.LZ4)
    for suffix in (".log", ".index", ".timeindex"):
        # As LogCleaner does: the new one takes its place as .swap before the old ones go.
        shutil.copy(cleaned.file(0, suffix), log.directory / f"{0:020d}{suffix}.swap")
    for base in (0, 40, 80):
        for suffix in (".log", ".index", ".timeindex"):
            log.file(base, suffix).rename(log.directory / f"{base:020d}{suffix}.deleted")
    for suffix in (".log", ".index", ".timeindex"):
        (log.directory / f"{0:020d}{suffix}.swap").rename(log.file(0, suffix))
    gone = [offset for offset in log.records if offset < 120 and offset % 7]
    for offset in gone:
        del log.records[offset]
    log.bases.remove(40)
    log.bases.remove(80)
    assert changing.settles(log.lines(), gone)
    assert soon(changing.has_right_segments)
    changing.assert_others_unaffected()


def raise_log_start(changing: Changing) -> bytes:
    """Cut the first segment's records to those from offset 25 on; return the lines that remain."""
    (changing.root / "log-start-offset-checkpoint").write_text("0\n1\nchanging 0 25\n")
    return b"".join(changing.log.lines(range(25, 40)).values())


def swap(changing: Changing) -> bytes:
    """Put another file in the place of the first segment's, as a compaction does; return its lines."""
    other = ToyPartition(changing.root.parent / "elsewhere", "changing")
    other.append([altered(offset) for offset in range(0, 40, 3)], Codec.LZ4)
    for suffix in (".index", ".timeindex", ".log"):
        other.file(0, suffix).rename(changing.log.file(0, suffix))
    return other.segment_text(0)


def make_topic_again(changing: Changing) -> bytes:
    """Delete the topic and make another of that name; return the lines of its first segment."""
    shutil.rmtree(changing.log.directory)
    again = ToyPartition(changing.root, "changing")
    again.append([altered(offset) for offset in range(7)])
    again.roll()
    return again.segment_text(0)


@through_each_kind_of_front
@pytest.mark.parametrize("change", [raise_log_start, swap, make_topic_again])
def test_lines_that_somebody_holds_open_are_the_new_ones_for_everybody_else(
    changing: Changing, change: Callable[[Changing], bytes]
) -> None:
    before = changing.log.segment_text(0)
    short = changing.segment(0).with_name("0.jsonl")
    with changing.segment(0).open("rb", buffering=0) as file, short.open("rb"):
        assert file.read() == before
        wanted = change(changing)
        assert wanted != before
        assert answers(changing.segment(0), wanted)
        assert answers(short, wanted)
        assert soon(lambda: changing.segment(0).stat().st_size == len(wanted))
    changing.assert_others_unaffected()


@through_each_kind_of_front
@pytest.mark.parametrize("change", [raise_log_start, swap])
def test_lines_that_change_are_the_new_ones_within_a_second(
    changing: Changing, change: Callable[[Changing], bytes]
) -> None:
    wanted = change(changing)
    assert eventually(lambda: content(changing.segment(0)) == wanted, 1.5)


def test_the_lines_of_a_closed_segment_are_asked_for_once(changing: Changing) -> None:
    def written() -> int:
        lines = Path(f"/proc/{changing.mounted.pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("syscw:"))

    closed, active = changing.segment(0), changing.segment(changing.log.bases[-1])
    directory = os.open(closed.parent, os.O_RDONLY)  # names above are asked for after half a second
    try:
        for path in (closed, active):
            assert os.stat(path.name, dir_fd=directory).st_size
        time.sleep(2 * LIVE)
        before = written()
        for _ in range(3):
            assert os.stat(closed.name, dir_fd=directory).st_size == len(changing.log.segment_text(0))
        assert written() == before
        assert os.stat(active.name, dir_fd=directory).st_size
        assert written() > before
    finally:
        os.close(directory)


def test_damage_done_while_mounted_is_an_error_for_the_batch_that_has_it(changing: Changing) -> None:
    log = changing.log
    log.append_messages(10)
    damaged = list(log.records)[-10:]
    data = bytearray(log.active.read_bytes())
    data[-20] ^= 0xFF
    replacement = log.directory / "replacement"
    replacement.write_bytes(data)
    replacement.rename(log.active)
    log.roll()
    log.append_messages(10)
    kept = {offset: line for offset, line in log.lines().items() if offset not in damaged}
    assert changing.settles(kept, damaged, (errno.EIO,))
    assert [problem["file"] for problem in changing.problems()] == [str(log.file(160))]
    changing.assert_others_unaffected()


def test_a_table_kept_from_an_earlier_mount_is_not_believed_of_another_file(
    tmp_path: Path, mount_kafka: MountKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    values = [b"value of %d %s" % (offset, b"x" * 1000) for offset in range(500)]
    log = ToyPartition(tmp_path / "log-root", "kept")
    log.append([message(offset, value) for offset, value in enumerate(values)])
    log.roll()
    first = mount_kafka(tmp_path / "log-root")
    path = first.path("kept/0/segment/00000000000000000000.jsonl")
    size = len(log.segment_text(0))
    assert (path.stat().st_size, path.read_bytes()) == (size, log.segment_text(0))
    first.stop()
    assert list((tmp_path / "cache").rglob("*.index"))
    other = ToyPartition(tmp_path / "elsewhere", "kept")
    # As long in the log, but not in JSON, where a control character takes six.
    other.append([message(offset, value.replace(b" ", b"\x01")) for offset, value in enumerate(values)])
    status = log.file(0).stat()
    assert other.file(0).stat().st_size == status.st_size
    log.file(0).write_bytes(other.file(0).read_bytes())
    os.utime(log.file(0), ns=(status.st_atime_ns, status.st_mtime_ns))
    path = mount_kafka(tmp_path / "log-root").path("kept/0/segment/00000000000000000000.jsonl")
    assert path.stat().st_size == size + 3 * 5 * 500
    assert path.read_bytes().count(b"\\u0001of\\u0001") == 500


def test_nothing_but_the_test_changed_the_source(changing: Changing) -> None:
    changing.log.delete_first_segment()
    before = take_manifest(changing.root)
    assert changing.settles(changing.log.lines(), list(range(40)))
    changing.mounted.stop()
    assert compare(before, take_manifest(changing.root)) == []
