"""The walk over a segment: single cases of damage, disorder and hostile bytes, and what each must lead to."""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path

import pytest
from crc32c import crc32c

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.codecs import Codec
from kfs.format.layout import MAX_INT32
from kfs.format.writer import encode_batch, encode_empty_batch
from kfs.log.block import Block
from kfs.log.log import Log
from kfs.log.storage import Storage
from tests.logs import (
    Batch,
    batch,
    bytes_read,
    damage_in,
    dense,
    find_record,
    joined,
    log_name,
    open_log,
    positions,
    record,
    records,
    records_in,
    watch_reads,
    write_log,
    write_partition,
)

BASE = 1000
FORMATS = [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.SNAPPY), (2, Codec.NONE), (2, Codec.ZSTD)]
EVERY_FORMAT = pytest.mark.parametrize(
    ("magic", "codec"), FORMATS, ids=[f"v{magic} {codec.label}" for magic, codec in FORMATS]
)


def log_with(tmp_path: Path, data: bytes, *, closed_at: int | None = None, storage: Storage | None = None) -> Log:
    """Write a segment at BASE; ``closed_at`` is the base of one behind it."""
    directory = write_log(tmp_path / "t-0", BASE, data).parent
    if closed_at is not None:
        write_log(directory, closed_at, batch([record(closed_at)]).data)
    return open_log(directory, storage)


def offsets_in(log: Log) -> list[int]:
    return [one.offset for one in records_in(log)]


def problems_at(log: Log) -> list[tuple[int, int]]:
    """Return position and size of every problem of the first segment."""
    return [(problem.position, problem.size) for problem in log.problems]


def with_length(one: Batch, length: int) -> bytes:
    return one.data[:8] + struct.pack(">i", length) + one.data[12:]


def moved(one: Batch, offset: int) -> bytes:
    """Return the batch with another offset, which no CRC covers."""
    return struct.pack(">q", offset) + one.data[8:]


# --- what a walk yields ---------------------------------------------------------------------------------------------


@EVERY_FORMAT
def test_a_sound_segment_has_its_records_and_no_problem(magic: int, codec: Codec, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 29, magic=magic, codec=codec)
    log = log_with(tmp_path, joined(content))
    assert records_in(log) == [one for each in content for one in each.records]
    assert (log.log_start_offset, log.log_end_offset) == (BASE, BASE + 30)
    assert problems_at(log) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_uncompressed_messages_share_a_block(magic: int, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 99, magic=magic)
    (block,) = log_with(tmp_path, joined(content)).segments[0].walk()
    assert isinstance(block, Block)
    assert (block.header.base_offset, block.header.last_offset, block.header.record_count) == (BASE, BASE + 99, 100)
    assert block.data == joined(content)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_run_of_messages_is_bounded(magic: int, tmp_path: Path) -> None:
    content = [batch([record(BASE + at, bytes(10_000))], magic=magic) for at in range(100)]
    log = log_with(tmp_path, joined(content))
    blocks = [item for item in log.segments[0].walk() if isinstance(item, Block)]
    assert len(blocks) > 3
    assert max(block.header.size for block in blocks) <= 256 * 1024
    assert offsets_in(log) == list(range(BASE, BASE + 100))


def test_formats_may_change_within_a_segment(tmp_path: Path) -> None:
    content: list[Batch] = []
    for magic, codec in FORMATS:
        first = BASE + 5 * FORMATS.index((magic, codec))
        content += dense(first, first + 4, magic=magic, codec=codec)
    assert records_in(log_with(tmp_path, joined(content))) == [one for each in content for one in each.records]


def test_holes_and_empty_batches_are_no_damage(tmp_path: Path) -> None:
    data = (
        encode_empty_batch(BASE, BASE + 9)
        + encode_batch([record(BASE + 12), record(BASE + 17)], base_offset=BASE + 10, last_offset=BASE + 19)
        + encode_empty_batch(BASE + 25, BASE + 29)
    )
    log = log_with(tmp_path, data)
    assert offsets_in(log) == [BASE + 12, BASE + 17]
    assert log.log_end_offset == BASE + 30
    assert problems_at(log) == []
    for hole in (BASE, BASE + 11, BASE + 19, BASE + 22, BASE + 27, BASE + 30):
        assert find_record(log, hole) is None


