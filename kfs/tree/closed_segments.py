"""Making the tables of closed segments before anybody asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfs.errors import CorruptData
from kfs.tree.names import tree_name
from kfs.tree.partition_view import PartitionView

if TYPE_CHECKING:
    from kfs.tree.context import TreeContext
    from kfs.tree.text import SegmentText


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A closed segment whose table is worth keeping, by name, and the size of its ``.log`` in bytes."""

    topic: str
    partition: int
    base_offset: int
    size: int


def closed_segments(context: TreeContext) -> Iterator[ClosedSegment]:
    """Yield the segments of all partitions that ``segment/`` shows, without the active ones."""
    for log in context.data_dir.logs():
        for text in _texts(_view(context, log.topic, log.partition)):
            try:
                size = text.segment.file().size()
            except CorruptData:
                continue  # gone
            if text.is_lasting(size):
                yield ClosedSegment(log.topic, log.partition, text.segment.base_offset, size)


def size_segment(context: TreeContext, closed: ClosedSegment) -> bool:
    """See to it that the table of a segment is kept; return whether it had to be made.

    Raises:
        CorruptData: the segment was cut meanwhile.
    """
    for text in _texts(_view(context, closed.topic, closed.partition)):
        if text.segment.base_offset == closed.base_offset:
            is_known = text.is_known
            text.table()
            return not is_known
    return False  # gone meanwhile


def _view(context: TreeContext, topic: str, partition: int) -> PartitionView | None:
    """A view of our own: what the tree shows is watched for changes, and this is shown to nobody."""
    log = context.data_dir.log(topic, partition)
    return None if log is None else PartitionView(context, log, f"{tree_name(topic)}/{partition}")


def _texts(view: PartitionView | None) -> Iterator[SegmentText]:
    if view is not None:
        for segment in view.shown_segments():
            if not segment.is_last:
                yield view.segment_text(segment)
