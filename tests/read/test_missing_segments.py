"""A segment that is missing between two others is told by every view, where it is proven that one was there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

import kfs
from kfs.errors import CorruptData, KfsError, NotFound
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1, MAX_INT64
from kfs.format.producer_snapshot import encode_producer_snapshot
from kfs.internal.committed_offset import standing_of
from kfs.log.block import Cause, Damage
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import parse_directory_name
from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import DamagePolicy
from kfs.log.storage import Storage
from kfs.read.cutting import EvenSplits
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_follower import LogFollower
from kfs.read.plan import splits_of
from kfs.read.selection import Selection
from kfs.read.split_reader import SplitReader
from kfs.read.wanted_offsets import WantedOffsets
from kfs.storage.open_files import FileChanged
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.options import TreeOptions
from kfs.verify.finding import FindingKind, Severity
from tests.cat.printing import printed
from tests.corpus import corpus_names
from tests.logs import (
    Batch,
    batch,
    content_of,
    damage_in,
    dense,
    directory_at,
    file_at,
    joined,
    log_name,
    look_every_time,
    names,
    open_log,
    open_tree,
    positions,
    record,
    records_in,
    set_log_start,
    write_checkpoint,
    write_log,
    write_partition,
)
from tests.read.views import TELLING, VIEWS, Asked, all_records, tells
from tests.spark.reads import rows_of
from tests.system.kafka_mount import kfs as kfs_command
from tests.verify.checking import complaints, one, verified

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("quiet")

SUFFIXES = (".log", ".index", ".timeindex")
REASON = "offsets 20 to 39 are missing before the segment with base offset 40"
TOPIC, GAP = "t", OffsetRange(20, 40)


def say_what_is_compacted(root: Path, *partitions: tuple[str, int]) -> None:
    """Write the cleaner's checkpoint, as brokers do in every log directory."""
    write_checkpoint(root, CLEANER_OFFSET_CHECKPOINT, dict.fromkeys(partitions, 20))


def write_snapshot(root: Path, offset: int) -> Path:
    path = root / "t-0" / log_name(offset, ".snapshot")
    path.write_bytes(encode_producer_snapshot([]))
    return path


def remove(root: Path, *bases: int, topic: str = TOPIC) -> None:
    for base in bases:
        for suffix in SUFFIXES:
            (root / f"{topic}-0" / log_name(base, suffix)).unlink()


def written(root: Path, *, magic: int = 2, topic: str = TOPIC) -> Path:
    """Write five segments of twenty records each."""
    content = {base: dense(base, base + 19, magic=magic) for base in range(0, 100, 20)}
    write_partition(root / f"{topic}-0", content)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log of five segments of which the second is missing, and it is known that it isn't compacted."""
    root = written(tmp_path / "data")
    remove(root, 20)
    say_what_is_compacted(root)
    return root


def missing_in(root: Path, topic: str = TOPIC) -> list[OffsetRange]:
    """Return what is told to be missing; nothing else may be wrong."""
    found = damage_in(open_log(root / f"{topic}-0"))
    assert all(each.cause is Cause.MISSING for each in found)
    return [each.lost for each in found if each.lost is not None]


def cat(root: Path, *options: str) -> tuple[int, str]:
    done = kfs_command("cat", root, "t/0", *options)
    return done.returncode, done.stderr.decode()


# --- every view ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", TELLING)
@pytest.mark.parametrize(
    "offsets", [OffsetRange(20, 21), OffsetRange(39, 40), OffsetRange(25, 30), OffsetRange(0, 100)]
)
def test_every_view_tells_of_a_missing_segment(view, offsets: OffsetRange, root: Path) -> None:  # type: ignore[no-untyped-def]
    assert tells(view, Asked.of(root), offsets)