# --- the end of the log ---------------------------------------------------------------------------------------------


@EVERY_FORMAT
def test_a_batch_cut_off_anywhere_ends_the_log(magic: int, codec: Codec, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 9, magic=magic, codec=codec)
    whole, last = joined(content[:-1]), content[-1]
    directory = write_log(tmp_path / "t-0", BASE, b"").parent
    for length in range(len(last.data)):
        (tmp_path / "t-0" / "00000000000000001000.log").write_bytes(whole + last.data[:length])
        log = open_log(directory)
        assert log.log_end_offset == last.first_offset
        assert offsets_in(log) == list(range(BASE, last.first_offset))
        assert problems_at(log) == []
        assert find_record(log, last.first_offset) is None


@EVERY_FORMAT
def test_a_batch_cut_off_in_a_closed_segment_is_damage(magic: int, codec: Codec, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 9, magic=magic, codec=codec)
    data = joined(content)[:-3]
    log = log_with(tmp_path, data, closed_at=BASE + 10)
    last = content[-1]
    position = len(data) - len(last.data) + 3
    assert offsets_in(log) == [*range(BASE, last.first_offset), BASE + 10]
    assert problems_at(log) == [(position, len(last.data) - 3)]
    assert find_record(log, last.last_offset) is CorruptData


@pytest.mark.parametrize("zeros", [1, 11, 12, 16, 17, 61, 5000])
def test_zeros_to_the_end_of_the_last_segment_end_the_log(zeros: int, tmp_path: Path) -> None:
    log = log_with(tmp_path, joined(dense(BASE, BASE + 9)) + bytes(zeros))
    assert offsets_in(log) == list(range(BASE, BASE + 10))
    assert log.log_end_offset == BASE + 10
    assert find_record(log, BASE + 10) is None
    assert problems_at(log) == []


def test_a_preallocated_segment_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_with(tmp_path, joined(dense(BASE, BASE + 9)))
    path = log.segments[0].files.log.path
    os.truncate(path, 1 << 30)
    reads = watch_reads(monkeypatch)
    assert offsets_in(log) == list(range(BASE, BASE + 10))
    assert log.log_end_offset == BASE + 10
    assert bytes_read(reads) < 1 << 21


def test_zeros_in_a_closed_segment_are_damage(tmp_path: Path) -> None:
    data = joined(dense(BASE, BASE + 9))
    log = log_with(tmp_path, data + bytes(100), closed_at=BASE + 10)
    assert offsets_in(log) == list(range(BASE, BASE + 11))
    assert problems_at(log) == [(len(data), 100)]


def test_zeros_with_batches_behind_them_are_damage(tmp_path: Path) -> None:
    first, second = dense(BASE, BASE + 9)
    log = log_with(tmp_path, first.data + bytes(1000) + second.data)
    assert offsets_in(log) == list(range(BASE, BASE + 10))
    assert problems_at(log) == [(len(first.data), 1000)]


# --- broken batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swallowed", [1, 2, 3])
@EVERY_FORMAT
def test_a_length_that_swallows_whole_batches_hides_none_of_them(
    magic: int, codec: Codec, swallowed: int, tmp_path: Path
) -> None:
    content = dense(BASE, BASE + 29, magic=magic, codec=codec)
    broken = 2
    length = sum(len(one.data) for one in content[broken : broken + 1 + swallowed]) - 12
    data = joined(content[:broken]) + with_length(content[broken], length) + joined(content[broken + 1 :])
    log = log_with(tmp_path, data)
    lost = [one.offset for one in content[broken].records]
    assert offsets_in(log) == [offset for offset in range(BASE, BASE + 30) if offset not in lost]
    assert problems_at(log) == [(positions(content)[broken], len(content[broken].data))]
    for offset in lost:
        assert find_record(log, offset) is CorruptData


