"""The writer of record batches (v2): the bytes are Kafka's, and others read them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.codecs import Codec, decompress
from kfs.format.layout import (
    BATCH_CRC_START,
    BATCH_HEADER,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAX_INT32,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch, encode_empty_batch
from tests.format.aiokafka_parser import read_by_aiokafka
from tests.format.integers import int16s, int32s, int64s
from tests.format.recorded_batches import RecordedBatch, recorded_batches
from tests.format.some_records import batches, stamped

ATTRIBUTES_POSITION = BATCH_CRC_START
SAY_HELLO = Record(offset=0, timestamp=1_606_446_771_205, key=b"say", value=b"hello")
EVERY_CODEC = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)


# --- the bytes of real brokers --------------------------------------------------------------------------------------


def written_again(batch: RecordedBatch) -> bytes:
    """Return what our writer makes of a batch that aiokafka has read, without compression."""
    base_offset, *_, last_offset_delta, base_timestamp, max_timestamp, _, _, _, count = BATCH_HEADER.unpack(
        batch.data[:BATCH_OVERHEAD]
    )
    is_append_time = bool(batch.attributes & TIMESTAMP_TYPE_MASK)
    last_offset = base_offset + last_offset_delta
    fields: dict[str, Any] = {
        "timestamp_type": TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
        "partition_leader_epoch": batch.expected.leader_epoch,
        "producer_id": batch.expected.producer_id,
        "producer_epoch": batch.expected.producer_epoch,
        "base_sequence": batch.expected.base_sequence,
        "transactional": bool(batch.attributes & TRANSACTIONAL_MASK),
        "control": bool(batch.attributes & CONTROL_MASK),
    }
    if count == 0:
        return encode_empty_batch(base_offset, last_offset, max_timestamp=max_timestamp, **fields)
    return encode_batch(
        stored_records(batch),
        base_offset=base_offset,
        last_offset=last_offset,
        append_time=max_timestamp if is_append_time else None,
        delete_horizon=base_timestamp if batch.attributes & DELETE_HORIZON_MASK else None,
        **fields,
    )


def stored_records(batch: RecordedBatch) -> list[Record]:
    """Return the records with the timestamps that are stored, which the append time hides from readers."""
    shown = bytearray(batch.data)
    struct.pack_into(">h", shown, ATTRIBUTES_POSITION, batch.attributes & ~TIMESTAMP_TYPE_MASK)
    struct.pack_into(">I", shown, ATTRIBUTES_POSITION - 4, crc32c(memoryview(shown)[ATTRIBUTES_POSITION:]))
    return read_by_aiokafka(bytes(shown))


@pytest.mark.parametrize("name", ["a_v2", "b_txn", "b39_txn", "c_clean", "d_groups", "e_meta", "e39_meta", "f_mixed"])
def test_batches_of_real_brokers_are_written_byte_for_byte(name: str, corpus: Callable[[str], Path]) -> None:
    written = 0
    for batch in recorded_batches(corpus(name)):
        if batch.expected.magic != 2:
            continue
        if batch.attributes & CODEC_MASK == Codec.NONE:
            assert written_again(batch) == batch.data
        else:
            records = decompress(batch.attributes & CODEC_MASK, batch.payload, magic=2, limit=1 << 24)
            assert written_again(batch)[BATCH_OVERHEAD:] == records
        written += 1
    assert written


def test_what_compaction_leaves_is_among_the_batches_written_byte_for_byte(corpus: Callable[[str], Path]) -> None:
    headers = [batch.expected for batch in recorded_batches(corpus("c_clean"))]
    assert any(header.count == 0 for header in headers)
    assert any(header.has_delete_horizon for header in headers)
    assert any(header.count and header.count <= header.last_offset - header.base_offset for header in headers)


def test_say_hello_has_the_known_sizes() -> None:
    batch = encode_batch([SAY_HELLO])
    assert len(batch) == 76
    assert len(batch) - BATCH_OVERHEAD == 15


# --- what others read -----------------------------------------------------------------------------------------------


@EVERY_CODEC
@given(records=batches())
def test_aiokafka_reads_what_is_written(codec: Codec, records: list[Record]) -> None:
    assert read_by_aiokafka(encode_batch(records, codec=codec)) == records


@EVERY_CODEC
@given(records=batches(), append_time=int64s)
def test_readers_see_the_append_time(codec: Codec, records: list[Record], append_time: int) -> None:
    batch = encode_batch(records, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=append_time)
    assert read_by_aiokafka(batch) == stamped(records, TimestampType.LOG_APPEND_TIME, append_time)


@given(records=batches(), horizon=st.integers(0, 2**62))
def test_the_delete_horizon_takes_the_place_of_the_base_timestamp(records: list[Record], horizon: int) -> None:
    batch = encode_batch(records, delete_horizon=horizon)
    header = BATCH_HEADER.unpack(batch[:BATCH_OVERHEAD])
    assert header[5] == DELETE_HORIZON_MASK
    assert header[7] == horizon
    assert read_by_aiokafka(batch) == records


@given(
    records=batches(),
    before=st.integers(0, 100),
    after=st.integers(0, 100),
    leader_epoch=int32s,
    producer_id=int64s,
    producer_epoch=int16s,
    base_sequence=int32s,
    transactional=st.booleans(),
    control=st.booleans(),
)
def test_the_header_says_what_was_asked_for(
    records: list[Record],
    before: int,
    after: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    control: bool,
) -> None:
    base_offset = max(0, records[0].offset - before)
    batch = encode_batch(
        records,
        base_offset=base_offset,
        last_offset=records[-1].offset + after,
        partition_leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    timestamps = [record.timestamp for record in records]
    assert BATCH_HEADER.unpack(batch[:BATCH_OVERHEAD]) == (
        base_offset,
        len(batch) - 12,
        leader_epoch,
        2,
        crc32c(batch[BATCH_CRC_START:]),
        0x10 * transactional + 0x20 * control,
        records[-1].offset + after - base_offset,
        timestamps[0],
        max(-1, *timestamps),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    assert read_by_aiokafka(batch) == records


def test_an_empty_batch_keeps_offsets_and_producer() -> None:
    batch = encode_empty_batch(
        100,
        250,
        max_timestamp=1_700_000_000_000,
        partition_leader_epoch=4,
        producer_id=7,
        producer_epoch=1,
        base_sequence=20,
        transactional=True,
    )
    assert len(batch) == BATCH_OVERHEAD
    crc = crc32c(batch[BATCH_CRC_START:])
    header = (100, 49, 4, 2, crc, 0x10, 150, -1, 1_700_000_000_000, 7, 1, 20, 0)
    assert BATCH_HEADER.unpack(batch) == header
    assert read_by_aiokafka(batch) == []


def test_the_maximum_of_timestamps_before_1970_is_none() -> None:
    records = [replace(SAY_HELLO, timestamp=-5), replace(SAY_HELLO, offset=1, timestamp=-3)]
    batch = encode_batch(records)
    assert BATCH_HEADER.unpack(batch[:BATCH_OVERHEAD])[7:9] == (-5, -1)
    assert read_by_aiokafka(batch) == records


def test_the_append_time_is_by_default_the_latest_timestamp() -> None:
    records = [replace(SAY_HELLO, timestamp=2000), replace(SAY_HELLO, offset=1, timestamp=1000)]
    batch = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp for record in read_by_aiokafka(batch)] == [2000, 2000]


# --- what cannot be written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([], {}, "encode_empty_batch"),
        ([SAY_HELLO, SAY_HELLO], {}, "offset 0 follows offset 0"),
        ([replace(SAY_HELLO, offset=9), SAY_HELLO], {}, "cannot span offsets 9 to 0"),
        ([replace(SAY_HELLO, offset=at) for at in (1, 5, 3, 7)], {}, "offset 3 follows offset 5"),
        ([replace(SAY_HELLO, offset=-1)], {}, "cannot span offsets -1"),
        ([SAY_HELLO, replace(SAY_HELLO, offset=MAX_INT32 + 1)], {}, "cannot span offsets 0 to 2147483648"),
        ([SAY_HELLO], {"last_offset": MAX_INT32 + 1}, "cannot span offsets 0 to 2147483648"),
        ([SAY_HELLO], {"base_offset": 1, "last_offset": 5}, "offsets 0 to 0 lie outside of the batch, 1 to 5"),
        ([replace(SAY_HELLO, offset=6)], {"base_offset": 1, "last_offset": 5}, "lie outside of the batch"),
        ([SAY_HELLO], {"timestamp_type": TimestampType.NO_TIMESTAMP}, "has timestamps"),
        ([SAY_HELLO], {"append_time": 5}, "an append time, but timestamps are CreateTime"),
        ([SAY_HELLO], {"producer_epoch": 2**15}, "does not fit its field"),
        ([SAY_HELLO], {"producer_id": 2**63}, "does not fit its field"),
        ([replace(SAY_HELLO, timestamp=2**63)], {}, "does not fit its field"),
        ([SAY_HELLO], {"delete_horizon": -(2**63)}, "does not fit a varlong"),
    ],
)
def test_what_kafka_could_not_read_is_not_written(records: list[Record], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_batch(records, **options)


def test_a_header_needs_a_key() -> None:
    no_key: Any = None
    with pytest.raises(ValueError, match="the key of a header cannot be null"):
        encode_batch([replace(SAY_HELLO, headers=((no_key, b""),))])


def test_an_empty_batch_needs_offsets_in_order() -> None:
    with pytest.raises(ValueError, match="cannot span offsets 5 to 4"):
        encode_empty_batch(5, 4)
