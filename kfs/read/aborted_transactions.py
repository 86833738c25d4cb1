"""Finds out which batches of a log belong to aborted transactions."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from cachetools import LRUCache, cachedmethod

from kfs.errors import CorruptData
from kfs.format.control_record import AbortMarker, CommitMarker, parse_control_record
from kfs.log.block import Damage
from kfs.log.log import Log
from kfs.log.log_segments import MOST_LOOKS
from kfs.read.transaction_replay import Break, ReplayedTxn, TransactionReplay
from kfs.storage.open_files import FileChanged

if TYPE_CHECKING:
    from kfs.log.offset_range import OffsetRange
    from kfs.log.segment import Segment

#: Bytes of log that are searched for the end of a transaction before the transaction indexes are consulted.
_FAR_BYTES: Final = 4 * 1024 * 1024
#: The maximum number of transaction outcomes to remember. It exceeds the number of transactions between a reader's
#: position and the end of the read-ahead. Each takes about 400 bytes.
_MOST_REMEMBERED: Final = 4096
#: The maximum number of index entries to try for one open transaction.
_MOST_ENTRIES: Final = 1000


class TxnOutcome(NamedTuple):
    """The outcome of one transaction, which has all batches of its producer from offset ``first`` to ``last``.

    ``has_marker`` says whether ``last`` is the offset of the transaction's marker.
    """

    first: int
    last: int
    is_aborted: bool
    has_marker: bool


_NOT_KNOWN: Final = TxnOutcome(0, -1, False, False)


def _last_of(outcome: TxnOutcome) -> int:
    return outcome.last


class _TxnOutcomes:
    """The outcomes of transactions that were read recently, by producer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_producer: dict[int, list[TxnOutcome]] = {}
        self._order: deque[tuple[int, int]] = deque()  # producer id and last offset, the oldest first

    def add(self, producer_id: int, outcome: TxnOutcome) -> None:
        """Add an outcome; if one with the same ``last`` is known, keep the lower ``first`` of both."""
        outcomes = self._by_producer.setdefault(producer_id, [])
        at = bisect_left(outcomes, outcome.last, key=_last_of)
        if at < len(outcomes) and outcomes[at].last == outcome.last:
            outcomes[at] = outcome._replace(first=min(outcome.first, outcomes[at].first))
            return
        outcomes.insert(at, outcome)
        self._order.append((producer_id, outcome.last))

    def trim(self) -> None:
        """Drop the outcomes that were added first, if there are too many."""
        while len(self._order) > self._most:
            self._forget(*self._order.popleft())

    def _forget(self, producer_id: int, last: int) -> None:
        outcomes = self._by_producer[producer_id]
        del outcomes[bisect_left(outcomes, last, key=_last_of)]
        if not outcomes:
            del self._by_producer[producer_id]

    def next(self, producer_id: int, offset: int) -> TxnOutcome | None:
        """Return a producer's first outcome that ends at or above ``offset``."""
        outcomes = self._by_producer.get(producer_id)
        if not outcomes:
            return None
        at = bisect_left(outcomes, offset, key=_last_of)
        return outcomes[at] if at < len(outcomes) else None

    def clear(self) -> None:
        """Drop all outcomes."""
        self._by_producer.clear()
        self._order.clear()


class _Entry(NamedTuple):
    """A transaction index entry: the marker at ``last`` aborts the producer's transaction that begins at ``first``."""

    producer_id: int
    first: int
    last: int


class _Index:
    """The entries of all transaction indexes of a log, in 16 bytes each, by producer and marker offset."""

    def __init__(self, log: Log) -> None:
        self._by_producer: dict[int, tuple[array[int], array[int]]] = {}
        for _, entry in log.aborted_transactions():
            firsts, lasts = self._by_producer.setdefault(entry.producer_id, (array("q"), array("q")))
            at = bisect_right(lasts, entry.last_offset)
            firsts.insert(at, entry.first_offset)
            lasts.insert(at, entry.last_offset)

    def entries_from(self, producer_id: int, offset: int) -> Iterator[_Entry]:
        """Yield a producer's entries whose marker is at or above ``offset``."""
        firsts, lasts = self._by_producer.get(producer_id, ((), ()))
        for at in range(bisect_left(lasts, offset), len(lasts)):
            yield _Entry(producer_id, firsts[at], lasts[at])


def _may_begin(first: int, breaks: Iterable[Break]) -> bool:
    return any(one.after < first <= one.before for one in breaks)