@pytest.mark.parametrize("padding", [0, 100])
@pytest.mark.parametrize("short_by", [1, 4])
@pytest.mark.parametrize("claimed_offset", [BASE + 5, 0x5107A83A9F642100])
def test_a_length_that_ends_in_the_zeros_of_the_last_batch_does_not_hide_it(
    short_by: int, claimed_offset: int, padding: int, tmp_path: Path
) -> None:
    """Each lz4 frame ends with four zeros, and zeros may follow the log."""
    first, last = batch(records(BASE, BASE + 4)), batch(records(BASE + 10, BASE + 14), magic=1, codec=Codec.LZ4)
    assert last.data.endswith(bytes(4))
    size = 25 + len(last.data) - short_by
    cut_off = struct.pack(">qiIbb", claimed_offset, size - 12, 1, 0, 0) + b"\xab" * 7
    log = log_with(tmp_path, first.data + cut_off + last.data + bytes(padding))
    assert offsets_in(log) == [*range(BASE, BASE + 5), *range(BASE + 10, BASE + 15)]
    assert problems_at(log) == [(len(first.data), len(cut_off))]


@pytest.mark.parametrize("count", [1, 3])
def test_a_length_that_ends_where_batches_go_on_does_not_hide_those_before(count: int, tmp_path: Path) -> None:
    """What is left of a broken batch may claim anything: here an impossible offset, and to end where another does."""
    first, *others = (batch(records(start, start + 4)) for start in range(BASE, BASE + 5 * (count + 2), 5))
    swallowed = joined(others[:count])
    cut_off = struct.pack(">qiIbb", 0x2C24003000000000, 25 + len(swallowed) - 12, 1, 0, 0) + b"\xab" * 7
    log = log_with(tmp_path, first.data + cut_off + joined(others))
    assert offsets_in(log) == [*range(BASE, BASE + 5 * (count + 2))]
    assert problems_at(log) == [(len(first.data), len(cut_off))]


@pytest.mark.parametrize("claimed_offset", [BASE + 5, BASE + 1000, 0x5107A83A9F642100])
def test_a_length_that_ends_at_a_message_in_a_wrapper_does_not_hide_the_wrapper(
    claimed_offset: int, tmp_path: Path
) -> None:
    """A codec may store a message as it is, so that the log seems to go on with it."""
    value = random.Random(1).randbytes(4000)  # more than what lz4 could save elsewhere
    first, inner, last = (batch([record(BASE + at, value)], magic=0) for at in (0, 10, 20))
    wrapper = batch([*inner.records, record(BASE + 11)], magic=0, codec=Codec.LZ4)
    size = 25 + wrapper.data.index(inner.data)
    cut_off = struct.pack(">qiIbb", claimed_offset, size - 12, 1, 0, 0) + b"\xab" * 7
    log = log_with(tmp_path, first.data + cut_off + wrapper.data + last.data)
    assert offsets_in(log) == [BASE, BASE + 10, BASE + 11, BASE + 20]
    assert problems_at(log) == [(len(first.data), len(cut_off))]


def test_a_batch_in_a_broken_message_is_none_of_the_log(tmp_path: Path) -> None:
    first, inner, last = (batch(records(start, start + 4)) for start in (BASE, BASE + 5, BASE + 20))
    outer = struct.pack(">qiIbb", 0x2C24003000000000, 25 + len(inner.data) - 12, 1, 0, 0) + b"\xab" * 7 + inner.data
    log = log_with(tmp_path, first.data + outer + last.data)
    assert offsets_in(log) == [*range(BASE, BASE + 5), *range(BASE + 20, BASE + 25)]
    assert problems_at(log) == [(len(first.data), len(outer))]


def test_a_length_that_ends_in_the_zeros_behind_the_last_batch_does_not_hide_it(tmp_path: Path) -> None:
    first, last = batch(records(BASE, BASE + 4)), batch([record(BASE + 10)], magic=0)
    cut_off = struct.pack(">qiIbb", BASE + 5, 25 + len(last.data) + 8 - 12, 1, 0, 0) + b"\xab" * 7
    log = log_with(tmp_path, first.data + cut_off + last.data + bytes(100))
    assert offsets_in(log) == [*range(BASE, BASE + 5), BASE + 10]
    assert problems_at(log) == [(len(first.data), len(cut_off))]


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 13, 48, 60, 10_000, 2**30, 2**31 - 1])
@EVERY_FORMAT
def test_a_wrong_length_costs_one_batch(magic: int, codec: Codec, length: int, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 29, magic=magic, codec=codec)
    data = joined(content[:2]) + with_length(content[2], length) + joined(content[3:])
    log = log_with(tmp_path, data)
    lost = [one.offset for one in content[2].records]
    assert offsets_in(log) == [offset for offset in range(BASE, BASE + 30) if offset not in lost]
    assert problems_at(log) == [(positions(content)[2], len(content[2].data))]


