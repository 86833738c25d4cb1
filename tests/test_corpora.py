"""Every recorded log directory is shown exactly as Kafka itself reads it: nothing missing, nothing invented."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from kfs.errors import CorruptData, NotFound
from kfs.log.problem import DamagePolicy
from kfs.render.record_line import parse_line
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory, File, Symlink
from kfs.tree.options import TreeOptions
from tests.corpus import corpus_names
from tests.every_node import Listed, every_directory, every_node
from tests.expected import expected_batches, expected_records, unread_logs
from tests.logs import content_of, directory_at, file_at, names, open_tree, target_of
from tests.recorded_damage import (
    DAMAGED,
    PAST_THE_END,
    UNREADABLE,
    CorpusPath,
    Damage,
    Records,
    damages,
    intact_records,
    messages_by_directory,
)

#: How a partition in ``.kfs/deleted`` ends whose segments were deleted, and not the whole of it.
DELETED_SEGMENTS = ".deleted"
#: Log directories inside of the corpora: where each lies, and the file that says what is in it.
SOURCES = {name: ("data", "expected.jsonl") for name in corpus_names() if name != DAMAGED} | {
    "g_kill9/recovered": ("data", "expected.jsonl"),
    "g_damage/recovered-unclean": ("data", "expected.jsonl"),
    "g_damage/recovered-clean-marker": ("data", "expected.jsonl"),
    "g_damage": ("before", "expected_before.jsonl"),
}
EVERY_SOURCE = pytest.mark.parametrize("name", SOURCES)
EVERY_CORPUS = pytest.mark.parametrize("name", corpus_names())


def source_directory(name: str, corpus: CorpusPath) -> Path:
    """Return the log directory of a name in SOURCES."""
    top, _, below = name.partition("/")
    return corpus(top) / below / SOURCES[name][0]


def expected_in(name: str, corpus: CorpusPath) -> dict[str, Records]:
    """Return what each partition directory of a source must be shown to hold."""
    top, _, below = name.partition("/")
    oracle = corpus(top) / below / SOURCES[name][1]
    found = {directory: dict(records) for directory, records in messages_by_directory(oracle).items()}
    if below.startswith("recovered") and top == DAMAGED:
        _complete_what_kafka_gave_up(found, corpus(top), oracle.parent)
    return found


def _complete_what_kafka_gave_up(found: dict[str, Records], top: Path, oracle: Path) -> None:
    """Kafka's reader stops at the first bad batch, and takes magic 7 for 2: add what lies behind, drop what is of 7."""
    before = list(expected_records(top, "expected_before.jsonl"))
    for unread in unread_logs(oracle):
        if unread.error is not None:
            read = {batch.base_offset for batch in expected_batches(oracle) if batch.file == unread.file}
            all_batches = [one for one in expected_batches(top, "batches_before.jsonl") if one.file == unread.file]
            broken = next(batch for batch in all_batches if batch.base_offset not in read)
            for expected in before:
                offset = expected.record.offset
                if expected.file == unread.file and not broken.base_offset <= offset <= broken.last_offset:
                    found[unread.file.split("/")[0]].setdefault(offset, expected.record)
    for damage in damages(top):
        if damage.kind == "bad-magic":
            for offset in damage.touched_offsets:
                del found[damage.directory][offset]


def partition_directories(tree: KafkaTree) -> Iterator[str]:
    """Yield the tree path of everything that looks like a partition, those in ``.kfs`` included."""
    for top in ("", ".kfs/deleted/", ".kfs/replicas/"):
        for topic in names(directory_at(tree, top)):
            if topic != ".kfs":
                for partition in names(directory_at(tree, top + topic)):
                    yield f"{top}{topic}/{partition}"


def source_of(tree: KafkaTree, path: str) -> str:
    """Return the name of the directory that a partition in the tree shows."""
    directory: str = json.loads(content_of(tree, f"{path}/meta/log.json"))["directory"]
    return os.path.basename(directory)


def log_start_offsets(data: Path) -> dict[str, int]:
    """Read the log start offset checkpoint, by the names of partition directories."""
    checkpoint = data / "log-start-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    entries = [line.split() for line in lines]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in entries}


@dataclass(frozen=True, slots=True)
class Shown:
    """A tree, and by the paths of its partitions the lines of their ``offset/`` files in listed order."""

    tree: KafkaTree
    lines: dict[str, dict[str, bytes]]


@lru_cache
def shown(data: Path) -> Shown:
    """Read every file of every ``offset/`` directory, each held to the size that is said of it."""
    tree = open_tree(data)
    return Shown(tree, {path: lines_in(directory_at(tree, f"{path}/offset")) for path in partition_directories(tree)})


