"""What is kept of texts in memory: their indexes, and chunks that were rendered lately, or ahead."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary, ref

from cachetools import LRUCache

from kfs.tree.lines.index import LineIndex
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.lines.source import CHUNK_BYTES, Chunk
from kfs.tree.work_ahead import WorkAhead, WorkAheadJob

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: Chunks that are rendered ahead by one thread, one after another: a thread that reads on where it was is quicker.
_CHUNKS_AHEAD: Final = 8
#: How many readers are told apart.
_READERS_KEPT: Final = 1024
#: About how many measurements the pace is an average of.
_PACES: Final = 8
#: Of all indexes in memory.
_INDEX_BYTES: Final = 16 * 1024 * 1024

#: The tree path of the partition, the kind of rendering, the slot, and the first and last offset shown.
TextKey = tuple[str, str, int, int, int]


class Claim:
    """Chunks of a text that a reader wants: there, being made by another thread, or missing and now its own to make."""

    __slots__ = ("awaited", "found", "key", "making", "missing")

    def __init__(self, key: TextKey) -> None:
        self.key = key
        self.found: dict[int, Chunk] = {}
        self.awaited: dict[int, Future[Mapping[int, Chunk]]] = {}
        self.missing: list[int] = []
        #: What others wait for that is missing here.
        self.making: Future[Mapping[int, Chunk]] = Future()


class LineCache:
    """Indexes of texts, and chunks of text rendered lately.

    An index is made and extended under the lock of its text (:meth:`lock_of`): a pass over a large segment takes long,
    and only those who want the same text should wait for it.
    """

    def __init__(self, chunk_bytes: int, store: LineIndexStore | None, ahead: WorkAhead) -> None:
        self.store = store
        self._ahead = ahead
        self._making: dict[tuple[TextKey, int], Future[Mapping[int, Chunk]]] = {}
        #: Where the next read of a reader would begin, and when it got the last.
        self._readers: LRUCache[tuple[TextKey, int], float] = LRUCache(_READERS_KEPT)
        #: How long a chunk takes to be made, in seconds, lately.
        self._pace = 0.0
        #: Indexes with their segments: that of one that isn't in use is of no use.
        self._indexes: LRUCache[TextKey, tuple[ref[Segment], LineIndex]] = LRUCache(
            _INDEX_BYTES, getsizeof=lambda kept: kept[1].nbytes
        )
        #: The keys of indexes whose segment is gone, to be dropped: they come while anything may be locked.
        self._gone: deque[TextKey] = deque()
        self._chunks: LRUCache[tuple[TextKey, int], Chunk] = LRUCache(
            chunk_bytes, getsizeof=lambda chunk: len(chunk.text) + 256
        )
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[TextKey, threading.RLock] = WeakValueDictionary()

    def lock_of(self, key: TextKey) -> threading.RLock:
        """Return the lock of a text."""
        with self._lock:
            return self._locks.setdefault(key, threading.RLock())

    def index(self, key: TextKey) -> LineIndex | None:
        """Return the index of a text, if it is known."""
        with self._lock:
            kept = self._indexes.get(key)
            return None if kept is None else kept[1]

    def keep_index(self, key: TextKey, segment: Segment, index: LineIndex) -> None:
        """Keep the index of a segment for as long as that is there, or weigh it anew after it has grown."""
        gone = self._gone
        kept = ref(segment, lambda _: gone.append(key)), index
        with self._lock:
            while gone:
                self._indexes.pop(gone.popleft(), None)
            if index.nbytes <= self._indexes.maxsize:
                self._indexes[key] = kept

    def claim(self, key: TextKey, wanted: range, kept: Container[int]) -> Claim:
        """Return the chunks of a text that are there, and who makes the others: other threads, or the caller.

        The caller ends with :meth:`deliver` or :meth:`give_up` where it has any to make. A chunk that isn't ``kept`` is
        dropped with this: what one reader has read to its end stays in the kernel's page cache, and what was made for
        others to read is of more use here.
        """
        claim = Claim(key)
        with self._lock:
            for index in wanted:
                place = (key, index)
                if place in self._chunks:
                    claim.found[index] = self._chunks[place] if index in kept else self._chunks.pop(place)
                elif place in self._making:
                    claim.awaited[index] = self._making[place]
                else:
                    claim.missing.append(index)
                    self._making[place] = claim.making
        return claim

    def deliver(self, claim: Claim, made: Mapping[int, Chunk], kept: Container[int], seconds: float) -> None:
        """Hand over the chunks that a claim was short of to those who wait for them, and keep the ``kept`` ones.

        ``seconds`` is how long it took to make them.
        """
        with self._lock:
            self._pace += (seconds / len(made) - self._pace) / _PACES
            for index, chunk in made.items():
                del self._making[claim.key, index]
                if index in kept and self._chunks.getsizeof(chunk) <= self._chunks.maxsize:
                    self._chunks[claim.key, index] = chunk
        claim.making.set_result(made)

    def give_up(self, claim: Claim, error: BaseException) -> None:
        """Tell those who wait for the chunks of a claim that they couldn't be made."""
        with self._lock:
            for index in claim.missing:
                del self._making[claim.key, index]
        claim.making.set_exception(error)

    def worth_making_ahead(self, key: TextKey, read: range, end: int) -> list[range]:
        """Return the runs of chunks below ``end`` to make before they are asked for, as ``read`` are asked for now.

        There are some where a reader goes through a text in order and is quicker than chunks are made. If it is slower,
        the kernel asks for the next ones early enough, and the reader needs the processors itself.
        """
        if not self._ahead.reach:
            return []
        with self._lock:
            answered = self._readers.pop((key, read.start), None)
            if answered is None or time.perf_counter() - answered > self._pace * len(read):
                return []
            room = int(self._chunks.maxsize) // (4 * CHUNK_BYTES)
            stop = min(read.stop + min(self._ahead.reach * _CHUNKS_AHEAD, room), end)
            missing = [index for index in range(read.stop, stop) if (key, index) not in self._chunks]
        groups = (list(group) for _, group in groupby(missing, lambda index: index // _CHUNKS_AHEAD))
        return [range(group[0], group[-1] + 1) for group in groups]

    def make_ahead(self, key: TextKey, runs: Iterable[range], make: Callable[[range], object]) -> None:
        """Have ``make`` called with each run of chunks of a text, by threads that work ahead of readers."""
        self._ahead.ask([WorkAheadJob((key, run.start // _CHUNKS_AHEAD), partial(make, run)) for run in runs])

    def was_answered(self, key: TextKey, following: int) -> None:
        """Note that a reader got what it asked for, and may go on with the chunk ``following``."""
        if self._ahead.reach:
            with self._lock:
                self._readers[key, following] = time.perf_counter()
