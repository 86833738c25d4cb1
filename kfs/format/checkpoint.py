"""Checkpoint files (``CheckpointFile.java``): text, one entry per line, rewritten as a whole and renamed into place.

::

    0                      version
    2                      count of entries
    payments 0 368776      OffsetCheckpointFile: topic, partition, offset
    payments 1 368102

A log root has four of these (recovery-point-offset-, log-start-offset-, replication-offset- and
cleaner-offset-checkpoint). ``leader-epoch-checkpoint`` of a partition has ``epoch startOffset`` lines. An empty file,
as Kafka creates it, has no entries; the same is true of a file that ends after its version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT32, MAX_INT64
from kfs.format.text_lines import TextLine, parse_number, shown, split_lines

CHECKPOINT_VERSION: Final = 0

# 200,000 partitions with names of the maximum length take 54 MB.
MAX_CHECKPOINT_BYTES: Final = 64 * 1024 * 1024


class TopicPartition(NamedTuple):
    """A partition, by topic name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    leader_epoch: int
    start_offset: int


def parse_offset_checkpoint(data: bytes) -> dict[TopicPartition, int]:
    """Return the offset of every partition in the file.

    If a partition has two lines, the later one counts, as in ``OffsetCheckpointFile.read``.
    """
    return dict(_parse_offset(line) for line in _entry_lines(data))


def encode_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Encode an offset checkpoint, in the order of ``offsets``."""
    return _encode(f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items())


def parse_leader_epoch_checkpoint(data: bytes) -> tuple[EpochEntry, ...]:
    """Return the entries in file order, which isn't checked.

    Brokers before 2.0 wrote epochs and offsets that go back. When ``LeaderEpochFileCache`` loads such an entry, it
    drops the earlier entries that conflict with it.
    """
    return tuple(_parse_epoch(line) for line in _entry_lines(data))


def encode_leader_epoch_checkpoint(entries: Iterable[EpochEntry]) -> bytes:
    """Encode a ``leader-epoch-checkpoint``."""
    return _encode(f"{entry.leader_epoch} {entry.start_offset}" for entry in entries)


def _entry_lines(data: bytes) -> list[TextLine]:
    """Return the lines after version and count, after checking both."""
    lines = list(split_lines(data, MAX_CHECKPOINT_BYTES))
    if lines:
        version = parse_number(lines[0].text, MAX_INT32, "the version", lines[0].position)
        if version != CHECKPOINT_VERSION:
            raise CorruptData(f"checkpoint version {version}, expected {CHECKPOINT_VERSION}", lines[0].position)
    entries = lines[2:]
    if len(lines) > 1:
        count = parse_number(lines[1].text, MAX_INT32, "the count of entries", lines[1].position)
        if count != len(entries):
            raise CorruptData(f"{len(entries)} entries, expected {count} by the count", lines[1].position)
    return entries


def _parse_offset(line: TextLine) -> tuple[TopicPartition, int]:
    topic, partition, offset = _fields(line, 3, "a topic, a partition and an offset")
    try:
        name = topic.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptData(f"the topic {shown(topic)} is not UTF-8", line.position) from error
    return (
        TopicPartition(name, parse_number(partition, MAX_INT32, "the partition", line.position)),
        parse_number(offset, MAX_INT64, "the offset", line.position),
    )


def _parse_epoch(line: TextLine) -> EpochEntry:
    epoch, start_offset = _fields(line, 2, "an epoch and a start offset")
    return EpochEntry(
        parse_number(epoch, MAX_INT32, "the epoch", line.position),
        parse_number(start_offset, MAX_INT64, "the start offset", line.position),
    )


def _fields(line: TextLine, count: int, expected: str) -> list[bytes]:
    fields = line.text.split()
    if len(fields) != count:
        raise CorruptData(f"the line {shown(line.text)}, expected {expected}", line.position)
    return fields


def _encode(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, len(lines), *lines)).encode("utf-8")
