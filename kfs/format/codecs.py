"""The compression codecs of all three formats (``CompressionType.java``), each in the framings that real clients write.

- gzip: one or more members, as ``GZIPInputStream`` reads them;
- snappy: xerial's framing (the Java client) and raw snappy (librdkafka and others);
- lz4: one frame; in message format v0 its header has the wrong checksum of clients before 0.10 (KAFKA-3160);
- zstd: one or more frames, only in v2 (KIP-110).

The output of every stream is limited before memory is allocated for it. A stream must be complete, and must end where
the data ends: Java ignores bytes after a gzip member or an lz4 frame, and so would silently lose their content.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from enum import IntEnum
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol, cast

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.layout import CODEC_MASK, MAGIC_V0, MAGIC_V2

if TYPE_CHECKING:
    import cramjam
    import zstandard


class Codec(IntEnum):
    """A compression codec; the values are the codec bits of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of the codec."""
        return self.name.lower()

    @classmethod
    def of(cls, attributes: int) -> Codec:
        """Return the codec in the attributes of a batch or message; raise :class:`CorruptData` for ids 5 to 7."""
        try:
            return cls(attributes & CODEC_MASK)
        except ValueError:
            raise CorruptData(f"unknown codec {attributes & CODEC_MASK}, expected 0 to 4") from None


def decompress(codec: int, data: bytes | memoryview, *, magic: int, limit: int) -> bytes:
    """Return ``data`` decompressed, at most ``limit`` bytes.

    Raises :class:`LimitExceeded` if there are more than ``limit`` bytes; by then it has used only a small multiple of
    that in memory. Raises :class:`CorruptData` (at position 0) for a codec that the format ``magic`` doesn't have, and
    for a stream that is broken, truncated, or followed by other bytes.
    """
    decompress_codec = _DECOMPRESS.get(codec & CODEC_MASK)
    if decompress_codec is None:
        raise CorruptData(f"unknown codec {codec & CODEC_MASK}, expected 0 to 4")
    if codec == Codec.ZSTD and magic < MAGIC_V2:
        raise CorruptData(f"codec zstd in a message of format v{magic}, which has none")
    try:
        return decompress_codec(data, magic, limit)
    except _LimitPassedError:
        label = Codec.of(codec).label
        raise LimitExceeded(f"{label} data decompresses to more than max-batch-bytes ({limit} bytes)") from None
    except _library_errors() as error:
        raise CorruptData(f"cannot decompress {Codec.of(codec).label}: {error}") from error


def compress(codec: Codec, data: bytes, *, magic: int) -> bytes:
    """Return ``data`` compressed in the framing of the Java client; raise :class:`ValueError` for zstd below v2.

    The lz4 frames of v0 have the wrong header checksum that v0 consumers of that time expect.
    """
    if codec == Codec.ZSTD and magic < MAGIC_V2:
        raise ValueError(f"message format v{magic} has no zstd")
    return _COMPRESS[codec](data, magic)


class _LimitPassedError(Exception):
    """The output exceeds the limit; :func:`decompress` adds the details."""


class _BrokenStreamError(Exception):
    """A broken stream that the libraries don't detect."""


# A log usually has one codec, and many commands decompress nothing, so each library is imported at its first use. Later
# calls of these functions take less time than an import statement that finds its module.


@cache
def _isal_zlib() -> ModuleType:
    from isal import isal_zlib

    return isal_zlib


@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


@cache
def _lz4_frame() -> ModuleType:
    import lz4.frame

    return cast(ModuleType, lz4.frame)


@cache
def _zstandard() -> ModuleType:
    import zstandard

    return zstandard


def _library_errors() -> tuple[type[Exception], ...]:
    return (
        _BrokenStreamError,
        _isal_zlib().error,
        _cramjam().DecompressionError,
        RuntimeError,  # lz4.frame
        _zstandard().ZstdError,
    )


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise _LimitPassedError


def _store(data: bytes | memoryview, magic: int, limit: int) -> bytes:
    _check_limit(len(data), limit)
    return bytes(data)


