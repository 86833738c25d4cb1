"""Text made of a segment's blocks, one after another: exact size, random access, memory bounded.

A pass over the segment leaves a table with an entry every 64 KiB of text or so: where in the text a
block's lines begin, and where in the log that block lies. A read finds the entry, renders from
there on, and keeps what it rendered.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary, ref

from cachetools import LRUCache

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.log.block import Block, Cause
from kfs.read.deciding_markers import Marker
from kfs.storage.open_files import FileChanged
from kfs.tree.node import Part
from kfs.tree.node_ids import Parts
from kfs.tree.table_store import TableStore
from kfs.tree.text_table import NO_EARLIEST, NO_LATEST, TextTable
from kfs.tree.work_ahead import Job, WorkAhead

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.log.span import Span

#: A chunk of text is at least that long, the last one aside, and ends with a block.
CHUNK_BYTES: Final = 64 * 1024
#: Chunks that are rendered ahead by one thread, one after another: a thread that reads on where it was is quicker.
_CHUNKS_AHEAD: Final = 8
#: So many readers are told from each other.
_READERS_KEPT: Final = 1024
#: Over so many measurements, about, the pace is an average.
_PACES: Final = 8
#: Of all tables in memory.
_TABLE_BYTES: Final = 16 * 1024 * 1024
#: The pass over a smaller segment, in bytes, costs less than a file.
WORTH_KEEPING: Final = 64 * 1024
#: What an active segment has at least whose table is kept: it's of no more use as soon as anything is appended.
_WORTH_KEEPING_FOR_NOW: Final = 1024 * 1024
#: What was written longer ago than this has another modification time when it's written again, whatever the clock.
_AT_REST_NS: Final = 2_000_000_000


@dataclass(slots=True)
class Piece:
    """The text of one block or damage; ``faults`` are ranges that stand for what can't be shown."""

    text: bytes
    faults: list[tuple[int, int, CorruptData]] = field(default_factory=list)

    @classmethod
    def join(cls, pieces: Sequence[Piece]) -> Piece:
        """Put pieces one after another."""
        if len(pieces) == 1:
            return pieces[0]
        parts: list[bytes] = []
        faults: list[tuple[int, int, CorruptData]] = []
        size = 0
        for piece in pieces:
            faults.extend((start + size, end + size, error) for start, end, error in piece.faults)
            parts.append(piece.text)
            size += len(piece.text)
        return cls(b"".join(parts), faults)


class Extent(NamedTuple):
    """How long the text is of what ends in the log at ``log_end``, and what else a table says of it.

    ``last_offset`` is the last that blocks there have, -1 for damage. What stands for offsets that are missing behind
    the segment is of no bytes of it: it ends where what is before it does. The timestamps of its records, in
    milliseconds, lie between ``earliest`` and ``latest``.
    """

    size: int
    log_end: int
    last_offset: int
    earliest: int = NO_EARLIEST
    latest: int = NO_LATEST
    is_missing: bool = False


class TextSource(Protocol):
    """What makes a text of a segment: from a batch boundary on, before which ``seen`` is the highest offset."""

    def extents(self, segment: Segment, position: int, seen: int, end: int | None) -> Iterator[Extent]:
        """Measure the text, part by part, up to the batch boundary ``end``, or to the end of the segment."""
        ...

    def pieces(self, segment: Segment, position: int, seen: int, ends: Sequence[int]) -> Iterator[Piece]:
        """Make the text, a piece up to each of ``ends``, boundaries all, and at least one.

        It ends with a piece that goes on beyond its end: messages that follow one another are measured as they come,
        and read as one block.
        """
        ...

    def grounds(self) -> Sequence[Marker] | None:
        """Return what decided elsewhere what the measured text is; None where that can't be named."""
        ...

    def holds(self, grounds: Sequence[Marker]) -> bool:
        """Whether that is still so."""
        ...


