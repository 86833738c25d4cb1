"""Reading in bulk finds what a walk finds that decodes each block: records, damage and problems, in the same order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.columns import RecordColumns
from kfs.format.decoders import BlockDecoder
from kfs.format.layout import MAX_INT32
from kfs.log.block import Damage
from kfs.log.bulk import BulkReader, DecodedBatches, Undecodable
from kfs.log.offset_range import SegmentBounds
from kfs.log.problem import Problem
from kfs.log.storage import Storage
from kfs.log.walk import SegmentWalk
from tests.corpus import corpus_names
from tests.implementations import EVERY_DECODER
from tests.log.damages import Damage as Deed
from tests.log.damages import damaged, disorder, joined_parts, local_damage
from tests.log.some_logs import some_batches
from tests.logs import Batch, batch, dense, joined, positions, records, write_log

pytestmark = pytest.mark.usefixtures("quiet")

#: A record with what is its block's, or an error in its place; damage; a block whose records can't be had.
Event = tuple[object, ...]


@dataclass(slots=True)
class Found:
    """What one way of reading found in a segment, and where it says that the log ends."""

    events: list[Event] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    end: int = 0

    @property
    def messages(self) -> int:
        """How many records are no control records, nor broken."""
        return sum(event[0] == "record" and not event[1] for event in self.events)


def records_of(columns: RecordColumns, is_control: bool) -> Iterator[Event]:
    for index in range(len(columns)):
        fault = columns.faults.get(index)
        if fault is not None:
            yield "broken", is_control, columns.offsets[index], fault.reason
        else:
            yield "record", is_control, columns.record(index)


class Segment:
    """A file, read with one decoder in each of the ways there are."""

    def __init__(self, path: Path, bounds: SegmentBounds, storage: Storage) -> None:
        self.path = path
        self.bounds = bounds
        self.storage = storage

    def _walk(self, found: Found) -> SegmentWalk:
        file = self.storage.files.open(str(self.path), self.path.stat().st_ino)
        return SegmentWalk(file, self.bounds, self.storage.max_batch_bytes, found.problems.append, self.storage.decoder)

    def walked(self, position: int = 0, seen: int | None = None) -> Found:
        found = Found()
        walk = self._walk(found)
        for item in walk.items(position, seen):
            if isinstance(item, Damage):
                found.events.append(("damage", item))
                continue
            try:
                loaded = self.storage.load(item, found.problems.append)
            except CorruptData as error:
                found.events.append(("undecodable", item.position, item.end, type(error), str(error)))
            else:
                found.events += records_of(loaded.columns, item.header.is_control)
        found.end = walk.end
        return found

    def read(self, position: int = 0, seen: int | None = None, end: int | None = None) -> Found:
        found = Found()
        walk = self._walk(found)
        items = list(BulkReader(walk, self.storage, found.problems.append).items(position, seen, end))
        for before, after in pairwise(items):
            assert before.end == after.position
        for item in items:
            if isinstance(item, DecodedBatches):
                assert item.file == str(self.path)
                found.events += records_of(item.columns, item.is_control)
            elif isinstance(item, Undecodable):
                found.events.append(("undecodable", item.position, item.end, type(item.error), str(item.error)))
            else:
                found.events.append(("damage", item))
        found.end = walk.end
        return found

    def counted(self) -> tuple[int, list[Problem]]:
        found = Found()
        return BulkReader(self._walk(found), self.storage, found.problems.append).count(), found.problems

    def check(self) -> Found:
        """Hold the ways to each other; return what they found."""
        expected = self.walked()
        found = self.read()
        assert found.events == expected.events
        assert found.problems == expected.problems
        assert found.end == expected.end
        assert self.counted() == (expected.messages, expected.problems)
        return found


def segments_in(directory: Path, storage: Storage) -> Iterator[Segment]:
    logs = sorted(path for path in directory.glob("*.log") if path.stem.isdigit())
    for path, following in zip(logs, [*logs[1:], None], strict=True):
        limit = None if following is None else int(following.stem)
        yield Segment(path, SegmentBounds(int(path.stem), limit), storage)


@EVERY_DECODER
@pytest.mark.parametrize("name", corpus_names())
def test_recorded_logs_hold_the_same_either_way(
    decoder: BlockDecoder, name: str, corpus: Callable[[str], Path]
) -> None:
    storage = Storage(decoder=decoder)
    messages = problems = 0
    for directory in sorted({path.parent for path in corpus(name).rglob("*.log")}):
        for segment in segments_in(directory, storage):
            found = segment.check()
            messages += found.messages
            problems += len(found.problems)
    storage.close()
    assert messages
    if name == "g_damage":
        assert problems


@EVERY_DECODER
@settings(max_examples=150)
@given(
    content=some_batches(1000),
    deeds=st.lists(local_damage | disorder, max_size=3),
    is_last=st.booleans(),
)
def test_damaged_logs_hold_the_same_either_way(
    decoder: BlockDecoder, content: list[Batch], deeds: list[Deed], is_last: bool
) -> None:
    storage = Storage(decoder=decoder)
    limit = None if is_last else content[-1].last_offset + 1
    with tempfile.TemporaryDirectory() as directory:
        path = write_log(Path(directory), 1000, joined_parts(damaged(content, deeds)))
        Segment(path, SegmentBounds(1000, limit), storage).check()
    storage.close()


@EVERY_DECODER
def test_a_broken_batch_that_seems_to_follow_makes_no_leap_believed(decoder: BlockDecoder, tmp_path: Path) -> None:
    storage = Storage(decoder=decoder)
    *content, broken = (batch(records(at, at + 4)) for at in (0, 30, 5, 10, 40))
    data = bytearray(joined([*content[:2], broken, *content[2:]]))
    data[len(joined(content[:2])) + len(broken.data) - 1] ^= 1
    path = write_log(tmp_path, 0, bytes(data))
    found = Segment(path, SegmentBounds(0, None), storage).check()
    assert found.messages == 15
    storage.close()


@EVERY_DECODER
def test_reading_goes_from_a_boundary_to_another(decoder: BlockDecoder, tmp_path: Path) -> None:
    content = dense(1000, 1099)
    path = write_log(tmp_path, 1000, joined(content))
    segment = Segment(path, SegmentBounds(1000, None), Storage(decoder=decoder))
    starts = [*positions(content), path.stat().st_size]
    for first, stop in ((0, 1), (0, 20), (3, 4), (7, 20), (5, 5)):
        found = segment.read(starts[first], content[first].first_offset - 1, starts[stop])
        assert [event[2] for event in found.events] == [one for batch in content[first:stop] for one in batch.records]
        assert found.end == starts[stop]
    storage = segment.storage
    assert segment.walked(starts[7], content[7].first_offset - 1) == segment.read(
        starts[7], content[7].first_offset - 1
    )
    storage.close()


@EVERY_DECODER
def test_batches_are_decoded_together(decoder: BlockDecoder, tmp_path: Path) -> None:
    path = write_log(tmp_path, 0, joined(dense(0, 99)))
    storage = Storage(decoder=decoder)
    found = Found()
    walk = Segment(path, SegmentBounds(0, None), storage)._walk(found)
    items = list(BulkReader(walk, storage, found.problems.append).items())
    rows = []
    for item in items:
        assert isinstance(item, DecodedBatches)
        assert (item.base_offset, item.last_offset) == (item.columns.offsets[0], item.columns.offsets[-1])
        rows.append(item.stop - item.first)
    assert sum(rows) == 20
    assert rows == ([20] if decoder.name == "compiled" else [1] * 20)
    storage.close()


def test_a_batch_can_be_no_larger_than_its_positions() -> None:
    storage = Storage(max_batch_bytes=1 << 40)
    assert storage.max_batch_bytes == MAX_INT32
    storage.close()
