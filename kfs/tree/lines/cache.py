"""The cache of texts: their indexes, and chunks that were rendered lately or ahead."""

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
from kfs.tree.yielding_cache import YieldingCache

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: Chunks that one thread renders ahead in a row: it is faster if it continues where it was.
_CHUNKS_AHEAD: Final = 8
#: The most readers told apart.
_READERS_KEPT: Final = 1024
#: About how many measurements the pace averages.
_PACES: Final = 8
#: For all indexes in memory.
_INDEX_BYTES: Final = 16 * 1024 * 1024

#: The tree path of the partition, the kind of rendering, the slot, and the first and last offset shown.
TextKey = tuple[str, str, int, int, int]


class Claim:
    """A reader's chunks of a text: available, in the making by another thread, or missing and its own to make."""

    __slots__ = ("awaited", "found", "key", "making", "missing")

    def __init__(self, key: TextKey) -> None:
        self.key = key
        self.found: dict[int, Chunk] = {}
        self.awaited: dict[int, Future[Mapping[int, Chunk]]] = {}
        self.missing: list[int] = []
        #: The missing chunks, which others may wait for.
        self.making: Future[Mapping[int, Chunk]] = Future()


class LineCache:
    """Indexes of texts, and recently rendered chunks of text.

    An index is made and extended under the lock of its text (:meth:`lock_of`): a pass over a large segment takes long,
    and should block only readers of the same text. ``share`` says how much of ``chunk_bytes`` is left for chunks.
    """

    def __init__(
        self, chunk_bytes: int, store: LineIndexStore | None, ahead: WorkAhead, share: Callable[[], float]
    ) -> None:
        self.store = store
        self._ahead = ahead
        self._making: dict[tuple[TextKey, int], Future[Mapping[int, Chunk]]] = {}
        #: Where a reader would read next, by key and chunk, and when it got the last chunk.
        self._readers: LRUCache[tuple[TextKey, int], float] = LRUCache(_READERS_KEPT)
        #: The recent time to make a chunk, in seconds.
        self._pace = 0.0
        #: Indexes with their segments; an index is useless once its segment is not in use.
        self._indexes: LRUCache[TextKey, tuple[ref[Segment], LineIndex]] = LRUCache(
            _INDEX_BYTES, getsizeof=lambda kept: kept[1].nbytes
        )
        #: The keys of indexes whose segment is gone, to be dropped later: any lock may be held when they are added.
        self._gone: deque[TextKey] = deque()
        self._share = share
        self._chunks: YieldingCache[tuple[TextKey, int], Chunk] = YieldingCache(
            chunk_bytes, getsizeof=lambda chunk: len(chunk.text) + 256
        )
        self._hits = self._misses = 0
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[TextKey, threading.RLock] = WeakValueDictionary()

    def numbers(self) -> tuple[int, int, int, int]:
        """Return bytes of chunks and their limit; chunks that were found or in the making, and those that were not."""
        with self._lock:
            return int(self._chunks.currsize), self._chunks.room, self._hits, self._misses

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
        """Keep a segment's index for as long as the segment exists, or update its weight after it grew."""
        gone = self._gone
        kept = ref(segment, lambda _: gone.append(key)), index
        with self._lock:
            while gone:
                self._indexes.pop(gone.popleft(), None)
            if index.nbytes <= self._indexes.maxsize:
                self._indexes[key] = kept

    def claim(self, key: TextKey, wanted: range, kept: Container[int]) -> Claim:
        """Return the available chunks of a text, and who makes the others: other threads, or the caller.

        A caller with chunks to make ends with :meth:`deliver` or :meth:`give_up`. This drops chunks that are not
        ``kept``: a chunk that was read to its end stays in the kernel's page cache, and chunks made ahead are of more
        use here.
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
            self._misses += len(claim.missing)
            self._hits += len(wanted) - len(claim.missing)
        return claim

    def deliver(self, claim: Claim, made: Mapping[int, Chunk], kept: Container[int], seconds: float) -> None:
        """Pass a claim's missing chunks to waiting threads, and cache the ``kept`` ones.

        ``seconds`` is how long it took to make them.
        """
        with self._lock:
            self._pace += (seconds / len(made) - self._pace) / _PACES
            self._chunks.share = self._share()
            for index, chunk in made.items():
                del self._making[claim.key, index]
                if index in kept and self._chunks.getsizeof(chunk) <= self._chunks.maxsize:
                    self._chunks[claim.key, index] = chunk
        claim.making.set_result(made)

    def give_up(self, claim: Claim, error: BaseException) -> None:
        """Tell threads waiting for a claim's chunks that these couldn't be made."""
        with self._lock:
            for index in claim.missing:
                del self._making[claim.key, index]
        claim.making.set_exception(error)

    def worth_making_ahead(self, key: TextKey, read: range, end: int) -> list[range]:
        """Return the runs of chunks below ``end`` to make ahead, now that ``read`` are requested.

        There are some if a sequential reader is faster than chunks are made. If it is slower, the kernel requests the
        next ones early enough, and the reader needs the processors itself.
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
        """Call ``make`` with each run of chunks of a text, in threads that work ahead of readers."""
        self._ahead.ask([WorkAheadJob((key, run.start // _CHUNKS_AHEAD), partial(make, run)) for run in runs])

    def was_answered(self, key: TextKey, following: int) -> None:
        """Note that a reader got its chunks, and may continue with the chunk ``following``."""
        if self._ahead.reach:
            with self._lock:
                self._readers[key, following] = time.perf_counter()