class BlockText:
    """Text that ``render`` makes of each block that is in a segment, whoever sees it."""

    def __init__(self, render: Callable[[Segment, Block], Piece]) -> None:
        self._render = render

    def extents(self, segment: Segment, position: int, seen: int, end: int | None) -> Iterator[Extent]:
        """See :class:`TextSource`."""
        for item in segment.walk(position, seen):
            if end is not None and item.position >= end:
                return
            if isinstance(item, Block):
                yield Extent(len(self._render(segment, item).text), item.end, item.header.last_offset)
            else:
                yield Extent(0, item.end, -1, is_missing=item.cause is Cause.MISSING)

    def pieces(self, segment: Segment, position: int, seen: int, ends: Sequence[int]) -> Iterator[Piece]:
        """See :class:`TextSource`."""
        items = segment.walk(position, seen)
        held = next(items, None)
        for end in ends:
            pieces = []
            reached = position
            while held is not None and held.position < end:
                if isinstance(held, Block):
                    pieces.append(self._render(segment, held))
                reached = held.end
                held = next(items, None)
            yield Piece.join(pieces)
            if reached > end:
                return

    def grounds(self) -> Sequence[Marker]:
        """See :class:`TextSource`."""
        return ()

    def holds(self, grounds: Sequence[Marker]) -> bool:
        """See :class:`TextSource`."""
        return not grounds


#: Makes chunks that follow one another.
MakeChunks = Callable[[range], Iterable[Piece]]
#: The tree path of the partition, the kind of rendering, the slot, and the first and last offset shown.
TextKey = tuple[str, str, int, int, int]


