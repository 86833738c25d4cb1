"""Codecs: every framing that clients write is read, broken streams are refused, bombs cost no memory."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiokafka.codec
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.codecs import Codec, compress, decompress
from tests.format.recorded_batches import recorded_batches

LIMIT = 1 << 24
TEXT = b"".join(b'{"id":%d,"name":"user%d"}' % (number, number * 7919 % 1000) for number in range(5000))

CODECS_OF_MAGIC = [
    (codec, magic) for magic in (0, 1, 2) for codec in Codec if codec != Codec.ZSTD or magic == 2
]  # fmt: skip
EVERY_CODEC = pytest.mark.parametrize(
    ("codec", "magic"), CODECS_OF_MAGIC, ids=[f"{codec.label} in v{magic}" for codec, magic in CODECS_OF_MAGIC]
)
STREAM_CODECS = [(codec, magic) for codec, magic in CODECS_OF_MAGIC if codec != Codec.NONE]
EVERY_STREAM = pytest.mark.parametrize(
    ("codec", "magic"), STREAM_CODECS, ids=[f"{codec.label} in v{magic}" for codec, magic in STREAM_CODECS]
)

compressible = st.builds(lambda unit, times: unit * times, st.binary(max_size=40), st.integers(0, 3000))


def streamed_zstd(data: bytes) -> bytes:
    """A frame without its content size, as the Java client writes it."""
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(data) + stream.flush()


def xerial(*blocks: bytes, version: int = 1, compatible_version: int = 1) -> bytes:
    """The framing of snappy-java around blocks that are compressed already."""
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", version, compatible_version)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


# --- what is written is read back -----------------------------------------------------------------------------------


@EVERY_CODEC
@given(data=st.one_of(st.binary(max_size=300), compressible))
def test_what_is_compressed_is_read_back(codec: Codec, magic: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic, limit=len(data)) == data


@EVERY_CODEC
@pytest.mark.parametrize("data", [b"", b"x", TEXT, os.urandom(200_000)], ids=["empty", "short", "text", "random"])
def test_a_memoryview_is_read_as_bytes_are(codec: Codec, magic: int, data: bytes) -> None:
    stream = memoryview(b"??" + compress(codec, data, magic=magic))[2:]
    decompressed = decompress(codec, stream, magic=magic, limit=LIMIT)
    assert type(decompressed) is bytes
    assert decompressed == data


def test_codecs_are_called_what_kafka_calls_them() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [int(codec) for codec in Codec] == [0, 1, 2, 3, 4]


def test_the_codec_is_in_the_lowest_bits_of_the_attributes() -> None:
    assert Codec.of(0x7B) is Codec.LZ4


def test_other_decoders_read_what_is_compressed() -> None:
    assert gzip.decompress(compress(Codec.GZIP, TEXT, magic=2)) == TEXT
    assert aiokafka.codec.snappy_decode(compress(Codec.SNAPPY, TEXT, magic=2)) == TEXT
    assert aiokafka.codec.lz4_decode(compress(Codec.LZ4, TEXT, magic=2)) == TEXT
    assert aiokafka.codec.zstd_decode(compress(Codec.ZSTD, TEXT, magic=2)) == TEXT


def test_what_other_encoders_compress_is_read() -> None:
    def read(codec: Codec, data: bytes) -> bytes:
        return decompress(codec, data, magic=2, limit=LIMIT)

    assert read(Codec.GZIP, gzip.compress(TEXT)) == TEXT
    assert read(Codec.SNAPPY, snappy.compress(TEXT)) == TEXT  # raw, as librdkafka writes it
    assert read(Codec.SNAPPY, aiokafka.codec.snappy_encode(TEXT)) == TEXT
    assert read(Codec.LZ4, aiokafka.codec.lz4_encode(TEXT)) == TEXT
    assert read(Codec.ZSTD, aiokafka.codec.zstd_encode(TEXT)) == TEXT
    assert read(Codec.ZSTD, streamed_zstd(TEXT)) == TEXT


@pytest.mark.parametrize("name", ["a_v2", "f_0.8.2.2", "f_0.9.0.1", "f_0.10.2.2", "f_2.8.2_formats", "f_mixed"])
def test_every_compressed_batch_of_real_brokers_is_read_up_to_exactly_its_size(
    name: str, corpus: Callable[[str], Path]
) -> None:
    oracles: dict[str, Callable[[bytes], bytes]] = {
        "gzip": aiokafka.codec.gzip_decode,
        "snappy": aiokafka.codec.snappy_decode,
        "lz4": aiokafka.codec.lz4_decode,
        "zstd": aiokafka.codec.zstd_decode,
    }
    compressed = [batch for batch in recorded_batches(corpus(name)) if batch.expected.compression != "none"]
    assert compressed
    for batch in compressed:
        codec, magic = Codec.of(batch.attributes), batch.expected.magic
        assert codec.label == batch.expected.compression
        content = decompress(codec, batch.payload, magic=magic, limit=LIMIT)
        if magic > 0 or codec != Codec.LZ4:  # of which aiokafka's library refuses the header checksum
            assert content == oracles[codec.label](batch.payload)
        assert decompress(codec, batch.payload, magic=magic, limit=len(content)) == content
        with pytest.raises(LimitExceeded):
            decompress(codec, batch.payload, magic=magic, limit=len(content) - 1)
        assert decompress(codec, compress(codec, content, magic=magic), magic=magic, limit=LIMIT) == content


def test_threads_do_not_disturb_each_other() -> None:
    streams = {bytes([number]) * 100_000: streamed_zstd(bytes([number]) * 100_000) for number in range(50)}
    with ThreadPoolExecutor(8) as pool:
        contents = pool.map(lambda stream: decompress(Codec.ZSTD, stream, magic=2, limit=LIMIT), streams.values())
        assert list(contents) == list(streams)


# --- codecs and formats ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec: int) -> None:
    with pytest.raises(CorruptData, match=f"unknown codec {codec}"):
        decompress(codec, b"", magic=2, limit=LIMIT)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_old_formats_have_no_zstd(magic: int) -> None:
    with pytest.raises(CorruptData, match=f"zstd in a message of format v{magic}"):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT, magic=2), magic=magic, limit=LIMIT)
    with pytest.raises(ValueError, match="no zstd"):
        compress(Codec.ZSTD, TEXT, magic=magic)


# --- damage ---------------------------------------------------------------------------------------------------------


@EVERY_STREAM
def test_a_stream_that_is_cut_off_is_refused_wherever_it_is_cut(codec: Codec, magic: int) -> None:
    stream = compress(codec, TEXT[:400], magic=magic)
    whole_blocks = {16} if codec == Codec.SNAPPY else set()  # the xerial header alone is a stream, of nothing
    for end in set(range(len(stream))) - whole_blocks:
        with pytest.raises(CorruptData, match=f"cannot decompress {codec.label}: ."):
            decompress(codec, stream[:end], magic=magic, limit=LIMIT)


def test_a_zstd_frame_of_unknown_size_that_is_cut_off_is_refused() -> None:
    stream = streamed_zstd(TEXT)
    for end in range(0, len(stream), 7):
        with pytest.raises(CorruptData, match="cannot decompress zstd"):
            decompress(Codec.ZSTD, stream[:end], magic=2, limit=LIMIT)


@EVERY_STREAM
def test_bytes_after_the_end_are_not_lost_silently(codec: Codec, magic: int) -> None:
    with pytest.raises(CorruptData, match=f"cannot decompress {codec.label}: ."):
        decompress(codec, compress(codec, TEXT, magic=magic) + b"more", magic=magic, limit=LIMIT)


@EVERY_STREAM
@given(
    data=compressible,
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=3)), min_size=1, max_size=4),
)
def test_damage_gives_bytes_or_corrupt_data_and_never_another_error(
    codec: Codec, magic: int, data: bytes, changes: list[tuple[int, bytes]]
) -> None:
    stream = bytearray(compress(codec, data, magic=magic))
    for place, replacement in changes:
        position = place % (len(stream) + 1)
        stream[position : position + 1] = replacement
    with contextlib.suppress(CorruptData):
        assert len(decompress(codec, bytes(stream), magic=magic, limit=1 << 18)) <= 1 << 18


@EVERY_STREAM
@given(data=st.binary(max_size=60))
def test_what_is_no_stream_is_refused(codec: Codec, magic: int, data: bytes) -> None:
    with pytest.raises(CorruptData, match=f"{codec.label}"):
        decompress(codec, b"\xff\xff\xff\xff\xff" + data, magic=magic, limit=LIMIT)


# --- gzip -----------------------------------------------------------------------------------------------------------


def test_gzip_members_are_read_one_after_the_other() -> None:
    stream = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(b"end")
    assert decompress(Codec.GZIP, stream, magic=2, limit=len(TEXT) + 3) == TEXT + b"end"
    with pytest.raises(LimitExceeded):
        decompress(Codec.GZIP, stream, magic=2, limit=len(TEXT) + 2)


def test_a_wrong_gzip_checksum_is_refused() -> None:
    stream = bytearray(gzip.compress(TEXT))
    stream[-8] ^= 1
    with pytest.raises(CorruptData, match=r"cannot decompress gzip: .*checksum"):
        decompress(Codec.GZIP, bytes(stream), magic=2, limit=LIMIT)


# --- snappy ---------------------------------------------------------------------------------------------------------


def test_the_java_client_frames_blocks_of_32_kib() -> None:
    stream = compress(Codec.SNAPPY, TEXT, magic=2)
    assert stream.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    (first_length,) = struct.unpack_from(">i", stream, 16)
    assert snappy.uncompress(stream[20 : 20 + first_length]) == TEXT[: 32 * 1024]


def test_xerial_streams_may_follow_each_other() -> None:
    stream = xerial(snappy.compress(b"one "), snappy.compress(b"two ")) + xerial(snappy.compress(b"three"))
    assert decompress(Codec.SNAPPY, stream, magic=2, limit=13) == b"one two three"
    with pytest.raises(LimitExceeded):
        decompress(Codec.SNAPPY, stream, magic=2, limit=12)


def test_a_newer_xerial_version_is_read_if_it_says_that_it_can_be() -> None:
    stream = xerial(snappy.compress(TEXT), version=2, compatible_version=1)
    assert decompress(Codec.SNAPPY, stream, magic=2, limit=LIMIT) == TEXT
    with pytest.raises(CorruptData, match="xerial versions 1, 0"):
        decompress(Codec.SNAPPY, xerial(compatible_version=0), magic=2, limit=LIMIT)


@pytest.mark.parametrize("length", [-1, 4, 2**31 - 1])
def test_a_wrong_xerial_block_length_is_refused(length: int) -> None:
    with pytest.raises(CorruptData, match=f"xerial block at 16 of {length} bytes where 3 remain"):
        decompress(Codec.SNAPPY, xerial() + struct.pack(">i", length) + b"abc", magic=2, limit=LIMIT)


# --- lz4 ------------------------------------------------------------------------------------------------------------

LZ4_HEADER = slice(0, 7)


def test_lz4_frames_begin_as_those_of_real_brokers_do(corpus: Callable[[str], Path]) -> None:
    for name, magic in (("f_0.8.2.2", 0), ("f_0.9.0.1", 0), ("f_0.10.2.2", 1)):
        headers = {
            batch.payload[LZ4_HEADER]
            for batch in recorded_batches(corpus(name))
            if batch.expected.compression == "lz4" and batch.expected.magic == magic
        }
        assert headers == {compress(Codec.LZ4, TEXT, magic=magic)[LZ4_HEADER]}


def test_only_v0_ignores_the_lz4_header_checksum() -> None:
    old_frame = compress(Codec.LZ4, TEXT, magic=0)
    assert old_frame != compress(Codec.LZ4, TEXT, magic=1)
    assert decompress(Codec.LZ4, compress(Codec.LZ4, TEXT, magic=1), magic=0, limit=LIMIT) == TEXT
    for magic in (1, 2):
        with pytest.raises(CorruptData, match=r"cannot decompress lz4: .*[cC]hecksum"):
            decompress(Codec.LZ4, old_frame, magic=magic, limit=LIMIT)


LZ4_OPTIONS = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([0, 4, 5, 6, 7]),
        "block_linked": st.booleans(),
        "block_checksum": st.booleans(),
        "content_checksum": st.booleans(),
        "store_size": st.booleans(),
    }
)


@given(options=LZ4_OPTIONS, data=compressible, magic=st.integers(0, 2), wrong=st.booleans())
def test_every_kind_of_lz4_frame_is_read(options: dict[str, int], data: bytes, magic: int, wrong: bool) -> None:
    frame = bytearray(lz4.frame.compress(data, **options))
    checksum_position = 14 if lz4.frame.get_frame_info(bytes(frame))["content_size"] else 6
    if magic == 0 and wrong:
        frame[checksum_position] ^= 0x5A
    for limit in (len(data), LIMIT):
        assert decompress(Codec.LZ4, bytes(frame), magic=magic, limit=limit) == data


@pytest.mark.parametrize("magic", [1, 2])
def test_the_header_checksum_of_a_sized_lz4_frame_is_verified(magic: int) -> None:
    frame = bytearray(lz4.frame.compress(TEXT, store_size=True))
    frame[14] ^= 1
    with pytest.raises(CorruptData, match="lz4 header checksum"):
        decompress(Codec.LZ4, bytes(frame), magic=magic, limit=LIMIT)


@pytest.mark.parametrize(
    "flags", [0x61, 0x62, 0x20, 0xA0], ids=["dictionary", "reserved bit", "version 0", "version 2"]
)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_lz4_flags_that_kafka_does_not_know_are_refused(flags: int, magic: int) -> None:
    frame = bytearray(compress(Codec.LZ4, TEXT, magic=magic))
    frame[4] = flags
    with pytest.raises(CorruptData, match=f"lz4 frame flags {flags:#04x}"):
        decompress(Codec.LZ4, bytes(frame), magic=magic, limit=LIMIT)


def test_the_lz4_content_checksum_is_ignored_as_kafka_ignores_it() -> None:
    frame = bytearray(lz4.frame.compress(TEXT, content_checksum=True))
    frame[-1] ^= 1
    assert decompress(Codec.LZ4, bytes(frame), magic=2, limit=LIMIT) == TEXT


def test_a_wrong_lz4_block_checksum_is_refused() -> None:
    frame = bytearray(lz4.frame.compress(TEXT[:100], block_checksum=True, store_size=False))
    frame[-5] ^= 1
    with pytest.raises(CorruptData, match="cannot decompress lz4"):
        decompress(Codec.LZ4, bytes(frame), magic=2, limit=LIMIT)


# --- zstd -----------------------------------------------------------------------------------------------------------

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"


def zstd_block(kind: int, size: int, content: bytes, *, last: bool = False) -> bytes:
    """A block of the zstd format: kind 0 is raw, 1 is a byte to be repeated."""
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3] + content


@pytest.mark.parametrize("first", [compress(Codec.ZSTD, TEXT, magic=2), streamed_zstd(TEXT)], ids=["sized", "streamed"])
def test_zstd_frames_are_read_one_after_the_other(first: bytes) -> None:
    stream = (
        first + SKIPPABLE_FRAME + streamed_zstd(b"") + streamed_zstd(b"more ") + compress(Codec.ZSTD, b"end", magic=2)
    )
    assert decompress(Codec.ZSTD, stream, magic=2, limit=len(TEXT) + 8) == TEXT + b"more end"
    with pytest.raises(LimitExceeded):
        decompress(Codec.ZSTD, stream, magic=2, limit=len(TEXT) + 7)


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    sized_100 = ZSTD_MAGIC + b"\xa0" + struct.pack("<I", 100)
    for size in (99, 101, 128 * 1024):
        with pytest.raises(CorruptData, match="cannot decompress zstd"):
            decompress(Codec.ZSTD, sized_100 + zstd_block(1, size, b"a", last=True), magic=2, limit=LIMIT)
    assert decompress(Codec.ZSTD, sized_100 + zstd_block(1, 100, b"a", last=True), magic=2, limit=100) == b"a" * 100


def test_a_zstd_window_is_bounded() -> None:
    def with_window(log: int) -> bytes:
        return ZSTD_MAGIC + b"\x00" + bytes([log - 10 << 3]) + zstd_block(0, 1, b"a", last=True)

    assert decompress(Codec.ZSTD, with_window(27), magic=2, limit=1) == b"a"
    with pytest.raises(CorruptData, match=r"cannot decompress zstd: .*too much memory"):
        decompress(Codec.ZSTD, with_window(28), magic=2, limit=LIMIT)


# --- bombs ----------------------------------------------------------------------------------------------------------


def gzip_bomb() -> bytes:
    """1 GiB in one member whose checksum nobody lives to see."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    header_and_block = deflate.compress(bytes(1 << 24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(bytes(1 << 24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return header_and_block + block * 63