def lines_in(directory: Directory) -> dict[str, bytes]:
    """Return the content of every file in an ``offset/`` directory."""
    lines = {}
    for name in names(directory):
        file = directory.lookup(name)
        assert isinstance(file, File)
        lines[name] = file.read(0, 1 << 30)
        assert len(lines[name]) == file.attributes().size
    return lines


def parsed(path: str, lines: dict[str, bytes]) -> Records:
    """Return the records that the files of a partition say, each under its own name, topic and partition."""
    found: Records = {}
    topic, partition = path.split("/")[-2:]
    for name, line in lines.items():
        said_topic, said_partition, record = parse_line(line)
        assert (said_topic, said_partition) == (topic, int(re.split("[.@]", partition)[0]))
        assert name == f"{record.offset}.json"
        found[record.offset] = record
    return found


# --- what is shown --------------------------------------------------------------------------------------------------


@EVERY_SOURCE
def test_the_files_are_exactly_the_expected_records(name: str, corpus: CorpusPath) -> None:
    data = source_directory(name, corpus)
    view = shown(data)
    starts = log_start_offsets(data)
    left = expected_in(name, corpus)
    for path, lines in view.lines.items():
        if path.endswith(DELETED_SEGMENTS):  # of these Kafka's tools say nothing
            continue
        directory = source_of(view.tree, path)
        start = starts.get(directory, 0)
        is_below = path.startswith(".kfs/deleted/") and not directory.endswith("-delete")
        remaining = left.get(directory, {})
        want = {offset: record for offset, record in remaining.items() if (offset < start) == is_below}
        assert parsed(path, lines) == want, path
        left[directory] = {offset: record for offset, record in remaining.items() if offset not in want}
    assert not {directory: records for directory, records in left.items() if records}


@EVERY_SOURCE
def test_offsets_are_listed_in_order(name: str, corpus: CorpusPath) -> None:
    for path, lines in shown(source_directory(name, corpus)).lines.items():
        listed = [int(one.removesuffix(".json")) for one in lines]
        assert listed == sorted(listed), path


@EVERY_SOURCE
def test_control_records_are_no_files(name: str, corpus: CorpusPath) -> None:
    tree = shown(source_directory(name, corpus)).tree
    top, _, below = name.partition("/")
    controls = [one for one in expected_records(corpus(top) / below, SOURCES[name][1]) if one.is_control]
    for control in controls:
        path = f"{control.topic}/{control.partition}/offset/{control.record.offset}.json"
        with pytest.raises(NotFound):
            tree.resolve(path)
    assert controls or name not in ("b_txn", "b39_txn", "g_kill9")


@EVERY_SOURCE
def test_the_text_of_a_segment_is_its_files_one_after_another(name: str, corpus: CorpusPath) -> None:
    view = shown(source_directory(name, corpus))
    damaged = 0
    for path, lines in view.lines.items():
        segments = [int(one.removesuffix(".jsonl")) for one in names(directory_at(view.tree, f"{path}/segment"))]
        assert segments == sorted(segments)
        for base, following in zip(segments, [*segments[1:], 2**63], strict=True):
            whole = b"".join(line for one, line in lines.items() if base <= int(one[:-5]) < following)
            try:
                assert content_of(view.tree, f"{path}/segment/{base:020d}.jsonl") == whole, path
            except CorruptData:
                damaged += 1
    # What Kafka's recovery leaves as it is, and what it lets pass: a segment that is missing, too.
    assert damaged == {"g_damage/recovered-unclean": 2, "g_damage/recovered-clean-marker": 7}.get(name, 0)


@EVERY_SOURCE
def test_first_and_last_lead_to_the_ends_of_the_listing(name: str, corpus: CorpusPath) -> None:
    view = shown(source_directory(name, corpus))
    for path, lines in view.lines.items():
        if lines:
            assert target_of(view.tree, f"{path}/first.json") == f"offset/{next(iter(lines))}"
            assert target_of(view.tree, f"{path}/last.json") == f"offset/{next(reversed(lines))}"
        else:
            for link in ("first.json", "last.json"):
                assert link not in names(directory_at(view.tree, path))
                with pytest.raises(NotFound):
                    view.tree.resolve(f"{path}/{link}")


# --- what every node promises ---------------------------------------------------------------------------------------


