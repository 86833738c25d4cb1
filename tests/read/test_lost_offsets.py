"""What is lost is a range of offsets between intact neighbours, and every view tells it where it is asked for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kfs
from kfs.errors import CorruptData
from kfs.internal.committed_offset import standing_of
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.read.selection import Selection
from tests.cat.printing import printed
from tests.log.damages import Damage, Parts, damaged, is_ambiguous, joined_parts, local_damage
from tests.log.some_logs import some_batches
from tests.logs import (
    Batch,
    batch,
    dense,
    file_at,
    joined,
    log_name,
    open_log,
    open_tree,
    positions,
    record,
    records_in,
    set_log_start,
    write_log,
    write_partition,
)
from tests.thoroughness import examples

pytestmark = pytest.mark.usefixtures("quiet")

BASE = 1000
contents = some_batches(BASE)
damages = st.lists(local_damage, min_size=1, max_size=3)


@contextmanager
def data_directory(parts: Parts, content: Sequence[Batch], *, closed: bool) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_log(root / "t-0", BASE, joined_parts(parts))
        if closed:
            end = content[-1].last_offset + 1
            write_log(root / "t-0", end, batch([record(end)]).data)
        yield root


def broken_offsets(parts: Parts, log: Log) -> list[int]:
    """Return the offsets of the damaged batches of which bytes are left, below the log's end, that nobody is served."""
    served = {one.offset for one in records_in(log)}
    broken = (part.was for part in parts if part.was is not None and part.data and not part.is_intact)
    offsets = {one.offset for was in broken if was is not None for one in was.records}
    return sorted(offset for offset in offsets - served if offset < log.log_end_offset)


def lost_ranges(log: Log) -> list[OffsetRange]:
    """Return what each damage may hide, as the walk over the whole log tells it."""
    walked = log.walk(OffsetRange(0, 2**63 - 1))
    return [item.lost for _, item in walked if not isinstance(item, Block) and item.lost is not None]


@settings(max_examples=examples(70, 400))
@given(content=contents, done=damages, closed=st.booleans())
def test_lost_ranges_hold_all_that_was_broken_and_nothing_that_is_served(
    content: list[Batch], done: list[Damage], closed: bool
) -> None:
    parts = damaged(content, done)
    assume(not any(part.is_moved for part in parts) and not is_ambiguous(parts))
    with data_directory(parts, content, closed=closed) as root:
        log = open_log(root / "t-0")
        ranges = lost_ranges(log)
        # Undecodable batches answer for themselves: the walk only looks at their CRC.
        for one in records_in(log):
            assert not any(one.offset in each for each in ranges), one.offset
        for offset in broken_offsets(parts, log):
            told = any(offset in each for each in ranges)
            assert told or find_raises(log, offset), offset


def find_raises(log: Log, offset: int) -> bool:
    try:
        log.find(offset)
    except CorruptData:
        return True
    return False


@settings(max_examples=examples(40, 200))
@given(content=contents, done=damages, closed=st.booleans(), chosen=st.integers(0, 1000))
def test_no_view_is_silent_about_a_lost_offset(
    content: list[Batch], done: list[Damage], closed: bool, chosen: int
) -> None:
    parts = damaged(content, done)
    assume(not any(part.is_moved for part in parts) and not is_ambiguous(parts))
    with data_directory(parts, content, closed=closed) as root:
        lost = broken_offsets(parts, open_log(root / "t-0"))
        assume(lost)
        offset = lost[chosen % len(lost)]
        assert printed(root, "t", selection=Selection(offset, offset + 1))[1]
        with kfs.open(str(root)) as data:
            with pytest.raises(CorruptData):
                list(data["t"][0].read(offset, offset + 1))
            with pytest.raises(CorruptData):
                data["t"][0].scan(offsets=(offset, offset + 1), jobs=1).to_table()
        tree = open_tree(root)
        with pytest.raises(CorruptData):
            file_at(tree, f"t/0/offset/{offset}.json")
        set_log_start(root, "t", 0, offset)
        file = file_at(open_tree(root), "t/0/records.jsonl")
        with pytest.raises(CorruptData):  # the first line stands for what is lost
            file.read(0, 1)


def cut_log(root: Path) -> Path:
    """Write two segments, the first of which is cut in the middle of a batch, and a log start in what is lost."""
    content = dense(0, 199, 10)
    write_partition(root / "t-0", {0: content[:10], 100: content[10:]})
    path = root / "t-0" / log_name(0)
    path.write_bytes(path.read_bytes()[: positions(content[:10])[4] + 20])
    set_log_start(root, "t", 0, 80)
    return root


def test_a_log_start_inside_of_what_is_lost_is_told_by_the_lines(tmp_path: Path) -> None:
    tree = open_tree(cut_log(tmp_path))
    for path in ("t/0/records.jsonl", "t/0/segment/0.jsonl"):
        file = file_at(tree, path)
        with pytest.raises(CorruptData):
            file.read(0, 1)
        rest = file.read(1, file.attributes().size)
        offsets = [json.loads(line)["offset"] for line in rest.splitlines()]
        assert offsets == (list(range(100, 200)) if path.endswith("records.jsonl") else [])


def test_a_broken_header_is_not_believed_about_its_last_offset(tmp_path: Path) -> None:
    content = dense(0, 29, 10)
    data = bytearray(joined(content))
    second = positions(content)[1]
    data[second + 23 : second + 27] = (2).to_bytes(4, "big")  # its last offset delta: the CRC is wrong now
    write_log(tmp_path / "t-0", 0, bytes(data))
    log = open_log(tmp_path / "t-0")
    assert lost_ranges(log) == [OffsetRange(10, 20)]
    assert all(find_raises(log, offset) for offset in range(10, 20))


def test_junk_between_batches_that_follow_each_other_loses_nothing(tmp_path: Path) -> None:
    first, second = dense(0, 9)
    write_log(tmp_path / "t-0", 0, first.data + b"\xab" * 100 + second.data)
    lines, problems = printed(tmp_path, "t")
    assert len(lines.splitlines()) == 10
    assert not problems
    assert len(open_log(tmp_path / "t-0").problems) == 0  # nobody has read it
    file = file_at(open_tree(tmp_path), "t/0/records.jsonl")
    assert file.read(0, file.attributes().size) == lines


def test_a_position_inside_of_what_is_lost_has_a_note(tmp_path: Path) -> None:
    log = open_log(cut_log(tmp_path) / "t-0")
    found = standing_of(85, None, log)
    assert found.next_offset == 100
    assert found.note is not None
    assert "damaged at" in found.note
    assert standing_of(100, None, log).note is None
