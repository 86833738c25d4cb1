"""A log of millions of records in little time and space: one encoded batch, again and again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from kfs.format.record import Record
from kfs.format.writer import encode_batch
from tests.system.toy_broker import FIRST_TIMESTAMP

_BASE_OFFSET: Final = struct.Struct(">q")  # the first field of a batch, and outside of its CRC
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")

BATCH: Final = 500
VALUE: Final = b"a reading of some sensor"


def write_big_log(directory: Path, count: int, segments: int = 8) -> None:
    """Write a partition of ``count`` records in so many segments of equal size, with an index entry for each batch."""
    directory.mkdir(parents=True)
    template = bytearray(encode_batch([Record(at, FIRST_TIMESTAMP + at, None, VALUE) for at in range(BATCH)]))
    batches = count // BATCH // segments
    assert batches * BATCH * segments == count, "does not come out even"
    for segment in range(segments):
        _write_segment(directory, segment * batches * BATCH, batches, template)


def _write_segment(directory: Path, base: int, batches: int, template: bytearray) -> None:
    stem = directory / f"{base:020d}"
    with stem.with_suffix(".log").open("wb", buffering=1 << 20) as log:
        for number in range(batches):
            _BASE_OFFSET.pack_into(template, 0, base + number * BATCH)
            log.write(template)
    index = b"".join(
        _OFFSET_ENTRY.pack(number * BATCH + BATCH - 1, number * len(template)) for number in range(1, batches)
    )
    stem.with_suffix(".index").write_bytes(index)
    stem.with_suffix(".timeindex").write_bytes(_TIME_ENTRY.pack(FIRST_TIMESTAMP + BATCH - 1, BATCH - 1))
