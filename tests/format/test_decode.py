"""Batches to columns, by each decoder: what was written is read, what is broken is refused, nothing else happens."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.codecs import Codec, compress
from kfs.format.columns import RecordColumns
from kfs.format.decoders import BlockDecoder
from kfs.format.layout import BATCH_OVERHEAD, MAGIC_OFFSET, MAGIC_V2, MAX_INT64
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record, TimestampType
from kfs.format.varint import encode_varint, encode_varlong
from kfs.format.writer import encode_batch, encode_empty_batch
from tests.corpus import corpus_names
from tests.expected import expected_records
from tests.format.integers import int64s
from tests.format.recorded_batches import recorded_batches
from tests.format.some_records import batches, stamped
from tests.implementations import DECODERS, EVERY_DECODER

LIMIT = 1 << 24
EVERY_CODEC = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.label)
LEGACY = [(magic, codec) for magic in (0, 1) for codec in Codec if codec != Codec.ZSTD]
EVERY_LEGACY = pytest.mark.parametrize(
    ("magic", "codec"), LEGACY, ids=[f"v{magic} {codec.label}" for magic, codec in LEGACY]
)


def header_of(data: bytes) -> BatchHeader:
    return read_header(data.ljust(BATCH_OVERHEAD, b"\0"), 0, 0)


def decoded(decoder: BlockDecoder, data: bytes, limit: int = LIMIT) -> RecordColumns:
    return decoder.decode(header_of(data), data, limit)


def sealed(data: bytes) -> bytes:
    """Make the CRC of a v2 batch, and its length, right again."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def with_body(body: bytes, count: int, codec: Codec = Codec.NONE, last_offset_delta: int | None = None) -> bytes:
    """Return a v2 batch with these bytes for records."""
    header = bytearray(encode_batch([Record(100, 1000, None, None)])[:BATCH_OVERHEAD])
    delta = max(count - 1, 0) if last_offset_delta is None else last_offset_delta
    struct.pack_into(">h", header, 21, codec)
    struct.pack_into(">i", header, 23, delta)
    struct.pack_into(">i", header, 57, count)
    return sealed(bytes(header) + (compress(codec, body, magic=2) if count else body))


def encoded_record(
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
    size: int | None = None,
) -> bytes:
    """Encode a record from its parts: lengths are as they are given (``\\x01`` is null)."""
    body = b"\x00" + encode_varlong(timestamp_delta) + encode_varint(offset_delta) + key + value + headers
    return encode_varint(len(body) if size is None else size) + body


def message(magic: int, offset: int, body: bytes, attributes: int = 0, timestamp: int = 5) -> bytes:
    """Return a message of v0 or v1 around key and value, sealed."""
    covered = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"") + body
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


# --- what is written is read ----------------------------------------------------------------------------------------


@EVERY_DECODER
@EVERY_CODEC
@settings(max_examples=50)
@given(records=batches())
def test_a_batch_is_read_as_it_was_written(decoder: BlockDecoder, codec: Codec, records: list[Record]) -> None:
    assert list(decoded(decoder, encode_batch(records, codec=codec))) == records


@EVERY_DECODER
@EVERY_LEGACY
@settings(max_examples=50)
@given(records=batches(most_headers=0))
def test_a_message_set_is_read_as_it_was_written(
    decoder: BlockDecoder, magic: int, codec: Codec, records: list[Record]
) -> None:
    expected = records if magic else stamped(records, TimestampType.NO_TIMESTAMP, -1)
    assert list(decoded(decoder, encode_message_set(records, magic=magic, codec=codec))) == expected


@EVERY_DECODER
@EVERY_CODEC
@settings(max_examples=30)
@given(records=batches(), append_time=int64s)
def test_the_append_time_of_a_batch_stands_for_all(
    decoder: BlockDecoder, codec: Codec, records: list[Record], append_time: int
) -> None:
    kind = TimestampType.LOG_APPEND_TIME
    data = encode_batch(records, codec=codec, timestamp_type=kind, append_time=append_time)
    assert list(decoded(decoder, data)) == stamped(records, kind, append_time)


