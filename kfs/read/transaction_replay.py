"""Replays the transactions of a log batch by batch: finds which are open, and which were committed or aborted."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.batch_header import BatchHeader
from kfs.format.layout import CONTROL_MASK, MAGIC_V2, MAX_INT64, NO_TIMESTAMP, TRANSACTIONAL_MASK
from kfs.format.record import Record
from kfs.log.block import Block, Damage
from kfs.log.bulk import BulkReader, ScannedBatches
from kfs.log.log import Log
from kfs.log.producer_state import CompletedTxn, ProducerState
from kfs.log.span import Span
from kfs.storage.open_files import FileGone

#: The maximum number of breaks to remember of an open transaction; later ones are joined.
_MOST_BREAKS: Final = 1000


class Break(NamedTuple):
    """Offsets are missing within an open transaction, so a marker may be: the transaction may be two.

    The second one begins above ``after``, the last offset before the missing ones that the transaction has, and at
    ``before`` at the latest, its first one after them.
    """

    after: int
    before: int


@dataclass(frozen=True, slots=True)
class ReplayedTxn:
    """A transaction that the marker at ``last_offset`` ended.

    ``producer_epoch`` is the epoch of its records; the marker may have the next one. ``start_timestamp`` is that of the
    first batch, ``end_timestamp`` that of the marker, both in milliseconds, or -1 for none.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    coordinator_epoch: int
    start_timestamp: int
    end_timestamp: int
    breaks: Sequence[Break] = ()


class _Opened(NamedTuple):
    """The first batch of an open transaction, and the number of bytes read before it."""

    producer_epoch: int
    timestamp: int
    bytes_read: int


class _Latest(NamedTuple):
    """The last batch of an open transaction that was read, and how often offsets were missing up to there."""

    last_offset: int
    timestamp: int
    losses: int


