"""The tree over a data directory: ``<topic>/<partition>/...`` and ``.kfs/``."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kfs.errors import NotADirectory, NotFound, Stale
from kfs.log.data_dir import DataDir
from kfs.metrics import Metric
from kfs.tree.context import Served, TreeContext, source_of
from kfs.tree.entrance import entrance
from kfs.tree.files import FixedDirectory, KeptFile, Maker, list_nodes
from kfs.tree.names import ABOUT, segment_name, topic_name, tree_name
from kfs.tree.node import Attributes, Directory, Entry, File, Invalidation, Node, Tree
from kfs.tree.node_ids import ROOT_ID, View
from kfs.tree.options import TreeOptions
from kfs.tree.partition_dir import partition_directory
from kfs.tree.partition_view import PartitionView
from kfs.tree.partition_views import PartitionViews
from kfs.tree.record_files import FieldFile, RecordFile, contents_from

if TYPE_CHECKING:
    from kfs.tree.watch import Watch

#: Of the highest partition, an int32.
_MOST_DIGITS: Final = 10


class KafkaTree(Tree):
    """Kafka's files as a tree of nodes, over one or several log directories."""

    def __init__(self, data_dir: DataDir, options: TreeOptions | None = None) -> None:
        self.context = TreeContext(data_dir, options or TreeOptions())
        self.views = PartitionViews(self.context)
        self._root = _RootDirectory(self.views)
        self._watch: Watch | None = None

    @property
    def data_dir(self) -> DataDir:
        """The data directory that the tree shows."""
        return self.context.data_dir

    @property
    def root(self) -> Directory:
        """See :class:`~kfs.tree.node.Tree`."""
        return self._root

    def resolve(self, path: str) -> Node:
        """See :meth:`kfs.tree.node.Tree.resolve`."""
        node: Node = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(node, Directory):
                raise NotADirectory(f"{path}: the parent of {name!r} is not a directory")
            node = node.lookup(name)
        return node

    def node(self, node_id: int) -> Node:
        """See :meth:`kfs.tree.node.Tree.node`."""
        try:
            return self._found(node_id)
        except Stale:
            kept = self.context.generated_as(node_id)
            if kept is None:
                raise
            return KeptFile(kept)

    def _found(self, node_id: int) -> Node:
        path = self.context.ids.path_of(node_id)
        if path is not None:
            return self._same(self.resolve(path), node_id)
        view, partition, segment, offset = self.views.record_of(node_id)
        if view is View.RECORD:
            return RecordFile(partition, offset, segment)
        if view in (View.VALUE, View.KEY):
            return FieldFile(partition, offset, segment, view)
        if view is View.SEGMENT:
            from kfs.tree.line_files import SegmentLinesFile  # on demand, as in partition_directory

            return self._same(SegmentLinesFile.of(partition, segment, offset), node_id)
        from kfs.tree.time_dirs import hour_of, record_link

        _, loaded, index = partition.records.loaded(offset)
        timestamp = loaded.columns.timestamps[index]
        up = "../"
        if view is View.TIME_LINK:
            up = "../../" if hour_of(timestamp) is None else "../../../"
        return record_link(partition, segment, offset, timestamp, up, view)

    @staticmethod
    def _same(node: Node, node_id: int) -> Node:
        """Return the node found for an id; a file only if the id was issued for it.

        Raises:
            Stale: it is another file.
        """
        if isinstance(node, File) and node.attributes().node_id != node_id:
            raise Stale(f"no node {node_id}: replaced by something else")
        return node

    def path(self, node_id: int) -> str:
        """See :meth:`kfs.tree.node.Tree.path`."""
        path = self.context.ids.path_of(node_id)
        if path is not None:
            return path
        view, partition, segment, offset = self.views.record_of(node_id)
        match view:
            case View.SEGMENT:
                return f"{partition.path}/segment/{segment_name(segment.base_offset)}"
            case View.VALUE | View.KEY:
                return f"{partition.path}/{view.name.lower()}/{offset}"
            case _:
                return f"{partition.path}/offset/{offset}.json"

    def following(self, node_id: int) -> Iterator[tuple[int, bytes]]:
        """See :meth:`kfs.tree.node.Tree.following`."""
        if self.context.ids.path_of(node_id) is None:
            view, partition, _, offset = self.views.record_of(node_id)
            yield from contents_from(partition, view, offset + 1)

    def work_ahead(self) -> None:
        """Use other cores from now on to prepare likely requests: worth it with many readers."""
        self.context.sizing.start()
        self.context.reading.start()

    def invalidations(self) -> frozenset[Invalidation]:
        """See :meth:`kfs.tree.node.Tree.invalidations`."""
        return self._watching().invalidations()

    def await_invalidations(self) -> frozenset[Invalidation]:
        """See :meth:`kfs.tree.node.Tree.await_invalidations`."""
        return self._watching().await_invalidations()

    def look_now(self) -> None:
        """See :meth:`kfs.tree.node.Tree.look_now`."""
        if self._watch is not None:  # else the first wait ends at once
            self._watch.look_now()

    def _watching(self) -> Watch:
        if self._watch is None:
            from kfs.tree.watch import Watch  # only here: commands keep no promises

            self._watch = Watch(self.views)
        return self._watch

    def is_served(self, mountpoint: str, metrics: Callable[[], Iterable[Metric]]) -> None:
        """See :meth:`kfs.tree.node.Tree.is_served`."""
        self.context.served = Served(mountpoint, metrics)

    def close(self) -> None:
        """See :meth:`kfs.tree.node.Tree.close`."""
        if self._watch is not None:
            self._watch.close()
        self.context.sizing.stop()
        self.context.reading.stop()
        self.context.data_dir.close()


