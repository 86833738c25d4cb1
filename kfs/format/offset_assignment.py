"""Assignment of the next offsets in a log to existing batches (``LogValidator.java``, without decoding)."""

from __future__ import annotations

from typing import Final

from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader
from kfs.format.layout import LOG_OVERHEAD, MAGIC_V2, NO_PARTITION_LEADER_EPOCH

_OFFSET_SIZE: Final = 8
_EPOCH_SIZE: Final = 4


def assign_offset(
    batch: bytes, header: BatchHeader, offset: int, leader_epoch: int = NO_PARTITION_LEADER_EPOCH
) -> bytes:
    """Return a batch with first offset ``offset``; offsets and the v2 leader epoch lie outside the CRC.

    Raises:
        ValueError: the batch is a compressed message of format v0 or v1, whose offsets are inside it.
    """
    if header.record_count == UNKNOWN_COUNT:
        raise ValueError("the offsets of a compressed message are inside of it: decode it and encode it again")
    assigned = bytearray(batch)
    assigned[:_OFFSET_SIZE] = offset.to_bytes(_OFFSET_SIZE, "big")
    if header.magic == MAGIC_V2:
        assigned[LOG_OVERHEAD : LOG_OVERHEAD + _EPOCH_SIZE] = leader_epoch.to_bytes(_EPOCH_SIZE, "big", signed=True)
    return bytes(assigned)
