"""Making the indexes of closed segments before they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfs.errors import CorruptData
from kfs.tree.lines.text import WORTH_KEEPING, SegmentText
from kfs.tree.names import tree_name
from kfs.tree.partition_view import PartitionView

if TYPE_CHECKING:
    from kfs.log.log import Log
    from kfs.tree.context import TreeContext


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A closed segment whose index is worth keeping, by name, and the size of its ``.log`` in bytes."""

    topic: str
    partition: int
    base_offset: int
    size: int


def closed_segments(context: TreeContext) -> Iterator[ClosedSegment]:
    """Yield the segments of all partitions that ``segment/`` shows, without those of which more may be shown yet."""
    for log in context.data_dir.logs():
        view = _view(context, log)
        for segment in view.shown_segments():
            try:
                size = segment.file().size()
            except CorruptData:
                continue  # gone
            if not view.lines.grows(segment) and size >= WORTH_KEEPING:
                yield ClosedSegment(log.topic, log.partition, segment.base_offset, size)


def size_segment(context: TreeContext, closed: ClosedSegment) -> bool:
    """See to it that the index of a segment is kept; return whether it had to be made.

    Raises:
        CorruptData: the segment was cut meanwhile.
    """
    text = _text(context, closed)
    if text is None or text.is_known:
        return False
    text.index()
    return True


def is_kept(context: TreeContext, closed: ClosedSegment) -> bool:
    """Return whether there is an index of a segment for later mounts, or nothing that it could be of."""
    text = _text(context, closed)
    return text is None or text.is_kept


def _text(context: TreeContext, closed: ClosedSegment) -> SegmentText | None:
    """Return the lines of a segment, None where it is gone meanwhile."""
    log = context.data_dir.log(closed.topic, closed.partition)
    segment = log.segment_at(closed.base_offset) if log is not None else None
    if log is None or segment is None:
        return None
    return _view(context, log).lines.segment_text(segment)


def _view(context: TreeContext, log: Log) -> PartitionView:
    """A view of our own: what the tree shows is watched for changes, and this isn't shown."""
    return PartitionView(context, log, f"{tree_name(log.topic)}/{log.partition}")
