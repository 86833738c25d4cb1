"""Data that claims to be huge: the memory spent on it stays small."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.format.codecs import Codec, compress
from kfs.format.layout import MAX_INT32
from kfs.log.log import Log
from kfs.log.storage import Storage
from tests.logs import Batch, batch, dense, find_record, joined, open_log, record, records_in, resealed, write_log

MEBIBYTE = 1 << 20
LIMIT = 4 * MEBIBYTE
BOMB = 64 * MEBIBYTE


def peak_of(act: Callable[[], object]) -> int:
    """Return the most memory that was allocated at a time, in bytes."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def log_with(tmp_path: Path, data: bytes) -> Log:
    first, last = dense(0, 4)[0], dense(10, 14)[0]
    directory = write_log(tmp_path / "t-0", 0, first.data + data + last.data).parent
    return open_log(directory, Storage(max_batch_bytes=LIMIT))


def with_payload(payload: bytes, codec: Codec, **fields: int) -> bytes:
    """Return a v2 batch of other bytes where its records should be, sealed."""
    header = bytearray(batch([record(5)]).data[:61])
    struct.pack_into(">i", header, 8, 49 + len(payload))
    return resealed(bytes(header) + payload, attributes=codec, **fields)


def assert_small_and_harmless(log: Log) -> None:
    found: list[int] = []
    peak = peak_of(lambda: found.extend(one.offset for one in records_in(log)))
    assert found == [*range(5), *range(10, 15)]
    assert peak < 12 * LIMIT < BOMB
    assert peak_of(lambda: find_record(log, 5)) < 12 * LIMIT
    assert find_record(log, 5) is CorruptData
    assert len(log.problems) == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.label)
def test_a_decompression_bomb_takes_little_memory(codec: Codec, tmp_path: Path) -> None:
    payload = compress(codec, bytes(BOMB), magic=2)
    assert len(payload) < LIMIT
    assert_small_and_harmless(log_with(tmp_path, with_payload(payload, codec)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4], ids=lambda codec: codec.label)
def test_a_bomb_in_a_wrapper_takes_little_memory(codec: Codec, magic: int, tmp_path: Path) -> None:
    value = compress(codec, bytes(BOMB), magic=magic)
    fields = struct.pack(">bb", magic, codec) + (struct.pack(">q", 0) if magic else b"")
    message = fields + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(message)) + message
    assert_small_and_harmless(log_with(tmp_path, struct.pack(">qi", 9, len(message)) + message))


def test_a_snappy_block_that_claims_four_gibibytes_takes_none_of_them(tmp_path: Path) -> None:
    assert_small_and_harmless(log_with(tmp_path, with_payload(b"\xff\xff\xff\xff\x0f\x00a", Codec.SNAPPY)))


@pytest.mark.parametrize("count", [10, 10**6, MAX_INT32])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.label)
def test_a_count_that_the_bytes_cannot_hold_takes_no_memory(count: int, codec: Codec, tmp_path: Path) -> None:
    data = batch([record(5)], codec=codec).data
    directory = write_log(tmp_path / "t-0", 0, resealed(data, count=count, last_offset_delta=count - 1)).parent
    log = open_log(directory)
    assert peak_of(lambda: records_in(log)) < MEBIBYTE
    assert records_in(log) == []
    assert find_record(log, 5) is CorruptData


@pytest.mark.parametrize("length", [2**31 - 1, 2**30, 2**28])
def test_a_length_that_the_file_does_not_have_takes_no_memory(length: int, tmp_path: Path) -> None:
    broken = batch([record(5)]).data
    broken = broken[:8] + struct.pack(">i", length) + broken[12:]
    log = log_with(tmp_path, broken)
    assert peak_of(lambda: records_in(log)) < 4 * MEBIBYTE
    assert [one.offset for one in records_in(log)] == [*range(5), *range(10, 15)]


@pytest.mark.parametrize("length", [2**31 - 1, 2**30])
def test_a_length_that_a_sparse_file_has_takes_no_memory(length: int, tmp_path: Path) -> None:
    broken = batch([record(5)]).data
    broken = broken[:8] + struct.pack(">i", length) + broken[12:]
    path = write_log(tmp_path / "t-0", 0, joined(dense(0, 4)) + broken)
    with path.open("r+b") as file:
        file.truncate(length + 1000)
    write_log(tmp_path / "t-0", 100, joined(dense(100, 104)))
    log = open_log(path.parent, Storage(max_batch_bytes=LIMIT))
    assert peak_of(lambda: find_record(log, 3)) < 4 * MEBIBYTE


def test_header_counts_and_lengths_that_lie_take_no_memory(tmp_path: Path) -> None:
    # length, attributes, timestamp delta, offset delta, null key, null value, then 2^31-1 headers
    body = b"\x00\x00\x00\x01\x01" + b"\xfe\xff\xff\xff\x0f"
    payload = bytes([len(body) << 1]) + body
    assert_small_and_harmless(log_with(tmp_path, with_payload(payload, Codec.NONE)))


def test_the_cache_holds_no_more_than_it_may(tmp_path: Path) -> None:
    content: list[Batch] = [batch([record(at, bytes(100_000))], codec=Codec.ZSTD) for at in range(200)]
    directory = write_log(tmp_path / "t-0", 0, joined(content)).parent
    storage = Storage(cache_bytes=MEBIBYTE)
    log = open_log(directory, storage)
    for offset in range(0, 200, 3):
        assert find_record(log, offset) == content[offset].records[0]
        assert storage.cache.nbytes <= MEBIBYTE
    assert storage.cache.nbytes > MEBIBYTE // 2
