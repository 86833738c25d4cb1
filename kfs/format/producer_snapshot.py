"""``.snapshot`` files (``ProducerStateManager.readSnapshot``): a partition's producers, as of the offset in the name.

::

    version:int16 crc:uint32 count:int32 count * (producerId:int64 producerEpoch:int16 lastSequence:int32
    lastOffset:int64 offsetDelta:int32 timestamp:int64 coordinatorEpoch:int32 currentTxnFirstOffset:int64)

The CRC-32C covers everything after itself. Version 1 is the only one so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kfs.errors import CorruptData
from kfs.format.crc import crc32c
from kfs.format.layout import MAX_INT32
from kfs.format.varint import Buffer

SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEADER: Final = Struct(">hIi")  # version, crc, count
CRC_OFFSET: Final = 2
PRODUCER_ENTRIES_OFFSET: Final = 6
PRODUCER_ENTRY: Final = Struct(">qhiqiqiq")

_NO_TRANSACTION: Final = -1


@dataclass(frozen=True, slots=True)
class ProducerStateEntry:
    """A broker's state of one producer (``ProducerStateEntry.java``).

    ``last_offset`` is -1 if only the epoch, and perhaps markers, are known, but no batch (:attr:`has_batch`).
    ``current_txn_first_offset`` is the first offset of the open transaction, or None if none is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int | None

    @property
    def has_batch(self) -> bool:
        """Whether the sequence, the offset and the delta are those of a batch."""
        return self.last_offset >= 0

    @property
    def first_sequence(self) -> int:
        """The first sequence of the last batch; sequences wrap at 2^31 (``DefaultRecordBatch.decrementSequence``)."""
        sequence = self.last_sequence - self.offset_delta
        return sequence if sequence >= 0 else sequence + MAX_INT32 + 1


def parse_producer_snapshot(data: Buffer) -> tuple[ProducerStateEntry, ...]:
    """Return the producers in a ``.snapshot``."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise CorruptData(f"{len(data)} bytes, a snapshot has at least {SNAPSHOT_HEADER.size}")
    version, stored_crc, count = SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptData(f"snapshot version {version}, expected {SNAPSHOT_VERSION}")
    crc = crc32c(memoryview(data)[PRODUCER_ENTRIES_OFFSET:])
    if crc != stored_crc:
        raise CorruptData(f"snapshot CRC {crc:#010x}, expected the stored {stored_crc:#010x}", CRC_OFFSET)
    if len(data) != SNAPSHOT_HEADER.size + count * PRODUCER_ENTRY.size:
        raise CorruptData(f"{count} producers in {len(data)} bytes", PRODUCER_ENTRIES_OFFSET)
    return tuple(map(_unpack, PRODUCER_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEADER.size :])))


def encode_producer_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Encode a ``.snapshot``."""
    packed = [_pack(entry) for entry in entries]
    covered = len(packed).to_bytes(4, "big") + b"".join(packed)
    return SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(covered).to_bytes(4, "big") + covered


def _unpack(fields: tuple[int, ...]) -> ProducerStateEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
    open_from = first_offset if first_offset >= 0 else None
    return ProducerStateEntry(
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, open_from
    )


def _pack(entry: ProducerStateEntry) -> bytes:
    first_offset = entry.current_txn_first_offset
    return PRODUCER_ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.offset_delta,
        entry.timestamp,
        entry.coordinator_epoch,
        _NO_TRANSACTION if first_offset is None else first_offset,
    )
