"""Salvage: every batch that is intact is kept, what isn't is named exactly, and a broker could start on the rest."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import KfsError, RecoveryRefused
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2
from kfs.log.block import Block, Cause
from kfs.log.log_dir import CHECKPOINTS, CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, LogDir
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problems
from kfs.log.storage import Storage
from kfs.recover.kafka_mode import KafkaMode
from kfs.recover.log_dir_recovery import Mode, recover_copy
from kfs.recover.salvage import EXTRA
from kfs.recover.salvage_mode import SalvageMode
from tests.log.damages import Damage, damaged, disorder, joined_parts, local_damage
from tests.log.some_logs import some_batches
from tests.logs import (
    Batch,
    batch,
    damage_in,
    dense,
    joined,
    log_name,
    open_log,
    positions,
    record,
    records,
    records_in,
    set_log_start,
    write_checkpoint,
    write_log,
    write_partition,
)
from tests.recorded_damage import DAMAGED, CorpusPath, intact_records, messages_by_directory
from tests.recover.recordings import CONFIG
from tests.recover.salvaging import check_cover, partition, salvage
from tests.system.kafka_mount import kfs
from tests.thoroughness import examples
from tests.verify.checking import complaints, verified

pytestmark = pytest.mark.usefixtures("quiet")
ID = "0123456789abcdef0123456789abcdef"


def test_every_intact_record_of_damaged_partitions_is_kept(corpus: CorpusPath, tmp_path: Path) -> None:
    report = salvage(corpus(DAMAGED) / "data", tmp_path / "out")
    assert len(report.partitions) == 43
    for each in report.partitions:
        check_cover(each)
        name = Path(each.directory).name
        log = open_log(tmp_path / "out" / name)
        kept = {one.offset: one for one in records_in(log)}
        assert kept == intact_records(corpus, name), name
        for damage in damage_in(log):  # what is gone from between two segments, the copy hasn't either, and it was said
            assert damage.cause is Cause.MISSING
            is_said = any(sentence.startswith(damage.problem.reason) for sentence in each.consequences)
            lost = {(loss.first_offset, loss.last_offset) for loss in each.losses}
            assert is_said or (damage.after + 1, damage.before - 1) in lost, name
    damaged_ones = {Path(each.directory).name for each in report.partitions if each.losses}
    assert len(damaged_ones) > 10
    assert "broken-0" not in damaged_ones  # which is whole


@pytest.mark.parametrize("mode", [SalvageMode(config=CONFIG, storage=Storage()), KafkaMode(config=CONFIG)])
def test_a_partition_alone_becomes_what_it_becomes_among_others(mode: Mode, corpus: CorpusPath, tmp_path: Path) -> None:
    """Its log start is said by the checkpoint beside it, and of what it loses is told how far reading has come."""
    source, read = corpus("c_clean") / "data", 0

    def advance(done: int) -> None:
        nonlocal read
        read += done

    recover_copy(str(source), str(tmp_path / "whole"), mode)
    for path in sorted(source.glob("*-*/")):
        alone = tmp_path / path.name
        report = recover_copy(str(path), str(alone), mode, advance)
        assert [Path(each.directory) for each in report.partitions] == [path]
        shutil.copytree(alone, tmp_path / "joined", dirs_exist_ok=True)
        assert LogDir(str(alone), Problems()).checkpoint(LOG_START_OFFSET_CHECKPOINT).items() <= (
            LogDir(str(tmp_path / "whole"), Problems()).checkpoint(LOG_START_OFFSET_CHECKPOINT).items()
        )
    assert read == sum(path.stat().st_size for path in source.glob("*/*.log"))
    for path in tmp_path.glob("whole/*/*"):
        assert (tmp_path / "joined" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()


def test_what_is_salvaged_costs_a_broker_nothing(corpus: CorpusPath, tmp_path: Path) -> None:
    salvage(corpus(DAMAGED) / "data", tmp_path / "out")
    mode = KafkaMode(config=CONFIG, clock=lambda: 0, ignore_clean_shutdown=True)
    report = recover_copy(str(tmp_path / "out"), str(tmp_path / "again"), mode)
    assert report.losses == []
    for name in (path.name for path in (tmp_path / "out").iterdir() if path.is_dir()):
        for path in (tmp_path / "out" / name).glob("*.*"):
            assert (tmp_path / "again" / name / path.name).read_bytes() == path.read_bytes(), path


def test_what_recovery_has_deleted_can_be_brought_back(corpus: CorpusPath, tmp_path: Path) -> None:
    """The broker dropped every segment behind a bad batch; only what it cut off is gone for good."""
    source = corpus(DAMAGED) / "recovered-unclean" / "data"
    salvage(source, tmp_path / "out", undelete=True)
    before = messages_by_directory(corpus(DAMAGED) / "expected_before.jsonl")
    for name in ("broken-2", "broken-7"):
        kept = {one.offset: one for one in records_in(open_log(tmp_path / "out" / name))}
        assert kept.items() <= before[name].items()
        assert kept.keys() > {one.offset for one in records_in(open_log(source / name))}
        assert max(kept) == max(before[name])


def source_of(tmp_path: Path, data: bytes, base_offset: int = 0) -> Path:
    write_log(tmp_path / "data" / "t-0", base_offset, data)
    return tmp_path / "data"


def test_batches_that_overlap_are_beside_the_log(tmp_path: Path) -> None:
    content = [batch(records(0, 9)), batch(records(5, 14)), batch(records(15, 19))]
    report = partition(salvage(source_of(tmp_path, joined(content)), tmp_path / "out"))
    assert [(loss.set_aside, loss.first_offset, loss.last_offset) for loss in report.losses] == [(True, 5, 14)]
    assert (tmp_path / "out" / "t-0" / EXTRA / log_name(0)).read_bytes() == content[1].data
    assert (tmp_path / "out" / "t-0" / log_name(0)).read_bytes() == content[0].data + content[2].data


def test_a_segment_of_which_nothing_is_left_is_not_there(tmp_path: Path) -> None:
    source = tmp_path / "data"
    write_partition(source / "t-0", {base: dense(base, base + 9) for base in (0, 10, 20)})
    write_log(source / "t-0", 10, b"\xa5" * 500)
    report = partition(salvage(source, tmp_path / "out"))
    assert [(loss.first_offset, loss.last_offset) for loss in report.losses] == [(10, 19)]
    assert not (tmp_path / "out" / "t-0" / log_name(10)).exists()
    assert [one.offset for one in records_in(open_log(tmp_path / "out" / "t-0"))] == [*range(10), *range(20, 30)]


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1, MAGIC_V2])
def test_a_consumer_gets_to_the_end_of_what_is_left(magic: int, tmp_path: Path) -> None:
    source = tmp_path / "data"
    content = dense(0, 76, magic=magic)
    whole = write_partition(source / "t-0", {0: content, 77: []}) / log_name(0)
    whole.write_bytes(whole.read_bytes()[:-1] + b"?")
    report = partition(salvage(source, tmp_path / "out"))
    lost = range(report.losses[0].first_offset or 0, 77)
    log = open_log(tmp_path / "out" / "t-0")
    assert [one.offset for one in records_in(log)] == [*range(lost.start)]
    if magic == MAGIC_V2:
        what = "an empty record batch leads to the end of the log at 77"
        assert (report.log_end_offset, log.log_end_offset) == (77, 77)
        *_, last = [item.header for _, item in log.walk(OffsetRange(0, 100)) if isinstance(item, Block)]
        assert (last.base_offset, last.last_offset, last.record_count) == (lost.start, 76, 0)
    else:
        what = f"the log ends at {lost.start} instead of 77, and brokers assign these offsets again"
        assert (report.log_end_offset, log.log_end_offset) == (lost.start, lost.start)
    assert report.consequences == [f"no record is left of offsets {lost.start} to 76: {what}"]
    assert damage_in(log) == []
    assert complaints(verified(tmp_path / "out")) == []


def test_what_consumers_do_not_start_below_needs_no_end(tmp_path: Path) -> None:
    source = tmp_path / "data"
    whole = write_partition(source / "t-0", {0: dense(0, 76), 77: []}) / log_name(0)
    whole.write_bytes(whole.read_bytes()[:-1] + b"?")
    set_log_start(source, "t", 0, 77)
    report = partition(salvage(source, tmp_path / "out"))
    assert (report.log_start_offset, report.log_end_offset, report.consequences) == (77, 77, [])


def test_a_segment_of_which_there_is_no_file_is_said_to_be_missing(tmp_path: Path) -> None:
    content = dense(0, 29)
    source = tmp_path / "source"
    write_partition(source / "t-0", {0: content[:2], 20: content[4:]})
    sentence = "offsets 10 to 19 are missing before the segment with base offset 20: no file has them"
    for checkpoint, said in (({}, [sentence]), ({("t", 0): 10}, [])):
        write_checkpoint(source, CLEANER_OFFSET_CHECKPOINT, checkpoint)
        report = partition(salvage(source, tmp_path / f"out {len(said)}"))
        assert report.consequences == said
        assert report.losses == []


def test_a_partition_of_which_nothing_is_left_begins_where_it_began(tmp_path: Path) -> None:
    report = partition(salvage(source_of(tmp_path, b"\xa5" * 500, 40), tmp_path / "out"))
    assert (report.log_start_offset, report.log_end_offset, len(report.losses)) == (40, 40, 1)


def test_checkpoints_are_kept_within_what_is_left(tmp_path: Path) -> None:
    content = dense(0, 29)
    source = source_of(tmp_path, joined(content)[: positions(content)[4] + 20])
    set_log_start(source, "t", 0, 7)
    write_checkpoint(source, "replication-offset-checkpoint", {("t", 0): 30})
    write_checkpoint(source, CLEANER_OFFSET_CHECKPOINT, {("t", 0): 10})
    report = partition(salvage(source, tmp_path / "out"))
    assert (report.log_start_offset, report.log_end_offset) == (7, 20)
    read = {
        name: (tmp_path / "out" / name).read_text().splitlines()[2:]
        for name in (
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
            "log-start-offset-checkpoint",
            CLEANER_OFFSET_CHECKPOINT,
        )
    }
    assert list(read.values()) == [["t 0 20"], ["t 0 20"], ["t 0 7"], ["t 0 10"]]
    assert (tmp_path / "out" / ".kafka_cleanshutdown").exists()


def test_what_cannot_be_read_beside_the_segments_is_left_out_and_said(tmp_path: Path) -> None:
    source = source_of(tmp_path, joined(dense(0, 9)))
    (source / "t-0" / "leader-epoch-checkpoint").write_bytes(b"garbage")
    (source / "t-0" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (source / "log-start-offset-checkpoint").write_bytes(b"0\n9\n")
    (source / "lost+found").mkdir()
    report = salvage(source, tmp_path / "out")
    said = {Path(change.file).name: change.what for change in (*report.changes, *partition(report).changes)}
    assert "left out: at byte 0" in said["leader-epoch-checkpoint"]
    assert "ignored: at byte" in said["log-start-offset-checkpoint"]
    assert said["lost+found"] == "left out: not a valid name for a partition directory"
    assert report.losses == []
    copied = tmp_path / "out" / "t-0" / "partition.metadata"
    assert copied.read_bytes() == (source / "t-0" / "partition.metadata").read_bytes()


def test_snapshots_of_the_cluster_metadata_are_copied(corpus: CorpusPath, tmp_path: Path) -> None:
    source = corpus("e_meta") / "data"
    salvage(source, tmp_path / "out")
    snapshots = sorted((source / "__cluster_metadata-0").glob("*.checkpoint"))
    assert snapshots
    for path in snapshots:
        assert (tmp_path / "out" / "__cluster_metadata-0" / path.name).read_bytes() == path.read_bytes()


# --- undelete -------------------------------------------------------------------------------------------------------


def delete_segment(directory: Path, base_offset: int) -> None:
    for path in directory.glob(f"{base_offset:020d}.*"):
        path.rename(f"{path}.deleted")


def test_what_was_deleted_stays_deleted_unless_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", {base: dense(base, base + 9) for base in (0, 10, 20)})
    write_partition(source / f"gone-0.{ID}-delete", {0: dense(0, 4)})
    delete_segment(directory, 0)
    set_log_start(source, "t", 0, 15)
    assert partition(salvage(source, tmp_path / "out")).log_start_offset == 15
    assert not list((tmp_path / "out").glob("gone*"))
    report = salvage(source, tmp_path / "all", undelete=True)
    assert partition(report).log_start_offset == 0
    assert [one.offset for one in records_in(open_log(tmp_path / "all" / "t-0"))] == list(range(30))
    assert [one.offset for one in records_in(open_log(tmp_path / "all" / "gone-0"))] == list(range(5))
    assert report.losses == []


def test_epochs_of_what_comes_back_are_those_of_its_batches(tmp_path: Path) -> None:
    def of_epoch(first: int, epoch: int) -> list[Batch]:
        return [batch(records(first, first + 9), partition_leader_epoch=epoch)]

    source = tmp_path / "data"
    directory = write_partition(source / "t-0", {0: of_epoch(0, 1), 10: of_epoch(10, 4)})
    checkpoint = encode_leader_epoch_checkpoint([EpochEntry(4, 10)])
    (directory / "leader-epoch-checkpoint").write_bytes(checkpoint)
    delete_segment(directory, 0)
    salvage(source, tmp_path / "out", undelete=True)
    lines = (tmp_path / "out" / "t-0" / "leader-epoch-checkpoint").read_text().splitlines()
    assert lines == ["0", "2", "1 0", "4 10"]


def test_deleted_segments_that_overlap_the_log_are_beside_it(tmp_path: Path) -> None:
    source = tmp_path / "data"
    directory = write_partition(source / "t-0", {base: dense(base, base + 9) for base in (0, 10, 20)})
    for base in (0, 10):
        delete_segment(directory, base)
    write_partition(directory, {0: [batch([record(3), record(14)], base_offset=0, last_offset=19)]})
    report = partition(salvage(source, tmp_path / "out", undelete=True))
    assert [one.offset for one in records_in(open_log(tmp_path / "out" / "t-0"))] == [3, 14, *range(20, 30)]
    beside = tmp_path / "out" / "t-0" / EXTRA
    assert sorted(path.name for path in beside.iterdir()) == [log_name(0, ".deleted.log"), log_name(10, ".deleted.log")]
    assert (beside / log_name(10, ".deleted.log")).read_bytes() == joined(dense(10, 19))
    assert sum("set aside in extra/" in change.what for change in report.changes) == 2


def test_a_deleted_topic_does_not_take_the_place_of_one_that_is_there(tmp_path: Path) -> None:
    source = tmp_path / "data"
    write_partition(source / "t-0", {0: dense(0, 4)})
    write_partition(source / f"t-0.{ID}-delete", {0: dense(0, 9)})
    report = salvage(source, tmp_path / "out", undelete=True)
    assert len(records_in(open_log(tmp_path / "out" / "t-0"))) == 5
    assert "another of that name exists" in partition(report, f"t-0.{ID}-delete").changes[0].what


# --- any damage -----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(20, 150))
@given(content=some_batches(1000), done=st.lists(local_damage | disorder, min_size=1, max_size=4), closed=st.booleans())
def test_whatever_was_done_to_a_segment_a_broker_starts_on_what_is_left(
    content: Sequence[Batch], done: Sequence[Damage], closed: bool
) -> None:
    data = joined_parts(damaged(content, done))
    with tempfile.TemporaryDirectory() as name:
        source = source_of(Path(name), data, 1000)
        if closed:
            end = content[-1].last_offset + 1
            write_log(source / "t-0", end, batch([record(end)]).data)
        report = partition(salvage(source, Path(name) / "out"))
        check_cover(report)
        mode = KafkaMode(config=CONFIG, clock=lambda: 0, ignore_clean_shutdown=True)
        assert recover_copy(str(Path(name) / "out"), str(Path(name) / "again"), mode).losses == []


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The paths in it can't be opened from now on, nor listed."""
    paths: set[str] = set()
    really = {"open": os.open, "listdir": os.listdir, "scandir": os.scandir}

    def refuse(name: str) -> Callable[..., object]:
        def refused(path: object, *arguments: object, **options: object) -> object:
            if path in paths:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return really[name](path, *arguments, **options)  # type: ignore[operator]

        return refused

    for name in really:
        monkeypatch.setattr(os, name, refuse(name))
    return paths