@pytest.mark.parametrize("view", TELLING)
@pytest.mark.parametrize("offsets", [OffsetRange(0, 20), OffsetRange(40, 100)])
def test_no_view_tells_of_it_where_it_wasn_t_asked_for(view, offsets: OffsetRange, root: Path) -> None:  # type: ignore[no-untyped-def]
    assert not tells(view, Asked.of(root), offsets)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_shows_what_is_there(view, root: Path) -> None:  # type: ignore[no-untyped-def]
    there = [*range(20), *range(40, 100)]
    assert view(Asked.of(root)) == {offset: record(offset).value for offset in there}
    assert view(Asked.of(root, isolation=IsolationLevel.READ_COMMITTED)).keys() == {*there}


def test_the_reason_is_in_the_words_of_verify(root: Path) -> None:
    (problem,) = printed(root, TOPIC)[1]
    log = root / "t-0" / log_name(0)
    reason = REASON
    assert (problem.file, problem.position, problem.size, problem.reason) == (str(log), log.stat().st_size, 0, reason)
    finding = one(complaints(verified(root)), FindingKind.OFFSET_GAP)
    assert finding.sentence.startswith(reason)
    assert finding.offsets == (20, 39)


def test_the_command_fails(root: Path) -> None:
    for options in ((), ("--offsets", "25:30"), ("-j", "2")):
        code, said = cat(root, *options)
        assert code == 1
        assert said.count("offsets 20 to 39 are missing before the segment with base offset 40") == 1
    assert cat(root, "--offsets", "0:20") == (0, "")
    assert cat(root, "--offsets", "40:") == (0, "")


def test_the_lines_have_an_empty_one_that_is_an_error_to_read(root: Path) -> None:
    lines = [*range(20), None, *range(40, 100)]
    for path, end in (("t/0/records.jsonl", 81), ("t/0/segment/0.jsonl", 21)):
        file = file_at(open_tree(root), path)
        size = file.attributes().size
        skipping = open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP))
        text = content_of(skipping, path)
        assert size == len(text) + 1
        first = len(b"".join(text.splitlines(keepends=True)[:20]))
        assert file.read(0, first) == text[:first]
        for start, length in ((0, size), (first, 1), (first - 1, 2)):
            with pytest.raises(CorruptData, match="missing before the segment with base offset 40"):
                file.read(start, length)
        assert file.read(first + 1, size) == text[first:]
        offsets = [json.loads(line)["offset"] for line in text.splitlines()]
        assert offsets == [offset for offset in lines[:end] if offset is not None]


def test_files_of_its_offsets_are_errors_and_others_are_not_there(root: Path) -> None:
    tree = open_tree(root)
    for path in ("t/0/offset/20.json", "t/0/offset/39.json", "t/0/value/30", "t/0/key/30"):
        with pytest.raises(CorruptData):
            file_at(tree, path)
    with pytest.raises(NotFound):
        file_at(tree, "t/0/offset/100.json")
    (line,) = content_of(tree, "t/0/meta/problems.jsonl").splitlines()
    assert "offsets 20 to 39 are missing" in json.loads(line)["reason"]


def test_a_position_in_it_has_a_note(root: Path) -> None:
    found = standing_of(25, None, open_log(root / "t-0"))
    assert found.next_offset == 40
    assert found.note is not None
    assert standing_of(40, None, open_log(root / "t-0")).note is None


def test_who_follows_the_log_is_told_once(root: Path) -> None:
    follower = LogFollower(open_log(root / "t-0"))
    follower.begin()
    assert [item.lost for item in follower.read_on() if hasattr(item, "lost")] == [GAP]
    assert list(follower.read_on()) == []


@pytest.mark.parametrize("size", [1, 100, 1000, 4096])
def test_exactly_one_piece_tells_it(size: int, root: Path) -> None:
    log = open_log(root / "t-0")
    for are_limits in (False, True):
        pieces = list(splits_of(log, WantedOffsets(0, 100, MAX_INT64), EvenSplits(size, are_limits)))
        found = [SplitReader(Selection()).select(log, piece.batches, piece.offsets) for piece in pieces]
        told = [problem for each in found for chosen in each for problem in chosen.problems]
        assert len(told) == 1


