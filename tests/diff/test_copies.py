"""Copies of a partition: what each is said to be worth, and where they are said to part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.diff.copies import ComparedPartition, CopyReport, Offsets, State, report_on
from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.format.writer import encode_empty_batch
from kfs.log.log_dir import CLEANER_OFFSET_CHECKPOINT
from tests.expected import expected_records
from tests.log.some_logs import some_segments
from tests.logs import (
    Batch,
    batch,
    dense,
    joined,
    log_name,
    open_log,
    positions,
    record,
    records,
    set_log_start,
    write_checkpoint,
    write_log,
    write_partition,
)

Segments = Mapping[int, Sequence[Batch]]


def copy(root: Path, segments: Segments, epochs: Sequence[EpochEntry] = ()) -> Path:
    """Write one broker's copy of ``t-0``."""
    directory = write_partition(root / "t-0", segments)
    if epochs:
        (directory / "leader-epoch-checkpoint").write_bytes(encode_leader_epoch_checkpoint(epochs))
    return directory


def reported(*directories: Path) -> ComparedPartition:
    return report_on([open_log(directory) for directory in directories])


def other_of(report: ComparedPartition) -> CopyReport:
    """Return the copy that isn't to be kept."""
    assert [copy.state is State.KEEP for copy in report.copies] == [True, False]
    return report.copies[1]


def ranges(offsets: Sequence[Offsets]) -> list[tuple[int, int, int, str]]:
    return [(each.first, each.last, each.records, each.why) for each in offsets]


def test_where_segments_begin_makes_no_difference(tmp_path: Path) -> None:
    content = dense(0, 99)
    one = copy(tmp_path / "one", {0: content[:7], 35: content[7:]})
    two = copy(tmp_path / "two", {0: content[:1], 5: content[1:12], 60: content[12:]})
    report = reported(one, two)
    other = other_of(report)
    assert (other.state, other.lacks, other.only_here, other.divergence) == (State.SAME, (), (), None)
    assert not report.differs


def test_a_copy_that_ends_earlier_is_partial(tmp_path: Path) -> None:
    content = dense(0, 99)
    report = reported(copy(tmp_path / "one", {0: content[:15]}), copy(tmp_path / "two", {0: content}))
    assert report.copies[0].path == str(tmp_path / "two" / "t-0")
    other = other_of(report)
    assert (other.state, other.log_end_offset) == (State.PARTIAL, 75)
    assert ranges(other.lacks) == [(75, 99, -1, "after the end of this copy")]
    assert report.differs


def test_records_below_the_other_start_are_only_here(tmp_path: Path) -> None:
    content = dense(0, 99)
    one = copy(tmp_path / "one", {0: content}, [EpochEntry(4, 0)])
    two = copy(tmp_path / "two", {0: content}, [EpochEntry(3, 0)])
    set_log_start(tmp_path / "one", "t", 0, 42)
    report = reported(one, two)
    other = other_of(report)
    assert other.path == str(two)
    assert (other.state, other.lacks) == (State.SAME, ())
    assert ranges(other.only_here) == [(0, 41, -1, "below the log start offset of the copy to keep")]
    assert report.differs


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": b"another"}, "value"),
        ({"key": None}, "key"),
        ({"headers": ((b"h", None),)}, "headers"),
        ({"timestamp": 5, "key": b"other"}, "key, timestamp"),
    ],
)
def test_the_first_record_that_differs_is_named(
    change: dict[str, object], reason: str, codec: Codec, tmp_path: Path
) -> None:
    content = dense(0, 99, codec=codec)
    changed = [record(at) if at != 52 else replace(record(at), **change) for at in range(50, 55)]  # type: ignore[arg-type]
    altered = [*content[:10], batch(changed, codec=codec), *content[11:]]
    one = copy(tmp_path / "one", {0: content}, [EpochEntry(4, 0)])
    other = other_of(reported(one, copy(tmp_path / "two", {0: altered[:6], 30: altered[6:]})))
    assert other.state is State.DIVERGED
    assert other.divergence is not None
    assert (other.divergence.offset, other.divergence.reason) == (52, f"they differ in {reason}")
    first, second = other.divergence.first, other.divergence.second
    assert first is not None
    assert second is not None
    assert (first.file, first.position) == (str(one / log_name(0)), positions(content)[10])
    assert (second.file, second.position) == (
        str(tmp_path / "two" / "t-0" / log_name(30)),
        sum(len(each.data) for each in altered[6:10]),
    )
    assert ranges(other.only_here) == [(52, 99, -1, "at and after the divergence")]


