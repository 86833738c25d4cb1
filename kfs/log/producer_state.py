"""A broker's state of the producers of a partition, rebuilt from the log (``ProducerStateManager.java``).

The entries are those of a ``.snapshot``, replayed as a broker does in log recovery. They aren't validated against
earlier state (``AppendOrigin.REPLICATION``), because the broker that appended the batches has done so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.aborted_txn import AbortedTxn
from kfs.format.batch_header import BatchHeader
from kfs.format.control_record import AbortMarker, CommitMarker, parse_control_record
from kfs.format.layout import MAX_INT32, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.format.record import Record

#: The default of ``producer.id.expiration.ms``: a producer expires after one day of inactivity.
PRODUCER_ID_EXPIRATION_MS: Final = 24 * 60 * 60 * 1000

NO_COORDINATOR_EPOCH: Final = -1
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class CompletedTxn:
    """A transaction that the marker at ``last_offset`` completed (``CompletedTxn.java``).

    ``last_stable_offset`` is the partition's last stable offset after that, as in the transaction index.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int

    def aborted(self) -> AbortedTxn:
        """Return the entry of the transaction index for an aborted transaction."""
        return AbortedTxn(self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


class ProducerState:
    """The producers of a partition and their open transactions, as of :attr:`map_end_offset`."""

    def __init__(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        #: The offset up to which (exclusive) the log has been replayed.
        self.map_end_offset = 0
        self._producers: dict[int, ProducerStateEntry] = {}
        self._open: dict[int, int] = {}  # producer id by the first offset of each open transaction
        self._first_unreplicated: int | None = None  # the lowest first offset of transactions completed since

    def entries(self) -> list[ProducerStateEntry]:
        """Return the entries of a snapshot taken now, in the order in which the producers were first seen."""
        return list(self._producers.values())

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """Return the entry of a producer, or None if it is unknown."""
        return self._producers.get(producer_id)

    def is_open(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction."""
        known = self._producers.get(producer_id)
        return known is not None and known.current_txn_first_offset is not None

    def forget(self, producer_id: int) -> None:
        """Forget a producer and its open transaction, if there is one."""
        known = self._producers.pop(producer_id, None)
        if known is not None and known.current_txn_first_offset is not None:
            self._open.pop(known.current_txn_first_offset, None)

    @property
    def first_undecided_offset(self) -> int | None:
        """The first offset of the oldest open transaction, which bounds stable offsets; None if none is open."""
        return min(self._open, default=None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Like :attr:`first_undecided_offset`, but including transactions completed since the state was empty.

        A broker uses it until it knows that the markers of these are replicated.
        """
        known = (self.first_undecided_offset, self._first_unreplicated)
        return min((offset for offset in known if offset is not None), default=None)

    @property
    def is_empty(self) -> bool:
        """Whether there are no producers and no completed transactions."""
        return not self._producers and self._first_unreplicated is None

    def clear(self) -> None:
        """Forget every producer and every open transaction."""
        self._producers.clear()
        self._open.clear()
        self._first_unreplicated = None

    def load(self, entries: Iterable[ProducerStateEntry], offset: int, now: int) -> None:
        """Load a snapshot taken at ``offset``, without the producers that have expired by ``now`` (milliseconds)."""
        for entry in entries:
            if not self._is_expired(entry, now):
                self._producers[entry.producer_id] = entry
                if entry.current_txn_first_offset is not None:
                    self._open[entry.current_txn_first_offset] = entry.producer_id
        self.map_end_offset = offset

    def remove_expired(self, now: int) -> None:
        """Forget the producers that have expired by ``now`` (milliseconds)."""
        for producer_id in [entry.producer_id for entry in self._producers.values() if self._is_expired(entry, now)]:
            del self._producers[producer_id]

    def _is_expired(self, entry: ProducerStateEntry, now: int) -> bool:
        return entry.current_txn_first_offset is None and now - entry.timestamp >= self.expiration_ms

    def append(self, header: BatchHeader, first_record: Record | None = None) -> CompletedTxn | None:
        """Note a batch of any format; return the transaction that it completes, if any.

        A control batch comes with its ``first_record``, or None if compaction has removed all of its records.

        Raises:
            CorruptData: the control record of a producer is invalid.
            InvalidTransaction: a non-transactional batch within an open transaction, or a marker for a transaction that
                isn't open.
        """
        completed = None
        if header.producer_id != NO_PRODUCER_ID:
            if not header.is_control:
                self._append_data(header)
            elif first_record is not None:
                completed = self._append_marker(header, first_record)
        self.map_end_offset = header.last_offset + 1
        return completed

    def _append_data(self, header: BatchHeader) -> None:
        known = self._known(header.producer_id)
        open_from = known.current_txn_first_offset
        if open_from is None and header.is_transactional:
            open_from = header.base_offset
            self._open[open_from] = header.producer_id
        elif open_from is not None and not header.is_transactional:
            reason = f"offset {header.base_offset} of producer {header.producer_id} isn't in a transaction, "
            raise InvalidTransaction(f"{reason}but one is open from offset {open_from}")
        self._producers[header.producer_id] = ProducerStateEntry(
            header.producer_id,
            header.producer_epoch,
            last_sequence(header),
            header.last_offset,
            header.last_offset - header.base_offset,
            header.max_timestamp,
            known.coordinator_epoch,
            open_from,
        )

    def _append_marker(self, header: BatchHeader, record: Record) -> CompletedTxn | None:
        """Apply a transaction marker (``ProducerAppendInfo.appendEndTxnMarker``)."""
        marker = _marker(header, record)
        known = self._known(header.producer_id)
        entry = replace(
            known,
            producer_epoch=header.producer_epoch,
            timestamp=record.timestamp,
            coordinator_epoch=marker.coordinator_epoch,
            current_txn_first_offset=None,
        )
        if header.producer_epoch != known.producer_epoch:  # a new epoch without a batch yet
            entry = replace(entry, last_sequence=NO_SEQUENCE, last_offset=_NO_OFFSET, offset_delta=0)
        self._producers[header.producer_id] = entry
        if known.current_txn_first_offset is None:
            return None  # a transaction without records in this partition
        return self._complete(known, header, is_aborted=isinstance(marker, AbortMarker))

    def _complete(self, known: ProducerStateEntry, header: BatchHeader, *, is_aborted: bool) -> CompletedTxn:
        first_offset = known.current_txn_first_offset
        if first_offset is None or self._open.pop(first_offset, None) is None:
            reason = f"the marker at offset {header.base_offset} of producer {known.producer_id} ends a transaction"
            raise InvalidTransaction(f"{reason} from offset {first_offset}, which isn't open")
        self._first_unreplicated = (
            first_offset if self._first_unreplicated is None else min(first_offset, self._first_unreplicated)
        )
        others = (first for first, producer_id in self._open.items() if producer_id != known.producer_id)
        last_stable_offset = min(others, default=header.base_offset + 1)
        return CompletedTxn(known.producer_id, first_offset, header.base_offset, is_aborted, last_stable_offset)

    def _known(self, producer_id: int) -> ProducerStateEntry:
        known = self._producers.get(producer_id)
        if known is not None:
            return known
        return ProducerStateEntry(
            producer_id, NO_PRODUCER_EPOCH, NO_SEQUENCE, _NO_OFFSET, 0, NO_TIMESTAMP, NO_COORDINATOR_EPOCH, None
        )


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record (``DefaultRecordBatch.incrementSequence``: it wraps at 2^31)."""
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (header.base_sequence + header.last_offset - header.base_offset) & MAX_INT32


def _marker(header: BatchHeader, record: Record) -> AbortMarker | CommitMarker:
    marker = parse_control_record(record.key, record.value)
    if not isinstance(marker, AbortMarker | CommitMarker):
        raise CorruptData(
            f"a control record of type {marker.type} of producer {header.producer_id}, expected ABORT or COMMIT",
            header.position,
        )
    return marker
