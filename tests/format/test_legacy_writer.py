"""The writer of message sets (v0 and v1): the bytes are Kafka's, and others read them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from kfs.format.codecs import Codec, compress, decompress
from kfs.format.layout import CODEC_MASK, LEGACY_HEADER, LOG_OVERHEAD
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record, TimestampType
from tests.format.aiokafka_parser import read_by_aiokafka
from tests.format.integers import int64s
from tests.format.recorded_batches import RecordedBatch, recorded_batches
from tests.format.some_records import batches, stamped

SAY_HELLO = Record(offset=0, timestamp=1_606_446_771_205, key=b"say", value=b"hello")
LIMIT = 1 << 24

CODECS_OF_MAGIC = [(codec, magic) for magic in (0, 1) for codec in Codec if codec != Codec.ZSTD]
EVERY_CODEC = pytest.mark.parametrize(
    ("codec", "magic"), CODECS_OF_MAGIC, ids=[f"{codec.label} in v{magic}" for codec, magic in CODECS_OF_MAGIC]
)


def without_lz4_of_v0(message_set: bytes) -> bytes:
    """Return a set that aiokafka can read: what v0 has in lz4 is in gzip instead."""
    magic, attributes = message_set[16], message_set[17]
    if magic != 0 or attributes & CODEC_MASK != Codec.LZ4:
        return message_set
    content = decompress(Codec.LZ4, message_set[LEGACY_HEADER.size + 8 :], magic=0, limit=LIMIT)
    value = compress(Codec.GZIP, content, magic=0)
    covered = struct.pack(">bbii", 0, Codec.GZIP, -1, len(value)) + value
    return message_set[:8] + struct.pack(">iI", 4 + len(covered), zlib.crc32(covered)) + covered


# --- the bytes of real brokers --------------------------------------------------------------------------------------


def inner_set(batch: RecordedBatch, data: bytes) -> bytes:
    """Return the message set inside of a wrapper message."""
    payload = RecordedBatch(data, batch.expected).payload
    return decompress(batch.attributes & CODEC_MASK, payload, magic=batch.expected.magic, limit=LIMIT)


@pytest.mark.parametrize("name", ["f_0.8.2.2", "f_0.9.0.1", "f_0.10.2.2", "f_2.8.2_formats", "f_mixed"])
def test_messages_of_real_brokers_are_written_byte_for_byte(name: str, corpus: Callable[[str], Path]) -> None:
    written = 0
    for batch in recorded_batches(corpus(name)):
        magic, timestamp_type = batch.expected.magic, batch.expected.timestamp_type
        codec = Codec.of(batch.attributes)
        hides_timestamps = timestamp_type == TimestampType.LOG_APPEND_TIME and codec != Codec.NONE
        if magic == 2 or hides_timestamps:
            continue
        records = read_by_aiokafka(without_lz4_of_v0(batch.data))
        message_set = encode_message_set(records, magic=magic, codec=codec, timestamp_type=timestamp_type)
        if codec == Codec.NONE:
            assert message_set == batch.data
        else:
            assert message_set[:8] == batch.data[:8]  # the offset
            key = LEGACY_HEADER.size + (8 if magic == 1 else 0)
            assert message_set[16:key] == batch.data[16:key]  # magic, attributes and, in v1, the timestamp
            assert inner_set(batch, message_set) == inner_set(batch, batch.data)
        written += 1
    assert written


@pytest.mark.parametrize(("magic", "size"), [(0, 22), (1, 30)])
def test_say_hello_has_the_known_sizes(magic: int, size: int) -> None:
    assert len(encode_message_set([SAY_HELLO], magic=magic)) == LOG_OVERHEAD + size


# --- what others read -----------------------------------------------------------------------------------------------


@EVERY_CODEC
@given(records=batches(most_headers=0))
def test_aiokafka_reads_what_is_written(codec: Codec, magic: int, records: list[Record]) -> None:
    message_set = encode_message_set(records, magic=magic, codec=codec)
    expected = records if magic == 1 else stamped(records, TimestampType.NO_TIMESTAMP, -1)
    assert read_by_aiokafka(without_lz4_of_v0(message_set)) == expected


@pytest.mark.parametrize("codec", [codec for codec, magic in CODECS_OF_MAGIC if magic == 1])
@given(records=batches(most_headers=0), append_time=int64s)
def test_readers_see_the_append_time(codec: Codec, records: list[Record], append_time: int) -> None:
    message_set = encode_message_set(
        records, magic=1, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=append_time
    )
    assert read_by_aiokafka(message_set) == stamped(records, TimestampType.LOG_APPEND_TIME, append_time)


@pytest.mark.parametrize(("magic", "inner_offsets"), [(0, [40, 42, 47]), (1, [0, 2, 7])])
def test_a_wrapper_has_the_last_offset_and_the_latest_timestamp(magic: int, inner_offsets: list[int]) -> None:
    records = [
        replace(SAY_HELLO, offset=offset, timestamp=timestamp)
        for offset, timestamp in ((40, 1000), (42, 3000), (47, 2000))
    ]
    wrapper = encode_message_set(records, magic=magic, codec=Codec.GZIP)
    offset, size, crc, _, attributes = LEGACY_HEADER.unpack_from(wrapper)
    assert (offset, size, attributes) == (47, len(wrapper) - LOG_OVERHEAD, Codec.GZIP)
    assert crc == zlib.crc32(wrapper[16:])
    value = LEGACY_HEADER.size + 8
    if magic == 1:
        assert struct.unpack_from(">q", wrapper, LEGACY_HEADER.size) == (3000,)
        value += 8
    inner = decompress(Codec.GZIP, wrapper[value:], magic=magic, limit=LIMIT)
    message_size = len(inner) // 3
    assert [struct.unpack_from(">q", inner, at)[0] for at in range(0, len(inner), message_size)] == inner_offsets


# --- what cannot be written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([], {"magic": 1}, "needs a record"),
        ([SAY_HELLO], {"magic": 2}, "magic 2, expected 0 or 1"),
        ([SAY_HELLO, SAY_HELLO], {"magic": 0}, "offset 0 follows offset 0"),
        ([SAY_HELLO, replace(SAY_HELLO, offset=2**31)], {"magic": 1}, "cannot span offsets 0 to 2147483648"),
        ([replace(SAY_HELLO, headers=((b"a", b"b"),))], {"magic": 1}, "message format v1 has no headers"),
        ([SAY_HELLO], {"magic": 1, "codec": Codec.ZSTD}, "message format v1 has no zstd"),
        ([SAY_HELLO], {"magic": 0, "timestamp_type": TimestampType.LOG_APPEND_TIME}, "v0 has no timestamps"),
        ([SAY_HELLO], {"magic": 0, "append_time": 5}, "v0 has no timestamps"),
        ([SAY_HELLO], {"magic": 1, "timestamp_type": TimestampType.NO_TIMESTAMP}, "v1 has timestamps"),
        ([SAY_HELLO], {"magic": 1, "append_time": 5}, "an append time, but timestamps are CreateTime"),
        ([replace(SAY_HELLO, timestamp=2**63)], {"magic": 1}, "does not fit an int64"),
    ],
)
def test_what_kafka_could_not_read_is_not_written(records: list[Record], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode_message_set(records, **options)