def test_batches_of_another_leader_epoch_differ(tmp_path: Path) -> None:
    def written_in(*epochs: int) -> list[Batch]:
        return [batch(records(at * 5, at * 5 + 4), partition_leader_epoch=epoch) for at, epoch in enumerate(epochs)]

    one = copy(tmp_path / "one", {0: written_in(1, 1, 3, 3)}, [EpochEntry(1, 0), EpochEntry(3, 10)])
    two = copy(tmp_path / "two", {0: written_in(1, 1, 2, 2, 2)}, [EpochEntry(1, 0), EpochEntry(2, 10)])
    other = other_of(reported(two, one))
    assert other.path == str(two)
    assert other.divergence is not None
    assert (other.divergence.offset, other.divergence.reason) == (10, "they differ in leader epoch")
    assert other.divergence.first is not None
    assert other.divergence.second is not None
    assert (other.divergence.first.leader_epoch, other.divergence.second.leader_epoch) == (3, 2)
    assert other.leader_epochs == (EpochEntry(1, 0), EpochEntry(2, 10))


def test_an_older_epoch_that_goes_on_longer_diverges_at_the_end(tmp_path: Path) -> None:
    content = dense(0, 99)
    one = copy(tmp_path / "one", {0: content[:10]}, [EpochEntry(0, 0), EpochEntry(5, 50)])
    two = copy(tmp_path / "two", {0: content}, [EpochEntry(0, 0)])
    other = other_of(reported(one, two))
    assert (other.path, other.state) == (str(two), State.DIVERGED)
    assert other.divergence is not None
    assert other.divergence.offset == 50
    assert other.divergence.second is not None
    assert (other.divergence.second.file, other.divergence.second.position) == (
        str(two / log_name(0)),
        positions(content)[10],
    )
    assert ranges(other.only_here) == [(50, 99, -1, "at and after the divergence")]


def damaged(root: Path, content: Sequence[Batch], number: int, epochs: Sequence[EpochEntry] = ()) -> Path:
    """Write a copy of which one batch fails its CRC."""
    directory = copy(root, {0: content}, epochs)
    data = bytearray(joined(content))
    data[positions(content)[number] + len(content[number].data) - 2] ^= 0x40
    write_log(directory, 0, bytes(data))
    return directory


def test_damage_hides_records_of_the_copy_that_has_it(tmp_path: Path) -> None:
    content = dense(0, 99)
    other = other_of(reported(copy(tmp_path / "one", {0: content}), damaged(tmp_path / "two", content, 4)))
    assert other.state is State.PARTIAL
    assert ranges(other.lacks) == [(20, 24, 5, "damaged in this copy")]
    assert other.lacks[0].place is not None
    assert other.lacks[0].place.position == positions(content)[4]
    assert [problem.position for problem in other.problems] == [positions(content)[4]]


def test_a_copy_can_save_what_is_damaged_in_the_one_to_keep(tmp_path: Path) -> None:
    content = dense(0, 99)
    kept = damaged(tmp_path / "one", content, 4, [EpochEntry(7, 0)])
    report = reported(kept, copy(tmp_path / "two", {0: content}))
    other = other_of(report)
    assert (report.copies[0].path, other.state, report.differs) == (str(kept), State.SAME, True)
    assert ranges(other.only_here) == [(20, 24, 5, "damaged in the copy to keep")]
    assert other.only_here[0].completed == 5


