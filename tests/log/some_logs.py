"""Strategies for logs: batches of every format and codec, holes between them, times that go back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from kfs.format.codecs import Codec
from kfs.format.record import Record
from tests.logs import START, Batch, batches

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in Codec if codec != Codec.ZSTD or magic == 2]
#: Seconds after START, few enough to meet twice.
seconds = st.integers(0, 30).map(lambda after: START + after * 1000)

_payloads = st.none() | st.binary(max_size=12) | st.integers(0, 255).map(lambda byte: bytes([byte]) * 300)
_records = st.builds(Record, st.just(0), seconds, _payloads, _payloads)
_requests = st.lists(st.tuples(st.integers(0, 4), _records), min_size=1, max_size=6)
_whole_requests = st.lists(st.tuples(st.just(0), _records), min_size=1, max_size=6)


@st.composite
def some_batches(draw: st.DrawFn, first_offset: int = 0, most: int = 8, *, has_holes: bool = True) -> list[Batch]:
    """Draw batches with ascending offsets from ``first_offset`` on, as compaction may leave them: with holes."""
    result: list[Batch] = []
    offset = first_offset
    for number in range(draw(st.integers(1, most))):
        content = []
        for hole, record in draw(_requests if has_holes else _whole_requests):
            offset += hole
            # A value that no other record has: what is found somewhere else is noticed.
            value = record.value if record.value is None else b"%d %d " % (number, offset) + record.value
            content.append(replace(record, offset=offset, value=value))
            offset += 1
        magic, codec = draw(st.sampled_from(FORMATS))
        result += batches(content, magic=magic, codec=codec)
    return result


@st.composite
def some_segments(draw: st.DrawFn, most: int = 3, *, has_holes: bool = True) -> dict[int, list[Batch]]:
    """Draw the segments of a log, by base offset; those that a leader wrote, and nobody compacted, have no holes."""
    segments: dict[int, list[Batch]] = {}
    base = draw(st.sampled_from([0, 7, 2**31 - 20, 2**40]))
    for _ in range(draw(st.integers(1, most))):
        first = base + (draw(st.integers(0, 2)) if has_holes else 0)
        content = draw(some_batches(first, most=6, has_holes=has_holes))
        segments[base] = content
        base = content[-1].last_offset + 1 + (draw(st.integers(0, 3)) if has_holes else 0)
    return segments