@pytest.mark.parametrize("magic", [3, 7, 127, 128, 255])
def test_an_unknown_magic_costs_one_batch(magic: int, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 29)
    broken = content[2].data[:16] + bytes([magic]) + content[2].data[17:]
    log = log_with(tmp_path, joined(content[:2]) + broken + joined(content[3:]))
    assert offsets_in(log) == [*range(BASE, BASE + 10), *range(BASE + 15, BASE + 30)]
    assert problems_at(log) == [(positions(content)[2], len(content[2].data))]
    assert find_record(log, BASE + 12) is CorruptData
    assert find_record(log, BASE + 15) == record(BASE + 15)


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (1, 21), (1, 14), (0, 0)])
def test_a_message_below_the_least_size_is_broken(magic: int, size: int, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 9, magic=magic)
    broken = with_length(content[3], size)
    log = log_with(tmp_path, joined(content[:3]) + broken + joined(content[4:]))
    assert offsets_in(log) == [offset for offset in range(BASE, BASE + 10) if offset != BASE + 3]
    assert find_record(log, BASE + 3) is CorruptData


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_costs_its_batch(codec_id: int, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 14)
    changed = bytearray(content[1].data)
    changed[22] |= codec_id
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    log = log_with(tmp_path, content[0].data + bytes(changed) + content[2].data)
    assert offsets_in(log) == [*range(BASE, BASE + 5), *range(BASE + 10, BASE + 15)]
    assert find_record(log, BASE + 7) is CorruptData
    assert problems_at(log) == [(len(content[0].data), len(content[1].data))]


def test_a_batch_inside_of_a_value_is_never_taken_for_one(tmp_path: Path) -> None:
    inner = batch(records(BASE + 6, BASE + 8)).data
    content = [*dense(BASE, BASE + 4), batch([record(BASE + 5, inner)]), *dense(BASE + 10, BASE + 14)]
    broken = bytearray(content[1].data)
    broken[-1] ^= 0xFF  # outside of the value that holds the batch
    log = log_with(tmp_path, content[0].data + bytes(broken) + content[2].data)
    assert offsets_in(log) == [*range(BASE, BASE + 5), *range(BASE + 10, BASE + 15)]


def test_a_batch_over_the_limit_is_damage_that_names_the_limit(tmp_path: Path) -> None:
    content = [*dense(BASE, BASE + 4), batch([record(BASE + 5, bytes(10_000))]), *dense(BASE + 6, BASE + 9)]
    log = log_with(tmp_path, joined(content), storage=Storage(max_batch_bytes=5000))
    assert offsets_in(log) == [*range(BASE, BASE + 5), *range(BASE + 6, BASE + 10)]
    (problem,) = log.problems
    assert "5000" in problem.reason


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.label)
def test_a_batch_that_decompresses_past_the_limit_is_an_error_that_names_it(codec: Codec, tmp_path: Path) -> None:
    content = [
        *dense(BASE, BASE + 4),
        batch([record(BASE + 5, bytes(200_000))], codec=codec),
        *dense(BASE + 6, BASE + 9),
    ]
    log = log_with(tmp_path, joined(content), storage=Storage(max_batch_bytes=50_000))
    assert offsets_in(log) == [*range(BASE, BASE + 5), *range(BASE + 6, BASE + 10)]
    with pytest.raises(LimitExceeded, match="50000"):
        log.find(BASE + 5)
    (problem,) = log.problems
    assert "max-batch-bytes (50000 bytes)" in problem.reason


