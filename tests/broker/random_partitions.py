"""Partitions of everything that producers do, and damage of every kind done to them; the same ones each time."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.log_segment import batch_headers
from kfs.broker_log.unified_log import UnifiedLog
from kfs.errors import CorruptData
from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.layout import MAX_INT64
from kfs.format.record import Record
from kfs.format.writer import encode_batch

_CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD)


class _Producer:
    """A producer that appends to one partition, in transactions or without."""

    def __init__(self, producer_id: int, *, transactional: bool) -> None:
        self.producer_id = producer_id
        self.transactional = transactional
        self.epoch = 0
        self.sequence = 0
        self.is_open = False


def write_random_partition(directory: Path, source: random.Random, config: LogConfig, now: int) -> None:
    """Write a partition of a few small segments, with what several producers and leaders have left in it.

    ``now`` (milliseconds) is about when; ``config`` decides how dense the indexes are.
    """
    small = LogConfig(
        segment_bytes=source.choice([1500, 3000, 6000]),
        segment_ms=MAX_INT64,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=config.segment_index_bytes,
    )
    log = UnifiedLog.create(str(directory), small, clock=lambda: now)
    producers = [_Producer(number + 1, transactional=source.random() < 0.5) for number in range(source.randrange(5))]
    epoch = 0
    for _ in range(source.randrange(5, 60)):
        if source.random() < 0.05:
            epoch += source.randrange(1, 3)
        if source.random() < 0.1:
            log.log_end_offset += source.randrange(1, 20)  # a hole
        _append(log, source, source.choice([None, *producers]), epoch, now)
    log.close()


def _append(log: UnifiedLog, source: random.Random, producer: _Producer | None, epoch: int, now: int) -> None:
    first = log.log_end_offset
    if producer is not None and producer.is_open and source.random() < 0.4:
        _end_transaction(log, source, producer, epoch, now)
        return
    content = [
        Record(first + number, now - source.randrange(3_600_000), b"key", source.randbytes(source.randrange(80)))
        for number in range(source.randrange(1, 8))
    ]
    codec = source.choice(_CODECS)
    if producer is None:
        log.append(encode_batch(content, codec=codec, partition_leader_epoch=epoch))
        return
    log.append(
        encode_batch(
            content,
            codec=codec,
            partition_leader_epoch=epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=producer.transactional,
        )
    )
    producer.sequence += len(content)
    producer.is_open = producer.transactional


def _end_transaction(log: UnifiedLog, source: random.Random, producer: _Producer, epoch: int, now: int) -> None:
    coordinator_epoch = source.randrange(3)
    marker = AbortMarker(coordinator_epoch) if source.random() < 0.5 else CommitMarker(coordinator_epoch)
    if source.random() < 0.3:  # KIP-890: the epoch is bumped by the end of a transaction
        producer.epoch += 1
        producer.sequence = 0
    log.append(
        encode_batch(
            [Record(log.log_end_offset, now - source.randrange(3_600_000), *encode_control_record(marker))],
            partition_leader_epoch=epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            control=True,
        )
    )
    producer.is_open = False


# --- damage ---------------------------------------------------------------------------------------------------------


def damage(directory: Path, source: random.Random) -> str:
    """Do something to a partition, and say what."""
    chosen = source.choice(_DAMAGES)
    chosen(directory, source)
    return chosen.__name__.strip("_")


def _file(directory: Path, source: random.Random, *patterns: str) -> Path | None:
    files = [path for pattern in patterns for path in sorted(directory.glob(pattern)) if path.stat().st_size]
    return source.choice(files) if files else None


def _changed(path: Path | None, change: Callable[[bytes], bytes]) -> None:
    if path is not None:
        path.write_bytes(change(path.read_bytes()))


def _one_batch(data: bytes, source: random.Random) -> list[tuple[int, int]]:
    """Return where one of the batches before the first damage begins and ends, in a list; empty without one."""
    found: list[tuple[int, int]] = []
    with suppress(CorruptData, ValueError):
        found.extend((header.position, header.position + header.size) for header in batch_headers(data))
    return [source.choice(found)] if found else []


def _flip_in_log(directory: Path, source: random.Random) -> None:
    _flip(_file(directory, source, "*.log"), source)


def _flip_in_header(directory: Path, source: random.Random) -> None:
    path = _file(directory, source, "*.log")
    if path is not None:
        data = bytearray(path.read_bytes())
        for start, end in _one_batch(bytes(data), source):
            data[min(start + source.randrange(8, 61), end - 1)] ^= 1 << source.randrange(8)
        path.write_bytes(data)


def _flip_in_side_file(directory: Path, source: random.Random) -> None:
    _flip(_file(directory, source, "*.index", "*.timeindex", "*.snapshot"), source)


def _flip(path: Path | None, source: random.Random) -> None:
    def flip(data: bytes) -> bytes:
        at = source.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << source.randrange(8))]) + data[at + 1 :]

    _changed(path, flip)


def _cut(directory: Path, source: random.Random) -> None:
    path = _file(directory, source, "*.log", "*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot")
    _changed(path, lambda data: data[: source.randrange(len(data))])


def _garbage_at_the_end(directory: Path, source: random.Random) -> None:
    tail = source.choice([bytes(source.randrange(1, 3000)), source.randbytes(source.randrange(1, 300))])
    _changed(_file(directory, source, "*.log", "*.index", "*.timeindex"), lambda data: data + tail)


def _batch_again(directory: Path, source: random.Random) -> None:
    def repeat(data: bytes) -> bytes:
        return data + b"".join(data[start:end] for start, end in _one_batch(data, source))

    _changed(_file(directory, source, "*.log"), repeat)


def _batch_missing(directory: Path, source: random.Random) -> None:
    def drop(data: bytes) -> bytes:
        for start, end in _one_batch(data, source):
            return data[:start] + data[end:]
        return data

    _changed(_file(directory, source, "*.log"), drop)


def _zeros(directory: Path, source: random.Random) -> None:
    def zero(data: bytes) -> bytes:
        start = source.randrange(len(data))
        end = source.randrange(start, len(data))
        return data[:start] + bytes(end - start) + data[end:]

    _changed(_file(directory, source, "*.log", "*.index", "*.timeindex"), zero)


def _file_missing(directory: Path, source: random.Random) -> None:
    path = _file(directory, source, "*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "leader-epoch-*")
    if path is not None:
        path.unlink()


def _compaction_interrupted(directory: Path, source: random.Random) -> None:
    path = _file(directory, source, "*.log")
    if path is not None:
        state = source.choice([".swap", ".swap", ".cleaned", ".deleted"])
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            side = path.with_suffix(kind)
            if side.exists():
                side.with_name(side.name + state).write_bytes(side.read_bytes())
                if state == ".swap" and source.random() < 0.5:
                    side.unlink()


def _nothing(directory: Path, source: random.Random) -> None:
    """Leave it as it is."""


_DAMAGES = (
    _flip_in_log,
    _flip_in_header,
    _flip_in_side_file,
    _cut,
    _cut,
    _garbage_at_the_end,
    _batch_again,
    _batch_missing,
    _zeros,
    _file_missing,
    _compaction_interrupted,
    _nothing,
)
