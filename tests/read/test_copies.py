"""Copies of one history complete each other, and no copy of another history is mixed in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.log.block import Block
from kfs.log.completion import COMPLETED
from kfs.log.data_dir import DataDir
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import DamagePolicy
from kfs.log.storage import Storage
from kfs.storage.descriptors import BUDGET
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.options import TreeOptions
from tests.logs import (
    batch,
    dense,
    directory_at,
    joined,
    log_name,
    look_every_time,
    names,
    open_tree,
    positions,
    record,
    records,
    write_log,
    write_partition,
)
from tests.read.oracle.cases import try_cases
from tests.read.oracle.judging import shown_by_all
from tests.read.views import TELLING, Asked, Shown, read_file, tells
from tests.system.kafka_mount import kfs as run_kfs
from tests.thoroughness import examples

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.timeout(examples(300, 3600))
def test_what_one_copy_has_lost_is_read_from_another() -> None:
    try_cases("copies", examples(110, 1500))


@pytest.mark.timeout(examples(300, 3600))
def test_nothing_comes_from_another_history_and_nothing_that_compaction_took_away() -> None:
    try_cases("histories", examples(50, 1500))


def broken(root: Path, position: int, base: int = 0) -> None:
    path = root / "t-0" / log_name(base)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two brokers' copies of 60 records in batches of ten."""
    content = dense(0, 59, 10)
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", {0: content})
    return [tmp_path / "one", tmp_path / "two"]


CONTENT = dense(0, 59, 10)


def offsets_of(shown: Shown) -> list[int]:
    return list(shown)


def test_each_batch_is_lost_in_one_copy(two: list[Path]) -> None:
    for number in range(5):
        broken(two[number % 2], positions(CONTENT)[number] + 70)
    for roots in (two, two[::-1]):
        asked = Asked.of(*roots)
        assert offsets_of(shown_by_all(asked)) == list(range(60))
        for view in TELLING:
            assert not tells(view, asked, OffsetRange(0, 60)), view.__name__