# --- offsets, which no CRC covers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", range(64))
@EVERY_FORMAT
def test_a_flipped_bit_of_an_offset_hides_no_other_batch(magic: int, codec: Codec, bit: int, tmp_path: Path) -> None:
    content = dense(BASE, BASE + 59, magic=magic, codec=codec, size=10)
    index = len(content) // 2
    victim = content[index]
    field = struct.unpack_from(">Q", victim.data)[0] ^ 1 << bit
    data = joined(content[:index]) + struct.pack(">Q", field) + victim.data[8:] + joined(content[index + 1 :])
    log = log_with(tmp_path, data)
    # What the batch says that it holds now; in v0 the offsets inside of a wrapper are absolute.
    shift = field - struct.unpack_from(">Q", victim.data)[0]
    claimed = {one.offset + shift for one in victim.records}
    others = [one for each in content if each is not victim for one in each.records]
    found = records_in(log)
    assert [one for one in found if one.offset not in claimed] == [one for one in others if one.offset not in claimed]
    assert [one.offset for one in found] == sorted({one.offset for one in found})
    written = {one.offset: one for one in [*others, *victim.records]}
    for one in found:
        assert one == written.get(one.offset) or one.value in {each.value for each in victim.records}
    overlaps = claimed & {one.offset for one in others}
    assert not overlaps or log.problems or {one.offset for one in found} >= {one.offset for one in others}


@EVERY_FORMAT
@pytest.mark.parametrize("leap", [10**3, 10**6, 2**30])
def test_an_offset_that_leaps_ahead_of_those_behind_it_is_the_lie(
    magic: int, codec: Codec, leap: int, tmp_path: Path
) -> None:
    content = dense(BASE, BASE + 29, magic=magic, codec=codec)
    shown = struct.unpack_from(">q", content[2].data)[0]
    log = log_with(tmp_path, joined(content[:2]) + moved(content[2], shown + leap) + joined(content[3:]))
    lost = [one.offset for one in content[2].records]
    assert offsets_in(log) == [offset for offset in range(BASE, BASE + 30) if offset not in lost]
    assert problems_at(log) == [(positions(content)[2], len(content[2].data))]
    assert find_record(log, lost[0]) is CorruptData
    assert find_record(log, lost[0] + leap) is None


def test_an_offset_that_goes_back_is_a_problem_and_no_record(tmp_path: Path) -> None:
    content = dense(BASE, BASE + 29)
    log = log_with(tmp_path, joined(content[:3]) + moved(content[3], BASE + 5) + joined(content[4:]))
    assert offsets_in(log) == [*range(BASE, BASE + 15), *range(BASE + 20, BASE + 30)]
    assert find_record(log, BASE + 5) == record(BASE + 5)
    assert problems_at(log) == [(positions(content)[3], len(content[3].data))]


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
def test_of_overlapping_batches_the_first_has_the_record(codec: Codec, tmp_path: Path) -> None:
    first = batch(records(BASE, BASE + 9), codec=codec)
    second = batch([record(BASE + at, b"later") for at in range(5, 15)], codec=codec)
    log = log_with(tmp_path, first.data + second.data)
    assert records_in(log) == [*first.records, *second.records[5:]]
    assert find_record(log, BASE + 7) == first.records[7]
    assert find_record(log, BASE + 12) == second.records[7]
    assert find_record(log, BASE + 7) == first.records[7]
    assert problems_at(log) == [(len(first.data), len(second.data))]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4], ids=lambda codec: codec.label)
def test_of_overlapping_wrappers_the_first_has_the_record(codec: Codec, tmp_path: Path) -> None:
    first = batch(records(BASE, BASE + 9), magic=1, codec=codec)
    second = batch([record(BASE + at, b"later") for at in range(5, 15)], magic=1, codec=codec)
    log = log_with(tmp_path, first.data + second.data)
    assert records_in(log) == [*first.records, *second.records[5:]]
    for offset in (BASE + 12, BASE + 7, BASE + 9, BASE + 10):
        found = find_record(log, offset)
        assert found == (first.records[offset - BASE] if offset < BASE + 10 else second.records[offset - BASE - 5])