@EVERY_DECODER
@pytest.mark.parametrize("codec", [codec for magic, codec in LEGACY if magic])
@settings(max_examples=30)
@given(records=batches(most_headers=0), append_time=int64s)
def test_the_append_time_of_a_wrapper_stands_for_all(
    decoder: BlockDecoder, codec: Codec, records: list[Record], append_time: int
) -> None:
    kind = TimestampType.LOG_APPEND_TIME
    data = encode_message_set(records, magic=1, codec=codec, timestamp_type=kind, append_time=append_time)
    assert list(decoded(decoder, data)) == stamped(records, kind, append_time)


@EVERY_DECODER
@given(records=batches(), horizon=st.integers(0, 2**62))
def test_a_delete_horizon_does_not_change_the_times(decoder: BlockDecoder, records: list[Record], horizon: int) -> None:
    assert list(decoded(decoder, encode_batch(records, delete_horizon=horizon))) == records


@EVERY_DECODER
@EVERY_CODEC
def test_an_empty_batch_has_no_records(decoder: BlockDecoder, codec: Codec) -> None:
    data = bytearray(encode_empty_batch(100, 250))
    data[22] |= codec
    columns = decoded(decoder, sealed(bytes(data)))
    assert len(columns) == 0
    assert list(columns) == []


@pytest.mark.parametrize("name", corpus_names())
@EVERY_DECODER
def test_recorded_batches_have_the_records_that_kafka_reads(
    decoder: BlockDecoder, name: str, corpus: Callable[[str], Path]
) -> None:
    found: dict[str, list[Record]] = {}
    for batch in recorded_batches(corpus(name)):
        if batch.data[MAGIC_OFFSET] <= MAGIC_V2:
            found.setdefault(batch.expected.file, []).extend(decoded(decoder, batch.data))
    found = {file: records for file, records in found.items() if records}  # compaction leaves batches without any
    expected: dict[str, list[Record]] = {}
    for one in expected_records(corpus(name)):
        if one.magic <= MAGIC_V2:
            expected.setdefault(one.file, []).append(one.record)
    assert expected
    assert found == expected


# --- wrappers -------------------------------------------------------------------------------------------------------


@EVERY_DECODER
@pytest.mark.parametrize("inner", [[0, 1, 2], [0, 2, 5], [3, 4, 9]])
def test_offsets_in_a_v1_wrapper_count_back_from_its_own(decoder: BlockDecoder, inner: list[int]) -> None:
    content = b"".join(message(1, offset, b"\xff" * 8) for offset in inner)
    value = compress(Codec.GZIP, content, magic=1)
    wrapper = message(1, 1030, b"\xff" * 4 + struct.pack(">i", len(value)) + value, Codec.GZIP)
    assert list(decoded(decoder, wrapper).offsets) == [1030 + offset - inner[-1] for offset in inner]


@EVERY_DECODER
def test_a_v1_wrapper_of_offset_0_counts_from_0(decoder: BlockDecoder) -> None:
    # Old librdkafka left the offset of a wrapper at 0.
    content = b"".join(message(1, offset, b"\xff" * 8) for offset in range(3))
    value = compress(Codec.GZIP, content, magic=1)
    wrapper = message(1, 0, b"\xff" * 4 + struct.pack(">i", len(value)) + value, Codec.GZIP)
    assert list(decoded(decoder, wrapper).offsets) == [0, 1, 2]


@EVERY_DECODER
@pytest.mark.parametrize("magic", [0, 1])
def test_a_broken_message_in_a_wrapper_is_broken_alone(decoder: BlockDecoder, magic: int) -> None:
    messages = [message(magic, offset, struct.pack(">ii", -1, 1) + b"%d" % offset) for offset in range(4)]
    messages[2] = messages[2][:-1] + b"X"
    value = compress(Codec.GZIP, b"".join(messages), magic=magic)
    wrapper = message(magic, 3, b"\xff" * 4 + struct.pack(">i", len(value)) + value, Codec.GZIP)
    columns = decoded(decoder, wrapper)
    assert list(columns.offsets) == [0, 1, 2, 3]
    assert list(columns.faults) == [2]
    assert [columns.value(index) for index in (0, 1, 3)] == [b"0", b"1", b"3"]
    with pytest.raises(CorruptData, match="stored CRC"):
        columns.record(2)