def assert_node_keeps_its_promises(tree: KafkaTree, listed: Listed) -> None:
    """Entry, attributes and content say the same, and the id leads back."""
    entry, node = listed.entry, listed.node
    attributes = node.attributes()
    assert (entry.node_id, entry.mode) == (attributes.node_id, attributes.mode), listed.path
    assert attributes.is_directory == isinstance(node, Directory)
    assert attributes.mode & 0o222 == 0 or isinstance(node, Symlink)
    if isinstance(node, File):
        assert attributes.size == len(node.read(0, 1 << 40)), listed.path
    if isinstance(node, Symlink):
        assert attributes.size == len(node.target())
        there = os.path.normpath(os.path.join(os.path.dirname(listed.path), node.target()))
        assert isinstance(tree.resolve(there), File), listed.path
    if entry.attributes is not None:
        # What is generated says when that was.
        assert entry.attributes in (attributes, replace(attributes, mtime_ns=entry.attributes.mtime_ns))
    again = tree.node(entry.node_id)
    assert type(again) is type(node), listed.path
    again_attributes = again.attributes()
    assert again_attributes in (attributes, replace(attributes, mtime_ns=again_attributes.mtime_ns)), listed.path
    if isinstance(node, File) and isinstance(again, File):
        assert again.read(0, 100) == node.read(0, 100)
    if isinstance(node, Symlink) and isinstance(again, Symlink):
        assert again.target() == node.target()


