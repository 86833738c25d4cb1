"""Logs made to order: batches of any format, segments with their indexes, partition and log directories."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kfs.broker_log.index_builder import INDEX_INTERVAL_BYTES
from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.log_segment import LogSegment
from kfs.errors import CorruptData
from kfs.format.checkpoint import TopicPartition, encode_offset_checkpoint
from kfs.format.codecs import Codec, compress
from kfs.format.layout import MAGIC_V0, MAGIC_V2, MAX_INT64, NO_TIMESTAMP
from kfs.format.legacy_writer import encode_message_set
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch
from kfs.log.block import Block, Damage
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import DirectoryName, parse_directory_name
from kfs.log.log import Log
from kfs.log.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, LogDir
from kfs.log.offset_range import OffsetRange
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problems
from kfs.log.storage import Storage
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import Directory, File, Symlink
from kfs.tree.options import TreeOptions

#: 2023-11-14T22:13:20Z, in milliseconds.
START = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Batch:
    """The bytes of one batch, wrapper or message, and the records that a reader finds in it."""

    data: bytes
    records: tuple[Record, ...]

    @property
    def first_offset(self) -> int:
        return self.records[0].offset

    @property
    def last_offset(self) -> int:
        return self.records[-1].offset

    def holds(self, offset: int) -> bool:
        """Whether ``offset`` lies in the batch, as a record or as a hole."""
        return self.first_offset <= offset <= self.last_offset


def record(offset: int, value: bytes | None = None, key: bytes | None = b"key", timestamp: int | None = None) -> Record:
    """Return a record that can be told from others; a second lies between one offset and the next."""
    value = b"value %d" % offset if value is None else value
    return Record(offset, START + offset * 1000 if timestamp is None else timestamp, key, value)


def records(first: int, last: int) -> list[Record]:
    """Return the records of the offsets from ``first`` to ``last``, both included."""
    return [record(offset) for offset in range(first, last + 1)]


def batch(content: Sequence[Record], *, magic: int = MAGIC_V2, codec: Codec = Codec.NONE, **options: Any) -> Batch:
    """Encode records as one batch (v2), or one wrapper or message (v0, v1)."""
    if magic == MAGIC_V2:
        return Batch(encode_batch(content, codec=codec, **options), tuple(content))
    assert codec != Codec.NONE or len(content) == 1, "uncompressed messages are batches of their own: see batches()"
    return Batch(encode_message_set(content, magic=magic, codec=codec, **options), as_read(content, magic))


def as_read(content: Iterable[Record], magic: int) -> tuple[Record, ...]:
    """Return records as that format keeps them."""
    if magic == MAGIC_V0:
        return tuple(replace(one, timestamp=NO_TIMESTAMP, timestamp_type=TimestampType.NO_TIMESTAMP) for one in content)
    return tuple(content)


def batches(content: Sequence[Record], *, magic: int = MAGIC_V2, codec: Codec = Codec.NONE) -> list[Batch]:
    """Encode records as what a producer's one request would be: a batch, a wrapper, or a message each."""
    if magic == MAGIC_V2 or codec != Codec.NONE:
        return [batch(content, magic=magic, codec=codec)]
    return [batch([one], magic=magic) for one in content]


def dense(first: int, last: int, size: int = 5, **options: Any) -> list[Batch]:
    """Return the offsets from ``first`` to ``last`` in batches of ``size``."""
    return [
        one
        for start in range(first, last + 1, size)
        for one in batches(records(start, min(start + size - 1, last)), **options)
    ]


def joined(content: Iterable[Batch]) -> bytes:
    """Return the bytes of batches, one after another."""
    return b"".join(one.data for one in content)


def resealed(data: bytes, **fields: int) -> bytes:
    """Change header fields of a v2 batch and make its CRC right again."""
    places = {
        "last_offset_delta": (23, ">i"),
        "count": (57, ">i"),
        "attributes": (21, ">h"),
        "max_timestamp": (35, ">q"),
        "producer_id": (43, ">q"),
    }
    changed = bytearray(data)
    for name, value in fields.items():
        position, layout = places[name]
        struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def wrapper_with_broken_message(magic: int) -> bytes:
    """Return a gzip wrapper of the offsets 0 to 4 in which a byte of message 2 was changed before it was compressed."""
    inner = bytearray(joined(one for at in range(5) for one in batches([record(at)], magic=magic)))
    size = len(inner) // 5
    inner[3 * size - 1] ^= 1
    value = compress(Codec.GZIP, bytes(inner), magic=magic)
    body = struct.pack(">bb", magic, Codec.GZIP) + (struct.pack(">q", 0) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 4, len(message)) + message


def positions(content: Iterable[Batch]) -> list[int]:
    """Return where each batch begins in a segment of nothing else."""
    result, position = [], 0
    for one in content:
        result.append(position)
        position += len(one.data)
    return result


# --- files ----------------------------------------------------------------------------------------------------------


def log_name(base_offset: int, suffix: str = ".log") -> str:
    """Return the name of a segment's file."""
    return f"{base_offset:020d}{suffix}"


def write_segment(
    directory: Path, base_offset: int, content: Sequence[Batch], *, interval: int = INDEX_INTERVAL_BYTES
) -> Path:
    """Write a segment with both indexes and return the path of its ``.log``."""
    directory.mkdir(parents=True, exist_ok=True)
    writer = LogSegment.create(str(directory), base_offset, LogConfig(index_interval_bytes=interval))
    for one in content:
        writer.append(one.data)
    writer.close()
    return directory / log_name(base_offset)


