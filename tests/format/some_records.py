"""Strategies for the records of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from hypothesis import strategies as st

from kfs.format.layout import MAX_INT64
from kfs.format.record import Header, Record, TimestampType

nullable_bytes = st.none() | st.binary(max_size=200)
# Kafka's header keys are strings, whatever bytes a producer makes of them.
headers: st.SearchStrategy[Header] = st.tuples(st.text(max_size=8).map(str.encode), nullable_bytes)
# Far enough apart to need every length of varlong, near enough for their differences to fit an int64.
timestamps = st.integers(-1, MAX_INT64 - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
gaps = st.integers(1, 3) | st.integers(1, 2**20)


def batches(most_headers: int = 3) -> st.SearchStrategy[list[Record]]:
    """One to twenty records, with holes between their offsets."""
    record = st.builds(
        Record,
        offset=gaps,
        timestamp=timestamps,
        key=nullable_bytes,
        value=nullable_bytes,
        headers=st.lists(headers, max_size=most_headers).map(tuple),
    )
    first_offsets = st.integers(0, 100) | st.integers(0, MAX_INT64 - 2**26)
    return st.builds(_after, first_offsets, st.lists(record, min_size=1, max_size=20))


def _after(first_offset: int, records: list[Record]) -> list[Record]:
    """Take the offsets as distances from the record before."""
    offsets = accumulate((record.offset for record in records[1:]), initial=first_offset)
    return [replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)]


def stamped(records: Sequence[Record], timestamp_type: TimestampType, timestamp: int) -> list[Record]:
    """Return the records as a reader sees them where one timestamp stands for all."""
    return [replace(record, timestamp=timestamp, timestamp_type=timestamp_type) for record in records]