@EVERY_CORPUS
def test_every_node_has_its_size_and_is_found_again_by_its_id(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data", options=TreeOptions(views=True, on_damage=DamagePolicy.SKIP))
    seen: dict[int, str] = {1: ""}
    for listed in every_node(tree):
        assert listed.entry.node_id not in seen, (listed.path, seen[listed.entry.node_id])
        seen[listed.entry.node_id] = listed.path
        assert 0 < listed.entry.cookie < 2**63
        assert 0 < listed.entry.node_id < 2**63
        assert_node_keeps_its_promises(tree, listed)
    assert tree.node(1) is tree.root


@EVERY_CORPUS
def test_a_listing_without_attributes_has_the_same_names_and_ids(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(corpus(name) / "data", options=TreeOptions(views=True))
    for directory in [tree.root, *every_directory(tree)]:
        full = [entry._replace(attributes=None) for entry in directory.entries()]
        assert [entry._replace(attributes=None) for entry in directory.entries(with_attributes=False)] == full


# --- what is deleted, and what lies twice ---------------------------------------------------------------------------


def test_records_below_the_log_start_offset_are_shown_as_deleted(corpus: CorpusPath) -> None:
    tree = open_tree(corpus("c_clean") / "data")
    assert "trimmed" in names(directory_at(tree, ".kfs/deleted"))
    kept = [int(one[:-5]) for one in names(directory_at(tree, "trimmed/0/offset"))]
    deleted = [int(one[:-5]) for one in names(directory_at(tree, ".kfs/deleted/trimmed/0/offset"))]
    start = log_start_offsets(corpus("c_clean") / "data")["trimmed-0"]
    assert min(kept) == start
    assert max(deleted) == start - 1
    with pytest.raises(NotFound):
        tree.resolve(f"trimmed/0/offset/{start - 1}.json")
    with pytest.raises(NotFound):
        tree.resolve(f".kfs/deleted/trimmed/0/offset/{start}.json")


def test_segments_that_a_recovery_deleted_can_still_be_read(corpus: CorpusPath) -> None:
    """After a bad batch a broker drops every later segment: what was in them before is the oracle."""
    view = shown(corpus(DAMAGED) / "recovered-unclean" / "data")
    before = messages_by_directory(corpus(DAMAGED) / "expected_before.jsonl")
    dropped = [path for path in view.lines if path.endswith(DELETED_SEGMENTS)]
    assert len(dropped) == 2
    for path in dropped:
        found = parsed(path, view.lines[path])
        directory = source_of(view.tree, path)
        assert found.items() <= before[directory].items()
        kept = path.removeprefix(".kfs/deleted/").removesuffix(DELETED_SEGMENTS)
        still_there = parsed(kept, view.lines[kept])
        assert not found.keys() & still_there.keys()
        # Offsets that are in neither were in the batch that was cut off, or behind it in its segment.
        assert found.keys() == {offset for offset in before[directory] if offset >= min(found)}


def test_partitions_of_a_deleted_topic_are_shown_as_deleted(corpus: CorpusPath) -> None:
    tree = open_tree(corpus("g_running") / "data")
    assert "live-gone" not in names(tree.root)
    gone = names(directory_at(tree, ".kfs/deleted/live-gone"))
    assert gone == ["0.d76a33fa3c734388981af789ddeff3e6-delete", "1.7eb96e42e43b4f8e93a9dd601b95de3e-delete"]
    assert sum(len(names(directory_at(tree, f".kfs/deleted/live-gone/{one}/offset"))) for one in gone) > 0


@pytest.mark.parametrize("name", ["g_damage/recovered-unclean", "g_damage/recovered-clean-marker"])
def test_a_stray_copy_is_served_beside_the_partition_and_never_merged(name: str, corpus: CorpusPath) -> None:
    tree = open_tree(source_directory(name, corpus))
    (copy,) = names(directory_at(tree, ".kfs/replicas/broken"))
    assert copy.startswith("31")
    assert {source_of(tree, "broken/31"), source_of(tree, f".kfs/replicas/broken/{copy}")} == {
        path.name for path in source_directory(name, corpus).glob("broken-31*")
    }
    assert "has several copies" in content_of(tree, ".kfs/problems.jsonl").decode()


# --- damage ---------------------------------------------------------------------------------------------------------


def damaged_partitions(corpus: CorpusPath, kinds: set[str]) -> list[Damage]:
    """Return the damage of those kinds, one a file."""
    found = [damage for damage in damages(corpus(DAMAGED)) if damage.kind in kinds]
    assert found
    return found


@pytest.fixture
def damaged_tree(corpus: CorpusPath) -> KafkaTree:
    """The damaged log directory."""
    return open_tree(corpus(DAMAGED) / "data")


def problems_of(tree: KafkaTree, path: str) -> list[dict[str, Any]]:
    """Return the lines of ``meta/problems.jsonl``."""
    return [json.loads(line) for line in content_of(tree, f"{path}/meta/problems.jsonl").splitlines()]


def log_problems_of(tree: KafkaTree, path: str) -> list[dict[str, Any]]:
    """Return those about ``.log`` files; the files beside them miss what was lost there."""
    return [problem for problem in problems_of(tree, path) if problem["file"].endswith(".log")]


def test_the_damage_hits_the_batches_that_its_description_names(corpus: CorpusPath) -> None:
    hit = {damage.kind: damage for damage in damages(corpus(DAMAGED))}
    assert [batch.position for batch in hit["flip-payload-last-segment"].touched] == [989]
    assert hit["length-negative"].touched[0].position == 0
    assert all(len(hit[kind].touched) == 1 for kind in UNREADABLE)
    assert len(hit["middle-segment-missing"].touched) > 1


def test_what_is_intact_in_damaged_partitions_is_served(corpus: CorpusPath) -> None:
    view = shown(corpus(DAMAGED) / "data")
    assert sum(path.startswith("broken/") for path in view.lines) == 39
    for path, lines in view.lines.items():
        if not path.endswith(DELETED_SEGMENTS):
            assert parsed(path, lines) == intact_records(corpus, source_of(view.tree, path)), path


def test_records_in_damaged_batches_answer_with_an_error(damaged_tree: KafkaTree, corpus: CorpusPath) -> None:
    for damage in damaged_partitions(corpus, UNREADABLE):
        for offset in damage.touched_offsets:
            path = f"{damage.tree_path}/offset/{offset}.json"
            with pytest.raises(CorruptData) as caught:
                damaged_tree.resolve(path)
            assert str(caught.value.file).endswith(f"{damage.directory}/{damage.file}")
            assert caught.value.position == damage.touched[0].position


def test_damaged_batches_stand_in_the_list_of_problems(damaged_tree: KafkaTree, corpus: CorpusPath) -> None:
    for damage in damaged_partitions(corpus, UNREADABLE):
        (problem,) = log_problems_of(damaged_tree, damage.tree_path)
        batch = damage.touched[0]
        assert problem["file"].endswith(f"/data/{damage.directory}/{damage.file}")
        assert problem["position"] == batch.position
        end = os.stat(problem["file"]).st_size
        assert problem["position"] + problem["size"] == min(batch.position + batch.size, end)
        assert problem["reason"]


def test_an_unfinished_end_is_the_end_of_the_log(damaged_tree: KafkaTree, corpus: CorpusPath) -> None:
    for damage in damaged_partitions(corpus, PAST_THE_END):
        for offset in damage.touched_offsets:
            with pytest.raises(NotFound):
                damaged_tree.resolve(f"{damage.tree_path}/offset/{offset}.json")
        assert log_problems_of(damaged_tree, damage.tree_path) == [], damage.kind


@pytest.mark.parametrize("kind", ["garbage-tail", "duplicate-batch-tail"])
def test_what_stands_behind_the_last_batch_is_a_problem(kind: str, damaged_tree: KafkaTree, corpus: CorpusPath) -> None:
    (damage,) = damaged_partitions(corpus, {kind})
    (problem,) = log_problems_of(damaged_tree, damage.tree_path)
    assert problem["position"] == damage.position
    assert problem["position"] + problem["size"] == os.stat(problem["file"]).st_size


def test_offsets_of_a_segment_that_is_missing_between_others_are_lost(
    damaged_tree: KafkaTree, corpus: CorpusPath
) -> None:
    (damage,) = damaged_partitions(corpus, {"middle-segment-missing"})
    assert damage.touched_offsets
    for offset in damage.touched_offsets:
        with pytest.raises(CorruptData):
            damaged_tree.resolve(f"{damage.tree_path}/offset/{offset}.json")


def test_offsets_of_a_segment_that_is_missing_at_the_end_are_not_there(
    damaged_tree: KafkaTree, corpus: CorpusPath
) -> None:
    (damage,) = damaged_partitions(corpus, {"last-log-empty"})
    for offset in damage.touched_offsets:
        with pytest.raises(NotFound):
            damaged_tree.resolve(f"{damage.tree_path}/offset/{offset}.json")


def test_damage_beside_the_log_is_a_problem_of_its_file_and_hides_no_record(
    damaged_tree: KafkaTree, corpus: CorpusPath
) -> None:
    harmless = {
        "index-preallocated",  # of an active segment
        "timeindex-missing",
        "snapshot-missing",
        "epoch-missing",
        "partition-metadata-missing",
        "leftover-files",
        "swap-complete",
        "txnindex-missing",
        "middle-segment-missing",
    }
    lines = [json.loads(line) for line in (corpus(DAMAGED) / "damage.jsonl").read_text().splitlines()]
    beside = [line for line in lines if not line["file"].endswith(".log")]
    for line in beside:
        files = [problem["file"] for problem in problems_of(damaged_tree, line["partition_dir"].replace("-", "/"))]
        named = any(file.endswith(f"{line['partition_dir']}/{line['file']}") for file in files)
        assert named or line["damage"] in harmless, line
    assert len(beside) > 20


# --- damage in text -------------------------------------------------------------------------------------------------


def text_around(tree: KafkaTree, damage: Damage) -> tuple[bytes, bytes, str]:
    """Return the lines before and behind the damage in its segment's text, and the path of that text."""
    base = int(damage.file.split(".")[0])
    path = f"{damage.tree_path}/offset"
    segments = [int(one.removesuffix(".jsonl")) for one in names(directory_at(tree, f"{damage.tree_path}/segment"))]
    following = min((one for one in segments if one > base), default=2**63)
    first_lost = min(damage.touched_offsets)
    before = after = b""
    for name in names(directory_at(tree, path)):
        if base <= int(name[:-5]) < following:
            line = content_of(tree, f"{path}/{name}")
            before, after = (before + line, after) if int(name[:-5]) < first_lost else (before, after + line)
    return before, after, f"{damage.tree_path}/segment/{base:020d}.jsonl"


def test_an_empty_line_stands_for_a_damaged_batch_and_only_reading_it_fails(
    damaged_tree: KafkaTree, corpus: CorpusPath
) -> None:
    for damage in damaged_partitions(corpus, UNREADABLE):
        before, after, path = text_around(damaged_tree, damage)
        file = file_at(damaged_tree, path)
        assert file.attributes().size == len(before) + 1 + len(after)
        assert file.read(0, len(before)) == before
        assert file.read(len(before) + 1, 1 << 30) == after
        for offset, size in ((len(before), 1), (0, 1 << 30), (max(len(before) - 1, 0), 2)):
            with pytest.raises(CorruptData) as caught:
                file.read(offset, size)
            assert caught.value.position == damage.touched[0].position


def test_skipping_damage_leaves_only_what_is_intact(corpus: CorpusPath) -> None:
    tree = open_tree(corpus(DAMAGED) / "data", options=TreeOptions(on_damage=DamagePolicy.SKIP))
    for damage in damaged_partitions(corpus, UNREADABLE | PAST_THE_END | {"garbage-tail", "duplicate-batch-tail"}):
        path = damage.tree_path
        whole = b"".join(
            content_of(tree, f"{path}/offset/{one}") for one in names(directory_at(tree, f"{path}/offset"))
        )
        text = b"".join(
            content_of(tree, f"{path}/segment/{one}") for one in names(directory_at(tree, f"{path}/segment"))
        )
        assert text == whole == content_of(tree, f"{path}/records.jsonl")
        offsets = [parse_line(line)[2].offset for line in whole.splitlines()]
        assert offsets == sorted(intact_records(corpus, damage.directory))
        listed = log_problems_of(tree, path)
        assert bool(listed) == (damage.kind not in PAST_THE_END)
