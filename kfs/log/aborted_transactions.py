"""Which batches of a log are of aborted transactions."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.format.aborted_transaction import AbortedTransaction
from kfs.format.control_record import AbortMarker, CommitMarker, parse_control_record
from kfs.format.layout import TRANSACTIONAL_MASK
from kfs.log.block import Damage
from kfs.log.bulk import Records
from kfs.log.log import Log
from kfs.log.transaction_replay import EndedTransaction, TransactionReplay

#: Bytes of log that are searched for the end of a transaction before its index is asked.
_FAR_BYTES: Final = 4 * 1024 * 1024
#: Transactions whose end is remembered: more than a reader has between him and the end of what he reads.
_MOST_REMEMBERED: Final = 4096


class Fate(NamedTuple):
    """What became of the batches of a producer from ``first`` to ``last``: they are of one transaction.

    ``has_marker`` tells whether ``last`` is the offset of the marker that says so.
    """

    first: int
    last: int
    is_aborted: bool
    has_marker: bool


_NOT_KNOWN: Final = Fate(0, -1, False, False)


def _marker_offset(transaction: AbortedTransaction) -> int:
    return transaction.last_offset


def _last_of(fate: Fate) -> int:
    return fate.last


class _Fates:
    """The fates of transactions met lately, by producer."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_producer: dict[int, list[Fate]] = {}
        self._order: deque[tuple[int, int]] = deque()  # producer id and last offset, the oldest first

    def add(self, producer_id: int, fate: Fate) -> None:
        """Remember a fate; of one that is known it may say more."""
        fates = self._by_producer.setdefault(producer_id, [])
        at = bisect_left(fates, fate.last, key=_last_of)
        if at < len(fates) and fates[at].last == fate.last:
            fates[at] = fate._replace(first=min(fate.first, fates[at].first))
            return
        fates.insert(at, fate)
        self._order.append((producer_id, fate.last))

    def trim(self) -> None:
        """Forget those met longest ago, if there are too many."""
        while len(self._order) > self._most:
            self._forget(*self._order.popleft())

    def _forget(self, producer_id: int, last: int) -> None:
        fates = self._by_producer[producer_id]
        del fates[bisect_left(fates, last, key=_last_of)]
        if not fates:
            del self._by_producer[producer_id]

    def next(self, producer_id: int, offset: int) -> Fate | None:
        """Return the first fate of a producer that ends at ``offset`` or above."""
        fates = self._by_producer.get(producer_id)
        if not fates:
            return None
        at = bisect_left(fates, offset, key=_last_of)
        return fates[at] if at < len(fates) else None

    def clear(self) -> None:
        """Forget all."""
        self._by_producer.clear()
        self._order.clear()