def wrapper_of(content: bytes, magic: int, offset: int = 2) -> bytes:
    value = compress(Codec.GZIP, content, magic=magic)
    return message(magic, offset, b"\xff" * 4 + struct.pack(">i", len(value)) + value, Codec.GZIP)


PLAIN = b"\xff" * 8


@EVERY_DECODER
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    "content",
    [
        lambda magic: b"",
        lambda magic: message(magic, 2, PLAIN)[:-1],
        lambda magic: message(magic, 2, PLAIN) + b"\x00",
        lambda magic: message(magic, 2, PLAIN) + bytes(12),
        lambda magic: message(1 - magic, 2, PLAIN),
        lambda magic: message(magic, 1, PLAIN) + message(magic, 1, PLAIN),
        lambda magic: message(magic, 2, PLAIN) + message(magic, 1, PLAIN),
        lambda magic: message(magic, 2, PLAIN, Codec.GZIP),
        lambda magic: message(magic, -1, PLAIN),
        lambda magic: message(magic, 2, struct.pack(">ii", 100, 0)),
        lambda magic: message(magic, 2, struct.pack(">ii", -1, 100)),
        lambda magic: message(magic, 2, struct.pack(">ii", -1, 0) + b"more"),
        lambda magic: message(magic, 2, struct.pack(">i", -1)),
        lambda magic: encode_batch([Record(2, 5, None, None)]),
    ],
    ids=[
        "nothing",
        "cut off",
        "a byte more",
        "zeros more",
        "the other magic",
        "the same offset",
        "offsets that go back",
        "a wrapper",
        "a negative offset",
        "a key too long",
        "a value too long",
        "bytes after the value",
        "no value",
        "a batch of v2",
    ],
)
def test_what_cannot_be_in_a_wrapper_is_refused(
    decoder: BlockDecoder, magic: int, content: Callable[[int], bytes]
) -> None:
    with pytest.raises(CorruptData):
        decoded(decoder, wrapper_of(content(magic), magic))


@EVERY_DECODER
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_needs_a_value(decoder: BlockDecoder, magic: int) -> None:
    with pytest.raises(CorruptData, match="null value"):
        decoded(decoder, message(magic, 2, PLAIN, Codec.GZIP))
    with pytest.raises(CorruptData, match="left in the message"):
        decoded(decoder, message(magic, 2, struct.pack(">ii", -1, 50), Codec.GZIP))


@EVERY_DECODER
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_zstd_is_refused(decoder: BlockDecoder, magic: int) -> None:
    value = compress(Codec.ZSTD, message(magic, 2, PLAIN), magic=2)
    with pytest.raises(CorruptData, match="zstd"):
        decoded(decoder, message(magic, 2, b"\xff" * 4 + struct.pack(">i", len(value)) + value, Codec.ZSTD))


# --- batches that lie -----------------------------------------------------------------------------------------------


@EVERY_DECODER
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.label)
@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (encoded_record(), 2),
        (encoded_record() + encoded_record(1), 1),
        (encoded_record() + b"\x00", 1),
        (encoded_record(size=50), 1),
        (encoded_record(size=5), 1),
        (encoded_record(size=0), 1),
        (encoded_record(size=-1), 1),
        (encoded_record(offset_delta=-1), 1),
        (encoded_record(offset_delta=1), 1),
        (encoded_record() + encoded_record(0), 2),
        (encoded_record(1) + encoded_record(0), 2),
        (encoded_record(key=b"\x0e"), 1),
        (encoded_record(value=b"\x0e"), 1),
        (encoded_record(key=b"\xfe\xff\xff\xff\x0f"), 1),
        (encoded_record(value=b"\xfe\xff\xff\xff\x0f"), 1),
        (encoded_record(key=b"\xff\xff\xff\xff\xff\x0f"), 1),
        (encoded_record(headers=b"\x01"), 1),
        (encoded_record(headers=b"\x02"), 1),
        (encoded_record(headers=b"\xfe\xff\xff\xff\x0f"), 1),
        (encoded_record(headers=b"\x02\x01\x01"), 1),
        (encoded_record(headers=b"\x02\x02a"), 1),
        (encoded_record(headers=b"\x02\x02a\x10b"), 1),
        (encoded_record(headers=b"\x00\x00"), 1),
        (encoded_record(headers=b"\x02\x00\x00\x00"), 1),
        (encoded_record(headers=b""), 1),
        (b"\x80" * 12, 1),
        (b"\xff" * 70, 10),
        (bytes(70), 10),
    ],
)
def test_records_that_are_not_what_their_lengths_say_are_refused(
    decoder: BlockDecoder, codec: Codec, body: bytes, count: int
) -> None:
    with pytest.raises(CorruptData):
        decoded(decoder, with_body(body, count, codec))


