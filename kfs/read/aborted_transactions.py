"""Which batches of a log are of aborted transactions."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from cachetools import LRUCache, cachedmethod

from kfs.errors import CorruptData
from kfs.format.control_record import AbortMarker, CommitMarker, parse_control_record
from kfs.log.block import Damage
from kfs.log.log import Log
from kfs.read.transaction_replay import ReplayedTxn, TransactionReplay
from kfs.storage.open_files import FileChanged

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: Bytes of log that are searched for the end of a transaction before its index is asked.
_FAR_BYTES: Final = 4 * 1024 * 1024
#: Transactions whose end is remembered: more than a reader has between him and the end of what he reads.
#: Each takes some 400 bytes.
_MOST_REMEMBERED: Final = 4096
#: How often a question is asked again because the log has changed meanwhile.
_MOST_LOOKS: Final = 8


class TxnOutcome(NamedTuple):
    """What became of the batches of a producer from ``first`` to ``last``: they are of one transaction.

    ``has_marker`` tells whether ``last`` is the offset of the marker that says so.
    """

    first: int
    last: int
    is_aborted: bool
    has_marker: bool


_NOT_KNOWN: Final = TxnOutcome(0, -1, False, False)


def _last_of(outcome: TxnOutcome) -> int:
    return outcome.last


class _TxnOutcomes:
    """The outcomes of transactions met lately, by producer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_producer: dict[int, list[TxnOutcome]] = {}
        self._order: deque[tuple[int, int]] = deque()  # producer id and last offset, the oldest first

    def add(self, producer_id: int, outcome: TxnOutcome) -> None:
        """Remember a outcome; of one that is known it may say more."""
        outcomes = self._by_producer.setdefault(producer_id, [])
        at = bisect_left(outcomes, outcome.last, key=_last_of)
        if at < len(outcomes) and outcomes[at].last == outcome.last:
            outcomes[at] = outcome._replace(first=min(outcome.first, outcomes[at].first))
            return
        outcomes.insert(at, outcome)
        self._order.append((producer_id, outcome.last))

    def trim(self) -> None:
        """Forget those met longest ago, if there are too many."""
        while len(self._order) > self._most:
            self._forget(*self._order.popleft())

    def _forget(self, producer_id: int, last: int) -> None:
        outcomes = self._by_producer[producer_id]
        del outcomes[bisect_left(outcomes, last, key=_last_of)]
        if not outcomes:
            del self._by_producer[producer_id]

    def next(self, producer_id: int, offset: int) -> TxnOutcome | None:
        """Return the first outcome of a producer that ends at ``offset`` or above."""
        outcomes = self._by_producer.get(producer_id)
        if not outcomes:
            return None
        at = bisect_left(outcomes, offset, key=_last_of)
        return outcomes[at] if at < len(outcomes) else None

    def clear(self) -> None:
        """Forget all."""
        self._by_producer.clear()
        self._order.clear()


class _Entry(NamedTuple):
    """What an index says: a transaction of a producer from ``first`` on was aborted by the marker at ``last``."""

    producer_id: int
    first: int
    last: int


class _Index:
    """The entries of all transaction indexes of a log, in 16 bytes each, by producer and offset of the marker."""

    def __init__(self, log: Log) -> None:
        self._by_producer: dict[int, tuple[array[int], array[int]]] = {}
        for _, entry in log.aborted_transactions():
            firsts, lasts = self._by_producer.setdefault(entry.producer_id, (array("q"), array("q")))
            at = bisect_right(lasts, entry.last_offset)
            firsts.insert(at, entry.first_offset)
            lasts.insert(at, entry.last_offset)

    def entries_from(self, producer_id: int, offset: int) -> Iterator[_Entry]:
        """Yield the entries of a producer whose marker is at ``offset`` or above."""
        firsts, lasts = self._by_producer.get(producer_id, ((), ()))
        for at in range(bisect_left(lasts, offset), len(lasts)):
            yield _Entry(producer_id, firsts[at], lasts[at])


