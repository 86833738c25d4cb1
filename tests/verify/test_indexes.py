"""Wrong indexes are named, each with what is wrong and where; legal ones of any broker aren't."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kfs.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kfs.verify.finding import FindingKind, Severity
from tests.implementations import DECODERS
from tests.logs import START, Batch, batch, batches, dense, log_name, positions, record, write_partition
from tests.verify.checking import complaints, found_in, kinds, one, verified, verified_by

OFFSETS, TIMES = log_name(0, ".index"), log_name(0, ".timeindex")
Change = Callable[[bytes], bytes | None]


def two_segments(tmp_path: Path) -> Path:
    """Write a segment of ten batches of more than the index interval, and another behind it."""
    content = [batch([record(at, bytes(1000)) for at in range(first, first + 10)]) for first in range(0, 100, 10)]
    return write_partition(tmp_path / "t-0", {0: content, 100: content_from(100)})


def content_from(first: int) -> list[Batch]:
    return [batch([record(at, bytes(1000)) for at in range(start, start + 10)]) for start in (first, first + 10)]


def swap_first_two(size: int) -> Change:
    return lambda data: data[size : 2 * size] + data[:size] + data[2 * size :]


def change_entry(number: int, first: int, second: int) -> Change:
    """Add to the offset and the position of an entry."""

    def change(data: bytes) -> bytes:
        entries = list(OFFSET_INDEX_ENTRY.iter_unpack(data))
        entries[number] = entries[number][0] + first, entries[number][1] + second
        return b"".join(OFFSET_INDEX_ENTRY.pack(*entry) for entry in entries)

    return change


def change_time(number: int, first: int, second: int = 0) -> Change:
    def change(data: bytes) -> bytes:
        entries = list(TIME_INDEX_ENTRY.iter_unpack(data))
        entries[number] = entries[number][0] + first, entries[number][1] + second
        return b"".join(TIME_INDEX_ENTRY.pack(*entry) for entry in entries)

    return change


def append(more: bytes) -> Change:
    return lambda data: data + more


CHANGES: list[tuple[str, Change, FindingKind, tuple[int, int] | None]] = [
    (OFFSETS, lambda data: None, FindingKind.INDEX_MISSING, None),
    (TIMES, lambda data: None, FindingKind.TIMEINDEX_MISSING, None),
    (OFFSETS, lambda data: data[:-1], FindingKind.INDEX_SIZE, (64, 71)),
    (TIMES, lambda data: data[:-1], FindingKind.TIMEINDEX_SIZE, (96, 107)),
    (OFFSETS, lambda data: bytes(len(data)), FindingKind.INDEX_ZEROS, (0, 72)),
    (TIMES, lambda data: bytes(len(data)), FindingKind.TIMEINDEX_ZEROS, (0, 108)),
    (OFFSETS, append(bytes(80)), FindingKind.INDEX_ZEROS, (72, 152)),
    (TIMES, append(bytes(120)), FindingKind.TIMEINDEX_ZEROS, (108, 228)),
    (OFFSETS, swap_first_two(8), FindingKind.INDEX_ORDER, (8, 16)),
    (TIMES, swap_first_two(12), FindingKind.TIMEINDEX_ORDER, (12, 24)),
    (OFFSETS, lambda data: b"\xff" * len(data), FindingKind.INDEX_ORDER, (0, 8)),
    (OFFSETS, change_entry(2, 0, 1), FindingKind.INDEX_POSITION, (16, 24)),
    (OFFSETS, change_entry(2, 0, -1), FindingKind.INDEX_POSITION, (16, 24)),
    (OFFSETS, change_entry(2, -10, 0), FindingKind.INDEX_OFFSET, (16, 24)),
    (OFFSETS, change_entry(8, 0, 10**6), FindingKind.INDEX_PAST_END, (64, 72)),
    (OFFSETS, change_entry(8, 10, 0), FindingKind.INDEX_PAST_END, (64, 72)),
    (OFFSETS, lambda data: b"", FindingKind.INDEX_SHORT, (0, 0)),
    (TIMES, change_time(2, -1), FindingKind.TIMEINDEX_TIMESTAMP, (24, 36)),
    (TIMES, change_time(2, 1), FindingKind.TIMEINDEX_TIMESTAMP, (24, 36)),
    (TIMES, change_time(8, 0, 10), FindingKind.TIMEINDEX_PAST_END, (96, 108)),
    (TIMES, lambda data: data[:-12], FindingKind.TIMEINDEX_SHORT, (96, 96)),
    (TIMES, lambda data: b"", FindingKind.TIMEINDEX_SHORT, (0, 0)),
]


@pytest.mark.parametrize(("name", "change", "kind", "where"), CHANGES)
def test_a_wrong_index_is_named_with_the_place(
    name: str, change: Change, kind: FindingKind, where: tuple[int, int] | None, tmp_path: Path
) -> None:
    directory = two_segments(tmp_path)
    assert complaints(verified(directory)) == []
    path = directory / name
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    found = complaints(verified(directory))
    assert (kind, where) in found_in(found, name)
    assert {Path(finding.file).name for finding in found} == {name}
    if data is not None:
        assert {(each.kind, each.bytes) for each in verified(path)} <= {(each.kind, each.bytes) for each in found}


def one_segment(root: Path, *, has_times: bool) -> Path:
    """A partition of one segment of 80 KB whose offset index was emptied; ``has_times``: its time index is long."""
    times = range(20) if has_times else [0] * 20
    content = [batch([record(at, b"v" * 4000, timestamp=START + time)]) for at, time in enumerate(times)]
    directory = write_partition(root / "t-0", {0: content}, interval=4096)
    (directory / OFFSETS).write_bytes(b"")
    return directory


def test_an_emptied_index_of_the_last_segment_is_named(tmp_path: Path) -> None:
    # A follower before 4.x that got it all in one fetch leaves it so, too.
    finding = one(verified(one_segment(tmp_path, has_times=False)), FindingKind.INDEX_SHORT)
    assert (finding.severity, finding.bytes, finding.offsets) == (Severity.INFO, (0, 0), (0, 19))
    assert "there is no entry" in finding.sentence


def test_the_time_index_tells_that_there_were_entries(tmp_path: Path) -> None:
    assert one(verified(one_segment(tmp_path, has_times=True)), FindingKind.INDEX_SHORT).severity is Severity.WARNING


def test_an_index_that_a_running_broker_holds_may_be_behind(tmp_path: Path) -> None:
    directory = one_segment(tmp_path, has_times=True)
    os.truncate(directory / OFFSETS, 800)
    assert FindingKind.INDEX_SHORT not in kinds(verified(directory))


def test_an_active_segment_s_indexes_may_be_preallocated_unless_the_broker_was_stopped(tmp_path: Path) -> None:
    root = tmp_path / "data"
    directory = write_partition(root / "t-0", {0: dense(0, 99)})
    for name, size in ((OFFSETS, 8), (TIMES, 12)):
        with (directory / name).open("ab") as file:
            file.truncate(800_000 * size)
    found = verified(directory)
    assert kinds(found) == {FindingKind.INDEX_ZEROS, FindingKind.TIMEINDEX_ZEROS}
    assert complaints(found) == []
    (root / "replication-offset-checkpoint").touch()
    (root / ".kafka_cleanshutdown").touch()
    assert {FindingKind.INDEX_ZEROS, FindingKind.TIMEINDEX_ZEROS} <= kinds(complaints(verified(root)))


def entries_of_older_brokers(content: Sequence[Batch]) -> dict[str, list[tuple[int, int]]]:
    """Return what may be an entry for the batches after the first, three of which make an append."""
    appends = list(zip(positions(content), content, strict=True))[3::3]
    lasts = [content[at + 2].last_offset for at in range(3, len(content), 3)]
    return {
        "last offset of each batch": [
            (one.last_offset, at) for at, one in zip(positions(content), content, strict=True)
        ][1:],
        "first offset of each append": [(one.first_offset, at) for at, one in appends],
        "last offset of each append": [(last, at) for last, (at, _) in zip(lasts, appends, strict=True)],
    }


@pytest.mark.parametrize(
    "who", ["last offset of each batch", "first offset of each append", "last offset of each append"]
)
def test_entries_of_any_broker_are_legal(who: str, tmp_path: Path) -> None:
    content = dense(0, 59)
    directory = write_partition(tmp_path / "t-0", {0: content, 60: dense(60, 69)})
    entries = entries_of_older_brokers(content)[who]
    (directory / OFFSETS).write_bytes(b"".join(OFFSET_INDEX_ENTRY.pack(*entry) for entry in entries))
    assert complaints(verified(directory)) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_an_entry_may_lead_to_each_message_of_an_old_log(magic: int, tmp_path: Path) -> None:
    content = [each for at in range(20) for each in batches([record(at)], magic=magic)]
    directory = write_partition(tmp_path / "t-0", {0: content, 20: batches([record(20)], magic=magic)})
    assert complaints(verified(directory)) == []
    entries = [(at, position) for at, position in enumerate(positions(content))][1:]
    (directory / OFFSETS).write_bytes(b"".join(OFFSET_INDEX_ENTRY.pack(*entry) for entry in entries))
    assert complaints(verified(directory)) == []
    entries[4] = entries[4][0], entries[4][1] + 1
    (directory / OFFSETS).write_bytes(b"".join(OFFSET_INDEX_ENTRY.pack(*entry) for entry in entries))
    assert one(complaints(verified(directory)), FindingKind.INDEX_POSITION).bytes == (32, 40)


def test_a_time_index_entry_inside_of_a_batch_is_held_to_what_lies_before_it(tmp_path: Path) -> None:
    content = [batch([record(at, timestamp=START + after)]) for at, after in enumerate((100, 50, 200))]
    directory = write_partition(tmp_path / "t-0", {0: content, 3: [batch([record(3)])]})
    (directory / TIMES).write_bytes(TIME_INDEX_ENTRY.pack(START + 50, 1) + TIME_INDEX_ENTRY.pack(START + 200, 2))
    finding = one(complaints(verified(directory)), FindingKind.TIMEINDEX_TIMESTAMP)
    assert finding.bytes == (0, 12)
    assert str(START + 100) in finding.sentence


def test_without_any_time_index_the_broker_may_have_been_too_old_for_it(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    for path in directory.glob("*.timeindex"):
        path.unlink()
    found = verified(directory)
    assert complaints(found) == []
    assert {each.severity for each in found if each.kind is FindingKind.TIMEINDEX_MISSING} == {Severity.INFO}


def test_an_index_that_nothing_can_be_said_of_costs_no_memory(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    with (directory / log_name(100, ".index")).open("r+b") as file:
        file.truncate(2**33)  # a hole
    (finding,) = [each for each in verified(directory) if each.kind is FindingKind.INDEX_ZEROS]
    assert finding.bytes is not None
    assert finding.bytes[1] == 2**33


def test_both_decoders_find_the_same_wrong_entries(tmp_path: Path) -> None:
    directory = two_segments(tmp_path)
    path = directory / OFFSETS
    data = change_entry(2, 0, 1)(path.read_bytes())
    assert data is not None
    path.write_bytes(data)
    expected = verified(directory)
    for decoder in DECODERS:
        assert verified_by(decoder(), directory) == expected
