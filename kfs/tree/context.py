"""The state that all parts of the tree share: the data directory, ids, caches, options."""

from __future__ import annotations

import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from cachetools import LRUCache, TTLCache

from kfs.internal.broker_state import BrokerState
from kfs.log.data_dir import DataDir
from kfs.log.offset_cache import OffsetCache
from kfs.metrics import Metric
from kfs.render.record_json import RenderedLines
from kfs.storage.status import Status, status_at
from kfs.tree.node import LIVE, Attributes
from kfs.tree.node_ids import Content, NodeIds
from kfs.tree.options import TreeOptions
from kfs.tree.pending_invalidations import PendingInvalidations
from kfs.tree.work_ahead import WorkAhead
from kfs.tree.yielding_cache import YieldingCache

if TYPE_CHECKING:
    from kfs.tree.lines.cache import LineCache, TextKey
    from kfs.tree.lines.record_lines import ReaderPool

_TEXT_BYTES: Final = 16 * 1024 * 1024
_GENERATED_KEPT: Final = 64
_GENERATED_BYTES: Final = 16 * 1024 * 1024
_HOURS_BYTES: Final = 4 * 1024 * 1024
_VERSIONS_KEPT: Final = 16 * 1024
#: What is kept of a partition once it was shown, in bytes.
_PARTITION_BYTES: Final = 6 * 1024
#: The share of their bytes that caches have left, however much is kept of partitions.
_LEAST_SHARE: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner and permissions of the source file or directory of a node."""

    permissions: int
    uid: int
    gid: int

    @classmethod
    def of(cls, status: Status) -> Owner:
        """Return the owner from a status; permission to write is dropped, none is added."""
        return cls(stat.S_IMODE(status.mode) & 0o555, status.uid, status.gid)


NOBODY: Final = Owner(0o555, 0, 0)


class Generated(NamedTuple):
    """Content generated for a path: its id, the bytes, and when they changed, in nanoseconds."""

    node_id: int
    content: bytes
    mtime_ns: int
    owner: Owner


class Look(NamedTuple):
    """One look at all partitions that may have changed, of those that were shown.

    ``begun`` is in seconds since 1970. Of all ``partitions`` shown, ``unlisted`` have a directory that can't be listed.
    """

    begun: float
    seconds: float = 0.0
    partitions: int = 0
    unlisted: int = 0


class Served(NamedTuple):
    """Where a tree is served, and the function that returns the front's metrics."""

    mountpoint: str
    metrics: Callable[[], Iterable[Metric]]


def _hours_bytes(hours: frozenset[int | None]) -> int:
    """Return the memory that a segment's hours take, with their key."""
    return sys.getsizeof(hours) + 32 * len(hours) + 384


