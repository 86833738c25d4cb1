"""What is kept of texts in memory: their indexes, and chunks that were rendered lately, or ahead."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary, ref

from cachetools import LRUCache

from kfs.tree.lines.index import LineIndex
from kfs.tree.lines.index_store import LineIndexStore
from kfs.tree.lines.source import CHUNK_BYTES, Chunk
from kfs.tree.work_ahead import Job, WorkAhead

if TYPE_CHECKING:
    from kfs.log.segment import Segment

#: Chunks that are rendered ahead by one thread, one after another: a thread that reads on where it was is quicker.
_CHUNKS_AHEAD: Final = 8
#: So many readers are told from each other.
_READERS_KEPT: Final = 1024
#: Over so many measurements, about, the pace is an average.
_PACES: Final = 8
#: Of all indexes in memory.
_INDEX_BYTES: Final = 16 * 1024 * 1024

#: Makes chunks that follow one another.
MakeChunks = Callable[[range], Iterable[Chunk]]
#: The tree path of the partition, the kind of rendering, the slot, and the first and last offset shown.
TextKey = tuple[str, str, int, int, int]


class LineCache:
    """Indexes of texts, and chunks of text rendered lately.

    Who makes or extends an index holds the lock of that text (:meth:`lock_of`): a pass over a large segment takes long,
    and is worth waiting for only to those who want the same text.
    """

    def __init__(self, chunk_bytes: int, store: LineIndexStore | None, ahead: WorkAhead) -> None:
        self.store = store
        self._ahead = ahead
        self._making: dict[tuple[TextKey, int], Future[Mapping[int, Chunk]]] = {}
        #: Where somebody's next read would begin, and when he got the last.
        self._readers: LRUCache[tuple[TextKey, int], float] = LRUCache(_READERS_KEPT)
        #: How long a chunk takes to be made, in seconds, lately.
        self._pace = 0.0
        #: Indexes with their segments: that of one which nobody has any more is of no use.
        self._indexes: LRUCache[TextKey, tuple[ref[Segment], LineIndex]] = LRUCache(
            _INDEX_BYTES, getsizeof=lambda kept: kept[1].nbytes
        )
        #: The keys of indexes whose segment is gone, to be dropped: they come while anything may be locked.
        self._gone: deque[TextKey] = deque()
        self._chunks: LRUCache[tuple[TextKey, int], Chunk] = LRUCache(
            chunk_bytes, getsizeof=lambda piece: len(piece.text) + 256
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

    def chunks(self, key: TextKey, wanted: range, kept: Container[int], make: MakeChunks) -> list[Chunk]:
        """Return chunks of a text. Those that aren't there are made: by one thread, and others wait for it.

        Afterwards those of them that are ``kept`` are there, and no other: what somebody reads to its end stays with
        him, as with the kernel, and what was made for others to read is of more use.
        """
        found: dict[int, Chunk] = {}
        awaited: dict[int, Future[Mapping[int, Chunk]]] = {}
        missing: list[int] = []
        making: Future[Mapping[int, Chunk]] = Future()
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
        making: Future[Mapping[int, Chunk]],
    ) -> Mapping[int, Chunk]:
        """Make chunks that others wait for in ``making``."""
        made: dict[int, Chunk] = {}
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