@EVERY_DECODER
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (encoded_record(), Record(100, 1000, None, None)),
        (encoded_record(key=b"\x00", value=b"\x00"), Record(100, 1000, b"", b"")),
        (encoded_record(headers=b"\x02\x00\x01"), Record(100, 1000, None, None, ((b"", None),))),
        (encoded_record(headers=b"\x02\x02a\x00"), Record(100, 1000, None, None, ((b"a", b""),))),
        # A negative length is null, whichever it is; padded varints are legal.
        (encoded_record(key=b"\x03"), Record(100, 1000, None, None)),
        (encoded_record(key=b"\x81\x00"), Record(100, 1000, None, None)),
        (encoded_record(key=b"\x82\x80\x80\x80\x00a"), Record(100, 1000, b"a", None)),
        (encoded_record(timestamp_delta=-2000), Record(100, -1000, None, None)),
    ],
)
def test_odd_but_legal_records_are_read(decoder: BlockDecoder, body: bytes, expected: Record) -> None:
    assert list(decoded(decoder, with_body(body, 1))) == [expected]


@EVERY_DECODER
def test_timestamps_wrap_around_as_javas_do(decoder: BlockDecoder) -> None:
    data = bytearray(with_body(encoded_record(timestamp_delta=MAX_INT64) + encoded_record(1, -5), 2))
    struct.pack_into(">q", data, 27, 10)
    columns = decoded(decoder, sealed(bytes(data)))
    assert list(columns.timestamps) == [MAX_INT64 + 10 - 2**64, 5]


@EVERY_DECODER
@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_unknown_codec_is_refused(decoder: BlockDecoder, codec_id: int) -> None:
    data = bytearray(encode_batch([Record(0, 5, None, None)]))
    data[22] = codec_id
    with pytest.raises(CorruptData, match=f"codec {codec_id}"):
        decoded(decoder, sealed(bytes(data)))


@EVERY_DECODER
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.label)
def test_the_limit_is_kept(decoder: BlockDecoder, codec: Codec) -> None:
    data = encode_batch([Record(0, 5, None, bytes(100_000))], codec=codec)
    size = len(encode_batch([Record(0, 5, None, bytes(100_000))])) - BATCH_OVERHEAD
    assert len(decoded(decoder, data, size)) == 1
    with pytest.raises(LimitExceeded):
        decoded(decoder, data, size - 1)


# --- whatever the bytes ---------------------------------------------------------------------------------------------


def outcome(decoder: BlockDecoder, data: bytes) -> list[object]:
    """Return all that the columns say, or why the batch is refused; any other error passes through."""
    try:
        columns = decoded(decoder, data)
    except CorruptData as error:
        return [type(error), error.reason, error.position]
    records: list[object] = []
    for index in range(len(columns)):
        records.append(columns.faults[index].reason if index in columns.faults else columns.record(index))
    return records


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.label)
@settings(max_examples=200)
@given(records=batches(), places=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), min_size=1, max_size=4))
def test_damaged_records_are_refused_or_read_and_all_decoders_agree(
    codec: Codec, records: list[Record], places: list[tuple[int, int]]
) -> None:
    body = bytearray(encode_batch(records)[BATCH_OVERHEAD:])
    for position, mask in places:
        body[position % len(body)] ^= mask
    span = records[-1].offset - records[0].offset
    data = with_body(bytes(body), len(records), codec, span)
    outcomes = [outcome(implementation(), data) for implementation in DECODERS]
    assert all(one == outcomes[0] for one in outcomes)


