"""Writes the demo: a log directory as a broker leaves it after a clean stop."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kfs.broker_log.output_directory import make_empty_directory
from kfs.demo.partition_writer import WrittenPartition, write_file, write_partition
from kfs.demo.topic import DemoTopic
from kfs.errors import KfsError
from kfs.format.checkpoint import TopicPartition, encode_offset_checkpoint
from kfs.format.clean_shutdown import CleanShutdown, encode_clean_shutdown
from kfs.format.properties import MetaProperties, encode_meta_properties
from kfs.format.uuid import UUID_SIZE, Uuid
from kfs.log.log_dir import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)

_NODE_ID: Final = 1
_BROKER_EPOCH: Final = 14


@dataclass(frozen=True, slots=True)
class WrittenTopic:
    """A topic of the demo, and its partitions as written."""

    topic: DemoTopic
    partitions: tuple[WrittenPartition, ...]

    @property
    def messages(self) -> int:
        """The number of messages in all partitions."""
        return sum(partition.messages for partition in self.partitions)


def write_data_directory(path: str, topics: Iterable[DemoTopic]) -> list[WrittenTopic]:
    """Write a log directory with ``topics`` to ``path``, and return what was written.

    The same topics give the same bytes.

    Raises:
        KfsError: the path is something other than an empty or missing directory, or can't be written.
    """
    make_empty_directory(path)
    try:
        return _write(path, topics)
    except OSError as error:
        raise KfsError(f"{error.filename or path}: {error.strerror}") from error


def _write(path: str, topics: Iterable[DemoTopic]) -> list[WrittenTopic]:
    written = []
    for topic in topics:
        topic_id = _uuid(topic.name)
        partitions = tuple(
            write_partition(os.path.join(path, f"{topic.name}-{number}"), partition, topic_id)
            for number, partition in enumerate(topic.partitions)
        )
        written.append(WrittenTopic(topic, partitions))
    meta = MetaProperties(1, _NODE_ID, str(_uuid("the cluster")), _uuid("the log directory"))
    files = {
        META_PROPERTIES: encode_meta_properties(meta),
        **_checkpoints(written),
        CLEAN_SHUTDOWN: encode_clean_shutdown(CleanShutdown(_BROKER_EPOCH)),
        ".lock": b"",
    }
    for name, content in files.items():
        write_file(os.path.join(path, name), content)
    return written


def _checkpoints(written: list[WrittenTopic]) -> dict[str, bytes]:
    ends, starts, cleaned = {}, {}, {}
    for each in written:
        for number, (partition, result) in enumerate(zip(each.topic.partitions, each.partitions, strict=True)):
            key = TopicPartition(each.topic.name, number)
            ends[key] = result.log_end_offset
            # LogManager.checkpointLogStartOffsetsInDir writes only offsets that aren't a segment's base offset.
            if partition.log_start_offset is not None:
                starts[key] = partition.log_start_offset
            if partition.first_dirty_offset is not None:
                cleaned[key] = partition.first_dirty_offset
    return {
        RECOVERY_POINT_CHECKPOINT: encode_offset_checkpoint(ends),
        HIGH_WATERMARK_CHECKPOINT: encode_offset_checkpoint(ends),
        LOG_START_OFFSET_CHECKPOINT: encode_offset_checkpoint(starts),
        CLEANER_OFFSET_CHECKPOINT: encode_offset_checkpoint(cleaned),
    }


def _uuid(name: str) -> Uuid:
    """Return a constant id for ``name``; like Kafka's (``Uuid.randomUuid``), it never begins with ``-``."""
    source = random.Random(f"kfs demo: {name}")
    while True:
        uuid = Uuid(source.randbytes(UUID_SIZE))
        if not str(uuid).startswith("-"):
            return uuid