def lz4_bomb() -> bytes:
    """1 GiB in one frame."""
    stream = lz4.frame.LZ4FrameCompressor(block_size=7, block_linked=False)
    header = stream.begin()
    return bytes(header + stream.compress(bytes(1 << 22)) * 256 + stream.flush())


def zstd_bomb() -> bytes:
    """1 GiB in one frame of 32 KiB."""
    return ZSTD_MAGIC + b"\x00\x38" + zstd_block(1, 128 * 1024, b"a") * 8192 + zstd_block(0, 0, b"", last=True)


def sized_zstd_bomb() -> bytes:
    """1 GiB in one frame that says so."""
    blocks = zstd_block(1, 128 * 1024, b"a") * 8191 + zstd_block(1, 128 * 1024, b"a", last=True)
    return ZSTD_MAGIC + b"\xa0" + struct.pack("<I", 1 << 30) + blocks


SNAPPY_BOMB = b"\xff\xff\xff\xff\x0f" + bytes(1000)
BOMBS = {
    "gzip": (Codec.GZIP, gzip_bomb),
    "raw snappy": (Codec.SNAPPY, lambda: SNAPPY_BOMB),
    "xerial snappy": (Codec.SNAPPY, lambda: xerial(SNAPPY_BOMB)),
    "many xerial blocks": (Codec.SNAPPY, lambda: xerial(*[snappy.compress(bytes(1 << 20))] * 1024)),
    "lz4": (Codec.LZ4, lz4_bomb),
    "zstd": (Codec.ZSTD, zstd_bomb),
    "sized zstd": (Codec.ZSTD, sized_zstd_bomb),
}
DEFUSE = """
import resource, sys
from kfs.errors import LimitExceeded
from kfs.format.codecs import decompress

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

bomb = sys.stdin.buffer.read()
before = peak()
try:
    decompress(int(sys.argv[1]), bomb, magic=2, limit=1 << 20)
except LimitExceeded as error:
    assert "max-batch-bytes (1048576 bytes)" in error.reason, error.reason
    print(peak() - before)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_memory_is_spent_on_it(name: str) -> None:
    codec, make = BOMBS[name]
    command = [sys.executable, "-c", DEFUSE, str(int(codec))]
    process = subprocess.run(command, input=make(), stdout=subprocess.PIPE, check=True, timeout=60)
    # The least slice of zstd, 1 KiB, can become 32 MiB, which is also held once more on its way out.
    assert int(process.stdout) < 80 << 20
