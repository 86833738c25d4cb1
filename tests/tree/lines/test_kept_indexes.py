"""Tables of active segments that nobody writes to, kept from one mount to the next."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.log.segment import Segment
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.lines.record_lines import SegmentLines
from kfs.tree.lines.source import TextPart
from kfs.tree.options import TreeOptions
from tests.logs import batch, content_of, file_at, open_tree, record, write_partition

LINES = "t/0/segment/0.jsonl"
LONG_AGO = time.time() - 3600

Measured = Callable[[], list[int]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The ``.log`` of a partition's only segment, of 2 MB, written long ago."""
    values = [batch([record(at, b"x" * 50_000)]) for at in range(40)]
    write_partition(tmp_path / "data" / "t-0", {0: values})
    path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Return, and forget, the positions in the log from which it was measured."""
    positions: list[int] = []
    measure = SegmentLines.measure

    def noting(self: SegmentLines, segment: Segment, position: int, after: int, end: int | None) -> Iterator[TextPart]:
        positions.append(position)
        return measure(self, segment, position, after, end)

    def taken() -> list[int]:
        found = positions[:]
        positions.clear()
        return found

    monkeypatch.setattr(SegmentLines, "measure", noting)
    return taken


def mounted_again(log: Path) -> KafkaTree:
    data = log.parent.parent
    return open_tree(data, options=TreeOptions(index_store=lambda: LineIndexStore(str(data.with_name("store")))))


def append(log: Path, offset: int, written: float) -> None:
    with log.open("ab") as file:
        file.write(batch([record(offset, b"y" * 50_000)]).data)
    os.utime(log, (written, written))


def test_an_active_segment_at_rest_is_measured_once(log: Path, measured: Measured) -> None:
    expected = content_of(mounted_again(log), LINES)
    assert measured() == [0]
    assert content_of(mounted_again(log), LINES) == expected
    assert measured() == []


def test_one_that_was_written_to_just_now_is_measured_again(log: Path, measured: Measured) -> None:
    os.utime(log)
    for _ in range(2):
        content_of(mounted_again(log), LINES)
        assert measured() == [0]


def test_one_that_is_written_to_while_it_is_measured_is_measured_again(
    log: Path, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = SegmentLines.measure

    def while_written(
        self: SegmentLines, segment: Segment, position: int, after: int, end: int | None
    ) -> Iterator[TextPart]:
        yield from measure(self, segment, position, after, end)
        append(log, 40, LONG_AGO)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentLines, "measure", while_written)
        assert file_at(mounted_again(log), LINES).attributes().size > 0
    measured()
    assert content_of(mounted_again(log), LINES).count(b"\n") == 41
    assert measured() == [0]


@pytest.mark.usefixtures("eager")
def test_what_is_appended_later_is_measured_from_there(log: Path, measured: Measured) -> None:
    before = content_of(mounted_again(log), LINES)
    end = log.stat().st_size
    measured()
    tree = mounted_again(log)
    file = file_at(tree, LINES)
    assert file.attributes().size == len(before)
    append(log, 40, LONG_AGO + 1)
    whole = content_of(tree, LINES)
    assert measured() == [end]
    assert whole.startswith(before)
    assert whole.count(b"\n") == 41
    assert content_of(mounted_again(log), LINES) == whole, "another file by now, whose table isn't kept for so little"
    assert measured() == [0]


def test_damage_in_what_is_kept_is_told_and_an_error_as_before(log: Path, measured: Measured) -> None:
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    os.utime(log, (LONG_AGO, LONG_AGO))
    found = []
    for _ in range(2):
        tree = mounted_again(log)
        file = file_at(tree, LINES)
        size = file.attributes().size
        [segment] = tree.views.shown()[0].log.segments
        found.append((size, [str(problem) for problem in segment.problems]))
        with pytest.raises(CorruptData):
            file.read(0, size)
    assert found[0] == found[1]
    assert len(found[0][1]) == 1
    assert measured() == [0]


def test_a_small_one_is_not_worth_a_file(log: Path, measured: Measured) -> None:
    shutil.rmtree(log.parent)
    write_partition(log.parent, {0: [batch([record(at, b"x" * 50_000)]) for at in range(10)]})
    os.utime(log, (LONG_AGO, LONG_AGO))
    for _ in range(2):
        content_of(mounted_again(log), LINES)
        assert measured() == [0]
