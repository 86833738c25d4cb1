"""Each corpus, mounted: every record that Kafka has, and no other."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.corpus import corpus_names
from tests.mount.conftest import EACH_FRONT
from tests.system.expectation import Expectation, assert_is_line_of
from tests.system.kafka_mount import KafkaMount, content

pytestmark = pytest.mark.fuse

MountedCorpus = Callable[..., KafkaMount]
Shown = Callable[[str, str], dict[str, dict[int, bytes]]]
Expect = Callable[[str], Expectation]

#: Holes, every format and damage through libfuse. Its other bindings share these every day.
_THROUGH_OTHERS: Final = ("c_clean", "f_mixed", "g_damage")
_EVERY_DAY: Final = {
    *(("mfusepy", name) for name in _THROUGH_OTHERS),
    *(("fusepy", "c_clean"), ("fusepy", "f_mixed"), ("mfusepy-fuse2", "g_damage")),
}
#: All of them through the front that everybody gets.
by_corpus: Final = pytest.mark.parametrize(
    ("name", "front"),
    [(name, "auto") for name in corpus_names()]
    + [
        pytest.param(name, front, marks=() if (front, name) in _EVERY_DAY else pytest.mark.long)
        for front in EACH_FRONT[1:]
        for name in _THROUGH_OTHERS
    ],
)


@by_corpus
def test_the_offset_files_hold_exactly_the_expected_records(
    name: str, front: str, shown: Shown, expectation: Expect
) -> None:
    expected = expectation(name).partitions
    partitions = shown(name, front)
    assert list(partitions) == sorted(expected)
    for partition, lines in partitions.items():
        assert list(lines) == sorted(expected[partition]), f"the listing of {partition}"
        for offset, line in lines.items():
            assert_is_line_of(line, expected[partition][offset])


@by_corpus
def test_segments_equal_their_records_in_offset_order(
    name: str, front: str, mounted_corpus: MountedCorpus, shown: Shown
) -> None:
    # Where a segment has damage something stands for it: what, is a matter of its own (test_damage.py).
    options = ("--on-damage", "skip") if name == "g_damage" else ()
    mounted = mounted_corpus(name, front=front, options=options)
    for partition, lines in shown(name, front).items():
        directory = mounted.path(partition) / "segment"
        segments = sorted(os.listdir(directory))
        bases = [int(segment.removesuffix(".jsonl")) for segment in segments]
        assert segments == [f"{base:020d}.jsonl" for base in bases]
        in_segments = 0
        for segment, base, end in zip(segments, bases, [*bases[1:], 2**63], strict=True):
            own = [line for offset, line in lines.items() if base <= offset < end]
            assert (directory / segment).read_bytes() == b"".join(own), f"{partition} {segment}"
            in_segments += len(own)
        assert in_segments == len(lines), partition


@pytest.mark.parametrize("name", [name for name in corpus_names() if name != "g_damage"])
def test_the_records_of_a_partition_are_its_segments(name: str, mounted_corpus: MountedCorpus, shown: Shown) -> None:
    mounted = mounted_corpus(name)
    for partition, lines in shown(name, "auto").items():
        assert (mounted.path(partition) / "records.jsonl").read_bytes() == b"".join(lines.values()), partition


@by_corpus
def test_the_size_of_every_file_is_what_is_read(
    name: str, front: str, mounted_corpus: MountedCorpus, shown: Shown, expectation: Expect
) -> None:
    mounted = mounted_corpus(name, front=front)
    for partition, lines in shown(name, front).items():
        directory = mounted.path(partition) / "offset"
        sizes = {offset: (directory / f"{offset}.json").stat().st_size for offset in lines}
        assert sizes == {offset: len(line) for offset, line in lines.items()}, partition
    others = [path for path in files_below(mounted.point) if path.parent.name != "offset"]
    unreadable = {path for path in others if not size_is_exact(path)}
    assert unreadable == damaged_segments(mounted, expectation(name))


def files_below(top: Path) -> list[Path]:
    return [Path(directory, file) for directory, _, files in os.walk(top) for file in files]


def size_is_exact(path: Path) -> bool:
    """Fail where the size isn't exact, return False where damage keeps the file from being read."""
    status = path.stat()
    assert stat.S_ISREG(status.st_mode)
    found = content(path)
    if found == errno.EIO:
        return False
    assert isinstance(found, bytes), path
    assert status.st_size == len(found), path
    return True


def damaged_segments(mounted: KafkaMount, expected: Expectation) -> set[Path]:
    """The segments with something in them that can't be shown."""
    files = {batch.told_in: batch.partition for batch in expected.lost if batch.error == errno.EIO}
    if expected.lost:
        files["broken-9/00000000000000000092.log"] = "broken/9"  # ends with what never was a batch
    return {
        mounted.path(partition) / "segment" / Path(file).with_suffix(".jsonl").name for file, partition in files.items()
    }


@pytest.mark.parametrize("name", ["b_txn", "c_clean", "f_mixed"])
def test_the_size_of_every_file_is_exact_with_all_views(name: str, mounted_corpus: MountedCorpus) -> None:
    mounted = mounted_corpus(name, options=("--views",))
    assert ".kfs" in os.listdir(mounted.point)
    paths = files_below(mounted.point)
    assert {"offset", "segment", "meta", "value", "key", "raw", ".kfs"} <= {path.parent.name for path in paths}
    for path in paths:
        assert size_is_exact(path)


@pytest.mark.parametrize("name", ["c_clean", "g_running"])
def test_what_is_deleted_but_still_on_the_disk_lies_below_deleted(
    name: str, mounted_corpus: MountedCorpus, expectation: Expect
) -> None:
    mounted = mounted_corpus(name)
    deleted = expectation(name).deleted
    assert deleted
    assert {str(path.relative_to(mounted.point)) for path in mounted.path(".kfs/deleted").glob("*/*")} == set(deleted)
    for partition, records in deleted.items():
        lines = mounted.lines(partition)
        assert list(lines) == sorted(records), partition
        for offset, line in lines.items():
            assert_is_line_of(line, records[offset])


@pytest.mark.parametrize("name", corpus_names())
def test_first_and_last_lead_to_the_first_and_the_last_record(
    name: str, mounted_corpus: MountedCorpus, expectation: Expect
) -> None:
    mounted = mounted_corpus(name)
    for partition, records in expectation(name).partitions.items():
        directory = mounted.path(partition)
        names = set(os.listdir(directory))
        if not records:
            assert names == {"offset", "segment", "meta"}, partition
            continue
        assert names == {"offset", "segment", "meta", "first.json", "last.json"}, partition
        for link, offset in (("first.json", min(records)), ("last.json", max(records))):
            assert os.readlink(directory / link) == f"offset/{offset}.json", partition
            assert_is_line_of((directory / link).read_bytes(), records[offset])
