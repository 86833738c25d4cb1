"""The lines of ``meta/batches.jsonl``: the fields that Kafka's dump tool shows of each batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, read_header
from kfs.format.layout import MAGIC_V2
from kfs.log.block import Block
from kfs.log.segment import Segment
from kfs.tree.lines.source import Chunk


def batch_lines(segment: Segment, block: Block) -> Chunk:
    """Return a line for each batch of a block, with the fields that Kafka's dump tool shows."""
    return Chunk(b"".join(_batch_line(segment, header) for header in _headers(block)))


def _headers(block: Block) -> Iterator[BatchHeader]:
    """Yield the headers of the messages in a run, or the one of the batch."""
    if block.header.magic == MAGIC_V2 or block.header.record_count == UNKNOWN_COUNT:
        yield block.header
        return
    at = 0
    while at < len(block.data):
        header = read_header(block.data, at, block.position + at)
        yield header
        at += header.size


def _batch_line(segment: Segment, header: BatchHeader) -> bytes:
    fields: dict[str, Any] = {
        "segment": segment.base_offset,
        "position": header.position,
        "size": header.size,
        "magic": header.magic,
        "baseOffset": header.base_offset if header.record_count != UNKNOWN_COUNT else None,
        "lastOffset": header.last_offset,
        "count": header.record_count if header.record_count != UNKNOWN_COUNT else None,
        "codec": header.codec_label,
        "timestampType": header.timestamp_type.label,
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
    }
    if header.magic == MAGIC_V2:
        fields |= {
            "leaderEpoch": header.leader_epoch,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.delete_horizon,
        }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
