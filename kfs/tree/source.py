"""Opening log directories, as a data directory or a tree: for commands, mounts and fsspec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.problem import DamagePolicy
from kfs.log.storage import DEFAULT_CACHE_BYTES, DEFAULT_MAX_BATCH_BYTES, Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.tree.options import DEFAULT_RENDERED_BYTES, TreeOptions

if TYPE_CHECKING:
    from kfs.tree.kafka_tree import KafkaTree
    from kfs.tree.lines.index_store import LineIndexStore


@dataclass(frozen=True, slots=True)
class TreeSource:
    """How log directories are read and shown; three fifths of the cache are for rendered lines."""

    views: bool = False
    on_damage: str = DamagePolicy.FAIL.value
    until: str = "end"
    isolation: str = IsolationLevel.READ_UNCOMMITTED.value
    topics: tuple[str, ...] = ()
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    cache_bytes: int = DEFAULT_CACHE_BYTES + DEFAULT_RENDERED_BYTES

    def open(self, paths: Sequence[str], index_store: LineIndexStore | None = None) -> KafkaTree:
        """Open the tree over ``paths``; raise :class:`~kfs.errors.UnusableSource` if one is unusable.

        The default ``index_store`` is the user's.
        """
        return self.tree(self.data_dir(paths), index_store)

    def tree(self, data_dir: DataDir, index_store: LineIndexStore | None = None) -> KafkaTree:
        """Return the tree over a data directory that was opened with these options."""
        from kfs.tree.kafka_tree import KafkaTree  # imported here: reading records needs no tree

        options = TreeOptions(
            self.views,
            DamagePolicy(self.on_damage),
            self._rendered_bytes,
            _users_store if index_store is None else lambda: index_store,
            IsolationLevel(self.isolation),
        )
        return KafkaTree(data_dir, options)

    def data_dir(self, paths: Sequence[str]) -> DataDir:
        """Open the data directory over ``paths``; raise :class:`~kfs.errors.UnusableSource` if one is unusable."""
        cache_bytes = self.cache_bytes - self._rendered_bytes
        storage = Storage(max_batch_bytes=self.max_batch_bytes, cache_bytes=cache_bytes)
        matches = topic_filter(self.topics)
        data_dir = DataDir(paths, storage, until_high_watermark=self.until == "hw", topic_filter=matches)
        if self.until == "now":
            data_dir.freeze()
        return data_dir

    @property
    def _rendered_bytes(self) -> int:
        return self.cache_bytes * 3 // 5


def _users_store() -> LineIndexStore:
    from kfs.tree.lines.index_store import LineIndexStore, default_directory  # only here: see TreeContext.text

    return LineIndexStore(default_directory())
