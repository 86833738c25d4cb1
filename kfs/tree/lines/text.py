"""The text of a segment's blocks, one after another: exact size, random access, bounded memory.

A pass over the segment makes an index with an entry about every 64 KiB of text: where a block's lines begin in the
text, and where that block lies in the log. A read finds the entry, renders from there on, and caches the result.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT64
from kfs.storage.open_files import FileChanged
from kfs.tree.lines.cache import LineCache, TextKey
from kfs.tree.lines.index import LineIndex
from kfs.tree.lines.source import CHUNK_BYTES, Chunk, LineSource, TextPart
from kfs.tree.node import Part
from kfs.tree.node_ids import Parts

if TYPE_CHECKING:
    from kfs.log.segment import Segment
    from kfs.log.span import Span

#: A pass over a segment smaller than this, in bytes, costs less than an index file.
WORTH_KEEPING: Final = 64 * 1024
#: The least size of an active segment whose index is stored: the index is useless once anything is appended.
_WORTH_KEEPING_FOR_NOW: Final = 1024 * 1024
#: A file written longer ago than this gets another modification time at the next write, whatever the clock.
_AT_REST_NS: Final = 2_000_000_000


class SegmentText:
    """The text that ``source`` makes of a segment; texts of the same ``key`` are the same.

    A text with a ``stable_end`` ends before the offset that it returns, which may advance.
    """

    def __init__(
        self,
        segment: Segment,
        key: TextKey,
        source: LineSource,
        cache: LineCache,
        lasting_key: Callable[[], str],
        stable_end: Callable[[], int] | None = None,
    ) -> None:
        """``lasting_key`` returns what the index depends on at the moment."""
        self.segment = segment
        self.key = key
        self._source = source
        self._cache = cache
        self._lasting_key = lasting_key
        self._stable_end = stable_end

    @property
    def slot(self) -> int:
        """The number of the segment's visible content, which changes with that."""
        return self.key[2]

    @property
    def start(self) -> int:
        """The first offset shown."""
        return self.key[3]

    @property
    def _has_no_end(self) -> bool:
        """Whether the text ends with the log in its segment, which may be closed by now."""
        return self.key[4] == MAX_INT64

    @property
    def _grows(self) -> bool:
        return self._stable_end is not None or self.segment.is_last

    @property
    def is_known(self) -> bool:
        """Whether the index is in memory or in the store, so that it needs no pass over the segment."""
        return self._found() is not None

    @property
    def is_kept(self) -> bool:
        """Whether the store has the index for later mounts."""
        return self._cache.store is not None and self._cache.store.has(self._lasting_key())

    @property
    def size(self) -> int:
        """The exact length in bytes; the first call is a pass over the segment."""
        return self.index().size

    @property
    def is_measured(self) -> bool:
        """Whether the index is in memory."""
        return self._cache.index(self.key) is not None

    def index(self) -> LineIndex:
        """Return the current index: from memory, from the store, or by a pass over the segment."""
        with self._cache.lock_of(self.key):
            found = self._found()
            index = found or LineIndex(self.segment.base_offset)
            if self._stable_end is not None:
                stable_end = self._stable_end()
                if index.stable_end < stable_end:
                    self._extend(index, None)
                    index.stable_end = stable_end
                    self._cache.keep_index(self.key, self.segment, index)
                return index
            log_end = self.segment.tail()[0] if self._has_no_end else None
            if found is not None if log_end is None else index.log_end >= log_end:
                return index
            begun, lasting_key = index.log_end, self._lasting_key()
            last = self._extend(index, log_end)
            if log_end is None:
                index.is_missing = self._is_missing(index, last)
            else:
                index.log_end = max(index.log_end, log_end)
            self._cache.keep_index(self.key, self.segment, index)
            if self._is_worth_keeping(begun, index.log_end) and lasting_key == self._lasting_key():
                self._store(index, lasting_key)
            return index

    def _found(self) -> LineIndex | None:
        """Return the index from memory, or from the store and then keep it in memory."""
        index = self._cache.index(self.key)
        if index is not None or self._cache.store is None or self._stable_end is not None:
            return index
        index = self._cache.store.load(self._lasting_key())
        if index is not None and not (self._source.still_decide(index.deciding_markers) and self._still_ends_so(index)):
            return None
        if index is not None:
            self._cache.keep_index(self.key, self.segment, index)
            for problem in index.problems:
                self.segment.problems.add(problem)
        return index

    def _is_worth_keeping(self, begun: int, end: int) -> bool:
        """Return whether to store the index of a pass over these bytes of the log, while the file stays as it is."""
        if not self.segment.is_last:
            return end >= WORTH_KEEPING
        if end - begun < _WORTH_KEEPING_FOR_NOW:
            return False
        return time.time_ns() - self.segment.file().status().mtime_ns > _AT_REST_NS

    def _store(self, index: LineIndex, lasting_key: str) -> None:
        markers = self._source.deciding_markers()
        if self._cache.store is None or markers is None:
            return
        index.deciding_markers = list(markers)
        path = self.segment.files.log.path
        index.problems = [problem for problem in self.segment.problems if problem.file == path]
        self._cache.store.save(lasting_key, index)

    def _is_missing(self, index: LineIndex, last: TextPart | None) -> bool | None:
        """Return, for an index that ends with ``last``, whether offsets are missing after the segment."""
        if last is not None and last.is_missing:
            return True
        following = self.segment.next_base_offset
        is_asked = (
            following is not None and index.last_offset + 1 < following and (last is None or last.last_offset >= 0)
        )
        return False if is_asked else None

    def _still_ends_so(self, index: LineIndex) -> bool:
        """Return whether an index still agrees with what is known of missing offsets after the segment."""
        if index.is_missing is None:
            return True
        try:
            return (self.segment.missing_from(index.last_offset + 1) is not None) == index.is_missing
        except CorruptData:  # readers get this error themselves
            return False

    def _extend(self, index: LineIndex, end: int | None) -> TextPart | None:
        """Extend the index to ``end``, a position in the log in bytes, or to the end of the segment.

        Returns the last part, None if nothing was added.
        """
        last: TextPart | None = None
        for part in self._source.measure(self.segment, index.log_end, index.last_offset, end):
            last = part
            # Chunks are identified by their positions in the log, so a part without bytes there can't begin one.
            if index.size - index.text_starts[-1] >= CHUNK_BYTES and not part.is_missing:
                index.begin_chunk()
                self.segment.mark(index.last_offset + 1, index.log_end)
            index.size += part.size
            index.note_times(part.earliest, part.latest)
            index.log_end = part.log_end
            index.last_offset = max(index.last_offset, part.last_offset)
        return last

    def parts(self, offset: int, size: int) -> list[Part]:
        """Return ``size`` bytes from ``offset``, fewer at the end, as consecutive parts.

        Raises:
            CorruptData: the range touches a placeholder for damage.
        """
        grows = self._grows
        with self._cache.lock_of(self.key):  # which also guards the growth of an index
            index = self.index()
            count, log_end, text_end = len(index), index.log_end, index.size
        end = min(offset + size, text_end)
        if offset >= end:
            return []
        starts = index.text_starts
        first = bisect_right(starts, offset, 0, count) - 1
        wanted = range(first, bisect_left(starts, end, first, count))
        closed = range(first, min(wanted.stop, count - grows))
        # A sequential reader continues in the chunk where it stopped.
        stop = starts[wanted.stop] if wanted.stop < count else text_end
        following = wanted.stop if stop == end else wanted.stop - 1
        ahead = self._cache.worth_making_ahead(self.key, wanted, count - grows)
        if ahead:
            self._cache.make_ahead(self.key, ahead, lambda run: self._chunks(index, log_end, run, run))
        chunks = self._chunks(index, log_end, closed, (following,))
        if closed.stop < wanted.stop:  # still growing, so not to be cached
            chunks += self._rendered(index, log_end, range(closed.stop, wanted.stop))
        parts: list[Part] = []
        for number, chunk in zip(wanted, chunks, strict=True):
            begin, stop = max(offset - starts[number], 0), end - starts[number]
            if number + 1 < count:
                stop = min(stop, starts[number + 1] - starts[number])
            for fault_start, fault_end, error in chunk.faults:
                if fault_start < stop and fault_end > begin:
                    raise error
            is_whole = begin == 0 and stop == len(chunk.text)
            parts.append(chunk.text if is_whole else memoryview(chunk.text)[begin:stop])
            if len(parts[-1]) < stop - begin:
                break
        self._cache.was_answered(self.key, following)
        return parts

    def _chunks(self, index: LineIndex, log_end: int, wanted: range, kept: Container[int]) -> list[Chunk]:
        """Return chunks from the cache; render missing ones, unless another thread is rendering them."""
        claim = self._cache.claim(self.key, wanted, kept)
        found = claim.found
        if claim.missing:
            made: dict[int, Chunk] = {}
            started = time.perf_counter()
            try:
                for run in _consecutive(claim.missing):
                    made.update(zip(run, self._rendered(index, log_end, run), strict=True))
            except BaseException as error:
                self._cache.give_up(claim, error)
                raise
            self._cache.deliver(claim, made, kept, time.perf_counter() - started)
            found |= made
        for number, making in claim.awaited.items():
            try:
                found[number] = making.result()[number]
            except Exception:  # perhaps of a neighbouring chunk
                [found[number]] = self._rendered(index, log_end, range(number, number + 1))
        return [found[number] for number in wanted]

    def _rendered(self, index: LineIndex, log_end: int, run: range) -> list[Chunk]:
        """Render consecutive chunks, of which the last may be the index's last, up to ``log_end``."""
        ends = list(index.positions[run.start + 1 : run.stop + 1])
        if len(ends) < len(run):
            ends.append(log_end)
        chunks: list[Chunk] = []
        while len(chunks) < len(run):
            at = run.start + len(chunks)
            chunks += self._source.chunks(self.segment, index.positions[at], index.after[at], ends[len(chunks) :])
        return chunks