class AbortedTransactions:
    """Finds out which batches of a log belong to aborted transactions; reads ahead, so use it in log order.

    The answers hold for the current segments of the log, so it only accepts batches in one of these. The markers for a
    segment that is gone, but still being read, lie in other segments, which may be gone as well, or compacted.

    Memory grows with the number of open transactions, not with the log. If the transaction indexes have to be
    consulted, each of their entries takes another 16 bytes. Not thread-safe.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._incarnation = log.incarnation
        self._outcomes = _TxnOutcomes(_MOST_REMEMBERED)
        self._markers: LRUCache[_Entry, bool | None] = LRUCache(_MOST_REMEMBERED)
        self._forget()

    def _forget(self) -> None:
        self._replay: TransactionReplay | None = None
        self._index: _Index | None = None
        self._outcomes.clear()
        self._markers.clear()

    def is_aborted(self, segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch of messages in ``segment`` belongs to an aborted transaction.

        Raises:
            FileChanged: the log doesn't have that segment any more, or changes faster than it can be read.
            CorruptData: a segment can't be read.
        """
        return self.outcome(segment, producer_id, base_offset, last_offset).is_aborted

    def outcome(self, segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> TxnOutcome:
        """Return the outcome of the transaction of a batch of messages; errors are those of :meth:`is_aborted`."""
        change: FileChanged | None = None
        for _ in range(MOST_LOOKS):
            incarnation = self.log.incarnation
            if incarnation != self._incarnation:
                self._forget()
                self._incarnation = incarnation
            segment.check_is_listed()
            try:
                outcome = self._outcome(max(segment.base_offset, base_offset), producer_id, base_offset, last_offset)
            except FileChanged as error:
                change = error
                self._forget()
                self.log.look_again()
                continue
            if self.log.incarnation == incarnation:
                return outcome
        raise change or FileChanged("the log changes faster than it can be read", 0, segment.files.log.path)

    def _outcome(self, needed_from: int, producer_id: int, base_offset: int, last_offset: int) -> TxnOutcome:
        known = self._known(producer_id, base_offset, last_offset)
        if known is not None:
            return known
        replay = self._replay_at(needed_from, producer_id, base_offset)
        while replay.read_up_to <= last_offset and self._step(replay):
            pass
        while (first := replay.open_from(producer_id)) is not None and first <= last_offset:
            known = self._known_on_the_way(replay, producer_id, first)
            if known is not None:
                return known
            is_far = replay.bytes_since_opened(producer_id) >= _FAR_BYTES
            if is_far and (entry := self._entry_over(producer_id, base_offset, last_offset)) is not None:
                first = max(first, entry.first)
                outcome = TxnOutcome(first, replay.read_up_to - 1, is_aborted=True, has_marker=False)
                self._outcomes.add(producer_id, outcome)
                return outcome
            if not self._step(replay):  # the log has no marker of it: only the index can have the outcome
                entry = self._entry_over(producer_id, base_offset, last_offset)
                return _NOT_KNOWN._replace(is_aborted=entry is not None)
        return self._known(producer_id, base_offset, last_offset) or _NOT_KNOWN

    def _known(self, producer_id: int, base_offset: int, last_offset: int) -> TxnOutcome | None:
        outcome = self._outcomes.next(producer_id, base_offset)
        return outcome if outcome is not None and outcome.first <= last_offset else None

    def _known_on_the_way(self, replay: TransactionReplay, producer_id: int, first: int) -> TxnOutcome | None:
        """Return the outcome of an open transaction if an earlier replay, which began further on, has read its end."""
        outcome = self._outcomes.next(producer_id, first)
        if outcome is None or outcome.first > replay.read_up_to or outcome.last < replay.read_up_to:
            return None
        if replay.breaks(producer_id, replay.read_up_to):  # the marker of an earlier transaction may have been lost
            return None
        outcome = outcome._replace(first=first)
        self._outcomes.add(producer_id, outcome)
        return outcome

    def _replay_at(self, needed_from: int, producer_id: int, offset: int) -> TransactionReplay:
        """Return a replay in which the batch at ``offset`` is in an open transaction, or is the next one to read."""
        replay = self._replay
        if replay is not None and replay.start <= offset <= replay.read_up_to:
            first = replay.open_from(producer_id)
            if offset == replay.read_up_to or (first is not None and first <= offset):
                return replay
        replay = self._replay = TransactionReplay(self.log, offset, needed_from=needed_from)
        return replay

    def _step(self, replay: TransactionReplay) -> bool:
        self._outcomes.trim()  # not after the step, because that may add the outcome that the caller needs
        try:
            done = replay.step()
        except CorruptData:
            self._replay = None
            raise
        if done is None:
            return False
        if isinstance(done, Damage):
            self._decide_by_index(replay, done.lost)
        else:
            for ended in done:
                self._note(ended)
        return True

    def _note(self, ended: ReplayedTxn) -> None:
        producer_id, first, last = ended.producer_id, ended.first_offset, ended.last_offset
        if ended.is_aborted and ended.breaks:  # the marker of an earlier transaction may have been lost
            entry = next(self._entries_from(producer_id, last), None)
            if entry is not None and entry.last == last and _may_begin(entry.first, ended.breaks):
                first = self._without_earlier(entry, first)
        self._outcomes.add(producer_id, TxnOutcome(first, last, ended.is_aborted, has_marker=True))

    def _decide_by_index(self, replay: TransactionReplay, lost: OffsetRange | None) -> None:
        """Decide open transactions by the index, if it names their marker and that is damaged.

        What is open may be two transactions, if the marker of the first one is ``lost`` as well.
        """
        for open_now in replay.state.entries():
            first = open_now.current_txn_first_offset
            if first is None:
                continue
            producer_id = open_now.producer_id
            breaks = () if lost is None else replay.breaks(producer_id, lost.end)
            entry = self._entry_of_lost(producer_id, first, 0 if lost is None else lost.end, breaks)
            if entry is None:
                continue
            begin = self._without_earlier(entry, first)
            self._outcomes.add(producer_id, TxnOutcome(begin, entry.last, is_aborted=True, has_marker=False))
            replay.forget(producer_id)

    def _without_earlier(self, entry: _Entry, first: int) -> int:
        """Return where the transaction of an entry begins in what is open since ``first``.

        What is before it is an earlier transaction, which no index entry aborts.
        """
        if entry.first <= first:
            return first
        earlier = TxnOutcome(first, entry.first - 1, is_aborted=False, has_marker=False)
        self._outcomes.add(entry.producer_id, earlier)
        return entry.first

    # -- the transaction index

    def _entries_from(self, producer_id: int, offset: int) -> Iterator[_Entry]:
        if self._index is None:
            self._index = _Index(self.log)
            self.log.look_again()  # the index lacks segments that went meanwhile; this notices that the log has changed
            _ = self.log.segments
        return self._index.entries_from(producer_id, offset)

    def _entry_over(self, producer_id: int, first: int, last: int) -> _Entry | None:
        """Return the index entry that covers a batch, unless the log contradicts it; None if there is none."""
        for entry in self._entries_from(producer_id, first):
            if entry.first > last:
                break
            if self._has_marker(entry) is not False:
                return entry
        return None

    def _entry_of_lost(self, producer_id: int, first: int, end: int, breaks: Sequence[Break]) -> _Entry | None:
        """Return the index entry of the damaged marker that ended what is open since ``first``; None if there is none.

        The entry of a transaction that began after a break must have its marker below ``end``.
        """
        for entry in islice(self._entries_from(producer_id, first), _MOST_ENTRIES):
            if entry.first > first and entry.last >= end:
                break
            if entry.first > first and not _may_begin(entry.first, breaks):
                continue
            has_marker = self._has_marker(entry)
            if has_marker is None:
                return entry
            if has_marker and entry.first <= first:
                break
        return None

    @cachedmethod(attrgetter("_markers"))
    def _has_marker(self, entry: _Entry) -> bool | None:
        """Whether the ABORT marker is at the offset that an entry names; None if that offset is damaged."""
        try:
            return self.marker_at(entry.producer_id, entry.last) is True
        except FileChanged:
            raise
        except CorruptData:
            return None

    def marker_at(self, producer_id: int, offset: int) -> bool | None:
        """Whether a producer's marker at an offset is an ABORT marker; None if there is no marker.

        Raises:
            CorruptData: the marker is damaged.
        """
        loaded = self.log.find(offset)
        if loaded is None or not loaded.header.is_control or loaded.header.producer_id != producer_id:
            return None
        if offset not in loaded.columns.offsets:
            return None
        record = loaded.columns.record(loaded.columns.offsets.index(offset))
        marker = parse_control_record(record.key, record.value)
        return isinstance(marker, AbortMarker) if isinstance(marker, AbortMarker | CommitMarker) else None