@pytest.mark.usefixtures("own_pool", "eager_processes")
def test_workers_tell_it_too(root: Path) -> None:
    with kfs.open(str(root), on_damage="skip") as data:
        assert data[TOPIC][0].scan(columns=["offset"], jobs=2).to_table().num_rows == 80
        assert [problem.reason for problem in data.problems] == [REASON]
    assert [problem.reason for problem in printed(root, TOPIC, jobs=2)[1]] == [REASON]
    set_log_start(root, TOPIC, 0, 40)
    assert printed(root, TOPIC, jobs=2)[1] == []


@pytest.mark.parametrize("offsets", [(0, 100), (25, 30)])
def test_a_task_of_spark_fails(offsets: tuple[int, int], root: Path) -> None:
    given = {"startingOffsets": offsets[0], "endingOffsets": offsets[1]}
    with pytest.raises(CorruptData, match="offsets 20 to 39 are missing"):
        rows_of(root, **{name: json.dumps({TOPIC: {"0": at}}) for name, at in given.items()})


# --- several copies --------------------------------------------------------------------------------------------------


def test_what_another_copy_has_is_not_missing(root: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other")
    say_what_is_compacted(other)
    for roots in ((root, other), (other, root)):
        for view in TELLING:
            assert not tells(view, Asked.of(*roots), OffsetRange(0, 100))
        for show in VIEWS:
            assert [*show(Asked.of(*roots))] == list(range(100))


def test_what_no_copy_has_is_told_once(root: Path, tmp_path: Path) -> None:
    """The other has the first half of what is missing."""
    other = written(tmp_path / "other")
    say_what_is_compacted(other)
    os.truncate(other / "t-0" / log_name(20), positions(dense(20, 39))[2])
    for roots in ((root, other), (other, root)):
        asked = Asked.of(*roots)
        assert [*all_records(asked)] == [*range(30), *range(40, 100)]
        for view in TELLING:
            assert tells(view, asked, OffsetRange(30, 40))
            assert not tells(view, asked, OffsetRange(0, 30))
        (problem,) = printed(roots, TOPIC)[1]
        assert problem.reason == "offsets 30 to 39 are missing before the segment with base offset 40"


# --- where it lies ---------------------------------------------------------------------------------------------------


def test_two_segments_in_a_row_are_one_gap(root: Path) -> None:
    remove(root, 40)
    assert missing_in(root) == [OffsetRange(20, 60)]


def test_a_gap_follows_a_wrapper_that_says_only_inside_how_far_it_reaches(tmp_path: Path) -> None:
    wrapper = batch([record(0)], magic=1, codec=Codec.LZ4)
    write_partition(tmp_path / "t-0", {0: [wrapper], 2: dense(2, 9)})
    say_what_is_compacted(tmp_path)
    assert missing_in(tmp_path) == [OffsetRange(1, 2)]
    for view in TELLING:
        assert tells(view, Asked.of(tmp_path), OffsetRange(1, 2)), view.__name__


def test_two_gaps_are_two(root: Path) -> None:
    remove(root, 60)
    assert missing_in(root) == [GAP, OffsetRange(60, 80)]
    assert len(printed(root, TOPIC)[1]) == 2


@pytest.mark.parametrize("size", ["boundary", "nothing"])
def test_a_segment_that_was_cut_at_a_boundary_is_no_other_case(size: str, tmp_path: Path) -> None:
    root = written(tmp_path)
    say_what_is_compacted(root)
    at = positions(dense(20, 39))[2] if size == "boundary" else 0
    os.truncate(root / "t-0" / log_name(20), at)
    start = 30 if at else 20
    assert missing_in(root) == [OffsetRange(start, 40)]
    tree = open_tree(root)
    text = content_of(open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP)), "t/0/records.jsonl")
    file = file_at(tree, "t/0/records.jsonl")
    for _ in range(3):
        assert file.attributes().size == len(text) + 1
    segment = file_at(tree, "t/0/segment/20.jsonl")
    assert segment.attributes().size == segment.attributes().size
    with pytest.raises(CorruptData):
        segment.read(segment.attributes().size - 1, 1)
    assert [each.lost for each in damage_in(open_log(root / "t-0"))] == [OffsetRange(start, 40)]