class AbortedTransactions:
    """Tells which batches of a log are of aborted transactions; best asked in the order of the log, it reads ahead.

    Memory grows with the transactions that are open, not with the log. Not for several threads.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self._replay: TransactionReplay | None = None
        self._fates = _Fates(_MOST_REMEMBERED)
        self._damaged_from = -1
        self._entries: dict[int, list[AbortedTransaction]] | None = None
        self._markers: dict[AbortedTransaction, bool | None] = {}

    def kept_ranges(self, records: Records, first: int, stop: int) -> list[range]:
        """Return which of the records ``first`` to ``stop`` of decoded batches are of no aborted transaction.

        There is at least one. Raises as :meth:`is_aborted`.
        """
        table, offsets = records.table, records.columns.offsets
        kept: list[range] = []
        for row in range(records.first, records.stop):
            if not table.attributes[row] & TRANSACTIONAL_MASK:
                continue
            base_offset, last_offset = table.base_offsets[row], table.last_offsets[row]
            if last_offset < offsets[first] or base_offset > offsets[stop - 1]:
                continue
            if self.is_aborted(table.producer_ids[row], base_offset, last_offset):
                left_out = bisect_left(offsets, base_offset, first, stop)
                kept.append(range(first, left_out))
                first = bisect_left(offsets, last_offset + 1, left_out, stop)
                if first == stop:
                    break
        kept.append(range(first, stop))
        return [some for some in kept if some]

    def is_aborted(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Whether a transactional batch of messages, of these offsets, is of an aborted transaction.

        Raises:
            CorruptData: a segment vanished, or was cut.
        """
        return self.fate(producer_id, base_offset, last_offset).is_aborted

    def fate(self, producer_id: int, base_offset: int, last_offset: int) -> Fate:
        """Return what became of a transactional batch of messages, of these offsets; errors as :meth:`is_aborted`."""
        known = self._known(producer_id, base_offset, last_offset)
        if known is not None:
            return known
        replay = self._replay_at(producer_id, base_offset)
        while replay.read_up_to <= last_offset and self._step(replay):
            pass
        while (first := replay.open_from(producer_id)) is not None and first <= last_offset:
            known = self._known_on_the_way(replay, producer_id, first)
            if known is not None:
                return known
            is_far = replay.bytes_since_opened(producer_id) >= _FAR_BYTES
            if is_far and self._entry_over(producer_id, base_offset, last_offset) is not None:
                fate = Fate(first, replay.read_up_to - 1, is_aborted=True, has_marker=False)
                self._fates.add(producer_id, fate)
                return fate
            if not self._step(replay):  # below the last stable offset it has ended: how, only the index can know
                entry = self._entry_over(producer_id, base_offset, last_offset)
                return _NOT_KNOWN._replace(is_aborted=entry is not None)
        return self._known(producer_id, base_offset, last_offset) or _NOT_KNOWN

    def _known(self, producer_id: int, base_offset: int, last_offset: int) -> Fate | None:
        fate = self._fates.next(producer_id, base_offset)
        return fate if fate is not None and fate.first <= last_offset else None

    def _known_on_the_way(self, replay: TransactionReplay, producer_id: int, first: int) -> Fate | None:
        """Return the fate of an open transaction if somebody who began further on has read to its end before."""
        fate = self._fates.next(producer_id, first)
        if fate is None or fate.first > replay.read_up_to or fate.last < replay.read_up_to:
            return None
        if first < self._damaged_from:  # the marker of an earlier one may have been lost
            return None
        fate = fate._replace(first=first)
        self._fates.add(producer_id, fate)
        return fate

    def _replay_at(self, producer_id: int, offset: int) -> TransactionReplay:
        """Return a replay that has a batch of a producer in an open transaction, or reads it next."""
        replay = self._replay
        if replay is not None and replay.start <= offset <= replay.read_up_to:
            first = replay.open_from(producer_id)
            if offset == replay.read_up_to or (first is not None and first <= offset):
                return replay
        self._damaged_from = -1
        replay = self._replay = TransactionReplay(self.log, offset)
        return replay

    def _step(self, replay: TransactionReplay) -> bool:
        self._fates.trim()  # not after the step: what is waited for is among what it finds
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

    def _note(self, ended: EndedTransaction) -> None:
        producer_id, first, last = ended.producer_id, ended.first_offset, ended.last_offset
        if ended.is_aborted and first < self._damaged_from:  # the marker of an earlier one may have been lost
            entry = next(self._entries_from(producer_id, last), None)
            if entry is not None and entry.last_offset == last and entry.first_offset > first:
                self._fates.add(producer_id, Fate(first, entry.first_offset - 1, is_aborted=False, has_marker=False))
                first = entry.first_offset
        self._fates.add(producer_id, Fate(first, last, ended.is_aborted, has_marker=True))

    def _decide_by_index(self, replay: TransactionReplay) -> None:
        """Of transactions whose marker is known to be damaged the index tells."""
        for open_now in replay.state.entries():
            first = open_now.current_txn_first_offset
            if first is None:
                continue
            entry = self._entry_over(open_now.producer_id, first, first)
            if entry is not None and self._has_marker(entry) is None:
                fate = Fate(first, entry.last_offset, is_aborted=True, has_marker=False)
                self._fates.add(open_now.producer_id, fate)
                replay.forget(open_now.producer_id)

    # -- the transaction index

    def _entries_from(self, producer_id: int, offset: int) -> Iterator[AbortedTransaction]:
        """Yield the entries of a producer whose marker is at ``offset`` or above."""
        if self._entries is None:
            self._entries = defaultdict(list)
            for _, entry in self.log.aborted_transactions():
                insort(self._entries[entry.producer_id], entry, key=_marker_offset)
        entries = self._entries.get(producer_id, [])
        return islice(entries, bisect_left(entries, offset, key=_marker_offset), None)

    def _entry_over(self, producer_id: int, first: int, last: int) -> AbortedTransaction | None:
        """Return what the index says of a batch, where the log doesn't contradict."""
        for entry in self._entries_from(producer_id, first):
            if entry.first_offset > last:
                break
            if self._has_marker(entry) is not False:
                return entry
        return None

    def _has_marker(self, entry: AbortedTransaction) -> bool | None:
        """Whether the ABORT of an entry is where it says; None where that is damaged."""
        if entry not in self._markers:
            self._markers[entry] = self._look_for_marker(entry)
        return self._markers[entry]

    def _look_for_marker(self, entry: AbortedTransaction) -> bool | None:
        try:
            return self.marker_at(entry.producer_id, entry.last_offset) is True
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