def _begins_with(view: memoryview, magic_bytes: bytes) -> bool:
    return bytes(view[: len(magic_bytes)]) == magic_bytes


# --- gzip -------------------------------------------------------------------------------------------------------

_GZIP_FRAMING: Final = 31  # 15 bits of window, plus 16 for gzip's header and trailer


def _gunzip(data: bytes | memoryview, magic: int, limit: int) -> bytes:
    members: list[bytes] = []
    size = 0
    rest: bytes | memoryview = data
    while rest or not members:
        member = _isal_zlib().decompressobj(_GZIP_FRAMING)
        # One byte beyond the limit, or a member of exactly that size could not reach its trailer.
        members.append(member.decompress(rest, limit - size + 1))
        size += len(members[-1])
        _check_limit(size, limit)
        if not member.eof:
            raise _BrokenStreamError("the stream is cut off, or is not gzip")
        rest = member.unused_data
    return members[0] if len(members) == 1 else b"".join(members)


def _gzip(data: bytes, magic: int) -> bytes:
    compressed: bytes = _isal_zlib().compress(data, wbits=_GZIP_FRAMING)
    return compressed


# --- snappy -----------------------------------------------------------------------------------------------------

# SnappyCodec.java of xerial's snappy-java: magic, version, the lowest version that can read it.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_VERSION: Final = 1
_XERIAL_BLOCK_LENGTH: Final = struct.Struct(">i")
_XERIAL_BLOCK_SIZE: Final = 32 * 1024  # SnappyOutputStream's default


def _unsnap(data: bytes | memoryview, magic: int, limit: int) -> bytes:
    # Raw snappy can't begin like this: after its length it would copy from output that doesn't exist yet.
    view = memoryview(data)
    if not _begins_with(view, _XERIAL_MAGIC):
        return bytes(_unsnap_block(view, limit))
    blocks: list[cramjam.Buffer] = []
    position = _after_xerial_header(view, 0)
    while position < len(view):
        start = position + _XERIAL_BLOCK_LENGTH.size
        length = _XERIAL_BLOCK_LENGTH.unpack_from(view, position)[0] if start <= len(view) else -1
        if 0 <= length <= len(view) - start:
            position = start + length
            blocks.append(_unsnap_block(view[start:position], limit))
            limit -= len(blocks[-1])
        elif _begins_with(view[position:], _XERIAL_MAGIC):
            # An appended stream has its own header (SnappyInputStream.hasNextChunk).
            position = _after_xerial_header(view, position)
        elif start > len(view):
            raise _BrokenStreamError(f"xerial block length at {position} cut off")
        else:
            raise _BrokenStreamError(f"xerial block at {position} of {length} bytes where {len(view) - start} remain")
    return b"".join(blocks)


def _after_xerial_header(view: memoryview, position: int) -> int:
    end = position + _XERIAL_HEADER.size
    if end > len(view):
        raise _BrokenStreamError("xerial header cut off")
    _, version, compatible_version = _XERIAL_HEADER.unpack_from(view, position)
    if compatible_version < _XERIAL_VERSION:
        raise _BrokenStreamError(
            f"xerial versions {version}, {compatible_version}, expected at least {_XERIAL_VERSION}"
        )
    return end


def _unsnap_block(block: memoryview, limit: int) -> cramjam.Buffer:
    _check_limit(_snappy_length(block), limit)
    block_content: cramjam.Buffer = _cramjam().snappy.decompress_raw(block)
    return block_content


def _snappy_length(block: memoryview) -> int:
    """Return the output length from the preamble; the library would allocate it without a limit."""
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length
        shift += 7
    raise _BrokenStreamError("no length in front of a snappy block")