def test_damage_at_the_end_of_the_segment_before_reaches_over_it(root: Path) -> None:
    path = root / "t-0" / log_name(0)
    path.write_bytes(path.read_bytes()[:-1])
    (damage,) = damage_in(open_log(root / "t-0"))
    assert (damage.cause, damage.lost) == (Cause.TRUNCATED, OffsetRange(15, 40))
    assert len(printed(root, TOPIC)[1]) == 1


@pytest.mark.parametrize("field", [20, 26, 60])
def test_damage_in_the_neighbours_doesn_t_hide_it(field: int, root: Path) -> None:
    """Neither what a broken header says of its offsets: byte 26 is of the last offset, 60 of the number of records."""
    for base in (0, 40):
        path = root / "t-0" / log_name(base)
        data = bytearray(path.read_bytes())
        data[positions(dense(base, base + 19))[1] + field] ^= 8
        path.write_bytes(data)
    lost = [each.lost for each in damage_in(open_log(root / "t-0"))]
    assert lost == [OffsetRange(5, 10), GAP, OffsetRange(45, 50)]


def test_a_log_start_in_the_gap_bounds_what_is_missing(root: Path) -> None:
    set_log_start(root, TOPIC, 0, 30)
    assert missing_in(root) == [OffsetRange(30, 40)]
    assert len(printed(root, TOPIC)[1]) == 1
    file = file_at(open_tree(root), "t/0/records.jsonl")
    with pytest.raises(CorruptData):
        file.read(0, 1)


@pytest.mark.parametrize("start", [40, 50])
def test_what_is_below_the_log_start_is_not_missed(start: int, root: Path) -> None:
    set_log_start(root, TOPIC, 0, start)
    assert missing_in(root) == []
    assert printed(root, TOPIC)[1] == []
    tree = open_tree(root)
    assert len(content_of(tree, "t/0/records.jsonl").splitlines()) == 100 - start
    assert len(content_of(tree, ".kfs/deleted/t/0/records.jsonl").splitlines()) == start - 20


def test_the_first_and_the_last_segment_are_not_missed(tmp_path: Path) -> None:
    root = written(tmp_path)
    say_what_is_compacted(root)
    remove(root, 0, 80)
    assert missing_in(root) == []


# --- the proof -------------------------------------------------------------------------------------------------------


def is_silent(root: Path, topic: str = TOPIC) -> bool:
    """Whether no view tells of anything."""
    asked = Asked.of(root, topic=topic)
    silent = [not tells(view, asked, OffsetRange(0, 100)) for view in TELLING]
    assert len({*silent}) == 1
    file = file_at(open_tree(root), f"{topic}/0/records.jsonl")
    try:
        lines = file.read(0, MAX_INT64).splitlines()
    except CorruptData:
        lines = [b""]
    assert all(lines) == silent[0]
    return silent[0]


def rewrite(root: Path, base: int, content: list[Batch]) -> None:
    for suffix in SUFFIXES:
        (root / "t-0" / log_name(base, suffix)).unlink()
    write_partition(root / "t-0", {base: content})


def test_without_the_cleaner_s_checkpoint_nothing_is_proven(root: Path) -> None:
    (root / CLEANER_OFFSET_CHECKPOINT).unlink()
    assert is_silent(root)


def test_a_checkpoint_that_can_t_be_read_proves_nothing(root: Path) -> None:
    (root / CLEANER_OFFSET_CHECKPOINT).write_bytes(b"0\n7\n")
    assert is_silent(root)


def test_an_empty_checkpoint_is_that_of_a_broker_that_has_compacted_nothing(root: Path) -> None:
    (root / CLEANER_OFFSET_CHECKPOINT).write_bytes(b"")
    assert not is_silent(root)


def test_of_a_compacted_log_nothing_is_proven(root: Path) -> None:
    say_what_is_compacted(root, (TOPIC, 0))
    assert is_silent(root)


def test_of_another_partition_s_compaction_it_isn_t_spoken(root: Path) -> None:
    say_what_is_compacted(root, (TOPIC, 1), ("other", 0))
    assert not is_silent(root)