def test_a_batch_of_one_record_at_offset_0_comes_once(tmp_path: Path) -> None:
    content = [*dense(0, 0), *dense(1, 40, 10)]
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", {0: content})
    broken(tmp_path / "one", positions(content)[2] + 70)
    assert offsets_of(shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two"))) == list(range(41))


def test_what_both_have_lost_is_told(two: list[Path]) -> None:
    for root in two:
        broken(root, positions(CONTENT)[2] + 70)
    broken(two[0], positions(CONTENT)[1] + 70)
    asked = Asked.of(*two)
    assert offsets_of(shown_by_all(asked)) == [*range(20), *range(30, 60)]
    for view in TELLING:
        assert tells(view, asked, OffsetRange(25, 26)), view.__name__
        assert not tells(view, asked, OffsetRange(0, 20)), view.__name__


def test_a_copy_with_other_records_completes_nothing_from_where_they_differ(tmp_path: Path) -> None:
    """A clone that went on by itself: ids and epochs are the same."""
    other = [*CONTENT[:3], *(batch([record(at, b"another %d" % at) for at in range(n, n + 10)]) for n in (30, 40, 50))]
    write_partition(tmp_path / "one" / "t-0", {0: CONTENT})
    write_partition(tmp_path / "two" / "t-0", {0: other})
    for number in (1, 3):
        broken(tmp_path / "one", positions(CONTENT)[number] + 70)
    shown = shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two"))
    assert offsets_of(shown) == [*range(30), *range(40, 60)]
    assert all(shown[offset] == record(offset).value for offset in shown)


def test_a_copy_without_the_topic_id_completes_nothing(two: list[Path]) -> None:
    (two[0] / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: q_u86jCSxfmhCmzvxJCVOQ")
    broken(two[0], positions(CONTENT)[1] + 70)
    assert offsets_of(shown_by_all(Asked.of(*two))) == [*range(10), *range(20, 60)]
    shutil.copy(two[0] / "t-0" / "partition.metadata", two[1] / "t-0")
    assert offsets_of(shown_by_all(Asked.of(*two))) == list(range(60))


def test_nothing_proves_that_the_end_of_a_log_is_the_same(two: list[Path]) -> None:
    broken(two[0], positions(CONTENT)[5] + 70)
    data_dir = DataDir([str(root) for root in two], Storage())
    log = data_dir.log("t", 0)
    assert log is not None
    assert log.directory.path == str(two[1] / "t-0")  # it is read further
    assert offsets_of(shown_by_all(Asked.of(*two))) == list(range(60))


def test_a_segment_that_was_cut_is_completed(tmp_path: Path) -> None:
    segments = {0: CONTENT[:3], 30: CONTENT[3:]}
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", segments)
    path = tmp_path / "one" / "t-0" / log_name(0)
    path.write_bytes(path.read_bytes()[: positions(CONTENT)[1] + 20])
    assert offsets_of(shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two"))) == list(range(60))


def three_segments(*roots: Path) -> list[Path]:
    """Write copies of 60 records in three segments of twenty."""
    for root in roots:
        write_partition(root / "t-0", {0: CONTENT[:2], 20: CONTENT[2:4], 40: CONTENT[4:]})
    return list(roots)


def gone(root: Path, base: int) -> None:
    (root / "t-0" / log_name(base)).unlink()


def test_segments_that_are_gone_are_completed(tmp_path: Path) -> None:
    one, two, three = three_segments(*(tmp_path / name for name in ("one", "two", "three")))
    gone(one, 20)
    gone(two, 0)
    broken(three, positions(CONTENT[:2])[1] + 70)
    broken(three, positions(CONTENT[2:4])[0] + 70, 20)
    for roots in ((one, two), (two, one), (one, two, three), (three, two, one)):
        asked = Asked.of(*roots)
        assert offsets_of(shown_by_all(asked)) == list(range(60)), roots
        for view in TELLING:
            assert not tells(view, asked, OffsetRange(0, 60)), (roots, view.__name__)
    assert offsets_of(shown_by_all(Asked.of(one, three))) == [*range(20), *range(30, 60)]


def test_a_copy_that_begins_within_what_is_lost_completes_the_rest(tmp_path: Path) -> None:
    one, two = three_segments(tmp_path / "one", tmp_path / "two")
    write_log(one / "t-0", 0, joined(CONTENT[:1]))
    gone(one, 20)
    gone(two, 0)
    shown = Asked.of(one, two)
    assert offsets_of(shown_by_all(shown)) == [*range(10), *range(20, 60)]
    for view in TELLING:
        assert not tells(view, shown, OffsetRange(20, 60)), view.__name__


def test_messages_that_become_one_block_are_listed_once(tmp_path: Path) -> None:
    """What is lost comes from another copy while a listing goes over it."""
    content = dense(0, 9, magic=1)
    roots = [tmp_path / name for name in ("one", "two")]
    for root in roots:
        write_partition(root / "t-0", {0: content, 10: dense(10, 19)})
    broken(roots[0], positions(content)[1] + 30)
    with Asked.of(*roots).tree() as tree:
        assert names(directory_at(tree, "t/0/offset")) == [f"{offset}.json" for offset in range(20)]


def test_what_a_copy_has_no_trace_of_comes_from_a_third(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root in roots:
        write_partition(root / "t-0", {0: CONTENT})
    for number in (1, 2):
        broken(roots[0], positions(CONTENT)[number] + 70)
    write_log(roots[1] / "t-0", 0, joined([CONTENT[0], *CONTENT[2:]]))
    assert offsets_of(shown_by_all(Asked.of(*roots))) == list(range(60))


def test_of_a_log_that_is_not_compacted_no_compacted_copy_is_taken_first(tmp_path: Path) -> None:
    roots = three_segments(*(tmp_path / name for name in ("one", "two", "three")))
    gone(roots[0], 20)
    kept = [batch([each for each in one.records if each.offset % 3], base_offset=one.first_offset) for one in CONTENT]
    write_log(roots[1] / "t-0", 20, joined(kept[2:4]))
    (roots[1] / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    assert offsets_of(shown_by_all(Asked.of(*roots))) == list(range(60))


def test_a_batch_that_goes_beyond_what_is_lost_brings_nothing_back(tmp_path: Path) -> None:
    content = dense(0, 59, 10, magic=0, codec=Codec.SNAPPY)
    compacted = [content[0], content[1], batch([record(24)], magic=0, codec=Codec.SNAPPY), *content[3:]]
    for name, each in (("one", compacted), ("two", content)):
        write_partition(tmp_path / name / "t-0", {0: each[:5], 50: each[5:]})
    (tmp_path / "one" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 50\n")
    broken(tmp_path / "one", positions(compacted)[1] + 40)
    shown = offsets_of(shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two")))
    assert shown == [*range(20), 24, *range(30, 60)]


def test_a_batch_that_begins_before_what_is_lost_brings_nothing_back(tmp_path: Path) -> None:
    content = dense(0, 59, 10, magic=1, codec=Codec.SNAPPY)
    compacted = [content[0], batch([record(at) for at in range(12, 18)], magic=1, codec=Codec.SNAPPY), *content[2:]]
    for name, each in (("one", compacted), ("two", content)):
        write_partition(tmp_path / name / "t-0", {0: each[:5], 50: each[5:]})
    (tmp_path / "one" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 50\n")
    write_log(tmp_path / "one" / "t-0", 0, joined(compacted[:2]) + b"junk" * 10 + joined(compacted[2:5]))
    shown = offsets_of(shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two")))
    assert shown == [*range(10), *range(12, 18), *range(20, 60)]


def test_a_segment_that_is_gone_is_among_the_problems(tmp_path: Path) -> None:
    one, two = three_segments(tmp_path / "one", tmp_path / "two")
    gone(one, 20)
    log = DataDir([str(one), str(two)], Storage()).log("t", 0)
    assert log is not None
    assert [segment.base_offset for segment in log.segments] == [0, 40]
    [problem] = log.problems
    size = sum(len(each.data) for each in CONTENT[:2])
    assert (problem.file, problem.position) == (str(one / "t-0" / log_name(0)), size)
    assert problem.reason.endswith(f"between offsets 19 and 40 is read from {two / 't-0' / log_name(20)}")


def test_a_gap_that_compaction_may_have_left_is_none(tmp_path: Path) -> None:
    one, two = three_segments(tmp_path / "one", tmp_path / "two")
    gone(one, 20)
    (one / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 40\n")
    assert offsets_of(shown_by_all(Asked.of(one, two))) == [*range(20), *range(40, 60)]
    (one / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    assert offsets_of(shown_by_all(Asked.of(one, two))) == list(range(60))


def test_a_segment_goes_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    one, two = three_segments(tmp_path / "one", tmp_path / "two")
    log = DataDir([str(one), str(two)], Storage()).log("t", 0)
    assert log is not None
    assert log.find(25) is not None
    gone(one, 20)
    log.storage.cache.clear()
    assert [segment.base_offset for segment in log.segments] == [0, 40]
    assert [log.find(offset) is not None for offset in (15, 25, 45)] == [True] * 3
    shutil.copy(two / "t-0" / log_name(20), one / "t-0")
    assert [segment.base_offset for segment in log.segments] == [0, 20, 40]
    assert [log.find(offset) is not None for offset in (15, 25, 45)] == [True] * 3


def test_messages_without_epochs_need_a_batch_before_them_too(tmp_path: Path) -> None:
    content = dense(0, 59, 10, magic=1)
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", {0: content})
    for number in (0, 25):
        broken(tmp_path / "one", positions(content)[number] + 30)
    shown = shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two"))
    assert offsets_of(shown) == list(range(1, 60))


def test_a_batch_in_common_is_found_behind_a_wrapper_that_may_reach_over_it(tmp_path: Path) -> None:
    content = [
        *(batch([record(at)], magic=0, codec=Codec.GZIP) for at in (0, 2)),
        *(batch([record(at)], magic=1) for at in (4, 6)),
    ]
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", {0: content})
    for number in (0, 2):
        broken(tmp_path / "one", positions(content)[number] + 20)
    assert offsets_of(shown_by_all(Asked.of(tmp_path / "one", tmp_path / "two"))) == [2, 4, 6]


def test_a_copy_that_grows_is_followed(two: list[Path]) -> None:
    broken(two[0], positions(CONTENT)[1] + 70)
    log = DataDir([str(root) for root in two], Storage()).log("t", 0)
    assert log is not None
    assert log.find(15) is not None
    assert log.log_end_offset == 60
    path = two[0] / "t-0" / log_name(0)
    with path.open("ab") as file:
        file.write(batch(records(60, 69)).data)
    assert log.log_end_offset == 70
    assert [log.find(offset) is not None for offset in (15, 65)] == [True, True]


def test_what_was_measured_of_a_damaged_segment_is_not_taken_for_the_completed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfs.tree.lines.text.WORTH_KEEPING", 0)
    for name in ("one", "two"):
        write_partition(tmp_path / name / "t-0", {0: CONTENT[:3], 30: CONTENT[3:]})
    broken(tmp_path / "one", positions(CONTENT)[1] + 70)
    options = TreeOptions(on_damage=DamagePolicy.SKIP, index_store=lambda: LineIndexStore(str(tmp_path / "lines")))
    path = f"t/0/segment/{log_name(0, '.jsonl')}"
    alone = read_file(open_tree(tmp_path / "one", options=options), path)
    both = read_file(open_tree(tmp_path / "one", tmp_path / "two", options=options), path)
    assert (alone.count(b"\n"), both.count(b"\n")) == (20, 30)


def test_where_what_is_lost_was_read_is_among_the_problems(two: list[Path]) -> None:
    broken(two[0], positions(CONTENT)[1] + 70)
    log = DataDir([str(root) for root in two], Storage()).log("t", 0)
    assert log is not None
    assert log.find(15) is not None
    [problem] = log.problems
    assert (problem.file, problem.position) == (str(two[0] / "t-0" / log_name(0)), positions(CONTENT)[1])
    assert problem.reason.endswith(f"between offsets 9 and 20 is read from {two[1] / 't-0' / log_name(0)}")


def test_batches_lost_side_by_side_are_taken_once(two: list[Path]) -> None:
    for number in (1, 2, 4):
        broken(two[0], positions(CONTENT)[number] + 70)
    log = DataDir([str(root) for root in two], Storage()).log("t", 0)
    assert log is not None
    found = [item for _, item in log.walk(OffsetRange(0, 60))]
    assert [item.header.base_offset for item in found if isinstance(item, Block)] == list(range(0, 60, 10))
    assert [problem.position for problem in log.problems] == [positions(CONTENT)[number] for number in (1, 2, 4)]
    assert all("is read from" in problem.reason for problem in log.problems)


def test_what_a_third_copy_has_all_of_says_nothing_of_the_rest(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("one", "two", "three")]
    for root, numbers in zip(roots, ((1, 2, 3), (1, 3), (3,)), strict=True):
        write_partition(root / "t-0", {0: CONTENT})
        for number in numbers:
            broken(root, positions(CONTENT)[number] + 70)
    asked = Asked.of(*roots)
    assert offsets_of(shown_by_all(asked)) == [*range(30), *range(40, 60)]
    for view in TELLING:
        assert tells(view, asked, OffsetRange(35, 36)), view.__name__


def test_a_command_says_once_that_copies_complete_each_other(two: list[Path]) -> None:
    for number in (1, 3):
        broken(two[0], positions(CONTENT)[number] + 70)
    for path in ("t/0", "t/0/records.jsonl"):
        done = run_kfs("cat", two[0], path, "--also", two[1])
        assert (done.returncode, len(done.stdout.splitlines())) == (0, 60)
        assert done.stderr.decode() == f"kfs: {COMPLETED}\n"


def test_the_problems_name_the_copies_before_anything_was_read(two: list[Path]) -> None:
    broken(two[0], positions(CONTENT)[1] + 70)
    done = run_kfs("cat", two[0], "t/0/meta/problems.jsonl", "--also", two[1])
    reasons = [json.loads(line)["reason"] for line in done.stdout.splitlines()]
    assert [reason for reason in reasons if f"is read from {two[1] / 't-0' / log_name(0)}" in reason]


def test_a_copy_that_goes_is_missed(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    broken(two[0], positions(CONTENT)[1] + 70)
    log = DataDir([str(root) for root in two], Storage()).log("t", 0)
    assert log is not None
    assert log.find(15) is not None
    shutil.rmtree(two[1] / "t-0")
    log.storage.cache.clear()
    BUDGET.let_all_go()
    with pytest.raises(CorruptData, match="stored CRC"):
        log.find(15)
    assert log.find(25) is not None


def test_a_copy_that_is_cut_is_missed(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    broken(two[0], positions(CONTENT)[1] + 70)
    log = DataDir([str(root) for root in two], Storage()).log("t", 0)
    assert log is not None
    assert log.find(15) is not None
    path = two[1] / "t-0" / log_name(0)
    path.write_bytes(path.read_bytes()[:100])
    log.storage.cache.clear()
    with pytest.raises(CorruptData, match="stored CRC"):
        log.find(15)


# --- Kafka's own topics, and commands -------------------------------------------------------------------------------


@pytest.fixture
def corpus_twice(tmp_path: Path, corpus: Callable[[str], Path]) -> Callable[[str], tuple[Path, Path]]:
    """Two copies of a broker's log directory."""

    def make(name: str) -> tuple[Path, Path]:
        found = tmp_path / "damaged", tmp_path / "intact"
        for root in found:
            shutil.copytree(corpus(name) / "data", root)
        return found

    return make


def flip_in_the_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("is_damaged_first", [True, False])
def test_cluster_reads_the_metadata_log_that_can_be_read(
    is_damaged_first: bool, corpus_twice: Callable[[str], tuple[Path, Path]]
) -> None:
    damaged_one, intact_one = corpus_twice("e_meta")
    _, expected = kfs_output("cluster", "--json", intact_one)
    for path in sorted(damaged_one.glob("__cluster_metadata-0/*.checkpoint"))[1:]:
        path.unlink()
    for path in damaged_one.glob("__cluster_metadata-0/*.log"):
        flip_in_the_middle(path)
    roots = (damaged_one, intact_one) if is_damaged_first else (intact_one, damaged_one)
    assert json.loads(kfs_output("cluster", "--json", damaged_one)[1])["counts"] != json.loads(expected)["counts"]
    code, found = kfs_output("cluster", "--json", *roots)
    assert code == 0
    for part in ("counts", "quorum", "features"):
        assert json.loads(found)[part] == json.loads(expected)[part]


@pytest.mark.parametrize("is_damaged_first", [True, False])
def test_groups_are_those_of_the_copy_that_can_be_read(
    is_damaged_first: bool, corpus_twice: Callable[[str], tuple[Path, Path]]
) -> None:
    damaged_one, intact_one = corpus_twice("d_groups")
    _, expected = kfs_output("groups", intact_one)
    for path in damaged_one.glob("__consumer_offsets-*/*.log"):
        if path.stat().st_size:
            flip_in_the_middle(path)
    roots = (damaged_one, intact_one) if is_damaged_first else (intact_one, damaged_one)
    code, found = kfs_output("groups", *roots)
    assert (code, found) == (0, expected)


def test_cat_ls_and_stat_take_another_copy(two: list[Path]) -> None:
    broken(two[0], positions(CONTENT)[1] + 70)
    code, lines = kfs_output("cat", two[0], "t/0")
    assert (code, len(lines.splitlines())) == (1, 50)
    also = ("--also", two[1])
    for path in ("t/0", "t/0/records.jsonl", "t/0/segment/00000000000000000000.jsonl"):
        code, lines = kfs_output("cat", two[0], path, *also)
        assert (code, len(lines.splitlines())) == (0, 60)
    code, line = kfs_output("stat", two[0], "t/0/records.jsonl", *also)
    assert (code, json.loads(line)["size"]) == (0, len(lines))
    code, lines = kfs_output("ls", two[0], "t/0/offset", *also)
    assert (code, len(lines.split())) == (0, 60)


def kfs_output(*arguments: str | Path) -> tuple[int, str]:
    """Run a command; return its exit code and what it prints."""
    done = run_kfs(*arguments)
    return done.returncode, done.stdout.decode()