@dataclass(slots=True)
class _Part:
    """The text of one span, and its final length once it no longer grows."""

    span: Span
    text: SegmentText
    fixed_size: int | None = None

    @property
    def size(self) -> int:
        if self.fixed_size is None:
            self.fixed_size = self.text.size
        return self.fixed_size


class LogText:
    """The texts of a log's spans, one after another; it grows with the log.

    Its content never changes: a deleted segment keeps its place, and a reader there gets the old content or
    :class:`~kfs.storage.open_files.FileChanged`. So does a reader at the end once the log no longer continues there.
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
        """What distinguishes it from other texts at the same place: its start and its segments."""
        texts = [part.text for part in self._parts]
        return Parts(texts[0].start if texts else -1, tuple(text.slot for text in texts))

    def _followed(self) -> tuple[list[_Part], bool]:
        """Return the parts, including new ones at the end, and whether more may follow."""
        parts = self._parts
        spans = self._spans()
        if not parts:  # a text that begins now is another text
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
        return FileChanged("the log doesn't continue where it was read to", 0, path)

    @property
    def size(self) -> int:
        """The exact length in bytes.

        Raises:
            FileChanged: the log no longer continues where the text ends, so a reader would wait for ever.
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


def _consecutive(numbers: Sequence[int]) -> Iterator[range]:
    """Divide ascending numbers into runs of consecutive ones."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield range(numbers[start], numbers[at - 1] + 1)
            start = at