def test_kafka_s_own_topics_are_compacted(tmp_path: Path) -> None:
    topic = "__consumer_offsets"
    root = written(tmp_path, topic=topic)
    say_what_is_compacted(root)
    remove(root, 20, topic=topic)
    assert is_silent(root, topic)


HOLES = {
    "in a batch": lambda base: [batch([record(base), record(base + 2)]), *dense(base + 3, base + 19)],
    "between batches": lambda base: [*dense(base, base + 4), *dense(base + 7, base + 19)],
    "at the beginning": lambda base: dense(base + 1, base + 19),
}


@pytest.mark.parametrize("hole", HOLES)
@pytest.mark.parametrize("base", [0, 40, 80])
def test_holes_tell_of_compaction(hole: str, base: int, root: Path) -> None:
    """A follower of a leader whose log is compacted begins its segments with the first batch that there is."""
    content: list[Batch] = HOLES[hole](base)
    rewrite(root, base, content)
    assert is_silent(root)


@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1])
def test_messages_of_the_old_formats_are_no_other_case(magic: int, tmp_path: Path) -> None:
    root = written(tmp_path, magic=magic)
    remove(root, 20)
    say_what_is_compacted(root)
    assert not is_silent(root)
    (root / "t-0" / log_name(40)).write_bytes(joined(dense(40, 50, magic=magic) + dense(53, 59, magic=magic)))
    assert is_silent(root)


@pytest.mark.parametrize("suffix", [".cleaned", ".swap"])
def test_what_the_cleaner_is_just_writing_tells_of_compaction(suffix: str, root: Path) -> None:
    """It says in its checkpoint what is compacted when it is done with all of a log."""
    write_log(root / "t-0", 80, joined(dense(80, 99)), f".log{suffix}")
    assert is_silent(root)


def test_a_segment_that_a_broker_has_deleted_is_not_lost(tmp_path: Path) -> None:
    root = written(tmp_path)
    say_what_is_compacted(root)
    path = root / "t-0" / log_name(20)
    path.rename(f"{path}.deleted")
    assert is_silent(root)


def test_a_snapshot_proves_it_where_no_checkpoint_can(root: Path) -> None:
    (root / CLEANER_OFFSET_CHECKPOINT).unlink()
    write_snapshot(root, 20)
    assert not is_silent(root)
    rewrite(root, 40, HOLES["in a batch"](40))
    assert is_silent(root)
    assert one(verified(root), FindingKind.OFFSET_GAP).severity is Severity.INFO


def test_a_snapshot_of_each_segment_proves_it_of_a_compacted_log(root: Path) -> None:
    say_what_is_compacted(root, (TOPIC, 0))
    for base in (20, 40, 60, 80):
        os.utime(write_snapshot(root, base), ns=(2**61, 2**61))
    assert not is_silent(root)
    (root / "t-0" / log_name(60, ".snapshot")).unlink()
    assert is_silent(root)
    assert one(verified(root), FindingKind.OFFSET_GAP).severity is Severity.INFO


def test_segments_that_were_named_one_by_one_have_no_gaps(root: Path) -> None:
    paths = sorted((root / "t-0").glob("*.log"))
    with kfs.open(*map(str, paths)) as data:
        assert len(list(data[TOPIC][0].read())) == 80


def test_a_partition_directory_that_was_set_aside_has_no_gaps(root: Path) -> None:
    (root / "t-0").rename(root / "t-0.5d1bd3a2bba24e0ba4bb4f0d9e0c6b1a-delete")
    with kfs.open(str(root)) as data:
        assert list(data.problems) == []
    tree = open_tree(root)
    (name,) = names(directory_at(tree, ".kfs/deleted/t"))
    assert all(content_of(tree, f".kfs/deleted/t/{name}/records.jsonl").splitlines())


# --- what changes ----------------------------------------------------------------------------------------------------