class TextCache:
    """Tables of texts, and chunks of text rendered lately.

    Who makes or extends a table holds the lock of that text (:meth:`lock_of`): a pass over a large segment takes long,
    and is worth waiting for only to those who want the same text.
    """

    def __init__(self, chunk_bytes: int, store: TableStore | None, ahead: WorkAhead) -> None:
        self.store = store
        self._ahead = ahead
        self._making: dict[tuple[TextKey, int], Future[Mapping[int, Piece]]] = {}
        #: Where somebody's next read would begin, and when he got the last.
        self._readers: LRUCache[tuple[TextKey, int], float] = LRUCache(_READERS_KEPT)
        #: How long a chunk takes to be made, in seconds, lately.
        self._pace = 0.0
        #: Tables with their segments: that of one which nobody has any more is of no use.
        self._tables: LRUCache[TextKey, tuple[ref[Segment], TextTable]] = LRUCache(
            _TABLE_BYTES, getsizeof=lambda kept: kept[1].nbytes
        )
        #: The keys of tables whose segment is gone, to be dropped: they come while anything may be locked.
        self._gone: deque[TextKey] = deque()
        self._chunks: LRUCache[tuple[TextKey, int], Piece] = LRUCache(
            chunk_bytes, getsizeof=lambda piece: len(piece.text) + 256
        )
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[TextKey, threading.RLock] = WeakValueDictionary()

    def lock_of(self, key: TextKey) -> threading.RLock:
        """Return the lock of a text."""
        with self._lock:
            return self._locks.setdefault(key, threading.RLock())

    def table(self, key: TextKey) -> TextTable | None:
        """Return the table of a text, if it is known."""
        with self._lock:
            kept = self._tables.get(key)
            return None if kept is None else kept[1]

    def keep_table(self, key: TextKey, segment: Segment, table: TextTable) -> None:
        """Keep the table of a segment for as long as that is there, or weigh it anew after it has grown."""
        gone = self._gone
        kept = ref(segment, lambda _: gone.append(key)), table
        with self._lock:
            while gone:
                self._tables.pop(gone.popleft(), None)
            if table.nbytes <= self._tables.maxsize:
                self._tables[key] = kept

    def chunks(self, key: TextKey, wanted: range, kept: Container[int], make: MakeChunks) -> list[Piece]:
        """Return chunks of a text. Those that aren't there are made: by one thread, and others wait for it.

        Afterwards those of them that are ``kept`` are there, and no other: what somebody reads to its end stays with
        him, as with the kernel, and what was made for others to read is of more use.
        """
        found: dict[int, Piece] = {}
        awaited: dict[int, Future[Mapping[int, Piece]]] = {}
        missing: list[int] = []
        making: Future[Mapping[int, Piece]] = Future()
        with self._lock:
            for index in wanted:
                place = (key, index)
                if place in self._chunks:
                    found[index] = self._chunks[place] if index in kept else self._chunks.pop(place)
                elif place in self._making:
                    awaited[index] = self._making[place]
                else:
                    missing.append(index)
                    self._making[place] = making
        if missing:
            found |= self._made(key, missing, kept, make, making)
        for index, made in awaited.items():
            try:
                found[index] = made.result()[index]
            except Exception:  # of a chunk beside it, perhaps
                [found[index]] = make(range(index, index + 1))
        return [found[index] for index in wanted]

    def _made(
        self,
        key: TextKey,
        missing: list[int],
        kept: Container[int],
        make: MakeChunks,
        making: Future[Mapping[int, Piece]],
    ) -> Mapping[int, Piece]:
        """Make chunks that others wait for in ``making``."""
        made: dict[int, Piece] = {}
        started = time.perf_counter()
        try:
            for run in _runs(missing):
                made.update(zip(run, make(run), strict=True))
        except BaseException as error:
            with self._lock:
                for index in missing:
                    del self._making[key, index]
            making.set_exception(error)
            raise
        pace = (time.perf_counter() - started) / len(missing)
        with self._lock:
            self._pace += (pace - self._pace) / _PACES
            for index in missing:
                del self._making[key, index]
                if index in kept and self._chunks.getsizeof(made[index]) <= self._chunks.maxsize:
                    self._chunks[key, index] = made[index]
        making.set_result(made)
        return made

    def read_on(self, key: TextKey, read: range, end: int, make: MakeChunks) -> None:
        """Note that chunks are asked for, of ``end``; have those that follow made for who goes through them in order.

        If he is slower at that than we are, the kernel asks for the next ones early enough, and whoever he is needs
        the processors himself.
        """
        if not self._ahead.reach:
            return
        with self._lock:
            answered = self._readers.pop((key, read.start), None)
            if answered is None or time.perf_counter() - answered > self._pace * len(read):
                return
            room = int(self._chunks.maxsize) // (4 * CHUNK_BYTES)
            stop = min(read.stop + min(self._ahead.reach * _CHUNKS_AHEAD, room), end)
            missing = [index for index in range(read.stop, stop) if (key, index) not in self._chunks]
        groups = (list(group) for _, group in groupby(missing, lambda index: index // _CHUNKS_AHEAD))
        runs = (range(group[0], group[-1] + 1) for group in groups)
        self._ahead.ask(
            [Job((key, run.start // _CHUNKS_AHEAD), partial(self.chunks, key, run, run, make)) for run in runs]
        )

    def was_answered(self, key: TextKey, following: int) -> None:
        """Note that somebody got what he asked for, who may go on with the chunk ``following``."""
        if self._ahead.reach:
            with self._lock:
                self._readers[key, following] = time.perf_counter()


def _runs(indexes: Sequence[int]) -> Iterator[range]:
    """Divide numbers that go up into runs of those that follow one another."""
    start = 0
    for at in range(1, len(indexes) + 1):
        if at == len(indexes) or indexes[at] != indexes[at - 1] + 1:
            yield range(indexes[start], indexes[at - 1] + 1)
            start = at


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
        lasting_key: Callable[[], str],
        stable_end: int | None = None,
    ) -> None:
        """``lasting_key`` returns what the table depends on, at the moment."""
        self.segment = segment
        self.key = key
        self._source = source
        self._cache = cache
        self._lasting_key = lasting_key
        self._stable_end = stable_end

    @property
    def slot(self) -> int:
        """The number of what is shown of the segment, which is another when that isn't the same any more."""
        return self.key[2]

    @property
    def start(self) -> int:
        """The offset from which on the segment is shown."""
        return self.key[3]

    @property
    def _has_no_end(self) -> bool:
        """Whether it ends where the log does in its segment, which may be closed by now."""
        return self.key[4] == MAX_INT64

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
        return self._cache.store is not None and self._cache.store.holds(self._lasting_key())

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
            found = self._found()
            table = found or TextTable(self.segment.base_offset)
            if self._stable_end is not None:
                if table.stable_end < self._stable_end:
                    self._extend(table, None)
                    table.stable_end = self._stable_end
                    self._cache.keep_table(self.key, self.segment, table)
                return table
            log_end = self.segment.tail()[0] if self._has_no_end else None
            if found is not None if log_end is None else table.log_end >= log_end:
                return table
            begun, lasting_key = table.log_end, self._lasting_key()
            last = self._extend(table, log_end)
            if log_end is None:
                table.is_missing = self._is_missing(table, last)
            else:
                table.log_end = max(table.log_end, log_end)
            self._cache.keep_table(self.key, self.segment, table)
            if self._is_worth_keeping(begun, table.log_end) and lasting_key == self._lasting_key():
                self._store(table, lasting_key)
            return table

    def _found(self) -> TextTable | None:
        """Return the table from memory or, to be kept there from now on, from the store."""
        table = self._cache.table(self.key)
        if table is not None or self._cache.store is None or self._stable_end is not None:
            return table
        table = self._cache.store.load(self._lasting_key())
        if table is not None and not (self._source.holds(table.grounds) and self._still_ends_so(table)):
            return None
        if table is not None:
            self._cache.keep_table(self.key, self.segment, table)
            for problem in table.problems:
                self.segment.problems.add(problem)
        return table

    def _is_worth_keeping(self, begun: int, end: int) -> bool:
        """Whether a pass over these bytes of the log should be the last for as long as the file is what it is."""
        if not self.segment.is_last:
            return end >= WORTH_KEEPING
        if end - begun < _WORTH_KEEPING_FOR_NOW:
            return False
        return time.time_ns() - self.segment.file().status().mtime_ns > _AT_REST_NS

    def _store(self, table: TextTable, lasting_key: str) -> None:
        grounds = self._source.grounds()
        if self._cache.store is None or grounds is None:
            return
        table.grounds = list(grounds)
        path = self.segment.files.log.path
        table.problems = [problem for problem in self.segment.problems if problem.file == path]
        self._cache.store.save(lasting_key, table)

    def _is_missing(self, table: TextTable, last: Extent | None) -> bool | None:
        """Return what a table that ends with ``last`` says of offsets that are missing behind the segment."""
        if last is not None and last.is_missing:
            return True
        following = self.segment.next_base_offset
        is_asked = following is not None and table.last_seen + 1 < following and (last is None or last.last_offset >= 0)
        return False if is_asked else None

    def _still_ends_so(self, table: TextTable) -> bool:
        """Whether what a table says of offsets behind the segment is what is known of them now."""
        if table.is_missing is None:
            return True
        try:
            return (self.segment.missing_from(table.last_seen + 1) is not None) == table.is_missing
        except CorruptData:  # who reads it hears of that
            return False

    def _extend(self, table: TextTable, end: int | None) -> Extent | None:
        """Go on from where the table ends to where the log does, in bytes, or to the end of the segment.

        Returns what is at that end, None where nothing was added.
        """
        last: Extent | None = None
        for extent in self._source.extents(self.segment, table.log_end, table.last_seen, end):
            last = extent
            # Chunks are told apart by their positions in the log: what has no bytes there can't begin one.
            if table.size - table.text_starts[-1] >= CHUNK_BYTES and not extent.is_missing:
                table.begin_chunk()
                self.segment.mark(table.last_seen + 1, table.log_end)
            table.size += extent.size
            table.note_times(extent.earliest, extent.latest)
            table.log_end = extent.log_end
            table.last_seen = max(table.last_seen, extent.last_offset)
        return last

    def parts(self, offset: int, size: int) -> list[Part]:
        """Return ``size`` bytes from ``offset``, fewer at the end, as parts that follow one another.

        Raises:
            CorruptData: the range touches what stands for damage.
        """
        grows = self._grows
        with self._cache.lock_of(self.key):  # a table that grows does so under it
            table = self.table()
            chunks, log_end, text_end = len(table), table.log_end, table.size
        end = min(offset + size, text_end)
        if offset >= end:
            return []
        starts = table.text_starts
        first = bisect_right(starts, offset, 0, chunks) - 1
        wanted = range(first, bisect_left(starts, end, first, chunks))
        make = partial(self._rendered, table, log_end)
        closed = range(first, min(wanted.stop, chunks - grows))
        # The chunk where he stops is the one where he goes on.
        stop = starts[wanted.stop] if wanted.stop < chunks else text_end
        following = wanted.stop if stop == end else wanted.stop - 1
        self._cache.read_on(self.key, wanted, chunks - grows, make)
        pieces = self._cache.chunks(self.key, closed, (following,), make)
        if closed.stop < wanted.stop:  # still growing: what is rendered now is not the whole of it later
            pieces += self._rendered(table, log_end, range(closed.stop, wanted.stop))
        parts: list[Part] = []
        for index, piece in zip(wanted, pieces, strict=True):
            begin, stop = max(offset - starts[index], 0), end - starts[index]
            if index + 1 < chunks:
                stop = min(stop, starts[index + 1] - starts[index])
            for fault_start, fault_end, error in piece.faults:
                if fault_start < stop and fault_end > begin:
                    raise error
            is_whole = begin == 0 and stop == len(piece.text)
            parts.append(piece.text if is_whole else memoryview(piece.text)[begin:stop])
            if len(parts[-1]) < stop - begin:
                break
        self._cache.was_answered(self.key, following)
        return parts

    def _rendered(self, table: TextTable, log_end: int, run: range) -> list[Piece]:
        """Render chunks that follow one another, the last of which may be the table's, up to ``log_end``."""
        ends = list(table.positions[run.start + 1 : run.stop + 1])
        if len(ends) < len(run):
            ends.append(log_end)
        pieces: list[Piece] = []
        while len(pieces) < len(run):
            at = run.start + len(pieces)
            pieces += self._source.pieces(self.segment, table.positions[at], table.seen[at], ends[len(pieces) :])
        return pieces


@dataclass(slots=True)
class _Part:
    """The text of one span, and how long it is once nothing more comes."""

    span: Span
    text: SegmentText
    fixed_size: int | None = None

    @property
    def size(self) -> int:
        if self.fixed_size is None:
            self.fixed_size = self.text.size
        return self.fixed_size


class LogText:
    """The texts of the spans of a log, one after another; it goes on at its end as the log does.

    What is before its end stays what it was: a segment that is gone keeps its place in it, and whoever reads there
    gets what it had or :class:`~kfs.storage.open_files.FileChanged`. So does who waits at its end, once the log doesn't
    go on there any more.
    """

    def __init__(self, spans: Callable[[], Sequence[Span]], text_of: Callable[[Span, int | None], SegmentText]) -> None:
        """``text_of`` makes the text of a span from an offset on, by default from the first that is shown."""
        self._spans = spans
        self._text_of = text_of
        shown = spans()
        self._parts = [_Part(span, text_of(span, None)) for span in shown[:1]]
        self._parts += [_Part(span, text_of(span, span.start)) for span in shown[1:]]

    @property
    def incarnation(self) -> Parts:
        """What tells it from other texts at the same place: where it begins, and of which segments it is."""
        texts = [part.text for part in self._parts]
        return Parts(texts[0].start if texts else -1, tuple(text.slot for text in texts))

    def _followed(self) -> tuple[list[_Part], bool]:
        """Return the parts, with those that have come at the end, and whether more may come there."""
        parts = self._parts
        spans = self._spans()
        if not parts:  # what has come is another text: this one has no beginning
            return parts, not spans
        (segment, start, _), last = parts[-1].span, parts[-1].text
        at = len(spans) - 1
        while at >= 0 and (spans[at].segment is not segment or spans[at].start != start):
            at -= 1
        if at < 0:
            return parts, False
        text = self._text_of(spans[at], last.start)
        if text.slot != last.slot:
            return parts, False
        if text.key == last.key and at == len(spans) - 1:
            return parts, True
        following = [_Part(span, self._text_of(span, span.start)) for span in spans[at + 1 :]]
        self._parts = parts = [*parts[:-1], _Part(spans[at], text), *following]
        return parts, True

    def _ended(self) -> FileChanged:
        path = self._parts[-1].text.segment.files.log.path if self._parts else "<nothing>"
        return FileChanged("the log doesn't go on behind what there was of it", 0, path)

    @property
    def size(self) -> int:
        """The exact length in bytes.

        Raises:
            FileChanged: it has an end, and the log doesn't: who waits for more would wait for ever.
        """
        parts, goes_on = self._followed()
        if not goes_on:
            raise self._ended()
        return sum(part.size for part in parts[:-1]) + sum(part.text.size for part in parts[-1:])

    def parts(self, offset: int, size: int) -> list[Part]:
        """Return ``size`` bytes from ``offset``; as :meth:`SegmentText.parts`, at the end as :attr:`size`."""
        found: list[Part] = []
        parts, goes_on = self._followed()
        for part in parts:
            if size <= 0:
                break
            length = part.text.size if part is parts[-1] else part.size
            if offset < length:
                more = part.text.parts(offset, size)
                found += more
                size -= sum(map(len, more))
                offset = 0
            else:
                offset -= length
        if not found and size > 0 and not goes_on:
            raise self._ended()
        return found
