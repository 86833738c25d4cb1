"""Text made of a segment's blocks, one after another: exact size, random access, memory bounded.

A pass over the segment leaves a table with an entry every 64 KiB of text or so: where in the text a
block's lines begin, and where in the log that block lies. A read finds the entry, renders from
there on, and keeps what it rendered.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

from cachetools import LRUCache

from kfs.errors import CorruptData
from kfs.log.block import Block, Damage
from kfs.log.log import OffsetRange
from kfs.tree.table_store import TableStore
from kfs.tree.text_table import NO_EARLIEST, NO_LATEST, Marker, TextTable
from kfs.tree.work_ahead import Job, WorkAhead

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: A chunk of text is at least that long, the last one aside, and ends with a block.
CHUNK_BYTES: Final = 64 * 1024
#: Chunks that are rendered ahead by one thread, one after another: a thread that reads on where it was is quicker.
_CHUNKS_AHEAD: Final = 8
#: Of so many texts it is known where they were read last.
_READS_KEPT: Final = 1024
#: Of 40 bytes each, over all tables in memory.
_MOST_ENTRIES: Final = 512 * 1024
#: The pass over a smaller segment, in bytes, costs less than a file.
WORTH_KEEPING: Final = 64 * 1024


@dataclass(slots=True)
class Piece:
    """The text of one block or damage; ``faults`` are ranges that stand for what can't be shown."""

    text: bytes
    faults: list[tuple[int, int, CorruptData]] = field(default_factory=list)

    @classmethod
    def join(cls, pieces: Iterable[Piece]) -> Piece:
        """Put pieces one after another."""
        parts: list[bytes] = []
        faults: list[tuple[int, int, CorruptData]] = []
        size = 0
        for piece in pieces:
            faults.extend((start + size, end + size, error) for start, end, error in piece.faults)
            parts.append(piece.text)
            size += len(piece.text)
        return cls(parts[0] if len(parts) == 1 else b"".join(parts), faults)


class Extent(NamedTuple):
    """How long the text is of what ends in the log at ``log_end``, and what else a table says of it.

    ``last_offset`` is the last that blocks there have, -1 for damage. The timestamps of its records, in milliseconds,
    lie between ``earliest`` and ``latest``.
    """

    size: int
    log_end: int
    last_offset: int
    earliest: int = NO_EARLIEST
    latest: int = NO_LATEST


class TextSource(Protocol):
    """What makes a text of a segment: from a batch boundary on, before which ``seen`` is the highest offset."""

    def extents(self, segment: Segment, position: int, seen: int) -> Iterator[Extent]:
        """Measure the text, part by part, to the end of the segment."""
        ...

    def pieces(self, segment: Segment, position: int, seen: int, end: int) -> Iterator[Piece]:
        """Make the text, piece by piece, up to another boundary."""
        ...

    def grounds(self) -> Sequence[Marker] | None:
        """Return what decided elsewhere what the measured text is; None where that can't be named."""
        ...

    def holds(self, grounds: Sequence[Marker]) -> bool:
        """Whether that is still so."""
        ...


class BlockText:
    """Text that ``render`` makes of each block."""

    def __init__(self, render: Callable[[Segment, Block | Damage], Piece]) -> None:
        self._render = render

    def extents(self, segment: Segment, position: int, seen: int) -> Iterator[Extent]:
        """See :class:`TextSource`."""
        for item in segment.walk(position, seen):
            last_offset = item.header.last_offset if isinstance(item, Block) else -1
            yield Extent(len(self._render(segment, item).text), item.end, last_offset)

    def pieces(self, segment: Segment, position: int, seen: int, end: int) -> Iterator[Piece]:
        """See :class:`TextSource`."""
        for item in segment.walk(position, seen):
            if item.position >= end:
                return
            yield self._render(segment, item)

    def grounds(self) -> Sequence[Marker]:
        """See :class:`TextSource`."""
        return ()

    def holds(self, grounds: Sequence[Marker]) -> bool:
        """See :class:`TextSource`."""
        return not grounds


#: The tree path of the partition, the kind of rendering, the slot, and the first and last offset shown.
TextKey = tuple[str, str, int, OffsetRange]