def test_a_change_of_the_proof_makes_it_another_segment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    log = open_log(root / "t-0")
    before = log.segments[0]
    assert [each.lost for each in damage_in(log)] == [GAP]
    say_what_is_compacted(root, (TOPIC, 0))
    assert damage_in(log) == []
    assert log.segments[0].slot != before.slot
    assert list(log.problems) == []
    say_what_is_compacted(root)
    assert [each.lost for each in damage_in(log)] == [GAP]


def test_lines_that_are_read_stay_what_they_are_or_are_another_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_every_time(monkeypatch)
    tree = open_tree(root, options=TreeOptions(on_damage=DamagePolicy.FAIL))
    opened = file_at(tree, "t/0/segment/0.jsonl")
    size = opened.attributes().size
    first = opened.read(0, size - 1)
    say_what_is_compacted(root, (TOPIC, 0))
    assert opened.read(0, size - 1) == first
    tree.context.text._chunks.clear()
    with pytest.raises(FileChanged):
        opened.read(0, size - 1)
    assert content_of(tree, "t/0/segment/0.jsonl") == first


def test_a_kept_table_doesn_t_outlive_a_change_of_the_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfs.tree.lines.text.WORTH_KEEPING", 0)
    root = written(tmp_path / "data")
    remove(root, 20)
    store = LineIndexStore(str(tmp_path / "lines"))

    def size() -> int:
        tree = open_tree(root, options=TreeOptions(index_store=lambda: store))
        for entry in sorted((root / "t-0").glob("*.log")):
            file_at(tree, f"t/0/segment/{int(entry.stem)}.jsonl").attributes()
        return file_at(tree, "t/0/segment/0.jsonl").attributes().size

    for name in (None, ((TOPIC, 0),), (), None, ()):
        if name is None:
            (root / CLEANER_OFFSET_CHECKPOINT).unlink(missing_ok=True)
        else:
            say_what_is_compacted(root, *name)
        text = content_of(open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP)), "t/0/segment/0.jsonl")
        assert size() == len(text) + (name == ())
        assert size() == len(text) + (name == ())


def test_a_chunk_of_lines_that_is_full_at_the_end_of_the_segment_has_the_line_once(tmp_path: Path) -> None:
    """A chunk ends with a block: the one that ends where the log does is the one that the empty line is in."""
    root = tmp_path / "data"
    large = [batch([record(at, b"x" * 40_000) for at in (first, first + 1)]) for first in range(0, 8, 2)]
    write_partition(root / "t-0", {0: large, 20: dense(20, 29), 40: dense(40, 49)})
    remove(root, 20)
    say_what_is_compacted(root)
    text = content_of(open_tree(root, options=TreeOptions(on_damage=DamagePolicy.SKIP)), "t/0/records.jsonl")
    tree = open_tree(root)
    file = file_at(tree, "t/0/records.jsonl")
    size = file.attributes().size
    assert size == len(text) + 1
    end = len(b"".join(text.splitlines(keepends=True)[:8]))
    assert file.read(0, end) == text[:end]
    assert file.read(end + 1, size) == text[end:]
    with pytest.raises(CorruptData):
        file.read(end, 1)


