"""A decoded batch, as columns instead of objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from kfs.errors import CorruptData
from kfs.format.record import Header, Record, TimestampType
from kfs.format.varint import decode_varint

NO_FAULTS: Mapping[int, CorruptData] = MappingProxyType({})


class RecordColumns:
    """The records of one block, as typed columns that point into one decompressed buffer.

    ``offsets`` and ``timestamps`` are ``int64``. ``key_starts``, ``key_lengths``, ``value_starts``, ``value_lengths``
    and ``header_starts`` are ``int32`` positions in ``buffer``. A length of -1 means null. ``header_starts`` is the
    position of a record's header count, or -1 if it has no headers. Decoding checks the headers, but they are built
    only on demand. ``faults`` has, by index, the records that are broken although their batch is intact (an inner
    message of a v0 or v1 wrapper with a wrong CRC).
    """

    __slots__ = (
        "buffer",
        "faults",
        "header_starts",
        "key_lengths",
        "key_starts",
        "offsets",
        "timestamp_type",
        "timestamps",
        "value_lengths",
        "value_starts",
    )

    def __init__(
        self,
        buffer: bytes,
        offsets: array[int],
        timestamps: array[int],
        timestamp_type: TimestampType,
        key_starts: array[int],
        key_lengths: array[int],
        value_starts: array[int],
        value_lengths: array[int],
        header_starts: array[int],
        faults: Mapping[int, CorruptData] = NO_FAULTS,
    ) -> None:
        self.buffer = buffer
        self.offsets = offsets
        self.timestamps = timestamps
        self.timestamp_type = timestamp_type
        self.key_starts = key_starts
        self.key_lengths = key_lengths
        self.value_starts = value_starts
        self.value_lengths = value_lengths
        self.header_starts = header_starts
        self.faults = faults

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """The memory that the columns use, in bytes."""
        return len(self.buffer) + len(self.offsets) * (8 + 8 + 5 * 4)

    def key(self, index: int) -> bytes | None:
        """Return the key of the record at ``index``, or None if it is null."""
        length = self.key_lengths[index]
        start = self.key_starts[index]
        return None if length < 0 else self.buffer[start : start + length]

    def value(self, index: int) -> bytes | None:
        """Return the value of the record at ``index``, or None if it is null."""
        length = self.value_lengths[index]
        start = self.value_starts[index]
        return None if length < 0 else self.buffer[start : start + length]

    def headers(self, index: int) -> tuple[Header, ...]:
        """Return the headers of the record at ``index``, in their order, including duplicates."""
        position = self.header_starts[index]
        if position < 0:
            return ()
        buffer = self.buffer
        end = len(buffer)
        count, position = decode_varint(buffer, position, end)
        headers: list[Header] = []
        for _ in range(count):
            length, position = decode_varint(buffer, position, end)
            key = buffer[position : position + length]
            position += length
            length, position = decode_varint(buffer, position, end)
            if length < 0:
                headers.append((key, None))
            else:
                headers.append((key, buffer[position : position + length]))
                position += length
        return tuple(headers)

    def record(self, index: int) -> Record:
        """Return the record at ``index``.

        Raises:
            CorruptData: this record is broken.
        """
        if index in self.faults:
            raise self.faults[index]
        return Record(
            self.offsets[index],
            self.timestamps[index],
            self.key(index),
            self.value(index),
            self.headers(index),
            self.timestamp_type,
        )

    def __iter__(self) -> Iterator[Record]:
        return map(self.record, range(len(self)))

    def take(self, indexes: Sequence[int]) -> RecordColumns:
        """Return only the records at ``indexes``, over the same buffer."""

        def taken(column: array[int]) -> array[int]:
            return array(column.typecode, [column[index] for index in indexes])

        return RecordColumns(
            self.buffer,
            taken(self.offsets),
            taken(self.timestamps),
            self.timestamp_type,
            taken(self.key_starts),
            taken(self.key_lengths),
            taken(self.value_starts),
            taken(self.value_lengths),
            taken(self.header_starts),
            {number: self.faults[index] for number, index in enumerate(indexes) if index in self.faults},
        )

    def slice(self, start: int, stop: int) -> RecordColumns:
        """Return only the records from ``start`` up to, not including, ``stop``, over the same buffer."""
        if start == 0 and stop == len(self):
            return self
        return RecordColumns(
            self.buffer,
            self.offsets[start:stop],
            self.timestamps[start:stop],
            self.timestamp_type,
            self.key_starts[start:stop],
            self.key_lengths[start:stop],
            self.value_starts[start:stop],
            self.value_lengths[start:stop],
            self.header_starts[start:stop],
            {index - start: fault for index, fault in self.faults.items() if start <= index < stop},
        )
