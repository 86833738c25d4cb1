"""The partitions that a tree has shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.segment import Segment
from kfs.tree.context import TreeContext
from kfs.tree.node_ids import View
from kfs.tree.partition_view import PartitionView


class PartitionViews:
    """Makes the view of each partition, and keeps it while its log is the same."""

    def __init__(self, context: TreeContext) -> None:
        self.context = context
        self._views: dict[str, PartitionView] = {}
        #: Called with each view that is made, from any thread.
        self.on_made: Callable[[PartitionView], None] = lambda _view: None
        #: The views whose log was replaced, for the watch to report.
        self.replaced: set[PartitionView] = set()

    def of(self, log: Log, path: str, choose_range: Callable[[Log], OffsetRange] = Log.visible) -> PartitionView:
        """Return the view of ``log`` at ``path`` of the tree."""
        view = self._views.get(path)
        if view is not None and view.log is log:
            return view
        made = PartitionView(self.context, log, path, choose_range)
        with self.context.lock:
            view = self._views.get(path)
            if view is None or view.log is not log:
                if view is not None:
                    self.context.pending.expect(path)
                    self.replaced.add(view)
                view = self._views[path] = made
        if view is made:
            self.context.make_room(len(self._views))
            self.on_made(made)
        return view

    def shown(self) -> list[PartitionView]:
        """Return the views that were shown."""
        with self.context.lock:
            return list(self._views.values())

    def is_shown(self, view: PartitionView) -> bool:
        """Return whether a view is still what is shown at its path."""
        return self._views.get(view.path) is view

    def forget(self, view: PartitionView) -> None:
        """Forget a view that has nothing to show any more."""
        with self.context.lock:
            if self.is_shown(view):
                del self._views[view.path]

    def record_of(self, node_id: int) -> tuple[View, PartitionView, Segment, int]:
        """See :meth:`kfs.tree.node_ids.NodeIds.record_of`."""
        view, partition, segment, offset = self.context.ids.record_of(node_id)
        return view, cast(PartitionView, partition), segment, offset
