"""``kfs recover --mode kafka`` leaves what Kafka's own recovery left, and says what was lost."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.broker_log.file_records import FileRecords
from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import KfsError, RecoveryRefused, UnusableSource
from kfs.format.checkpoint import parse_leader_epoch_checkpoint, parse_offset_checkpoint
from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, encode_control_record
from kfs.format.layout import MAGIC_V0
from kfs.format.record import Record
from kfs.format.writer import encode_batch
from kfs.recover.kafka_mode import KafkaMode, recover_in_place
from kfs.recover.log_dir_recovery import recover_copy
from kfs.recover.report import Loss, RecoveryReport
from kfs.storage.open_files import OpenFile
from tests.corpus import compare, corpus_names, take_manifest
from tests.expected import expected_batches
from tests.log.damages import Damage, damaged, disorder, joined_parts, local_damage
from tests.log.some_logs import some_batches
from tests.logs import START, Batch, dense, joined, log_name, records, set_log_start, write_log, write_partition
from tests.recover.comparing import content_of, partitions
from tests.recover.recordings import CLEAN_MARKER, RECORDINGS, UNCLEAN, Recording
from tests.thoroughness import examples

CorpusPath = Callable[[str], Path]
EVERY_RECORDING = pytest.mark.parametrize("recording", RECORDINGS.values(), ids=RECORDINGS)


def recorded_directory(left: Path, name: str) -> Path:
    """Return what the broker made of a partition; without a topic id it found it was a stray one and renamed it."""
    return next(left.glob(f"{name}.*-stray"), left / name)


@EVERY_RECORDING
def test_everything_is_left_as_the_broker_left_it(recording: Recording, corpus: CorpusPath, tmp_path: Path) -> None:
    source, left = recording.source(corpus, tmp_path), recording.result(corpus)
    recover_copy(str(source), str(tmp_path / "output"), recording.mode(corpus))
    compared = 0
    for ours in partitions(tmp_path / "output"):
        theirs = recorded_directory(left, ours.name)
        # Deleted a minute later, which the recorded broker didn't live to see.
        recorded = {path.name for path in theirs.iterdir() if path.suffix != ".deleted"}
        assert {path.name for path in ours.iterdir()} == recorded, ours
        for path in ours.iterdir():
            if path.name == "leader-epoch-checkpoint":
                continue
            assert content_of(path) == content_of(theirs / path.name), path
            compared += 1
        check_epochs(ours, theirs)
    assert compared > 100 or recording.corpus == "g_kill9"
    check_checkpoints(tmp_path / "output", left)


def check_epochs(ours: Path, theirs: Path) -> None:
    """The broker then led the partition, in one epoch more, from where its log ended."""
    recovered, recorded = (
        parse_leader_epoch_checkpoint((directory / "leader-epoch-checkpoint").read_bytes())
        for directory in (ours, theirs)
    )
    assert recorded[: len(recovered)] == recovered, ours
    assert len(recorded) <= len(recovered) + 1
    end = max(int(path.stem) for path in [*ours.glob("*.snapshot"), *ours.glob("*.log")])
    assert all(entry.start_offset >= end for entry in recorded[len(recovered) :])


def check_checkpoints(ours: Path, theirs: Path) -> None:
    """The logs end and begin where theirs do; partitions that the broker created, or renamed, aside."""
    stray = {name.name.partition(".")[0] for name in theirs.glob("*-stray")}
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        found = parse_offset_checkpoint((ours / name).read_bytes())
        recorded = parse_offset_checkpoint((theirs / name).read_bytes())
        compared = {partition for partition in found if str(partition) not in stray}
        assert {partition: found[partition] for partition in compared} == {
            partition: recorded[partition] for partition in compared
        }, name


@pytest.mark.parametrize("recording", [UNCLEAN, CLEAN_MARKER], ids=["unclean", "clean-marker"])
def test_where_the_broker_would_not_start_every_reason_is_named_and_nothing_written(
    recording: Recording, corpus: CorpusPath, tmp_path: Path
) -> None:
    fatal = recording.fatal(corpus)
    source = recording.source(corpus, tmp_path, whole=False)
    with pytest.raises(RecoveryRefused) as refused:
        recover_copy(str(source), str(tmp_path / "output"), recording.mode(corpus))
    named = {part for line in str(refused.value).splitlines() for part in line.split("/") if part.startswith("broken-")}
    assert named == fatal != set()
    assert list((tmp_path / "output").iterdir()) == []


def test_without_the_file_that_is_to_blame_all_is_made_again(corpus: CorpusPath, tmp_path: Path) -> None:
    source = UNCLEAN.source(corpus, tmp_path, whole=False)
    before = corpus("g_damage") / "before"
    shutil.rmtree(source / "broken-4")  # a base offset that is out of range can't be put right
    (source / "broken-30" / "leader-epoch-checkpoint").unlink()
    (source / "broken-37" / log_name(7, ".txnindex")).unlink()
    recover_copy(str(source), str(tmp_path / "output"), UNCLEAN.mode(corpus))
    for path in (*(before / "broken-30").iterdir(), *(before / "broken-37").iterdir()):
        assert content_of(tmp_path / "output" / path.relative_to(before)) == content_of(path), path


@EVERY_RECORDING
def test_the_report_names_every_byte_and_offset_that_is_gone(
    recording: Recording, corpus: CorpusPath, tmp_path: Path
) -> None:
    source = recording.source(corpus, tmp_path)
    report = recover_copy(str(source), str(tmp_path / "output"), recording.mode(corpus))
    cut = {Path(loss.file): loss for loss in report.losses if "hidden" not in loss.reason}
    for log in sorted(source.glob("*/*.log")):
        left = tmp_path / "output" / log.relative_to(source)
        size = left.stat().st_size if left.exists() else 0
        if size == log.stat().st_size:
            assert log not in cut
        elif any(log.read_bytes()[size:]):
            assert (cut[log].start, cut[log].end) == (size, log.stat().st_size)
    for partition in report.partitions:
        check_offsets(partition.losses, readable(source / Path(partition.directory).name, 2**63), partition.directory)


def check_offsets(losses: list[Loss], before: set[int], directory: str) -> None:
    """Whatever a reader finds in the lost bytes lies in the lost offsets."""
    for loss in losses:
        log = Path(loss.file)
        found = offsets_between(log, loss.start, loss.end)
        told = range(loss.first_offset or 0, (loss.last_offset or -1) + 1)
        assert found <= set(told) | (before - found if "hidden" in loss.reason else set()), directory


def readable(directory: Path, end: int) -> set[int]:
    return {offset for log in directory.glob("*.log") for offset in offsets_between(log, 0, end)}


def offsets_between(log: Path, start: int, end: int) -> set[int]:
    """Return the offsets of the batches that Kafka reads from one byte to another, up to what it stumbles over."""
    found: set[int] = set()
    try:
        for header in FileRecords(OpenFile(str(log)), log.stat().st_size).headers():
            if start <= header.position < end and header.last_offset - header.base_offset < 10_000:
                found |= set(range(header.base_offset, header.last_offset + 1))
    except KfsError:
        pass
    return found


def test_all_that_was_ever_in_a_damaged_log_is_left_or_reported(corpus: CorpusPath, tmp_path: Path) -> None:
    source = UNCLEAN.source(corpus, tmp_path)
    report = recover_copy(str(source), str(tmp_path / "output"), UNCLEAN.mode(corpus))
    before: dict[str, set[int]] = {}
    for batch in expected_batches(corpus("g_damage"), "batches_before.jsonl"):
        before.setdefault(batch.file.split("/")[0], set()).update(range(batch.base_offset, batch.last_offset + 1))
    untold = {  # nothing in what is left of them tells an offset
        "broken-6": "eleven bytes of a batch",
        "broken-35": "a whole segment that wasn't there any more",
        "broken-36": "a .log that was emptied",
    }
    for partition in report.partitions:
        name = Path(partition.directory).name
        left = {offset for offset in readable(tmp_path / "output" / name, 2**63) if offset < partition.log_end_offset}
        lost = {
            offset
            for loss in partition.losses
            if loss.first_offset is not None and loss.last_offset is not None
            for offset in range(loss.first_offset, loss.last_offset + 1)
        }
        assert (before.get(name, set()) - left == lost) or name in untold, name
    assert len(untold) == 3


def undamaged() -> list[str]:
    return [name for name in corpus_names() if name not in ("g_damage", "g_kill9", "g_running")]


@pytest.mark.parametrize("name", undamaged())
def test_of_an_intact_log_nothing_is_lost(name: str, corpus: CorpusPath, tmp_path: Path) -> None:
    data = corpus(name) / "data"
    for unclean in (False, True):
        output = tmp_path / f"output-{unclean}"
        report = recover_copy(str(data), str(output), KafkaMode(ignore_clean_shutdown=unclean))
        assert report.losses == []
        for log in data.glob("*/*.log"):
            assert (output / log.relative_to(data)).read_bytes() == log.read_bytes()


def test_a_recovered_log_recovers_to_itself(corpus: CorpusPath, tmp_path: Path) -> None:
    source = UNCLEAN.source(corpus, tmp_path)
    mode = UNCLEAN.mode(corpus)
    recover_copy(str(source), str(tmp_path / "once"), mode)
    again = KafkaMode(config=mode.config, clock=mode.clock, ignore_clean_shutdown=True)
    report = recover_copy(str(tmp_path / "once"), str(tmp_path / "twice"), again)
    hidden = [loss for loss in report.losses if "broken-11/" not in loss.file]
    assert hidden == []
    for path in (tmp_path / "once").rglob("*"):
        if path.is_file():
            assert (tmp_path / "twice" / path.relative_to(tmp_path / "once")).read_bytes() == path.read_bytes(), path


def test_in_place_does_the_same_as_to_a_copy(corpus: CorpusPath, tmp_path: Path) -> None:
    source = UNCLEAN.source(corpus, tmp_path)
    mode = UNCLEAN.mode(corpus)
    copied = recover_copy(str(source), str(tmp_path / "output"), mode)
    in_place = recover_in_place(str(source), mode)
    assert in_place == copied
    ours, theirs = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (source, tmp_path / "output")
    )
    assert ours.pop(Path(".lock")) == b""
    assert ours == theirs


# --- made to order --------------------------------------------------------------------------------------------------


def recover(source: Path, tmp_path: Path) -> tuple[RecoveryReport, Path]:
    output = tmp_path / "output"
    return recover_copy(str(source), str(output), KafkaMode()), output


@given(some_batches(most=6), st.lists(local_damage | disorder, max_size=3), st.binary(max_size=40))
@settings(max_examples=examples(30, 200))
def test_whatever_is_in_a_log_it_is_cut_off_or_refused_and_reported(
    tmp_path_factory: pytest.TempPathFactory, content: list[Batch], damages: list[Damage], index: bytes
) -> None:
    root = tmp_path_factory.mktemp("hostile")
    data = joined_parts(damaged(content, damages))
    write_partition(root / "source" / "topic-0", {})
    for name, side in {log_name(0): data, log_name(0, ".index"): index, log_name(5, ".snapshot"): index}.items():
        (root / "source" / "topic-0" / name).write_bytes(side)
    try:
        report, output = recover(root / "source", root)
    except RecoveryRefused:
        return
    # More than one segment where an offset is more than an int32 away from the first: Kafka splits it there.
    left = b"".join(path.read_bytes() for path in sorted((output / "topic-0").glob("*.log")))
    assert data.startswith(left)
    cut = [(loss.start, loss.end) for loss in report.losses if "hidden" not in loss.reason]
    assert cut == ([(len(left), len(data))] if any(data[len(left) :]) else [])


def test_the_source_is_not_touched(tmp_path: Path) -> None:
    log = tmp_path / "source"
    partition = write_partition(log / "topic-0", {0: dense(0, 9), 10: dense(10, 19)})
    (partition / log_name(10)).write_bytes(joined(dense(10, 19)) + b"torn")
    before = take_manifest(log)
    report, _ = recover(log, tmp_path)
    assert len(report.losses) == 1
    assert compare(before, take_manifest(log)) == []


def test_an_output_must_be_empty_and_apart_from_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_partition(source / "topic-0", {0: dense(0, 9)})
    (tmp_path / "link").symlink_to(source)
    for output in (source, source / "inside", tmp_path, tmp_path / "link", tmp_path / "link" / "inside"):
        with pytest.raises(KfsError, match="lies in"):
            recover_copy(str(source), str(output), KafkaMode())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(KfsError, match="not empty"):
        recover_copy(str(source), str(tmp_path / "full"), KafkaMode())


def test_a_log_below_its_start_offset_is_emptied_and_reported(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_partition(source / "topic-0", {0: dense(0, 9)})
    set_log_start(source, "topic", 0, 50)
    report, output = recover(source, tmp_path)
    assert [(loss.first_offset, loss.last_offset) for loss in report.losses] == [(0, 9)]
    assert {path.name for path in (output / "topic-0").glob("*.log")} == {log_name(50)}
    assert (report.partitions[0].log_start_offset, report.partitions[0].log_end_offset) == (50, 50)


def test_segments_before_the_recovery_point_are_believed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    partition = write_partition(source / "topic-0", {0: dense(0, 9), 10: dense(10, 19)})
    data = bytearray(joined(dense(0, 9)))
    data[100] ^= 1
    (partition / log_name(0)).write_bytes(data)
    (source / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 10\n")
    report, output = recover(source, tmp_path)
    assert report.losses == []
    assert (output / "topic-0" / log_name(0)).read_bytes() == data


def test_offsets_that_go_back_empty_the_segment(tmp_path: Path) -> None:
    source = tmp_path / "source"
    partition = write_partition(source / "topic-0", {0: dense(0, 9), 10: dense(10, 999)})
    (partition / log_name(10)).write_bytes(joined(dense(10, 999) + dense(10, 999)))
    report, output = recover(source, tmp_path)
    assert [(loss.start, loss.first_offset, loss.last_offset) for loss in report.losses] == [(0, 10, 999)]
    assert (output / "topic-0" / log_name(10)).stat().st_size == 0
    assert report.partitions[0].log_end_offset == 10


@pytest.mark.parametrize("by", [1, -1, -6, 64, 1 << 20])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_what_a_wrapper_of_v0_has_for_an_offset_is_no_matter_but_for_the_end(
    codec: Codec, by: int, tmp_path: Path
) -> None:
    # tests/broker/test_wrapper_offsets.py has a broker do the same.
    *before, last = (each.data for each in dense(0, 41, 7, magic=MAGIC_V0, codec=codec))
    data = b"".join(before) + (41 + by).to_bytes(8) + last[8:]
    write_log(tmp_path / "source" / "topic-0", 0, data)
    report, output = recover(tmp_path / "source", tmp_path)
    assert report.losses == []
    assert (output / "topic-0" / log_name(0)).read_bytes() == data
    assert report.partitions[0].log_end_offset == 42 + by


def test_a_segment_whose_offsets_span_more_than_an_int32_is_split(tmp_path: Path) -> None:
    far = 2**31 + 5
    content = [*dense(0, 9), *dense(far, far + 9)]
    source = tmp_path / "source"
    write_partition(source / "topic-0", {})
    (source / "topic-0" / log_name(0)).write_bytes(joined(content))
    report, output = recover(source, tmp_path)
    assert report.losses == []
    assert (output / "topic-0" / log_name(0)).read_bytes() == joined(dense(0, 9))
    assert (output / "topic-0" / log_name(far)).read_bytes() == joined(dense(far, far + 9))
    assert report.partitions[0].log_end_offset == far + 10


def transaction(first: int, last: int) -> bytes:
    return encode_batch(records(first, last), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)


def abort(offset: int) -> bytes:
    marker = Record(offset, START, *encode_control_record(AbortMarker(0)))
    return encode_batch([marker], producer_id=7, producer_epoch=0, transactional=True, control=True)


def test_an_aborted_transaction_that_stands_twice_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_partition(source / "topic-0", {})
    (source / "topic-0" / log_name(0)).write_bytes((transaction(0, 4) + abort(5)) * 2)
    with pytest.raises(RecoveryRefused, match="ends at offset 5, not above 5"):
        recover(source, tmp_path)


def test_after_a_clean_stop_the_way_to_an_open_transaction_must_be_clear(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    log = UnifiedLog.create(str(source / "topic-0"), LogConfig(index_interval_bytes=0))
    for data in (dense(0, 4)[0].data, transaction(5, 9), dense(10, 14)[0].data):
        log.append(data)
    log.close()
    (source / ".kafka_cleanshutdown").touch()
    assert recover_copy(str(source), str(tmp_path / "whole"), KafkaMode()).losses == []
    path = source / "topic-0" / log_name(0)
    path.write_bytes(bytes(20) + path.read_bytes()[20:])
    with pytest.raises(RecoveryRefused, match="position 0: size 0"):
        recover(source, tmp_path)


def test_a_finished_compaction_wins_over_what_it_replaces(tmp_path: Path) -> None:
    source = tmp_path / "source"
    partition = write_partition(source / "topic-0", {0: dense(0, 9), 10: dense(10, 19), 20: dense(20, 29)})
    cleaned = joined([dense(0, 4)[0], dense(15, 19)[0]])
    (partition / log_name(0, ".log.swap")).write_bytes(cleaned)
    for kind in (".index", ".timeindex"):
        (partition / log_name(0, kind + ".swap")).write_bytes(b"")
    report, output = recover(source, tmp_path)
    assert report.losses == []
    assert (output / "topic-0" / log_name(0)).read_bytes() == cleaned
    assert {path.name for path in (output / "topic-0").glob("*.log*")} == {log_name(0), log_name(20)}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("lost+found/x", b""),
        ("topic-0/partition.metadata", b"version: 0\ntopic_id: not an id\n"),
        ("topic-0/leader-epoch-checkpoint", b"0\n5\n"),
        ("topic-0/notes.log", b""),
        ("recovery-point-offset-checkpoint", b"0\n5\n"),
        ("log-start-offset-checkpoint", b"0\n5\n"),
        ("replication-offset-checkpoint", b"0\n5\n"),
        ("cleaner-offset-checkpoint", b"0\n5\n"),
    ],
)
def test_what_keeps_a_broker_from_starting_is_refused(path: str, content: bytes, tmp_path: Path) -> None:
    """Each was tried on Kafka 4.3.1."""
    source = tmp_path / "source"
    write_partition(source / "topic-0", {0: dense(0, 9)})
    (source / path).parent.mkdir(exist_ok=True)
    (source / path).write_bytes(content)
    with pytest.raises(RecoveryRefused, match=path.split("/")[-1] if "found" not in path else "lost"):
        recover(source, tmp_path)


def test_deleted_topics_are_left_out_and_stray_partitions_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    hexes = "0123456789abcdef" * 2
    for name in ("topic-0", f"old-0.{hexes}-delete", f"lost-0.{hexes}-stray"):
        write_partition(source / name, {0: dense(0, 9)})
    report, output = recover(source, tmp_path)
    assert {path.name for path in partitions(output)} == {"topic-0", f"lost-0.{hexes}-stray"}
    assert [str(change) for partition in report.partitions for change in partition.changes if "left out" in change.what]


def test_a_directory_without_partitions_is_no_log_directory(tmp_path: Path) -> None:
    with pytest.raises(UnusableSource, match="no partition"):
        recover_copy(str(tmp_path), str(tmp_path / "output"), KafkaMode())


def test_one_partition_is_not_recovered_in_place(tmp_path: Path) -> None:
    """The checkpoints beside it, which are written anew, would lose what they say of the others."""
    write_partition(tmp_path / "topic-0", {0: dense(0, 9)})
    with pytest.raises(UnusableSource, match="whole log directory"):
        recover_in_place(str(tmp_path / "topic-0"), KafkaMode())


def test_a_preallocated_file_stays_sparse_on_the_way(tmp_path: Path) -> None:
    source = tmp_path / "source"
    partition = write_partition(source / "topic-0", {0: dense(0, 9)})
    with (partition / "big.bin").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
        file.seek(10_000_000)
        file.write(struct.pack(">q", 7))
    _, output = recover(source, tmp_path)
    copied = (output / "topic-0" / "big.bin").stat()
    assert copied.st_size == 64 * 1024 * 1024
    assert copied.st_blocks * 512 < 1024 * 1024
    shutil.copyfile(output / "topic-0" / "big.bin", tmp_path / "plain")
    assert (tmp_path / "plain").read_bytes() == (partition / "big.bin").read_bytes()
