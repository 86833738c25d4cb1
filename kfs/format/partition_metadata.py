"""``partition.metadata`` (``PartitionMetadataFile.java``, KIP-516): the topic id of a partition.

It has two lines, ``version: 0`` and ``topic_id: `` with the id. Kafka accepts any version from 0 on, so that later
versions can add lines.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT32
from kfs.format.text_lines import TextLine, parse_number, shown, split_lines
from kfs.format.uuid import ZERO_UUID, Uuid, parse_uuid

PARTITION_METADATA_VERSION: Final = 0
MAX_PARTITION_METADATA_BYTES: Final = 64 * 1024


class PartitionMetadata(NamedTuple):
    """The content of a ``partition.metadata``."""

    topic_id: Uuid
    version: int = PARTITION_METADATA_VERSION


def parse_partition_metadata(data: bytes) -> PartitionMetadata:
    """Parse a ``partition.metadata``."""
    lines = list(split_lines(data, MAX_PARTITION_METADATA_BYTES))
    if len(lines) < 2:
        raise CorruptData(f"{len(lines)} lines, expected version and topic_id", len(data))
    version = parse_number(_value(lines[0], b"version:"), MAX_INT32, "the version", lines[0].position)
    topic_id = parse_uuid(_value(lines[1], b"topic_id:"), lines[1].position)
    if topic_id == ZERO_UUID:
        raise CorruptData(f"the topic id {topic_id}, which no topic has", lines[1].position)
    return PartitionMetadata(topic_id, version)


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Encode a ``partition.metadata``, without a final newline, like Kafka."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode("ascii")


def _value(line: TextLine, name: bytes) -> bytes:
    fields = line.text.split()
    if len(fields) != 2 or fields[0] != name:
        raise CorruptData(f"the line {shown(line.text)}, expected {name.decode()} and its value", line.position)
    return fields[1]