def test_what_is_not_proven_to_be_of_the_same_history_is_not_counted(tmp_path: Path) -> None:
    content = dense(0, 99)
    kept = damaged(tmp_path / "one", content, 4, [EpochEntry(7, 0)])
    ends_with_the_damage = copy(tmp_path / "two", {0: content[:5]})
    assert [each.completed for each in other_of(reported(kept, ends_with_the_damage)).only_here] == [0]
    of_another_topic = copy(tmp_path / "three", {0: content})
    (of_another_topic / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    assert [each.completed for each in other_of(reported(kept, of_another_topic)).only_here] == [0]


def test_of_several_lost_batches_those_are_counted_that_copies_have(tmp_path: Path) -> None:
    content = dense(0, 99)
    kept = damaged(tmp_path / "one", content, 4, [EpochEntry(7, 0)])
    data = bytearray((kept / log_name(0)).read_bytes())
    data[positions(content)[-1] + 70] ^= 1
    write_log(kept, 0, bytes(data))
    other = other_of(reported(kept, copy(tmp_path / "two", {0: content})))
    assert ranges(other.only_here)[0] == (20, 24, 5, "damaged in the copy to keep")
    assert [each.completed for each in other.only_here] == [5, 0], "nothing behind the last batch proves it"


def test_records_that_are_neither_there_nor_damaged_are_missing(tmp_path: Path) -> None:
    content = dense(0, 99)
    report = reported(copy(tmp_path / "one", {0: content}), copy(tmp_path / "two", {0: content[:6], 45: content[9:]}))
    other = other_of(report)
    assert other.state is State.PARTIAL
    assert ranges(other.lacks) == [(30, 44, 15, "missing in this copy")]


def compacted(content: Sequence[Batch]) -> list[Batch]:
    """Return what compaction might leave of dense batches: every third record, and one batch emptied."""
    kept: list[Batch] = []
    for number, each in enumerate(content):
        if number == 2:
            kept.append(Batch(encode_empty_batch(each.first_offset, each.last_offset), each.records))
        elif number % 4 != 1:
            left = [one for one in each.records if one.offset % 3 == 0]
            kept.append(batch(left, base_offset=each.first_offset, last_offset=each.last_offset))
    return kept


def test_what_compaction_removed_makes_no_difference(tmp_path: Path) -> None:
    content = dense(0, 99)
    report = reported(copy(tmp_path / "one", {0: content}), copy(tmp_path / "two", {0: compacted(content)}))
    other = other_of(report)
    assert (other.state, report.differs) == (State.SAME, False)
    left = sum(one.offset % 3 == 0 for number in (0, 3, 4, 6, 7, 8, 10) for one in content[number].records)
    assert left > 0
    kept = {
        one.offset for number, each in enumerate(content) if number != 2 and number % 4 != 1 for one in each.records
    }
    gone = [at for at in range(100) if at % 3 or at not in kept]
    assert ranges(other.lacks) == [(gone[0], gone[-1], len(gone), "compacted away in this copy")]
    assert other.lacks[0].is_normal


def test_what_a_cleaner_has_been_past_is_compacted(tmp_path: Path) -> None:
    content = dense(0, 99)
    one = copy(tmp_path / "one", {0: content})
    two = copy(tmp_path / "two", {0: [*content[:3], *content[6:]]})
    assert other_of(reported(one, two)).state is State.PARTIAL
    write_checkpoint(tmp_path / "two", CLEANER_OFFSET_CHECKPOINT, {("t", 0): 30})
    other = other_of(reported(one, two))
    assert other.state is State.SAME
    assert ranges(other.lacks) == [(15, 29, 15, "compacted away in this copy")]
    write_checkpoint(tmp_path / "two", CLEANER_OFFSET_CHECKPOINT, {("t", 0): 20})
    other = other_of(reported(one, two))
    assert other.state is State.PARTIAL
    assert sorted(ranges(other.lacks)) == [
        (15, 19, 5, "compacted away in this copy"),
        (20, 29, 10, "missing in this copy"),
    ]


def test_of_many_copies_each_is_compared_with_the_one_to_keep(tmp_path: Path) -> None:
    content = dense(0, 99)
    directories = [
        copy(tmp_path / "short", {0: content[:4]}),
        copy(tmp_path / "kept", {0: content}, [EpochEntry(2, 0)]),
        copy(tmp_path / "same", {0: content}),
    ]
    report = reported(*directories)
    assert [(Path(each.path).parent.name, each.state) for each in report.copies] == [
        ("kept", State.KEEP),
        ("same", State.SAME),
        ("short", State.PARTIAL),
    ]


def test_a_copy_without_segments_lacks_all(tmp_path: Path) -> None:
    (tmp_path / "two" / "t-0").mkdir(parents=True)
    other = other_of(reported(copy(tmp_path / "one", {0: dense(0, 9)}), tmp_path / "two" / "t-0"))
    assert (other.state, ranges(other.lacks)) == (State.PARTIAL, [(0, 9, -1, "after the end of this copy")])


@pytest.mark.usefixtures("quiet")
@settings(max_examples=60)
@given(segments=some_segments(), data=st.data())
def test_any_log_equals_its_copy_cut_elsewhere_until_a_record_changes(
    segments: dict[int, list[Batch]], data: st.DataObject
) -> None:
    every = [each for content in segments.values() for each in content]
    base = next(iter(segments))
    cut = data.draw(st.integers(0, len(every) - 1))
    elsewhere = {base: every[:cut], every[cut].first_offset: every[cut:]} if cut else {base: every}
    with TemporaryDirectory() as directory:
        one = copy(Path(directory) / "one", segments)
        two = copy(Path(directory) / "two", elsewhere)
        same = other_of(reported(one, two))
        assert (same.state, same.lacks, same.only_here) == (State.SAME, (), ())

        number = data.draw(st.integers(0, len(every) - 1))
        at = data.draw(st.integers(0, len(every[number].records) - 1))
        magic = every[number].data[16]
        changed = [
            replace(each, value=b"changed") if index == at else each for index, each in enumerate(every[number].records)
        ]
        codec = Codec.NONE if len(changed) == 1 or magic == 2 else Codec.GZIP
        every[number] = batch(changed, magic=magic, codec=codec)
        three = copy(Path(directory) / "three", {base: every})
        different = other_of(reported(one, three))
        assert different.divergence is not None
        assert different.divergence.offset == changed[at].offset


def test_what_a_recovery_cost_is_what_kafka_itself_reads_before_and_after(corpus: Callable[[str], Path]) -> None:
    """Kafka's reading of every partition before it was damaged, and after a broker had recovered it, is the oracle."""
    root = corpus("g_damage")
    before = _by_partition(root, "expected_before.jsonl")
    after = _by_partition(root / "recovered-unclean", "expected.jsonl")
    seen: set[State] = set()
    for name in sorted(before.keys() - {"broken-12"}):  # a batch of magic 7: Kafka reads on as if it were 2, we don't
        other = other_of(reported(root / "before" / name, root / "recovered-unclean" / "data" / name))
        seen.add(other.state)
        here, kept = before[name], after.get(name, {})
        if not other.path.startswith(str(root / "before")):
            here, kept = kept, here
        different = [at for at in here.keys() & kept.keys() if here[at] != kept[at]]
        different += [at for at in here if at > max(kept, default=-1)]
        assert (other.divergence.offset if other.divergence else None) == min(different, default=None), name
        if not different:
            assert _are_said(here.keys() - kept.keys(), other.only_here), name
            assert _are_said(kept.keys() - here.keys(), other.lacks), name
    assert seen == {State.SAME, State.DIVERGED}


def _by_partition(directory: Path, oracle: str) -> dict[str, dict[int, Record]]:
    found: dict[str, dict[int, Record]] = {}
    for expected in expected_records(directory, oracle):
        found.setdefault(expected.file.split("/")[0], {}).setdefault(expected.record.offset, expected.record)
    return found


def _are_said(offsets: set[int], said: Sequence[Offsets]) -> bool:
    """Whether exactly those offsets were spoken of; control records and holes may lie between them."""
    spoken_of = [at for each in said for at in range(each.first, each.last + 1)]
    return offsets <= set(spoken_of) and (bool(offsets) or not spoken_of)
