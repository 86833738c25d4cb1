"""The consequences that lost batches have for readers of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.layout import BATCH_OVERHEAD
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.log.log import Log
from kfs.log.missing import missing_sentence
from kfs.log.offset_range import OffsetRange
from kfs.log.remote_offsets import RemoteOffsets
from kfs.log.segment import Segment
from kfs.recover.segment_plan import Fate, Stretch, header_at

#: A segment, and a stretch of its bytes that is gone from the log.
Gone = tuple[Segment, Stretch]


def consequences(
    log: Log,
    gone: Sequence[Gone],
    left_open: Iterable[ProducerStateEntry],
    restored: Iterable[OffsetRange] = (),
    missing: Iterable[OffsetRange] = (),
) -> list[str]:
    """Return a sentence for each consequence that the remaining data shows.

    ``gone`` are the lost stretches and those set aside. ``left_open`` are producers with a transaction that no kept
    marker ends. ``restored`` are offsets taken from segments as they were before a compaction. ``missing`` are offsets
    of segments whose files are gone.
    """
    remote = [] if log.remote is None else [consequence_of(log.remote)]
    lost = [(segment, stretch) for segment, stretch in gone if stretch.fate is Fate.LOST]
    return [
        *remote,
        *(f"{missing_sentence(offsets)}: no file has them" for offsets in missing),
        *_aborts(log, lost),
        *_markers(lost),
        *_left_open(lost, left_open),
        *_compaction(log, lost),
        *_restored(restored),
    ]


def consequence_of(remote: RemoteOffsets) -> str:
    """Return the sentence about offsets in tiered storage, which no copy of a log directory has."""
    return f"{remote.sentence}: the log begins at {remote.end} here"


def _aborts(log: Log, lost: Sequence[Gone]) -> Iterator[str]:
    """Yield a sentence for each lost ABORT marker that the transaction index names."""
    for _, transaction in log.aborted_transactions():
        marker = transaction.last_offset
        if any(stretch.first_offset <= marker <= stretch.last_offset for _, stretch in lost):
            yield (
                f"the ABORT marker of producer {transaction.producer_id} at offset {marker} is lost: the records that"
                f" it aborted, from offset {transaction.first_offset} on, count as committed once the producer's next"
                " transaction is committed"
            )


def _markers(lost: Sequence[Gone]) -> Iterator[str]:
    for segment, stretch in lost:
        header = _claimed_header(segment, stretch.position)
        if header is not None and header.is_transaction_marker:
            yield (
                f"by its header, the lost batch at position {stretch.position} of {segment.files.log.path} was a"
                f" transaction marker of producer {header.producer_id}: if it was an ABORT, the records that it aborted"
                " count as committed once the producer's next transaction is committed"
            )


def _claimed_header(segment: Segment, position: int) -> BatchHeader | None:
    """Return the header of a damaged batch, probably as it was written; None if it makes no sense."""
    if segment.size() - position < BATCH_OVERHEAD:
        return None
    try:
        return header_at(segment, position)
    except CorruptData:
        return None


def _left_open(lost: Sequence[Gone], left_open: Iterable[ProducerStateEntry]) -> Iterator[str]:
    last = max((stretch.last_offset for _, stretch in lost if stretch.has_offsets), default=-1)
    for entry in left_open:
        first_offset = entry.current_txn_first_offset
        if first_offset is not None and first_offset <= last:
            yield (
                f"no marker ends the transaction of producer {entry.producer_id} from offset {first_offset} on: the"
                " last stable offset stays there, and read_committed consumers wait, until you abort it"
                " (kafka-transactions.sh abort --start-offset)"
            )


def _compaction(log: Log, lost: Sequence[Gone]) -> Iterator[str]:
    if log.first_dirty_offset is not None and any(stretch.has_offsets for _, stretch in lost):
        yield (
            "the topic is compacted: a lost tombstone leaves its key with the value before it; any other lost record"
            " leaves its key with an older value, or none"
        )


def _restored(restored: Iterable[OffsetRange]) -> Iterator[str]:
    for offsets in restored:
        yield (
            f"what is lost of offsets {offsets.start} to {offsets.end - 1} is taken from segments before a compaction:"
            " records that it removed there are back, and so may be keys whose tombstones it removed elsewhere"
        )