def test_retention_that_reaches_the_gap_is_no_loss(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The segment is looked for again before what is behind it is believed to be lost."""
    log = open_log(root / "t-0")
    walk = log.segments[0].walk()
    assert next(walk)
    path = root / "t-0" / log_name(0)
    path.rename(f"{path}.deleted")
    with pytest.raises(KfsError):
        list(walk)
    assert list(log.problems) == []


def test_a_segment_that_comes_back_ends_the_gap(root: Path) -> None:
    log = open_log(root / "t-0")
    walk = log.segments[0].walk()
    assert next(walk)
    write_partition(root / "t-0", {20: dense(20, 39)})
    with pytest.raises(KfsError):
        list(walk)
    assert list(log.problems) == []
    log.look_again()
    assert damage_in(log) == []


def steps_of_a_first_compaction(root: Path) -> Iterator[str]:
    """Merge the first three segments into the first batch, as ``LocalLog.replaceSegments`` does, and say what was done.

    What is left has no holes. The time of the merged segment is that of the last one that it is made of.
    """
    directory = root / "t-0"
    merged = write_partition(root.parent / "cleaned", {0: dense(0, 4)})
    last_written = (directory / log_name(40)).stat().st_mtime_ns
    for suffix in SUFFIXES:
        path = merged / log_name(0, suffix)
        os.utime(path, ns=(last_written, last_written))
        path.rename(directory / log_name(0, f"{suffix}.cleaned"))
        yield f"0{suffix}.cleaned"
    for suffix in SUFFIXES:
        (directory / log_name(0, f"{suffix}.cleaned")).rename(directory / log_name(0, f"{suffix}.swap"))
        yield f"0{suffix}.swap"
    for base, suffix in product((0, 20, 40), SUFFIXES):
        path = directory / log_name(base, suffix)
        path.rename(f"{path}.deleted")
        yield f"{path.name}.deleted"
    for suffix in SUFFIXES:
        (directory / log_name(0, f"{suffix}.swap")).rename(directory / log_name(0, suffix))
        yield f"0{suffix}"
    for base in (20, 40):
        (directory / log_name(base, ".snapshot")).unlink()
        yield f"{base}.snapshot"
    say_what_is_compacted(root, (TOPIC, 0))
    yield "checkpoint"
    for base, suffix in product((0, 20, 40), SUFFIXES):
        (directory / log_name(base, f"{suffix}.deleted")).unlink()
        yield f"{base}{suffix} is gone"


def test_a_first_compaction_is_at_no_time_taken_for_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    root = written(tmp_path / "data")
    say_what_is_compacted(root)
    for base in range(20, 100, 20):
        begun = (root / "t-0" / log_name(base - 20)).stat().st_mtime_ns + 1
        os.utime(write_snapshot(root, base), ns=(begun, begun))
        os.utime(root / "t-0" / log_name(base), ns=(begun + 1, begun + 1))
    followed = open_log(root / "t-0")
    for step in steps_of_a_first_compaction(root):
        for log in (followed, open_log(root / "t-0")):
            assert damage_in(log) == [], step
            assert not [problem for problem in log.problems if "missing" in problem.reason], step
    assert [one.offset for one in records_in(followed)] == [*range(5), *range(60, 100)]


def test_retention_is_at_no_time_taken_for_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    root = written(tmp_path / "data")
    say_what_is_compacted(root)
    followed = open_log(root / "t-0")
    for base, suffix in product(range(0, 80, 20), SUFFIXES):
        path = root / "t-0" / log_name(base, suffix)
        path.rename(f"{path}.deleted")
        for log in (followed, open_log(root / "t-0")):
            assert damage_in(log) == []


# --- what real brokers left behind -----------------------------------------------------------------------------------


def log_directories(path: Path) -> list[Path]:
    """Return the log directories in a corpus."""
    found = {each.parent.parent for each in path.rglob("*.log") if parse_directory_name(each.parent.name)}
    return sorted(each for each in found if not parse_directory_name(each.name))


@pytest.mark.parametrize("name", corpus_names())
def test_of_recorded_logs_it_is_told_what_verify_says(name: str, corpus: Callable[[str], Path]) -> None:
    for root in log_directories(corpus(name)):
        gaps = [each for each in complaints(verified(root)) if each.kind is FindingKind.OFFSET_GAP]
        told: dict[str, tuple[int, int]] = {}
        for log in DataDir([str(root)], Storage()).logs():
            for segment, item in log.walk(OffsetRange(0, MAX_INT64)):
                if isinstance(item, Damage) and item.cause is Cause.MISSING:
                    following = os.path.join(log.directory.path, log_name(segment.next_base_offset or 0))
                    told[following] = (item.after + 1, item.before - 1)
        assert told == {each.file: each.offsets for each in gaps}
        assert not told or name == "g_damage"


def test_a_segment_that_ends_before_one_that_is_not_listed_proves_nothing(tmp_path: Path) -> None:
    log = open_log(write_partition(tmp_path / "t-0", {0: dense(0, 4)}))
    [segment] = log.segments
    segment.next_base_offset = 10  # as recovery sets it, which arranges segments by itself
    assert damage_in(log) == []