class AbortedTransactions:
    """Tells which batches of a log are of aborted transactions; best asked in the order of the log, it reads ahead.

    It tells of the log as it is, of all its segments at one moment, and so only of batches in one of those: what is
    still read of a segment that is gone has its markers in others that may be gone as well, or compacted.

    Memory grows with the transactions that are open, not with the log: but for 16 bytes for each that its indexes
    name, once they have to be asked. Not for several threads.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._incarnation = log.incarnation
        self._outcomes = _TxnOutcomes(_MOST_REMEMBERED)
        self._markers: LRUCache[_Entry, bool | None] = LRUCache(_MOST_REMEMBERED)
        self._forget()

    def _forget(self) -> None:
        self._replay: TransactionReplay | None = None
        self._damaged_from = -1
        self._index: _Index | None = None
        self._outcomes.clear()
        self._markers.clear()

    def is_aborted(self, segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch of messages, of these offsets in ``segment``, is of an aborted transaction.

        Raises:
            FileChanged: the log doesn't have that segment any more, or changes faster than it can be read.
            CorruptData: a segment can't be read.
        """
        return self.outcome(segment, producer_id, base_offset, last_offset).is_aborted

    def outcome(self, segment: Segment, producer_id: int, base_offset: int, last_offset: int) -> TxnOutcome:
        """Return what became of a transactional batch of messages; see :meth:`is_aborted`, errors too."""
        change: FileChanged | None = None
        for _ in range(_MOST_LOOKS):
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
            if is_far and self._entry_over(producer_id, base_offset, last_offset) is not None:
                outcome = TxnOutcome(first, replay.read_up_to - 1, is_aborted=True, has_marker=False)
                self._outcomes.add(producer_id, outcome)
                return outcome
            if not self._step(replay):  # below the last stable offset it has ended: how, only the index can know
                entry = self._entry_over(producer_id, base_offset, last_offset)
                return _NOT_KNOWN._replace(is_aborted=entry is not None)
        return self._known(producer_id, base_offset, last_offset) or _NOT_KNOWN

    def _known(self, producer_id: int, base_offset: int, last_offset: int) -> TxnOutcome | None:
        outcome = self._outcomes.next(producer_id, base_offset)
        return outcome if outcome is not None and outcome.first <= last_offset else None

    def _known_on_the_way(self, replay: TransactionReplay, producer_id: int, first: int) -> TxnOutcome | None:
        """Return the outcome of an open transaction if a replay that began further on has read to its end before."""
        outcome = self._outcomes.next(producer_id, first)
        if outcome is None or outcome.first > replay.read_up_to or outcome.last < replay.read_up_to:
            return None
        if first < self._damaged_from:  # the marker of an earlier one may have been lost
            return None
        outcome = outcome._replace(first=first)
        self._outcomes.add(producer_id, outcome)
        return outcome

    def _replay_at(self, needed_from: int, producer_id: int, offset: int) -> TransactionReplay:
        """Return a replay that has a batch of a producer in an open transaction, or reads it next."""
        replay = self._replay
        if replay is not None and replay.start <= offset <= replay.read_up_to:
            first = replay.open_from(producer_id)
            if offset == replay.read_up_to or (first is not None and first <= offset):
                return replay
        self._damaged_from = -1
        replay = self._replay = TransactionReplay(self.log, offset, needed_from=needed_from)
        return replay

    def _step(self, replay: TransactionReplay) -> bool:
        self._outcomes.trim()  # not after the step: what is waited for is among what it finds
        try:
            done = replay.step()
        except CorruptData:
            self._replay = None
            raise
        if done is None:
            return False
        if isinstance(done, Damage):
            self._damaged_from = replay.read_up_to
            self._decide_by_index(replay)
        else:
            for ended in done:
                self._note(ended)
        return True

    def _note(self, ended: ReplayedTxn) -> None:
        producer_id, first, last = ended.producer_id, ended.first_offset, ended.last_offset
        if ended.is_aborted and first < self._damaged_from:  # the marker of an earlier one may have been lost
            entry = next(self._entries_from(producer_id, last), None)
            if entry is not None and entry.last == last and entry.first > first:
                self._outcomes.add(producer_id, TxnOutcome(first, entry.first - 1, is_aborted=False, has_marker=False))
                first = entry.first
        self._outcomes.add(producer_id, TxnOutcome(first, last, ended.is_aborted, has_marker=True))

    def _decide_by_index(self, replay: TransactionReplay) -> None:
        """Of transactions whose marker is known to be damaged the index tells."""
        for open_now in replay.state.entries():
            first = open_now.current_txn_first_offset
            if first is None:
                continue
            entry = self._entry_over(open_now.producer_id, first, first)
            if entry is not None and self._has_marker(entry) is None:
                outcome = TxnOutcome(first, entry.last, is_aborted=True, has_marker=False)
                self._outcomes.add(open_now.producer_id, outcome)
                replay.forget(open_now.producer_id)

    # -- the transaction index

    def _entries_from(self, producer_id: int, offset: int) -> Iterator[_Entry]:
        if self._index is None:
            self._index = _Index(self.log)
            self.log.look_again()  # what goes meanwhile is left out: then this isn't the log that is asked about
            _ = self.log.segments
        return self._index.entries_from(producer_id, offset)

    def _entry_over(self, producer_id: int, first: int, last: int) -> _Entry | None:
        """Return what the index says of a batch, where the log doesn't contradict."""
        for entry in self._entries_from(producer_id, first):
            if entry.first > last:
                break
            if self._has_marker(entry) is not False:
                return entry
        return None

    @cachedmethod(attrgetter("_markers"))
    def _has_marker(self, entry: _Entry) -> bool | None:
        """Whether the ABORT of an entry is where it says; None where that is damaged."""
        try:
            return self.marker_at(entry.producer_id, entry.last) is True
        except FileChanged:
            raise
        except CorruptData:
            return None

    def marker_at(self, producer_id: int, offset: int) -> bool | None:
        """Whether the marker of a producer at an offset aborts; None where there is none.

        Raises:
            CorruptData: it is damaged.
        """
        loaded = self.log.find(offset)
        if loaded is None or not loaded.header.is_control or loaded.header.producer_id != producer_id:
            return None
        if offset not in loaded.columns.offsets:
            return None
        record = loaded.columns.record(loaded.columns.offsets.index(offset))
        marker = parse_control_record(record.key, record.value)
        return isinstance(marker, AbortMarker) if isinstance(marker, AbortMarker | CommitMarker) else None