def _snap(data: bytes, magic: int) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(_cramjam().snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_XERIAL_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


# --- lz4 and zstd: the libraries decompress a slice of input without a limit on its output -------------------------

# The maximum output per input byte: lz4 has length bytes of 255, zstd has blocks of 128 KiB from 4 bytes (RLE).
_LZ4_MAX_RATIO: Final = 255
_ZSTD_MAX_RATIO: Final = 128 * 1024 // 4
_MIN_SLICE: Final = 1024


class _FrameDecompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: memoryview, /) -> bytes: ...


def _decompress_frame(
    decompressor: _FrameDecompressor, data: memoryview, max_ratio: int, limit: int
) -> tuple[bytes, memoryview]:
    """Return the content of the frame at the start of ``data``, and the bytes after the frame."""
    slice_size = max(limit // max_ratio, _MIN_SLICE)  # so one slice can't much exceed the limit
    parts: list[bytes] = []
    size = position = 0
    while not decompressor.eof:
        if position >= len(data):
            raise _BrokenStreamError("the frame is cut off")
        parts.append(decompressor.decompress(data[position : position + slice_size]))
        position += slice_size
        size += len(parts[-1])
        _check_limit(size, limit)
    end = min(position, len(data)) - len(decompressor.unused_data or b"")
    return (parts[0] if len(parts) == 1 else b"".join(parts)), data[end:]


# --- lz4 --------------------------------------------------------------------------------------------------------

# The LZ4 frame format: magic, FLG, BD, optional content size, header checksum, blocks.
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_USUAL_START: Final = _LZ4_MAGIC + b"\x60"  # the flags of the Java client since 0.10: no further check needed
_LZ4_SHORTEST_HEADER: Final = 7
_LZ4_CONTENT_SIZE_LENGTH: Final = 8
_LZ4_CONTENT_CHECKSUM_LENGTH: Final = 4
_LZ4_VERSION_1: Final = 0x40
_LZ4_VERSION_MASK: Final = 0xC0
_LZ4_HAS_CONTENT_SIZE: Final = 0x08
_LZ4_HAS_CONTENT_CHECKSUM: Final = 0x04
_LZ4_UNSUPPORTED: Final = 0x03  # a reserved bit and the dictionary id: Kafka rejects both


def _unlz4(data: bytes | memoryview, magic: int, limit: int) -> bytes:
    view = memoryview(data)
    header, blocks, checksum_length = None, 0, 0
    if magic == MAGIC_V0 or view[: len(_LZ4_USUAL_START)] != _LZ4_USUAL_START:
        header, blocks, checksum_length = _lz4_header(view, magic)
    if header is not None:
        view = memoryview(b"".join((header, view[blocks:])))
    if len(view) * _LZ4_MAX_RATIO <= limit:
        content, used = _lz4_frame().decompress(view, return_bytes_read=True)
        rest = len(view) - used
    else:
        decompressor = _lz4_frame().LZ4FrameDecompressor()
        content, after = _decompress_frame(decompressor, view, _LZ4_MAX_RATIO, limit)
        rest = len(after)
    if rest != checksum_length:
        raise _BrokenStreamError(f"{rest} bytes after the end mark of the frame, expected {checksum_length}")
    decompressed: bytes = content
    return decompressed


def _lz4_header(view: memoryview, magic: int) -> tuple[bytes | None, int, int]:
    """Return a replacement for the frame's header, where its blocks begin, and how many bytes follow them.

    The replacement is None for the frames that the Java client writes since 0.10. Otherwise it has no content size and
    no content checksum, because Kafka ignores both, and it has the header checksum that the library expects.
    """
    if len(view) < _LZ4_SHORTEST_HEADER or not _begins_with(view, _LZ4_MAGIC):
        raise _BrokenStreamError(
            f"no lz4 frame: it begins with {bytes(view[:_LZ4_SHORTEST_HEADER]).hex(' ') or 'nothing'}"
        )
    flags = view[4]
    if flags & _LZ4_UNSUPPORTED or flags & _LZ4_VERSION_MASK != _LZ4_VERSION_1:
        raise _BrokenStreamError(f"lz4 frame flags {flags:#04x}: not version 1, or with a dictionary or a reserved bit")
    ignored = flags & (_LZ4_HAS_CONTENT_SIZE | _LZ4_HAS_CONTENT_CHECKSUM)
    if magic > MAGIC_V0 and not ignored:
        return None, 0, 0
    checksum_position = _LZ4_SHORTEST_HEADER - 1 + (_LZ4_CONTENT_SIZE_LENGTH if flags & _LZ4_HAS_CONTENT_SIZE else 0)
    descriptor = bytes(view[4:checksum_position])
    if len(view) <= checksum_position:
        raise _BrokenStreamError("lz4 frame header cut off")
    # KafkaLZ4BlockInputStream ignores the checksum only for v0.
    if magic > MAGIC_V0 and view[checksum_position] != _lz4_header_checksum(descriptor):
        raise _BrokenStreamError(f"lz4 header checksum {view[checksum_position]:#04x} does not match")
    simple = bytes((flags & ~ignored, view[5]))
    header = b"".join((_LZ4_MAGIC, simple, bytes((_lz4_header_checksum(simple),))))
    checksum_length = _LZ4_CONTENT_CHECKSUM_LENGTH if flags & _LZ4_HAS_CONTENT_CHECKSUM else 0
    return header, checksum_position + 1, checksum_length


@lru_cache(maxsize=256)
def _lz4_header_checksum(descriptor: bytes) -> int:
    """Return the second byte of the descriptor's xxHash-32.

    The library has no hash function, but it can end a frame with the hash of the frame's content.
    """
    frame: bytes = _lz4_frame().compress(descriptor, content_checksum=True)
    return frame[-_LZ4_CONTENT_CHECKSUM_LENGTH + 1]


def _lz4(data: bytes, magic: int) -> bytes:
    # The settings of KafkaLZ4BlockOutputStream.
    lz4_frame = _lz4_frame()
    frame: bytes = lz4_frame.compress(
        data, block_size=lz4_frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    if magic > MAGIC_V0:
        return frame
    end = _LZ4_SHORTEST_HEADER - 1
    wrong_checksum = _lz4_header_checksum(frame[:end])  # KAFKA-3160: it also covers the frame's magic
    return b"".join((frame[:end], bytes((wrong_checksum,)), frame[end + 1 :]))


# --- zstd -------------------------------------------------------------------------------------------------------

_ZSTD_MAX_WINDOW: Final = 1 << 27  # libzstd's default for streams, and so Kafka's limit
_ZSTD_LEVEL: Final = 3  # ZstdCompressionType.java

# Creating a context costs as much as a small batch, and threads must not share one.
_zstd_contexts = threading.local()


def _unzstd(data: bytes | memoryview, magic: int, limit: int) -> bytes:
    rest = memoryview(data)
    if len(rest) == 0:
        raise _BrokenStreamError("no data")
    context = _zstd_context()
    content_size = _zstandard().frame_content_size(rest)  # negative if not written, as by the Java client
    _check_limit(content_size, limit)
    if content_size > 0:
        try:
            return context.decompress(rest, allow_extra_data=False)  # never more than content_size
        except _zstandard().ZstdError:
            pass  # more frames follow, or it is broken; the loop below decides
    frames: list[bytes] = []
    while rest:
        content, rest = _decompress_frame(context.decompressobj(), rest, _ZSTD_MAX_RATIO, limit)
        frames.append(content)
        limit -= len(content)
    return frames[0] if len(frames) == 1 else b"".join(frames)


def _zstd_context() -> zstandard.ZstdDecompressor:
    context: zstandard.ZstdDecompressor | None = getattr(_zstd_contexts, "decompressor", None)
    if context is None:
        context = _zstd_contexts.decompressor = _zstandard().ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    return context


def _zstd(data: bytes, magic: int) -> bytes:
    content: bytes = _zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    return content


_DECOMPRESS: Final[dict[int, Callable[[bytes | memoryview, int, int], bytes]]] = {
    Codec.NONE: _store,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
_COMPRESS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    Codec.NONE: lambda data, magic: data,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snap,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