@settings(max_examples=300)
@given(body=st.binary(max_size=120), count=st.integers(0, 12), span=st.integers(0, 40))
def test_random_bytes_are_refused_or_read_and_all_decoders_agree(body: bytes, count: int, span: int) -> None:
    data = with_body(body, count, last_offset_delta=max(span, count - 1, 0))
    outcomes = [outcome(implementation(), data) for implementation in DECODERS]
    assert all(one == outcomes[0] for one in outcomes)


@EVERY_LEGACY
@settings(max_examples=100)
@given(
    records=batches(most_headers=0),
    places=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_damaged_messages_are_refused_or_read_and_all_decoders_agree(
    magic: int, codec: Codec, records: list[Record], places: list[tuple[int, int]]
) -> None:
    content = bytearray(encode_message_set(records, magic=magic))
    if codec == Codec.NONE:
        data = bytes(content)  # a run: the walk has checked each message's CRC
        header = header_of(encode_message_set(records[:1], magic=magic))
    else:
        for position, mask in places:
            content[position % len(content)] ^= mask
        value = compress(codec, bytes(content), magic=magic)
        data = message(magic, records[-1].offset, b"\xff" * 4 + struct.pack(">i", len(value)) + value, codec)
        header = header_of(data)
    outcomes: list[object] = []
    for implementation in DECODERS:
        try:
            columns = implementation().decode(header, data, LIMIT)
        except CorruptData as error:
            outcomes.append((type(error), error.reason, error.position))
        else:
            shown = [columns.value(index) for index in range(len(columns)) if index not in columns.faults]
            outcomes.append((list(columns.offsets), list(columns.timestamps), shown, sorted(columns.faults)))
    assert all(one == outcomes[0] for one in outcomes)


# --- many batches at a time -----------------------------------------------------------------------------------------


def chain(content: list[list[Record]], codec: Codec) -> tuple[bytes, list[Record]]:
    """Put batches behind one another, their offsets too."""
    data, records, offset = b"", [], 0
    for one in content:
        first = one[0].offset
        moved = [replace(record, offset=record.offset - first + offset) for record in one]
        data += encode_batch(moved, codec=codec)
        records += moved
        offset = moved[-1].offset + 1
    return data, records


@EVERY_DECODER
@EVERY_CODEC
@settings(max_examples=30)
@given(content=st.lists(batches(), min_size=1, max_size=6))
def test_scanning_finds_every_batch_and_its_rows_decode_to_its_records(
    decoder: BlockDecoder, codec: Codec, content: list[list[Record]]
) -> None:
    data, records = chain(content, codec)
    table = decoder.scan(data, 0, 1000, -1, MAX_INT64, LIMIT)
    assert len(table) == len(content)
    assert table.end(len(table) - 1) == 1000 + len(data)
    for before, after in pairwise(range(len(table))):
        assert table.end(before) == table.positions[after]
    found: list[Record] = []
    row = 0
    while row < len(table):
        columns, after = decoder.decode_rows(table, row, len(table), LIMIT)
        assert after > row
        found += list(columns)
        row = after
    assert found == records


@EVERY_DECODER
@EVERY_CODEC
@settings(max_examples=30)
@given(content=st.lists(batches(), min_size=1, max_size=6), data=st.data())
def test_the_first_row_with_an_early_record_is_found(
    decoder: BlockDecoder, codec: Codec, content: list[list[Record]], data: st.DataObject
) -> None:
    encoded, records = chain(content, codec)
    table = decoder.scan(encoded, 0, 1000, -1, MAX_INT64, LIMIT)
    times = st.sampled_from([record.timestamp for record in records])
    before = data.draw(times | times.map(lambda time: time + 1) | st.integers(-(2**70), 2**70))
    first = data.draw(st.integers(0, len(content) - 1))
    stop = data.draw(st.integers(first + 1, len(content)))
    early = [min(record.timestamp for record in content[row]) < before for row in range(first, stop)]
    expected = first + early.index(True) if True in early else stop
    assert decoder.first_before(table, first, stop, LIMIT, before) == expected


@EVERY_DECODER
@EVERY_CODEC
def test_a_row_that_cannot_be_decoded_may_have_an_early_record(decoder: BlockDecoder, codec: Codec) -> None:
    good = [encoded_record(timestamp_delta=1)]
    for bad in ([b"\x7f" + good[0][1:]], [*good, encoded_record(timestamp_delta=1)]):  # too short, or offset 0 twice
        rows = [with_body(b"".join(body), len(body), codec) for body in (good, bad)]
        table = decoder.scan(rows[0] + struct.pack(">q", 101) + rows[1][8:], 0, 0, 99, MAX_INT64, LIMIT)
        assert len(table) == 2
        assert decoder.first_before(table, 0, 2, LIMIT, 0) == 1
    huge = encode_batch([Record(0, 1000, None, bytes(1000))], codec=codec)
    if codec is not Codec.NONE:
        assert decoder.first_before(decoder.scan(huge, 0, 0, -1, MAX_INT64, LIMIT), 0, 1, 100, 0) == 0
    empty = with_body(b"", 0, codec)
    assert decoder.first_before(decoder.scan(empty, 0, 0, 99, MAX_INT64, LIMIT), 0, 1, LIMIT, MAX_INT64) == 1


@EVERY_DECODER
@given(content=st.lists(batches(), min_size=1, max_size=4), place=st.tuples(st.integers(0, 5000), st.integers(1, 255)))
def test_scanning_stops_before_the_first_batch_that_is_not_ordinary(
    decoder: BlockDecoder, content: list[list[Record]], place: tuple[int, int]
) -> None:
    data, _ = chain(content, Codec.NONE)
    damaged = bytearray(data)
    position = place[0] % len(data)
    damaged[position] ^= place[1]
    sound = decoder.scan(data, 0, 0, -1, MAX_INT64, LIMIT)
    table = decoder.scan(bytes(damaged), 0, 0, -1, MAX_INT64, LIMIT)
    hit = next(row for row in range(len(sound)) if sound.positions[row] <= position < sound.end(row))
    in_batch = position - sound.positions[hit]
    assert list(table.positions[:hit]) == list(sound.positions[:hit]) or len(table) < hit
    if in_batch >= 21:
        assert len(table) <= hit
    plain = DECODERS[0]().scan(bytes(damaged), 0, 0, -1, MAX_INT64, LIMIT)
    assert [table.header(row) for row in range(len(table))] == [plain.header(row) for row in range(len(plain))]


@EVERY_DECODER
@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=50)
@given(
    count=st.integers(1, 12),
    hole=st.integers(0, 12),
    place=st.none() | st.tuples(st.integers(0, 5000), st.integers(1, 255)),
)
def test_messages_are_followed_as_long_as_they_are_like_the_first(
    decoder: BlockDecoder, magic: int, count: int, hole: int, place: tuple[int, int] | None
) -> None:
    offsets = [at if at < hole else at + 1 for at in range(count + 1)]
    messages = [message(magic, offset, PLAIN, timestamp=offset) for offset in offsets]
    data = bytearray(b"".join(messages))
    size = len(messages[0])
    broken = count + 1
    if place is not None:
        position = size + place[0] % (len(data) - size)
        data[position] ^= place[1]
        broken = position // size
    first = header_of(messages[0])
    end, last, latest = decoder.scan_messages(bytes(data), size, len(data), first, offsets[0], MAX_INT64)
    followed = min(broken, hole if 0 < hole <= count else count + 1)
    if offsets[0] == 0:
        assert (end, last) == (size * followed, offsets[0] + followed - 1)
        assert latest == (last if magic and followed > 1 else -1)


@EVERY_DECODER
def test_no_message_follows_the_last_offset_there_is(decoder: BlockDecoder) -> None:
    # To wrap around would be to find the lowest number after the highest.
    data = message(1, MAX_INT64, PLAIN) + message(1, -(2**63), PLAIN)
    size = len(data) // 2
    assert decoder.scan_messages(data, size, len(data), header_of(data), MAX_INT64, MAX_INT64) == (size, MAX_INT64, -1)