@pytest.mark.parametrize("what", ["", log_name(0), log_name(10), log_name(20)])
def test_a_partition_that_can_t_be_read_is_left_out_and_the_others_are_recovered(
    what: str, unreadable: set[str], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for name in ("t-0", "t-1", "u-0"):
        write_partition(source / name, {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})
    unreadable.add(str(source / "t-1" / what) if what else str(source / "t-1"))
    mode = SalvageMode(config=CONFIG, clock=lambda: 0, storage=Storage())
    report = recover_copy(str(source), str(tmp_path / "out"), mode)
    assert report.losses == []
    (left_out,) = report.left_out
    assert left_out.directory == str(source / "t-1")
    assert left_out.left_out is not None
    assert "Input/output error" in left_out.left_out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*CHECKPOINTS, "t-0", "u-0"])
    assert [each.offset for each in records_in(open_log(tmp_path / "out" / "u-0"))] == list(range(30))
    assert any(change.file.endswith(".kafka_cleanshutdown") for change in report.changes)


def test_where_kafka_could_not_read_a_log_it_would_not_start(unreadable: set[str], tmp_path: Path) -> None:
    for name in ("t-0", "t-1"):
        write_partition(tmp_path / "source" / name, {0: dense(0, 9)})
    unreadable.add(str(tmp_path / "source" / "t-0" / log_name(0)))
    with pytest.raises(RecoveryRefused, match="Input/output error"):
        recover_copy(str(tmp_path / "source"), str(tmp_path / "out"), KafkaMode(config=CONFIG))
    assert list((tmp_path / "out").iterdir()) == []


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize(
    "change",
    [
        lambda root: append(root / "t-0" / log_name(0)),
        lambda root: write_partition(root / "u-0", {10: dense(10, 19)}),
        lambda root: (root / "t-0" / log_name(0)).rename(root / "t-0" / log_name(0, ".log.deleted")),
    ],
)
@pytest.mark.parametrize("mode", [SalvageMode(config=CONFIG, storage=Storage()), KafkaMode(config=CONFIG)])
def test_a_log_that_changes_while_it_is_copied_is_of_a_broker_that_runs(
    mode: Mode, change: Callable[[Path], object], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for name in ("t-0", "u-0"):
        write_partition(source / name, {0: dense(0, 9)})
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        if not done:
            change(source)
        done += 1

    with pytest.raises(KfsError, match="changed while it was copied: a broker seems to have it open"):
        recover_copy(str(source), str(tmp_path / "out"), mode, advance)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_report_is_json_that_names_every_stretch(tmp_path: Path) -> None:
    content = dense(0, 14)
    data = bytearray(joined(content))
    data[-1] ^= 1
    source = source_of(tmp_path, bytes(data) + bytes(100))
    assert kfs("recover", source, "-o", tmp_path / "out").returncode == 1
    lines = (tmp_path / "out" / "kfs-recovery-report.jsonl").read_text().splitlines()
    (report,) = [each for each in map(json.loads, lines) if "segments" in each]
    (segment,) = report["segments"]
    start = positions(content)[2]
    fates = [(each["position"], each["end"], each["fate"]) for each in segment["stretches"]]
    assert fates == [(0, start, "kept"), (start, len(data), "lost"), (len(data), len(data) + 100, "padding")]
