"""A table of consecutive ordinary batches, which a walk handles many at a time."""

from __future__ import annotations

from array import array

from kfs.format.batch_header import BatchHeader, read_header
from kfs.format.layout import LEGACY_ATTRIBUTES_KNOWN, MAGIC_V1, MAGIC_V2

_LEGACY_ATTRIBUTES = LEGACY_ATTRIBUTES_KNOWN[MAGIC_V1]  # other bits have no meaning in v0 and v1


class BatchTable:
    """Consecutive record batches (v2), one per row: complete, intact, and with ascending offsets.

    ``buffer`` holds their bytes and may hold more; its first byte is at ``buffer_position`` in the file. ``positions``
    are the positions of the batches in the file. Timestamps are those of the header; for a batch with a delete horizon,
    ``base_timestamps`` is that horizon.
    """

    __slots__ = (
        "attributes",
        "base_offsets",
        "base_timestamps",
        "buffer",
        "buffer_position",
        "counts",
        "last_offsets",
        "leader_epochs",
        "max_timestamps",
        "positions",
        "producer_ids",
        "sizes",
    )

    def __init__(
        self,
        buffer: bytes,
        buffer_position: int,
        positions: array[int],
        sizes: array[int],
        attributes: array[int],
        base_offsets: array[int],
        last_offsets: array[int],
        counts: array[int],
        base_timestamps: array[int],
        max_timestamps: array[int],
        producer_ids: array[int],
        leader_epochs: array[int],
    ) -> None:
        self.buffer = buffer
        self.buffer_position = buffer_position
        self.positions = positions
        self.sizes = sizes
        self.attributes = attributes
        self.base_offsets = base_offsets
        self.last_offsets = last_offsets
        self.counts = counts
        self.base_timestamps = base_timestamps
        self.max_timestamps = max_timestamps
        self.producer_ids = producer_ids
        self.leader_epochs = leader_epochs

    @classmethod
    def of(cls, header: BatchHeader, data: bytes) -> BatchTable:
        """Return the table of one batch, or of a synthetic one that consists of messages."""
        attributes = header.attributes if header.magic == MAGIC_V2 else header.attributes & _LEGACY_ATTRIBUTES
        return cls(
            data,
            header.position,
            array("q", [header.position]),
            array("q", [header.size]),
            array("i", [attributes]),
            array("q", [header.base_offset]),
            array("q", [header.last_offset]),
            array("i", [header.record_count]),
            array("q", [header.base_timestamp]),
            array("q", [header.max_timestamp]),
            array("q", [header.producer_id]),
            array("i", [header.leader_epoch]),
        )

    def __len__(self) -> int:
        return len(self.positions)

    def end(self, row: int) -> int:
        """Return the byte position in the file just after the batch in ``row``."""
        return self.positions[row] + self.sizes[row]

    def header(self, row: int) -> BatchHeader:
        """Return the header of the batch in ``row``."""
        position = self.positions[row]
        return read_header(self.buffer, position - self.buffer_position, position)

    def data(self, row: int) -> bytes:
        """Return the bytes of the batch in ``row``."""
        at = self.positions[row] - self.buffer_position
        return self.buffer[at : at + self.sizes[row]]