def write_log(directory: Path, base_offset: int, data: bytes, suffix: str = ".log") -> Path:
    """Write a ``.log`` of any bytes, without indexes."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / log_name(base_offset, suffix)
    path.write_bytes(data)
    return path


def write_partition(directory: Path, segments: Mapping[int, Sequence[Batch]], *, interval: int = 0) -> Path:
    """Write the segments of a partition, by default with an index entry for every batch but the first."""
    directory.mkdir(parents=True, exist_ok=True)
    for base_offset, content in segments.items():
        write_segment(directory, base_offset, content, interval=interval)
    return directory


def write_checkpoint(root: Path, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write an offset checkpoint of a log directory."""
    (root / name).write_bytes(encode_offset_checkpoint({TopicPartition(*key): at for key, at in offsets.items()}))


def set_log_start(root: Path, topic: str, partition: int, offset: int) -> None:
    """Write a log start offset checkpoint that knows this one partition."""
    write_checkpoint(root, LOG_START_OFFSET_CHECKPOINT, {(topic, partition): offset})


def set_high_watermark(root: Path, topic: str, partition: int, offset: int) -> None:
    """Write a high watermark checkpoint that knows this one partition."""
    write_checkpoint(root, HIGH_WATERMARK_CHECKPOINT, {(topic, partition): offset})


# --- opening --------------------------------------------------------------------------------------------------------


def open_log(directory: Path, storage: Storage | None = None, **options: Any) -> Log:
    """Return the log in a partition directory; the checkpoints of the directory above speak of it."""
    name = parse_directory_name(directory.name) or DirectoryName(directory.name, 0)
    log_dir = LogDir(str(directory.parent), Problems())
    return Log(PartitionDirectory(str(directory), name, log_dir), storage or Storage(), **options)


def open_tree(*paths: Path, options: TreeOptions | None = None, **data_dir_options: Any) -> KafkaTree:
    """Return the tree over log directories."""
    return KafkaTree(DataDir([str(path) for path in paths], Storage(), **data_dir_options), options)


def look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every question about the disk answered anew, instead of at most a few times a second."""
    monkeypatch.setattr("kfs.log.log_segments.LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("kfs.log.data_dir.LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("kfs.internal.topic_state.LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("kfs.log.log_dir._LOOK_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("kfs.tree.visible_log._RANGE_SECONDS", 0.0)
    monkeypatch.setattr("kfs.tree.context.LIVE", 0.0)


@dataclass(frozen=True, slots=True)
class Read:
    """A ``pread`` that kfs made."""

    path: str
    position: int
    length: int


def watch_reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """Return a list that every read from now on is added to, but those of deleted files.

    The files of the test before are closed seconds later, by a thread, which has a last look at them.
    """
    reads: list[Read] = []
    pread = os.pread

    def watched(fd: int, length: int, position: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if not path.endswith(" (deleted)"):
            reads.append(Read(path, position, length))
        return pread(fd, length, position)

    monkeypatch.setattr(os, "pread", watched)
    return reads


def bytes_read(reads: Iterable[Read], suffix: str = ".log") -> int:
    """Return how much was asked for of the files of a kind."""
    return sum(read.length for read in reads if read.path.endswith(suffix))


# --- what is in there -----------------------------------------------------------------------------------------------


def records_in(log: Log, start: int = 0) -> list[Record]:
    """Return all that can be read of a log from offset ``start`` on, as a forward iteration finds it."""
    return list(_records(log, start))


def _records(log: Log, start: int) -> Iterator[Record]:
    for segment, item in log.walk(OffsetRange(start, MAX_INT64)):
        if isinstance(item, Block) and not item.header.is_control:
            with suppress(CorruptData):
                columns = segment.load(item).columns
                for index, offset in enumerate(columns.offsets):
                    if offset >= start and index not in columns.faults:
                        yield columns.record(index)


def damage_in(log: Log) -> list[Damage]:
    """Return what a walk over the whole log finds damaged."""
    return [item for _, item in log.walk(OffsetRange(0, MAX_INT64)) if isinstance(item, Damage)]


def find_record(log: Log, offset: int) -> Record | type[CorruptData] | None:
    """Return the record at ``offset``, None where there is none, the error's type where it can't be had."""
    try:
        loaded = log.find(offset)
        if loaded is None or loaded.header.is_control or offset not in loaded.columns.offsets:
            return None
        return loaded.columns.record(loaded.columns.offsets.index(offset))
    except CorruptData:
        return CorruptData


def names(directory: Directory, *, with_attributes: bool = True) -> list[str]:
    """Return the listed names."""
    return [entry.name for entry in directory.entries(with_attributes=with_attributes)]


def directory_at(tree: KafkaTree, path: str) -> Directory:
    """Return the directory at ``path``."""
    node = tree.resolve(path)
    assert isinstance(node, Directory)
    return node


def file_at(tree: KafkaTree, path: str) -> File:
    """Return the file at ``path``."""
    node = tree.resolve(path)
    assert isinstance(node, File)
    return node


def target_of(tree: KafkaTree, path: str) -> str:
    """Return where the symlink at ``path`` leads."""
    node = tree.resolve(path)
    assert isinstance(node, Symlink)
    return node.target()


def content_of(tree: KafkaTree, path: str) -> bytes:
    """Read the whole file at ``path``, and hold its size to what was read."""
    file = file_at(tree, path)
    data = file.read(0, MAX_INT64)
    assert len(data) == file.attributes().size
    return data


def object_at(tree: KafkaTree, path: str) -> dict[str, Any]:
    """Return the object that the file at ``path`` holds, on one line."""
    content = content_of(tree, path)
    assert content.endswith(b"\n")
    assert content.count(b"\n") == 1
    found: dict[str, Any] = json.loads(content)
    return found
