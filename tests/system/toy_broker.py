"""Writes and changes a log directory as a broker does, while it may be mounted."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from kfs.format.codecs import Codec
from kfs.format.record import Header, Record
from kfs.format.writer import encode_batch
from tests.system.expectation import line_of

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_HOUR: Final = 3_600_000

#: 2024-03-01T00:00:00Z
FIRST_TIMESTAMP: Final = 1_709_251_200_000


def message(
    offset: int, value: bytes | None = None, *, key: bytes | None = None, headers: tuple[Header, ...] = ()
) -> Record:
    """Return a record whose time follows from its offset: one an hour; its value does too unless it is given."""
    own = value if value is not None else b"value of %d" % offset
    return Record(offset, FIRST_TIMESTAMP + offset * _HOUR, key, own, headers)


class ToyPartition:
    """A partition's directory, its active segment the last, and what was written to it."""

    def __init__(self, log_root: Path, topic: str, partition: int = 0, *, first_offset: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}/{partition}"
        self.directory = log_root / f"{topic}-{partition}"
        self.directory.mkdir(parents=True)
        self.next_offset = first_offset
        self.bases: list[int] = []
        self.records: dict[int, Record] = {}
        self.roll()

    def file(self, base_offset: int, suffix: str = ".log") -> Path:
        """The path of a segment's file."""
        return self.directory / f"{base_offset:020d}{suffix}"

    @property
    def active(self) -> Path:
        """The ``.log`` that is written to."""
        return self.file(self.bases[-1])

    def roll(self) -> None:
        """Begin a new segment at the next offset."""
        self.bases.append(self.next_offset)
        for suffix in (".log", ".index", ".timeindex"):
            self.file(self.next_offset, suffix).touch()

    def append(
        self, records: Sequence[Record], codec: Codec = Codec.NONE, *, halfway: Callable[[], None] = lambda: None
    ) -> None:
        """Append one batch to the active segment, and an entry for it to each index.

        ``halfway`` is called when half of the batch is written.
        """
        base = self.bases[-1]
        position = self.active.stat().st_size
        batch = encode_batch(records, codec=codec)
        last = records[-1].offset - base
        _append(self.active, batch[: len(batch) // 2])
        halfway()
        _append(self.active, batch[len(batch) // 2 :])
        if position:
            _append(self.file(base, ".index"), _OFFSET_ENTRY.pack(last, position))
        _append(self.file(base, ".timeindex"), _TIME_ENTRY.pack(records[-1].timestamp, last))
        self.records.update((record.offset, record) for record in records)
        self.next_offset = records[-1].offset + 1

    def append_messages(self, count: int, *, batch: int = 10, codec: Codec = Codec.NONE) -> None:
        """Append so many ordinary records in batches of ``batch``."""
        end = self.next_offset + count
        while self.next_offset < end:
            offsets = range(self.next_offset, min(self.next_offset + batch, end))
            self.append([message(offset) for offset in offsets], codec)

    def skip(self, count: int) -> None:
        """Leave a hole of so many offsets, as compaction does."""
        self.next_offset += count

    def delete_first_segment(self) -> list[int]:
        """Delete the oldest segment as retention does at last; return the offsets that it held."""
        base = self.bases.pop(0)
        for suffix in (".index", ".timeindex", ".log"):
            self.file(base, suffix).unlink()
        gone = [offset for offset in self.records if offset < self.bases[0]]
        for offset in gone:
            del self.records[offset]
        return gone

    def line(self, offset: int) -> bytes:
        """What the mount must show of the record at ``offset``."""
        return line_of(self.topic, self.partition, self.records[offset])

    def lines(self, offsets: Iterable[int] | None = None) -> dict[int, bytes]:
        """What the mount must show, by offset."""
        return {offset: self.line(offset) for offset in (self.records if offsets is None else offsets)}

    def segment_offsets(self, base_offset: int) -> list[int]:
        """The offsets that have records in the segment of that base offset."""
        end = next((base for base in self.bases if base > base_offset), self.next_offset)
        return [offset for offset in self.records if base_offset <= offset < end]

    def segment_text(self, base_offset: int) -> bytes:
        """What the mount must show of a segment."""
        return b"".join(self.line(offset) for offset in self.segment_offsets(base_offset))


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
