"""The start of a job: its stored position, or without one as ``auto.offset.reset`` says."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kfs.errors import OffsetStoreError
from kfs.format.checkpoint import TopicPartition
from kfs.log.offset_range import OffsetRange


class OffsetReset(StrEnum):
    """Where to begin in a partition without a position."""

    EARLIEST = "earliest"
    LATEST = "latest"


#: The names in all versions of consumers (``OffsetRequest.SmallestTimeString`` until 0.8).
_NAMES: Final = {
    "earliest": OffsetReset.EARLIEST,
    "smallest": OffsetReset.EARLIEST,
    "latest": OffsetReset.LATEST,
    "largest": OffsetReset.LATEST,
}


def parse_offset_reset(value: str) -> OffsetReset:
    """Parse a value of ``auto.offset.reset``.

    Raises:
        OffsetStoreError: it is unknown.
    """
    found = _NAMES.get(value.strip().lower())
    if found is None:
        raise OffsetStoreError(f"auto.offset.reset: {value[:50]!r} is not one of {', '.join(_NAMES)}")
    return found


def starting_positions(
    stored: Mapping[TopicPartition, int], there: Mapping[TopicPartition, OffsetRange], reset: OffsetReset
) -> dict[TopicPartition, int]:
    """Return where to begin in each partition that is ``there``.

    A stored position is returned as it is, even if its records are gone or it is past the end: the reader has to report
    that rather than begin elsewhere silently.
    """
    return {
        partition: stored.get(partition, offsets.start if reset is OffsetReset.EARLIEST else offsets.end)
        for partition, offsets in there.items()
    }