class TransactionReplay:
    """Replays the transactions of a log from an offset on, batch by batch; ``state`` has only the open ones.

    It doesn't report damage: readers of the records do that. At the end of a log that grows, the next step continues
    where the last one ended.
    """

    def __init__(
        self,
        log: Log,
        start: int,
        end: int = MAX_INT64,
        state: ProducerState | None = None,
        *,
        needed_from: int | None = None,
    ) -> None:
        """Begin at ``start``; ignore batches whose base offset is below it, or not below ``end``.

        The log must not begin after the offset ``needed_from``; if that is None, the log may begin anywhere.
        """
        self.state = state or ProducerState()
        self.start = start
        #: The replay has read the offsets from ``start`` up to, not including, this one.
        self.read_up_to = start
        self.bytes_read = 0
        self._needed_from = needed_from
        self._end = end
        self._log = log
        self._opened: dict[int, _Opened] = {}  # by producer
        self._latest: dict[int, _Latest] = {}  # by producer
        self._breaks: dict[int, list[Break]] = {}  # by producer
        #: How often offsets were missing, lost or not, and the offset that comes next if none is.
        self._losses = 0
        self._next_offset: int | None = None
        #: By producer: the coordinator epoch of the last marker. None if the caller doesn't need it.
        self.coordinator_epochs: dict[int, int] | None = None
        self._ended_at = -1  # the log's end when there was nothing more to read
        self._steps = self._read()

    def step(self) -> list[ReplayedTxn] | Damage | None:
        """Read on; return the transactions that ended, or a damaged range, or None at the end of the log.

        Raises:
            FileChanged: the data that comes next is gone, possibly with a marker.
            CorruptData: a segment can't be read.
        """
        done = next(self._steps, None)
        if done is None and self._has_grown():
            self._steps = self._read()
            done = next(self._steps, None)
        return done

    def go_on_to(self, end: int) -> None:
        """Read up to ``end``, which must not decrease; errors are those of :meth:`step`."""
        for _ in self.steps_to(end):
            pass

    def steps_to(self, end: int) -> Iterator[list[ReplayedTxn] | Damage]:
        """Yield the results of :meth:`step` until everything up to ``end`` is read; ``end`` must not decrease."""
        self._end = end
        while self.read_up_to < end and (done := self.step()) is not None:
            yield done

    def pause(self) -> None:
        """Let go of the segment that was read last and of what was read ahead; :meth:`step` goes on from there."""
        self._steps.close()

    def _has_grown(self) -> bool:
        end = min(self._log.log_end_offset, self._end)
        if end <= max(self.read_up_to, self._ended_at):
            return False
        self._ended_at = end
        return True

    def open_from(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction, or None if there is none."""
        entry = self.state.entry(producer_id)
        return None if entry is None else entry.current_txn_first_offset

    def latest(self, producer_id: int) -> tuple[int, int] | None:
        """Return the last offset and timestamp of the last batch in a producer's open transaction, if one was read."""
        latest = self._latest.get(producer_id)
        return None if latest is None else (latest.last_offset, latest.timestamp)

    def breaks(self, producer_id: int, end: int) -> Sequence[Break]:
        """Return where offsets are missing within a producer's open transaction; it is read up to ``end``."""
        latest, breaks = self._latest.get(producer_id), self._breaks.get(producer_id, [])
        if latest is None or latest.losses == self._losses:
            return breaks
        return [*breaks, Break(latest.last_offset, end)]

    def bytes_since_opened(self, producer_id: int) -> int:
        """Return the number of bytes read since the beginning of a producer's open transaction."""
        opened = self._opened.get(producer_id)
        return 0 if opened is None else self.bytes_read - opened.bytes_read

    def forget(self, producer_id: int) -> None:
        """Treat a producer's transaction as ended."""
        self.state.forget(producer_id)
        self._opened.pop(producer_id, None)
        self._latest.pop(producer_id, None)
        self._breaks.pop(producer_id, None)

    def _read(self) -> Generator[list[ReplayedTxn] | Damage, None, None]:
        start = self.read_up_to
        spans = self._log.spans
        self._check_hole(spans)
        for segment, first, following in spans:  # segments that were closed when the spans were made are complete
            if first >= self._end:
                return
            if following is not None and following <= start:
                continue
            reader = segment.bulk_reader(report=lambda problem: None)
            position, after = segment.position_before(max(start, first))
            begin = start if first == segment.base_offset else max(start, first)
            end = MAX_INT64 if following is None else following
            for item in reader.undecoded(position, after):
                if isinstance(item, Damage):
                    self.bytes_read += item.end - item.position
                    if item.lost is not None:
                        self._losses += 1
                        self._next_offset = None
                    yield item
                    continue
                blocks, last_offset, size = self._blocks_of(reader, item)
                ended = [done for block in blocks if (done := self._append(block, begin, end)) is not None]
                self._note_read(min(last_offset + 1, end))
                self.bytes_read += size
                yield ended
                if self.read_up_to >= self._end:
                    return
                if last_offset >= end:
                    break
            if following is not None:
                self._note_read(following)

    def _check_hole(self, spans: Sequence[Span]) -> None:
        if self._needed_from is not None and (not spans or spans[0].start > self._needed_from):
            raise FileGone(f"offset {self._needed_from} is gone", 0, self._log.directory.path)

    def _note_read(self, end: int) -> None:
        self._needed_from = self.read_up_to = max(self.read_up_to, min(end, self._end))

    def _note_offsets(self, first: int, last: int) -> None:
        """Note which offsets come next, and whether there are some missing before them."""
        if self._next_offset is not None and first > self._next_offset:
            self._losses += 1
        self._next_offset = max(self._next_offset or 0, last + 1)

    def _note_batch(self, producer_id: int, first: int, last: int, timestamp: int) -> None:
        """Note a batch of an open transaction."""
        latest = self._latest.get(producer_id)
        if latest is not None and latest.losses != self._losses:
            breaks = self._breaks.setdefault(producer_id, [])
            if len(breaks) < _MOST_BREAKS:
                breaks.append(Break(latest.last_offset, first))
            else:
                breaks[-1] = Break(breaks[-1].after, first)
        self._latest[producer_id] = _Latest(last, timestamp, self._losses)

    def _blocks_of(self, reader: BulkReader, item: ScannedBatches | Block) -> tuple[Iterator[Block], int, int]:
        """Return the batches that begin or end a transaction, and the last offset and the size in bytes of the item."""
        if isinstance(item, Block):
            header = item.header
            # Only the content of a wrapper tells where it begins; no transaction has any.
            first = header.base_offset if header.magic >= MAGIC_V2 else self._next_offset or 0
            self._note_offsets(first, header.last_offset)
            return iter((item,) if header.is_transactional else ()), header.last_offset, header.size
        table, rows = item.table, item.stop

        def blocks() -> Iterator[Block]:
            for row, bits in enumerate(table.attributes[:rows]):
                self._note_offsets(table.base_offsets[row], table.last_offsets[row])
                if not bits & TRANSACTIONAL_MASK:
                    continue
                producer_id, first = table.producer_ids[row], table.base_offsets[row]
                if bits & CONTROL_MASK or not self.state.is_open(producer_id):
                    yield reader.block(table, row)
                elif first < self._end:
                    self._note_batch(producer_id, first, table.last_offsets[row], table.max_timestamps[row])

        return blocks(), item.last_offset, item.end - item.position

    def _append(self, block: Block, start: int, end: int) -> ReplayedTxn | None:
        header = block.header
        if not start <= header.base_offset < min(self._end, end):
            return None
        producer_id = header.producer_id
        try:
            completed = self.state.append(header, self._control_record(block) if header.is_control else None)
        except (CorruptData, InvalidTransaction):  # an invalid marker, or a batch that doesn't fit its transaction
            return None
        ended = None
        if not header.is_control:
            opened = _Opened(header.producer_epoch, header.base_timestamp, self.bytes_read)
            self._opened.setdefault(producer_id, opened)
            self._note_batch(producer_id, header.base_offset, header.last_offset, header.max_timestamp)
        elif self.open_from(producer_id) is None:
            self._note_coordinator(producer_id)
            ended = self._ended(header, completed) if completed is not None else None
            self.forget(producer_id)
        return ended

    def _note_coordinator(self, producer_id: int) -> None:
        entry = self.state.entry(producer_id)
        if self.coordinator_epochs is not None and entry is not None:
            self.coordinator_epochs[producer_id] = entry.coordinator_epoch

    def _ended(self, header: BatchHeader, completed: CompletedTxn) -> ReplayedTxn:
        entry = self.state.entry(completed.producer_id)
        opened = self._opened.get(completed.producer_id)
        return ReplayedTxn(
            completed.producer_id,
            header.producer_epoch if opened is None else opened.producer_epoch,
            completed.first_offset,
            completed.last_offset,
            completed.is_aborted,
            -1 if entry is None else entry.coordinator_epoch,
            NO_TIMESTAMP if opened is None else opened.timestamp,
            header.max_timestamp,
            self.breaks(completed.producer_id, header.base_offset),
        )

    def _control_record(self, block: Block) -> Record | None:
        storage = self._log.storage
        columns = block.decode(storage.decoder, storage.max_batch_bytes)
        return columns.record(0) if len(columns) else None