class TreeContext:
    """The state of one tree, shared by threads: a server has another thread go on when one has to wait."""

    def __init__(self, data_dir: DataDir, options: TreeOptions) -> None:
        self.data_dir = data_dir
        self.broker = BrokerState(data_dir)
        self.options = options
        self.ids = NodeIds()
        self.rendered: OffsetCache[RenderedLines] = OffsetCache(options.rendered_bytes)
        #: Measures the segments after the requested one.
        self.sizing = WorkAhead()
        #: Renders ahead in a file that is read.
        self.reading = WorkAhead()
        self.hours: LRUCache[tuple[TextKey, int], frozenset[int | None]] = LRUCache(_HOURS_BYTES, _hours_bytes)
        self.started = time.time()
        #: The last look of the watch that was complete.
        self.last_look = Look(self.started)
        self.served: Served | None = None
        self.pending = PendingInvalidations()
        #: Owners and times of directories whose logs are frozen, by path.
        self._kept_status: dict[str, tuple[Owner, int]] = {}
        #: Held briefly to read or change the views, ``hours`` and generated content.
        self.lock = threading.Lock()
        self._block_caches = [(cache, cache.capacity) for cache in (self.rendered, data_dir.storage.cache)]
        self._changed: LRUCache[str, tuple[int, int]] = LRUCache(_VERSIONS_KEPT)
        self._latest: TTLCache[str, Generated] = TTLCache(_GENERATED_KEPT, LIVE)
        self._generated: YieldingCache[int, Generated] = YieldingCache(
            _GENERATED_BYTES, lambda made: len(made.content) + 512
        )

    @cached_property
    def readers(self) -> ReaderPool:
        """The readers of segments whose lines were read lately; like :attr:`text`, single records need none."""
        from kfs.tree.lines.record_lines import ReaderPool

        return ReaderPool()

    @cached_property
    def text(self) -> LineCache:
        """The cache of texts."""
        from kfs.tree.lines.cache import LineCache

        store = None if self.options.index_store is None else self.options.index_store()
        return LineCache(_TEXT_BYTES, store, self.reading, self._share)

    def make_room(self, partitions: int) -> None:
        """Shrink the caches by what is kept of this many partitions: both share one memory bound."""
        most = max(1, sum(capacity for _, capacity in self._block_caches))
        self._generated.share = share = max(_LEAST_SHARE, 1 - partitions * _PARTITION_BYTES / most)
        for cache, capacity in self._block_caches:
            cache.capacity = int(share * capacity)

    def _share(self) -> float:
        return self._generated.share

    def generated(self, path: str, produce: Callable[[], bytes], mtime_ns: int, owner: Owner) -> Generated:
        """Return the content that ``produce`` made for ``path``, kept briefly so that size and bytes match.

        Its time is ``mtime_ns`` until the content changes, then that moment: tools that compare times (rsync, make) and
        the kernel's page cache both rely on it.
        """
        with self.lock:
            latest = self._latest.get(path)
        if latest is not None:
            return latest
        content = produce()
        node_id = self.ids.of_path(path, Content(content))
        with self.lock:
            digest, changed_ns = self._changed.get(path, (hash(content), mtime_ns))
            if digest != hash(content):
                changed_ns = max(mtime_ns, time.time_ns())
            self._changed[path] = hash(content), changed_ns
            made = self._latest[path] = Generated(node_id, content, changed_ns, owner)
            if self._generated.getsizeof(made) <= self._generated.maxsize:
                self._generated[node_id] = made
        return made

    def generated_as(self, node_id: int) -> Generated | None:
        """Return the content generated under an id, for readers of outdated content; None if it isn't kept."""
        with self.lock:
            return self._generated.get(node_id)

    def status_of(self, path: str) -> tuple[Owner, int]:
        """Return :func:`status_of` a directory of the source, always the same if the data directory is frozen."""
        if not self.data_dir.is_frozen:
            return status_of(path)
        known = self._kept_status.get(path)
        return self._kept_status.setdefault(path, status_of(path)) if known is None else known

    def now_ms(self) -> int:
        """Return the time to which ages refer, in milliseconds: now, or when the data directory was frozen."""
        frozen_ms = self.data_dir.frozen_ms
        return time.time_ns() // 1_000_000 if frozen_ms is None else frozen_ms

    def directory_attributes(self, node_id: int, owner: Owner, mtime_ns: int) -> Attributes:
        """Return the attributes of a directory; any may change at any moment."""
        mode = stat.S_IFDIR | owner.permissions
        return Attributes(node_id, mode, 0, mtime_ns, owner.uid, owner.gid, lifetime=LIVE)


def source_of(context: TreeContext, topic: str | None = None) -> str:
    """Return the path whose owner and times a directory takes: for a topic, its first present partition's."""
    data_dir = context.data_dir
    numbers = data_dir.partitions(topic) if topic is not None else ()
    found = (data_dir.directory(topic, partition) for partition in numbers) if topic is not None else ()
    return next((directory.path for directory in found if directory is not None), data_dir.paths[0])


def status_of(path: str) -> tuple[Owner, int]:
    """Return the owner of a path and its modification time in nanoseconds; ``NOBODY`` and 0 if it is gone."""
    try:
        status = status_at(path)
    except OSError:
        return NOBODY, 0
    return Owner.of(status), status.mtime_ns