@pytest.mark.parametrize("is_looked_at_before", [False, True])
def test_of_two_wrappers_that_end_at_offset_0_the_first_has_it(is_looked_at_before: bool, tmp_path: Path) -> None:
    """Where such a wrapper begins, and that it holds nothing new, is known only inside."""
    wrapper = batch(records(0, 0), magic=1, codec=Codec.LZ4)
    log = open_log(write_partition(tmp_path / "t-0", {0: [wrapper, wrapper]}))
    if is_looked_at_before:
        assert log.log_end_offset == 1
    assert find_record(log, 0) == wrapper.records[0]


def test_of_a_wrapper_written_again_with_more_only_that_is_new(tmp_path: Path) -> None:
    first = batch([record(at) for at in (10, 14, 16)], magic=1, codec=Codec.GZIP)
    again = batch([record(at, b"later") for at in (10, 11, 14, 16, 17)], magic=1, codec=Codec.GZIP)
    log = open_log(write_partition(tmp_path / "t-0", {0: [first, again]}))
    assert records_in(log) == [*first.records, again.records[-1]]


def test_a_message_behind_a_cut_wrapper_is_read_where_nothing_is_written_any_more(tmp_path: Path) -> None:
    """In the active segment it may be in the wrapper, stored as it is."""
    cut = moved(batch([record(0)], magic=1, codec=Codec.GZIP), 1)[:38]
    following = batch([record(1)], magic=0)
    write_partition(tmp_path / "t-0", {0: [following], 5: dense(5, 9)})
    (tmp_path / "t-0" / log_name(0)).write_bytes(cut + following.data)
    assert offsets_in(open_log(tmp_path / "t-0")) == [1, *range(5, 10)]


def test_what_claims_an_offset_that_cannot_be_hides_no_batch_that_goes_on(tmp_path: Path) -> None:
    """Junk may claim to end where zeros begin."""
    first = batch([record(BASE + 5)], magic=0)
    second = batch([record(BASE + 6), record(BASE + 7)], magic=0, codec=Codec.GZIP)
    torn = batch([record(BASE + 8)], magic=1, codec=Codec.GZIP).data
    torn = torn[:24] + bytes(len(torn) - 24)
    end = len(second.data) + 50
    junk = struct.pack(">qiIbb", 1 << 62, end + 6, 0, 0, 0)
    log = log_with(tmp_path, first.data + junk + second.data + torn)
    assert offsets_in(log) == [BASE + 5, BASE + 6, BASE + 7]


def test_a_duplicate_of_an_older_batch_is_a_problem_and_no_record(tmp_path: Path) -> None:
    content = dense(BASE, BASE + 14)
    log = log_with(tmp_path, joined(content) + content[0].data)
    assert offsets_in(log) == list(range(BASE, BASE + 15))
    assert log.log_end_offset == BASE + 15
    assert problems_at(log) == [(len(joined(content)), len(content[0].data))]


# --- the bounds of a segment ----------------------------------------------------------------------------------------


def test_offsets_at_or_past_the_next_base_are_no_records(tmp_path: Path) -> None:
    directory = write_partition(
        tmp_path / "t-0", {0: dense(0, 19), 10: [batch([record(at, b"second") for at in range(10, 20)])]}
    )
    log = open_log(directory)
    assert records_in(log) == [*records(0, 9), *(record(at, b"second") for at in range(10, 20))]
    assert find_record(log, 12) == record(12, b"second")
    assert {problem.file for problem in log.problems} == {str(directory / "00000000000000000000.log")}


def test_a_batch_across_the_next_base_is_cut_there(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: [batch(records(0, 9))], 5: [batch([record(5, b"second")])]})
    log = open_log(directory)
    assert records_in(log) == [*records(0, 4), record(5, b"second")]
    assert find_record(log, 7) is None
    assert len(log.problems) == 1


def test_offsets_below_the_base_are_no_records(tmp_path: Path) -> None:
    log = log_with(tmp_path, joined(dense(BASE - 10, BASE - 1)) + joined(dense(BASE, BASE + 4)))
    assert offsets_in(log) == list(range(BASE, BASE + 5))
    assert len(log.problems) > 0


def test_offsets_more_than_int32_above_the_base_are_no_records(tmp_path: Path) -> None:
    limit = BASE + MAX_INT32
    content = [batch([record(BASE)]), batch([record(limit)])]
    log = log_with(tmp_path, joined(content) + batch([record(limit + 1)]).data)
    assert offsets_in(log) == [BASE, limit]
    assert log.log_end_offset == limit + 1
    assert len(log.problems) == 1


