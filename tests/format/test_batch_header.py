"""Headers of batches and messages: what they say, what makes them impossible, and their CRCs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.batch_header import (
    HEADER_BYTES_NEEDED,
    UNKNOWN_COUNT,
    BatchHeader,
    computed_crc,
    crc_mismatch,
    is_intact,
    read_header,
)
from kfs.format.codecs import Codec
from kfs.format.layout import BATCH_HEADER, BATCH_OVERHEAD, MAX_INT32, MAX_INT64
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch, encode_empty_batch
from tests.corpus import corpus_names
from tests.expected import unread_logs
from tests.format.recorded_batches import recorded_batches
from tests.format.refusal import refused_at
from tests.format.some_records import batches

SAY_HELLO = Record(offset=7, timestamp=1_606_446_771_205, key=b"say", value=b"hello")


def header_of(data: bytes, position: int = 0) -> BatchHeader:
    return read_header(data.ljust(HEADER_BYTES_NEEDED, b"\0"), 0, position)


def packed(**changes: int) -> bytes:
    """Return a v2 header with some of its fields changed."""
    fields = {
        "base_offset": 100,
        "length": 49 + 15,
        "leader_epoch": 3,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 9,
        "base_timestamp": 1000,
        "max_timestamp": 2000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": 10,
    }
    return BATCH_HEADER.pack(*(fields | changes).values())


# --- what they say --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", corpus_names())
def test_headers_of_real_brokers_say_what_kafka_reads(name: str, corpus: Callable[[str], Path]) -> None:
    damaged = {unread.file for unread in unread_logs(corpus(name))}
    read = 0
    for batch in recorded_batches(corpus(name)):
        expected = batch.expected
        if expected.file in damaged or batch.data[16] > 2:
            continue
        header = header_of(batch.data, expected.position)
        assert (header.position, header.size, header.magic) == (expected.position, expected.size, expected.magic)
        assert header.crc == expected.crc
        assert header.last_offset == expected.last_offset
        assert header.codec_label == expected.compression
        assert header.timestamp_type == expected.timestamp_type
        assert header.max_timestamp == expected.max_timestamp
        assert header.is_transactional == expected.is_transactional
        assert header.is_control == expected.is_control
        assert (header.delete_horizon is not None) == expected.has_delete_horizon
        assert is_intact(header, batch.data)
        if expected.magic == 2:
            assert (header.base_offset, header.record_count) == (expected.base_offset, expected.count)
            said = (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence)
            assert said == (
                expected.leader_epoch,
                expected.producer_id,
                expected.producer_epoch,
                expected.base_sequence,
            )
        read += 1
    assert read


@given(records=batches(), before=st.integers(0, 50))
def test_every_field_of_a_batch_is_read(records: list[Record], before: int) -> None:
    base = max(records[0].offset - before, 0)
    data = encode_batch(
        records,
        base_offset=base,
        partition_leader_epoch=5,
        producer_id=6,
        producer_epoch=7,
        base_sequence=8,
        transactional=True,
        codec=Codec.GZIP,
    )
    header = header_of(data, position=1234)
    assert (header.position, header.size) == (1234, len(data))
    assert (header.base_offset, header.last_offset) == (base, records[-1].offset)
    assert header.record_count == len(records)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7, 8)
    assert (header.is_transactional, header.is_control, header.codec_id) == (True, False, Codec.GZIP)
    assert header.is_dense == (len(records) == records[-1].offset - base + 1)
    assert is_intact(header, data)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_is_a_batch_of_one(magic: int) -> None:
    data = encode_message_set([SAY_HELLO], magic=magic)
    header = header_of(data)
    assert (header.base_offset, header.last_offset, header.record_count, header.size) == (7, 7, 1, len(data))
    assert header.max_timestamp == (SAY_HELLO.timestamp if magic else -1)
    assert header.timestamp_type == (TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP)
    assert header.is_dense


@pytest.mark.parametrize("magic", [0, 1])
def test_of_a_wrapper_only_the_last_offset_is_known(magic: int) -> None:
    data = encode_message_set([SAY_HELLO, Record(11, 5, None, None)], magic=magic, codec=Codec.SNAPPY)
    header = header_of(data)
    assert (header.last_offset, header.record_count, header.codec_label) == (11, UNKNOWN_COUNT, "snappy")
    assert not header.is_dense


@pytest.mark.parametrize(("attributes", "label"), [(0, "none"), (4, "zstd"), (5, "unknown(5)"), (7, "unknown(7)")])
def test_codecs_have_kafkas_names(attributes: int, label: str) -> None:
    assert header_of(packed(attributes=attributes)).codec_label == label


def test_the_bits_of_the_attributes() -> None:
    header = header_of(packed(attributes=0x7C))
    assert (header.codec_id, header.timestamp_type) == (4, TimestampType.LOG_APPEND_TIME)
    assert (header.is_transactional, header.is_control, header.delete_horizon) == (True, True, 1000)
    legacy = header_of(struct.pack(">qiIbbq", 5, 22, 0, 1, 0x70, 99) + bytes(8))
    assert (legacy.is_transactional, legacy.is_control, legacy.delete_horizon) == (False, False, None)


def test_an_empty_batch_keeps_its_offsets() -> None:
    header = header_of(encode_empty_batch(5, 9, max_timestamp=77))
    assert (header.base_offset, header.last_offset, header.record_count, header.max_timestamp) == (5, 9, 0, 77)
    assert not header.is_dense


@given(records=batches(), before=st.binary(max_size=40), after=st.binary(max_size=40))
def test_a_header_is_read_anywhere_in_a_buffer(records: list[Record], before: bytes, after: bytes) -> None:
    data = encode_batch(records)
    assert read_header(before + data + after, len(before), 99) == read_header(data, 0, 99)


# --- what can't be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"length": 13}, "size 13 is below"),
        ({"length": 0}, "size 0 is below"),
        ({"length": -1}, "size -1 is below"),
        ({"length": 48}, "below the overhead of a record batch"),
        ({"magic": 3}, "unknown magic 3"),
        ({"magic": 127}, "unknown magic 127"),
        ({"magic": -1}, "unknown magic 255"),
        ({"base_offset": -1}, "base offset -1"),
        ({"last_offset_delta": -1}, "last offset delta"),
        ({"base_offset": MAX_INT64, "last_offset_delta": 1, "count": 1}, "last offset delta of 1|last offset delta 1"),
        ({"count": -1}, "-1 records"),
        ({"count": 11}, "11 records with a last offset delta of 9"),
        ({"count": MAX_INT32}, "2147483647 records"),
    ],
)
def test_impossible_headers_are_refused_where_they_stand(changes: dict[str, int], reason: str) -> None:
    with pytest.raises(CorruptData, match=reason) as caught:
        read_header(packed(**changes), 0, 4711)
    assert caught.value.position == 4711


@pytest.mark.parametrize(
    ("magic", "size", "refused"), [(0, 13, True), (0, 14, False), (1, 14, True), (1, 21, True), (1, 22, False)]
)
def test_a_message_has_its_formats_least_size(magic: int, size: int, refused: bool) -> None:
    data = struct.pack(">qiIbb", 5, size, 0, magic, 0).ljust(HEADER_BYTES_NEEDED, b"\0")
    if refused:
        with pytest.raises(CorruptData, match=f"size {size} is below"):
            read_header(data, 0, 0)
    else:
        assert read_header(data, 0, 0).size == size + 12


def test_a_message_has_no_negative_offset() -> None:
    with pytest.raises(CorruptData, match="negative offset -1"):
        header_of(struct.pack(">qiIbb", -1, 14, 0, 0, 0))


@given(data=st.binary(max_size=HEADER_BYTES_NEEDED - 1), before=st.binary(max_size=3))
def test_what_a_header_lacks_counts_as_zeros(data: bytes, before: bytes) -> None:
    def outcome(buffer: bytes, at: int) -> object:
        try:
            return read_header(buffer, at, 5)
        except CorruptData as error:
            return error.reason, error.position

    assert outcome(before + data, len(before)) == outcome(data.ljust(HEADER_BYTES_NEEDED, b"\0"), 0)


@given(st.binary(min_size=HEADER_BYTES_NEEDED, max_size=HEADER_BYTES_NEEDED))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    refused_position = refused_at(lambda data: read_header(data, 0, 5), data)
    assert refused_position in (None, 5)
    if refused_position is None:
        header = read_header(data, 0, 5)
        assert 0 <= header.base_offset <= header.last_offset <= MAX_INT64
        assert header.size >= 26
        assert header.magic in (0, 1, 2)
        assert -1 <= header.record_count <= header.last_offset - header.base_offset + 1


# --- CRCs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_crc_covers_what_kafka_says_it_covers(magic: int) -> None:
    data = encode_batch([SAY_HELLO]) if magic == 2 else encode_message_set([SAY_HELLO], magic=magic)
    start = 21 if magic == 2 else 16
    field = range(17, 21) if magic == 2 else range(12, 16)
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
        # The header as it was, the CRC aside: what is asked is which bytes the sum is of.
        header = header_of(data)._replace(crc=int.from_bytes(changed[field.start : field.stop], "big"))
        assert is_intact(header, changed) == (position < start and position not in field), position


def test_a_wrong_crc_names_both() -> None:
    data = encode_batch([SAY_HELLO])
    header = header_of(data, 42)._replace(crc=1)
    error = crc_mismatch(header, data)
    assert error.position == 42
    assert str(error).endswith(f"record batch with stored CRC 1, computed {computed_crc(header, data)}")
    assert len(data) > BATCH_OVERHEAD
