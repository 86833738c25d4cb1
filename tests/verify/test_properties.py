"""What a writer makes verifies clean; one changed byte, and it doesn't."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kfs.broker_log.log_config import LogConfig
from kfs.format.batch_header import UNKNOWN_COUNT, BatchHeader, read_header
from kfs.format.codecs import Codec
from kfs.format.decode import PythonDecoder
from kfs.format.decoders import BlockDecoder
from kfs.format.layout import LEGACY_CRC_OFFSET, MAGIC_OFFSET, MAGIC_V2, MAX_INT64
from kfs.verify.finding import Finding, FindingKind
from tests.implementations import DECODERS, EVERY_DECODER
from tests.log.some_logs import some_segments
from tests.logs import Batch, joined, log_name, write_partition
from tests.thoroughness import examples
from tests.verify.broker import Broker, End, Produce, Reopen, Step, some_steps
from tests.verify.checking import complaints, kinds, verified_by

pytestmark = pytest.mark.usefixtures("quiet")

Segments = dict[int, list[Batch]]


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for one example."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@settings(max_examples=60)
@given(segments=some_segments(), interval=st.sampled_from([0, 100, 4096]))
def test_segments_with_their_indexes_verify_clean(segments: Segments, interval: int) -> None:
    with scratch() as root:
        directory = write_partition(root / "t-0", segments, interval=interval)
        for decoder in DECODERS:
            # Offsets between segments are left out as compaction does it, but nothing else shows that it was there.
            assert kinds(complaints(verified_by(decoder(), directory))) <= {FindingKind.OFFSET_GAP}


# --- a broker's log -------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    steps=st.lists(some_steps, max_size=40),
    segment_bytes=st.sampled_from([500, 1500, 100_000]),
    interval=st.sampled_from([0, 300, 4096]),
    first_offset=st.sampled_from([0, 0, 77]),
)
# A broker that starts again counts the bytes since the last entry of the index anew.
@example(
    steps=[*[End(3, False, False)] * 2, Produce(0, 4, Codec.NONE, False, 0), Reopen(False), End(3, False, False)],
    segment_bytes=500,
    interval=0,
    first_offset=0,
)
def test_what_a_broker_of_ours_leaves_verifies_clean(
    steps: Sequence[Step], segment_bytes: int, interval: int, first_offset: int
) -> None:
    with scratch() as directory:
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
        broker = Broker(directory / "data", config, first_offset)
        for step in steps:
            broker.do(step)
        broker.stop()
        for decoder in DECODERS:
            assert complaints(verified_by(decoder(), directory / "data")) == []


# --- one byte -------------------------------------------------------------------------------------------------------


def is_covered(header: BatchHeader, at: int) -> bool:
    """Whether a byte of a batch is one that the CRC covers, or one of the CRC itself."""
    return at > MAGIC_OFFSET if header.magic == MAGIC_V2 else at >= LEGACY_CRC_OFFSET


def is_in_order(data: bytes, base_offset: int, limit: int) -> bool:
    """Whether the offsets that the headers claim ascend and lie in the segment; of wrappers, those of all messages."""
    seen, at = base_offset - 1, 0
    while at < len(data):
        header = read_header(data.ljust(at + 61, b"\0"), at, at)
        first, last = header.base_offset, header.last_offset
        if header.record_count == UNKNOWN_COUNT:
            # v0: the offsets inside are absolute, so the wrapper's may be no other.
            offsets = PythonDecoder().decode(header, data[at : at + header.size], 1 << 20).offsets
            first, last = offsets[0], offsets[-1]
        if first <= seen or last >= limit:
            return False
        seen = last
        at += header.size
    return True


@EVERY_DECODER
@settings(max_examples=examples(60, 400))
@given(data=st.data(), segments=some_segments(most=2), mask=st.integers(1, 255))
def test_a_changed_byte_is_found(decoder: BlockDecoder, data: st.DataObject, segments: Segments, mask: int) -> None:
    base = data.draw(st.sampled_from(sorted(segments)))
    content = segments[base]
    number = data.draw(st.integers(0, len(content) - 1))
    batch = content[number]
    header = read_header(batch.data.ljust(61, b"\0"), 0, 0)
    at = data.draw(st.integers(0, 30) | st.integers(0, len(batch.data) - 1))
    at %= len(batch.data)
    start = len(joined(content[:number]))
    bytes_ = bytearray(joined(content))
    bytes_[start + at] ^= mask
    limit = min([other for other in segments if other > base], default=MAX_INT64)
    limit = min(limit, base + 2**31)
    with scratch() as root:
        directory = write_partition(root / "t-0", segments)
        (directory / log_name(base)).write_bytes(bytes_)
        found = [one for one in complaints(verified_by(decoder, directory)) if one.file.endswith(log_name(base))]
    if is_covered(header, at) or 8 <= at < 12 or at == MAGIC_OFFSET:
        assert lies_in(found, start, start + len(batch.data))
    elif at < 8:
        try:
            keeps_order = is_in_order(bytes(bytes_), base, limit)
        except Exception:  # an offset that no header can have
            keeps_order = False
        if not keeps_order:
            assert found
    else:
        assert header.magic == MAGIC_V2  # the leader epoch


def lies_in(found: Sequence[Finding], start: int, end: int) -> bool:
    """Whether one of the findings is about bytes of that range."""
    return any(one.bytes is not None and one.bytes[0] < end and one.bytes[1] > start for one in found)
