"""Resources that all logs of a data directory share: descriptors, maps, the decoder, the cache and limits."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import ref

from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.columns import RecordColumns
from kfs.format.decoders import BlockDecoder, default_decoder
from kfs.format.layout import MAX_INT32
from kfs.log.block import Block
from kfs.log.change import Change
from kfs.log.index_file import IndexPool
from kfs.log.offset_cache import OffsetCache
from kfs.log.problem import Problem, ProblemKind, faulty_records
from kfs.metrics import Counts
from kfs.storage.open_files import FilePool

DEFAULT_MAX_BATCH_BYTES: Final = 128 * 1024 * 1024
DEFAULT_CACHE_BYTES: Final = 32 * 1024 * 1024
#: How many partitions' transaction state to remember.
_MOST_LATELY_READ: Final = 16
#: How many segments the logs hold that were used last; each takes about 1.5 KB with its files and its span.
MOST_LISTED: Final = 8 * 1024
#: What a log weighs besides its segments, in segments.
_LOG_WEIGHT: Final = 4
#: The number of bits of a node id that identify a segment's incarnation.
SLOT_BITS: Final = 28


@dataclass(frozen=True, slots=True)
class LoadedBlock:
    """A decoded block: its header, and its records as columns; all offsets are above ``after``.

    ``last_offset`` is the highest offset that it covers. It is precomputed because every cache lookup reads it.
    """

    header: BatchHeader
    columns: RecordColumns
    file: str
    after: int = -1
    last_offset: int = field(init=False)

    def __post_init__(self) -> None:
        last, offsets = self.header.last_offset, self.columns.offsets
        object.__setattr__(self, "last_offset", max(offsets[-1], last) if offsets else last)

    @property
    def first_offset(self) -> int:
        """The lowest offset that it covers; above ``last_offset`` if earlier blocks have all its records."""
        return self.columns.offsets[0] if len(self.columns) else max(self.header.base_offset, self.after + 1)

    @property
    def nbytes(self) -> int:
        """The memory that it holds, in bytes."""
        return self.columns.nbytes + 2048  # overhead of the objects

    def lies_within(self, after: int, before: int) -> bool:
        """Whether all its records have offsets above ``after`` and below ``before``."""
        offsets = self.columns.offsets
        return not offsets or (offsets[0] > after and offsets[-1] < before)


class SegmentHolder(Protocol):
    """A log that holds its segments, or something that depends on them."""

    def let_go(self) -> None:
        """Let go of them, and of what is known of them only by the way."""
        ...


class ListedLogs:
    """The logs that hold their segments, and what these weigh: if it is too much, those used least lately let go.

    Threads share it. A log notes itself when it has looked at its directory, which it does a few times a second while
    it is used.
    """

    def __init__(self, most: int = MOST_LISTED) -> None:
        self._most = most
        self._weights: OrderedDict[ref[SegmentHolder], int] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    @property
    def weight(self) -> int:
        """The number of segments held, and :data:`_LOG_WEIGHT` for each log."""
        return self._weight

    def note(self, log: SegmentHolder, segments: int) -> None:
        """Note that a log was just used, and its number of segments; have others let go if there are too many."""
        weight = segments + _LOG_WEIGHT
        with self._lock:
            self._weight += weight - self._weights.pop(ref(log), 0)
            self._weights[ref(log)] = weight
            victims = []
            while self._weight > self._most and len(self._weights) > 1:
                victim, weight = self._weights.popitem(last=False)
                self._weight -= weight
                victims.append(victim)
        for each in victims:
            victim_log = each()
            if victim_log is not None:
                victim_log.let_go()


class Decoded:
    """How much was decoded: ``batches``, and their ``nbytes`` in the log; shared by threads."""

    __slots__ = ("_lock", "batches", "nbytes")

    def __init__(self) -> None:
        self.batches = self.nbytes = 0
        self._lock = threading.Lock()

    def add(self, batches: int, nbytes: int) -> None:
        """Count some more."""
        with self._lock:
            self.batches += batches
            self.nbytes += nbytes


class Storage:
    """Opens files, and decodes and caches blocks, for every segment; counts what all logs have in common.

    ``max_batch_bytes`` limits the size of a batch, both compressed and decompressed.
    """

    def __init__(
        self,
        *,
        max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        decoder: BlockDecoder | None = None,
    ) -> None:
        self.files = FilePool()
        self.indexes = IndexPool(self.files)
        self.decoder: BlockDecoder = decoder or default_decoder()
        self.max_batch_bytes = min(max_batch_bytes, MAX_INT32)  # positions inside a batch are int32
        self.cache: OffsetCache[LoadedBlock] = OffsetCache(cache_bytes)
        self.listed = ListedLogs()
        self.decoded = Decoded()
        #: The problems found in all logs, by kind, and the changes seen.
        self.problems: Counts[str] = Counts(ProblemKind)
        self.changes: Counts[Change] = Counts(Change)
        #: Called with the directory of a log whose incarnation changed, from any thread.
        self.on_incarnation: Callable[[str], None] = lambda _directory: None
        self._lately_read: OrderedDict[object, Callable[[], None]] = OrderedDict()  # the last is the most recent
        self._lately_read_lock = threading.Lock()
        self._slots = itertools.count(1)

    def new_slot(self) -> int:
        """Return a unique number for one incarnation of a segment."""
        slot = next(self._slots)
        if slot >> SLOT_BITS:
            raise OverflowError("2^28 segment incarnations: mount again")
        return slot

    def note_reader(self, reader: object, forget: Callable[[], None]) -> None:
        """Record that ``reader`` is in use; if there are too many, call ``forget`` of the least recently used one.

        Another thread may be using that reader at the same time.
        """
        with self._lately_read_lock:
            self._lately_read[reader] = forget
            self._lately_read.move_to_end(reader)
            oldest = self._lately_read.popitem(last=False)[1] if len(self._lately_read) > _MOST_LATELY_READ else None
        if oldest is not None:
            oldest()

    def load(self, block: Block, report: Callable[[Problem], None]) -> LoadedBlock:
        """Decode a block, and report problems with it or with single records.

        Raises:
            CorruptData: none of its records can be decoded.
        """
        try:
            columns = block.decode(self.decoder, self.max_batch_bytes)
        except CorruptData as error:
            report(Problem(block.file, block.position, block.header.size, error.reason, ProblemKind.BATCH_RECORDS))
            error.reported = True
            raise
        self.decoded.add(1, block.header.size)
        if columns.faults:
            report(faulty_records(columns, block.file, block.position, block.header.size))
            for fault in columns.faults.values():
                fault.reported = True
        return LoadedBlock(block.header, columns, block.file, block.after)

    def close(self) -> None:
        """Close descriptors and maps."""
        self.cache.clear()
        self._lately_read.clear()
        self.indexes.close()
        self.files.close()
