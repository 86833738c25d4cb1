"""The worked examples of the articles about Kafka's storage, whose numbers every reader of these files should get."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kfs.format.batch_header import HEADER_BYTES_NEEDED, read_header
from kfs.format.codecs import Codec
from kfs.format.layout import BATCH_OVERHEAD, LOG_OVERHEAD
from kfs.format.record import Record
from kfs.log.offset_index import OffsetPosition
from tests.format.refusal import refused_at
from tests.logs import (
    Batch,
    batch,
    batches,
    content_of,
    find_record,
    log_name,
    open_log,
    open_tree,
    record,
    records,
    records_in,
    write_log,
)

BASE = 368769
SAY_HELLO = Record(0, 1_606_446_771_205, b"say", b"hello")


def sized(offset: int, size: int) -> Batch:
    """Return a message of format v1 that takes ``size`` bytes of the log."""
    empty = len(batch([record(offset, b"", None)], magic=1).data)
    return batch([record(offset, b"x" * (size - empty), None)], magic=1)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """The segment 00000000000000368769, whose third message ends at 497; the index has the entry (3, 497)."""
    directory = tmp_path / "topic-0"
    # The entry is of the offset of the message that it points at, as brokers of that time wrote it: 368769 + 3.
    content = [sized(BASE, 150), sized(BASE + 1, 150), sized(BASE + 2, 197)]
    content += [sized(BASE + relative, 300) for relative in range(3, 10)]
    log = write_log(directory, BASE, b"".join(one.data for one in content))
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 3, 497) + struct.pack(">ii", 8, 497 + 5 * 300))
    write_log(directory, BASE + 10, batch([record(BASE + 10)]).data)
    return directory


def test_the_entry_says_what_the_article_says(partition: Path) -> None:
    segment = open_log(partition).segments[0]
    index = segment.indexes._offset_index()
    assert index is not None
    assert index.entry(0) == OffsetPosition(368772, 497)
    assert index.lookup(368776) == OffsetPosition(368772, 497)


def test_offset_368776_is_found_through_its_segment_and_the_entry_3_497(partition: Path) -> None:
    log = open_log(partition)
    segment = log.segment_for(368776)
    assert segment is not None
    assert segment.files.log.path.endswith("00000000000000368769.log")
    assert segment.position_before(368776) == (497, None)
    assert find_record(log, 368776) == sized(368776, 300).records[0]


def test_offset_368776_is_the_same_without_the_index(partition: Path) -> None:
    (partition / log_name(BASE, ".index")).unlink()
    assert find_record(open_log(partition), 368776) == sized(368776, 300).records[0]


def test_offset_368776_is_a_file_in_the_tree(partition: Path) -> None:
    line = content_of(open_tree(partition), "topic/0/offset/368776.json")
    assert b'"offset":368776,' in line


@pytest.mark.parametrize(("magic", "message_size"), [(0, 22), (1, 30)])
def test_say_hello_is_22_bytes_in_v0_and_30_in_v1(magic: int, message_size: int, tmp_path: Path) -> None:
    (message,) = batches([SAY_HELLO], magic=magic)
    header = read_header(message.data.ljust(HEADER_BYTES_NEEDED, b"\0"), 0, 0)
    assert header.size == message_size + LOG_OVERHEAD
    assert len(message.data) == header.size == {0: 34, 1: 42}[magic]
    assert records_in(open_log(write_log(tmp_path / "t-0", 0, message.data).parent)) == list(message.records)


def test_say_hello_is_a_record_of_15_bytes_in_v2_and_76_with_its_batch(tmp_path: Path) -> None:
    data = batch([SAY_HELLO]).data
    assert len(data) == 76
    assert len(data) - BATCH_OVERHEAD == 15
    assert data[BATCH_OVERHEAD] == 14 << 1  # its own length, a zigzag varint of one byte, then 14 bytes
    assert records_in(open_log(write_log(tmp_path / "t-0", 0, data).parent)) == [SAY_HELLO]


@pytest.mark.parametrize(("magic", "least"), [(0, 14), (1, 22)])
def test_a_message_has_at_least_14_bytes_in_v0_and_22_in_v1(magic: int, least: int) -> None:
    (smallest,) = batches([Record(0, -1, None, None)], magic=magic)
    assert len(smallest.data) - LOG_OVERHEAD == least

    def with_size(size: int) -> bytes:
        return (smallest.data[:8] + size.to_bytes(4, "big") + smallest.data[12:]).ljust(HEADER_BYTES_NEEDED, b"\0")

    def parse(data: bytes) -> object:
        return read_header(data, 0, 0)

    assert refused_at(parse, with_size(least)) is None
    assert refused_at(parse, with_size(least - 1)) == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.label)
def test_six_messages_in_a_v1_wrapper_of_offset_1030_have_offsets_1025_to_1030(codec: Codec, tmp_path: Path) -> None:
    wrapper = batch(records(1025, 1030), magic=1, codec=codec)
    header = read_header(wrapper.data, 0, 0)
    assert header.last_offset == 1030  # the wrapper's own offset is that of its last message: absolute
    log = open_log(write_log(tmp_path / "t-0", 1025, wrapper.data).parent)
    assert [one.offset for one in records_in(log)] == [1025, 1026, 1027, 1028, 1029, 1030]
    # AO = wrapper offset + (inner offset - last inner offset)
    assert [1030 + (inner - 5) for inner in range(6)] == [one.offset for one in records_in(log)]
    for offset in range(1025, 1031):
        assert find_record(log, offset) == wrapper.records[offset - 1025]
    assert find_record(log, 1031) is None


def test_the_inner_offsets_of_that_wrapper_are_stored_as_0_to_5(tmp_path: Path) -> None:
    # What is stored is relative: moving the wrapper, which its CRC does not cover, moves all six.
    data = batch(records(1025, 1030), magic=1, codec=Codec.GZIP).data
    moved = struct.pack(">q", 2030) + data[8:]
    log = open_log(write_log(tmp_path / "t-0", 2025, moved).parent)
    assert [one.offset for one in records_in(log)] == list(range(2025, 2031))