def test_the_last_offsets_that_there_can_be(tmp_path: Path) -> None:
    last = 2**63 - 2
    directory = write_log(
        tmp_path / "t-0", last - 3, batch([record(at, timestamp=5) for at in range(last - 3, last + 1)]).data
    ).parent
    log = open_log(directory)
    assert offsets_in(log) == list(range(last - 3, last + 1))
    assert log.log_end_offset == last + 1
    assert find_record(log, last) == record(last, timestamp=5)
    assert find_record(log, last + 1) is None


# --- time and memory ------------------------------------------------------------------------------------------------


def pretend_headers(pattern: bytes) -> bytes:
    """Return bytes in which many positions look like the header of a large batch."""
    return pattern * (400_000 // len(pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        bytes(16) + b"\x02",
        bytes(12),
        struct.pack(">qiibI", BASE, 300_000, 0, 2, 0),
        struct.pack(">qiIbb", BASE + 1, 300_000, 0, 1, 0),
        struct.pack(">qiIbb", BASE + 1, 14, 0, 0, 0),
        b"\x00\x00\x00\x00\x00\x00\x03\xe9\x00\x04\x00\x00\x00",
    ],
    ids=["zeros and 2", "zeros", "v2", "v1", "v0", "shifted"],
)
@pytest.mark.parametrize("closed", [False, True])
def test_hostile_bytes_do_not_take_for_ever(pattern: bytes, closed: bool, tmp_path: Path) -> None:
    first, last = dense(BASE, BASE + 9)
    data = first.data + b"\x01" + pretend_headers(pattern) + b"\x01"
    log = log_with(tmp_path, data + last.data, closed_at=BASE + 10 if closed else None)
    started = time.monotonic()
    found = offsets_in(log)
    assert time.monotonic() - started < 30
    assert found[:5] == list(range(BASE, BASE + 5))
    assert set(found) <= set(range(BASE, BASE + 11))


def test_random_bytes_are_one_damage(tmp_path: Path) -> None:
    garbage = bytes(range(256)) * 40
    first, second = dense(BASE, BASE + 9)
    log = log_with(tmp_path, first.data + garbage + second.data)
    assert offsets_in(log) == list(range(BASE, BASE + 10))
    assert [(one.position, one.end) for one in damage_in(log)] == [(len(first.data), len(first.data) + len(garbage))]


def test_a_segment_of_garbage_alone_has_no_records(tmp_path: Path) -> None:
    log = log_with(tmp_path, b"not a log at all, but some text that somebody put here\n" * 100)
    assert offsets_in(log) == []
    assert log.log_end_offset == BASE
    assert len(log.problems) == 1


def test_an_empty_segment_has_no_records_and_no_problem(tmp_path: Path) -> None:
    log = log_with(tmp_path, b"")
    assert offsets_in(log) == []
    assert (log.log_start_offset, log.log_end_offset) == (BASE, BASE)
    assert problems_at(log) == []


def test_what_damage_claims_to_hold_is_an_error_and_what_it_cannot_hold_is_not_there(tmp_path: Path) -> None:
    content = dense(BASE, BASE + 29)
    broken = content[2].data[:-1] + bytes([content[2].data[-1] ^ 1])
    log = log_with(tmp_path, joined(content[:2]) + broken + joined(content[3:]))
    answers = {offset: find_record(log, offset) for offset in range(BASE - 1, BASE + 31)}
    lost = set(range(BASE + 10, BASE + 15))
    assert {offset for offset, answer in answers.items() if answer is CorruptData} == lost
    assert {offset for offset, answer in answers.items() if answer is None} == {BASE - 1, BASE + 30}


def test_damage_at_the_end_may_hide_any_offset_behind_it(tmp_path: Path) -> None:
    content = dense(BASE, BASE + 9)
    broken = content[1].data[:-1] + bytes([content[1].data[-1] ^ 1])
    log = log_with(tmp_path, content[0].data + broken)
    assert [find_record(log, BASE + at) for at in range(5, 12)] == [CorruptData] * 7