class TextCache:
    """Tables of texts, and chunks of text rendered lately.

    Who makes or extends a table holds the lock of that text (:meth:`lock_of`): a pass over a large segment takes long,
    and is worth waiting for only to those who want the same text.
    """

    def __init__(self, chunk_bytes: int, store: TableStore | None, ahead: WorkAhead) -> None:
        self.store = store
        self._ahead = ahead
        self._making: dict[tuple[TextKey, int], Future[Piece]] = {}
        self._read: LRUCache[TextKey, int] = LRUCache(_READS_KEPT)
        self._tables: LRUCache[TextKey, TextTable] = LRUCache(_MOST_ENTRIES, getsizeof=len)
        self._chunks: LRUCache[tuple[TextKey, int], Piece] = LRUCache(
            chunk_bytes, getsizeof=lambda piece: len(piece.text) + 256
        )
        #: Those that were read whole, the first of them first.
        self._spent: OrderedDict[tuple[TextKey, int], None] = OrderedDict()
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[TextKey, threading.RLock] = WeakValueDictionary()

    def lock_of(self, key: TextKey) -> threading.RLock:
        """Return the lock of a text."""
        with self._lock:
            return self._locks.setdefault(key, threading.RLock())

    def table(self, key: TextKey) -> TextTable | None:
        """Return the table of a text, if it is known."""
        with self._lock:
            return self._tables.get(key)

    def keep_table(self, key: TextKey, table: TextTable) -> None:
        """Keep a table, or weigh it anew after it has grown."""
        with self._lock:
            if len(table) <= self._tables.maxsize:
                self._tables[key] = table

    def chunk(self, key: TextKey, index: int, make: Callable[[], Piece]) -> Piece:
        """Return a chunk of a text, made if it isn't there; one thread makes it, others wait for it."""
        with self._lock:
            chunk = self._chunks.get((key, index))
            if chunk is not None:
                return chunk
            made = self._making.get((key, index))
            is_ours = made is None
            if made is None:
                made = self._making[key, index] = Future()
        if not is_ours:
            return made.result()
        try:
            chunk = make()
        except BaseException as error:
            with self._lock:
                del self._making[key, index]
            made.set_exception(error)
            raise
        with self._lock:
            del self._making[key, index]
            self._keep((key, index), chunk)
        made.set_result(chunk)
        return chunk

    def was_read(self, key: TextKey, index: int) -> None:
        """Note that somebody has read a chunk whole, as the kernel does, which then keeps it.

        What was rendered ahead for others is of more use, and would be thrown away before it.
        """
        with self._lock:
            if (key, index) in self._chunks:
                self._spent[key, index] = None

    def _keep(self, place: tuple[TextKey, int], chunk: Piece) -> None:
        size = self._chunks.getsizeof(chunk)
        while self._spent and self._chunks.currsize + size > self._chunks.maxsize:
            self._chunks.pop(self._spent.popitem(last=False)[0], None)
        self._spent.pop(place, None)
        if size <= self._chunks.maxsize:
            self._chunks[place] = chunk

    def read_on(self, key: TextKey, index: int, end: int, chunk: Callable[[int], Piece]) -> None:
        """Note that a chunk is read, of ``end``; have those that follow made if the one before it was read last."""
        if not self._ahead.reach:
            return
        with self._lock:
            before = self._read.get(key)
            self._read[key] = index
            # Asked for again when half of it has been read.
            if before != index - 1 or index % (_CHUNKS_AHEAD // 2):
                return
            room = int(self._chunks.maxsize) // (4 * CHUNK_BYTES)
            stop = min(index + 1 + min(self._ahead.reach * _CHUNKS_AHEAD, room), end)
            missing = [following for following in range(index + 1, stop) if (key, following) not in self._chunks]
        groups = (list(group) for _, group in groupby(missing, lambda following: following // _CHUNKS_AHEAD))
        self._ahead.ask([Job((key, group[0] // _CHUNKS_AHEAD), partial(_each, chunk, group)) for group in groups])


def _each(chunk: Callable[[int], Piece], indexes: Iterable[int]) -> None:
    for index in indexes:
        chunk(index)


class SegmentText:
    """What ``source`` makes of a segment; texts of the same ``key`` are the same.

    One with a ``stable_end`` ends before that offset, and that offset moves on.
    """

    def __init__(
        self,
        segment: Segment,
        key: TextKey,
        source: TextSource,
        cache: TextCache,
        lasting_key: str,
        stable_end: int | None = None,
    ) -> None:
        self.segment = segment
        self.key = key
        self._source = source
        self._cache = cache
        self._lasting_key = lasting_key
        self._stable_end = stable_end

    @property
    def _grows(self) -> bool:
        return self._stable_end is not None or self.segment.is_last

    @property
    def is_known(self) -> bool:
        """Whether the table is at hand, in memory or in the store, without a pass over the segment."""
        return self._found() is not None

    @property
    def is_kept(self) -> bool:
        """Whether the store has the table for later mounts."""
        return self._cache.store is not None and self._cache.store.holds(self._lasting_key)

    @property
    def size(self) -> int:
        """The exact length in bytes; the first time this is a pass over the segment."""
        return self.table().size

    @property
    def is_measured(self) -> bool:
        """Whether the table is in memory."""
        return self._cache.table(self.key) is not None

    def table(self) -> TextTable:
        """Return the table, up to date: from memory, from the store, or by a pass over the segment."""
        with self._cache.lock_of(self.key):
            table = self._found() or TextTable(self.segment.base_offset)
            if self._stable_end is not None:
                if table.stable_end < self._stable_end:
                    self._extend(table)
                    table.stable_end = self._stable_end
                    self._cache.keep_table(self.key, table)
                return table
            log_end = self.segment.tail()[0] if self.segment.is_last else None
            if (log_end is None and table.log_end) or (log_end is not None and table.log_end >= log_end):
                return table
            self._extend(table)
            if log_end is not None:
                table.log_end = max(table.log_end, log_end)
            self._cache.keep_table(self.key, table)
            self._store(table)
            return table

    def _found(self) -> TextTable | None:
        """Return the table from memory or, to be kept there from now on, from the store."""
        table = self._cache.table(self.key)
        if table is not None or self._cache.store is None or self._grows:
            return table
        table = self._cache.store.load(self._lasting_key)
        if table is not None and not self._source.holds(table.grounds):
            return None
        if table is not None:
            self._cache.keep_table(self.key, table)
            for problem in table.problems:
                self.segment.problems.add(problem)
        return table

    def _store(self, table: TextTable) -> None:
        grounds = self._source.grounds()
        if self._cache.store is None or self._grows or table.log_end < WORTH_KEEPING or grounds is None:
            return
        table.grounds = list(grounds)
        path = self.segment.files.log.path
        table.problems = [problem for problem in self.segment.problems if problem.file == path]
        self._cache.store.save(self._lasting_key, table)

    def _extend(self, table: TextTable) -> None:
        """Go on from where the table ends to the end of the segment."""
        for extent in self._source.extents(self.segment, table.log_end, table.last_seen):
            if table.size - table.text_starts[-1] >= CHUNK_BYTES:
                table.begin_chunk()
                self.segment.mark(table.last_seen + 1, table.log_end)
            table.size += extent.size
            table.note_times(extent.earliest, extent.latest)
            table.log_end = extent.log_end
            table.last_seen = max(table.last_seen, extent.last_offset)

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer at the end.

        Raises:
            CorruptData: the range touches what stands for damage.
        """
        if not self._grows:
            return self._read(self.table(), offset, size)
        with self._cache.lock_of(self.key):  # its table grows
            return self._read(self.table(), offset, size)

    def _read(self, table: TextTable, offset: int, size: int) -> bytes:
        end = min(offset + size, table.size)
        parts = []
        while offset < end:
            index = bisect_right(table.text_starts, offset) - 1
            start = table.text_starts[index]
            stop = min(end, table.text_starts[index + 1] if index + 1 < len(table) else table.size)
            chunk = self._chunk(table, index)
            if not self._grows:
                self._cache.read_on(self.key, index, len(table), partial(self._chunk, table))
            for fault_start, fault_end, error in chunk.faults:
                if fault_start < stop - start and fault_end > offset - start:
                    raise error
            part = memoryview(chunk.text)[offset - start : stop - start]
            if not part:
                break
            if len(part) == len(chunk.text):
                self._cache.was_read(self.key, index)
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _chunk(self, table: TextTable, index: int) -> Piece:
        is_open = index + 1 == len(table) and self._grows
        if is_open:  # still growing: what is rendered now is not the whole of it later
            return self._rendered(table, index)
        return self._cache.chunk(self.key, index, lambda: self._rendered(table, index))

    def _rendered(self, table: TextTable, index: int) -> Piece:
        end = table.positions[index + 1] if index + 1 < len(table) else table.log_end
        return Piece.join(self._source.pieces(self.segment, table.positions[index], table.seen[index], end))


class LogText:
    """The texts of several segments, one after another."""

    def __init__(self, texts: Iterable[SegmentText]) -> None:
        self._texts = list(texts)

    @property
    def size(self) -> int:
        """The exact length in bytes."""
        return sum(text.size for text in self._texts)

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer at the end; errors as :meth:`SegmentText.read`."""
        parts = []
        for text in self._texts:
            if size <= 0:
                break
            if offset < text.size:
                part = text.read(offset, size)
                parts.append(part)
                size -= len(part)
                offset = 0
            else:
                offset -= text.size
        return b"".join(parts)