class _RootDirectory(Directory):
    """The topics, and ``.kfs`` by name only."""

    __slots__ = ("_views", "context")

    def __init__(self, views: PartitionViews) -> None:
        self._views = views
        self.context = views.context

    def attributes(self) -> Attributes:
        owner, mtime_ns = self.context.status_of(source_of(self.context))
        owner = entrance(owner, self.context.data_dir.paths)
        return self.context.directory_attributes(ROOT_ID, owner, mtime_ns)

    def lookup(self, name: str) -> Node:
        if name == ABOUT:
            return self._about()
        topic = topic_name(name)
        if topic is None or not self.context.data_dir.partitions(topic):
            raise NotFound(f"no topic {name!r}")
        return self._topic(topic)

    def _about(self) -> Node:
        from kfs.tree.about_dir import about_directory

        return about_directory(self._views)

    def _topic(self, topic: str) -> FixedDirectory:
        partitions = _Partitions(self.context.data_dir.partitions(topic), partial(self._partition, topic))
        return FixedDirectory(self.context, tree_name(topic), source_of(self.context), partitions)

    def _partition(self, topic: str, partition: int) -> FixedDirectory:
        directory = self.context.data_dir.directory(topic, partition)
        if directory is None:
            raise NotFound(f"no partition {partition} of {topic!r}")
        path = f"{tree_name(topic)}/{partition}"
        return partition_directory(self.context, path, directory.path, partial(self._view, topic, partition, path))

    def _view(self, topic: str, partition: int, path: str) -> PartitionView:
        log = self.context.data_dir.log(topic, partition)
        if log is None:
            raise NotFound(f"no partition {partition} of {topic!r}")
        return self._views.of(log, path)

    def entries(self, cookie: int = 0, *, with_attributes: bool = True) -> Iterator[Entry]:
        names: dict[str, Maker] = {tree_name(topic): partial(self._topic, topic) for topic in self._topics()}
        if self.context.options.views:
            names[ABOUT] = self._about
        yield from list_nodes(names, cookie, with_attributes=with_attributes)

    def _topics(self) -> list[str]:
        return self.context.data_dir.topics()


class _Partitions(Mapping[str, Maker]):
    """The directories of a topic's partitions, made when they are looked up: a path leads through one of thousands."""

    def __init__(self, numbers: Sequence[int], make: Callable[[int], Node]) -> None:
        self._numbers = numbers
        self._make = make

    def __getitem__(self, name: str) -> Maker:
        number = int(name) if name.isascii() and name.isdigit() and len(name) <= _MOST_DIGITS else -1
        at = bisect_left(self._numbers, number)
        if str(number) != name or at == len(self._numbers) or self._numbers[at] != number:
            raise KeyError(name)
        return partial(self._make, number)

    def __iter__(self) -> Iterator[str]:
        return map(str, self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)
