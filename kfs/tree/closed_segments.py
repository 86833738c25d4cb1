"""Making the indexes of closed segments ahead of readers."""

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
    """A closed segment whose index is worth storing, by name, and the size of its ``.log`` in bytes."""

    topic: str
    partition: int
    base_offset: int
    size: int


def closed_segments(context: TreeContext) -> Iterator[ClosedSegment]:
    """Yield the segments of all partitions that ``segment/`` shows, except those of which more may be shown later."""
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
    """Store the index of a segment if it isn't stored yet; return whether it had to be made.

    Raises:
        CorruptData: the segment was truncated meanwhile.
    """
    text = _text(context, closed)
    if text is None or text.is_known:
        return False
    text.index()
    return True


def is_kept(context: TreeContext, closed: ClosedSegment) -> bool:
    """Return whether a segment's index is stored for later mounts, or the segment is gone."""
    text = _text(context, closed)
    return text is None or text.is_kept


def _text(context: TreeContext, closed: ClosedSegment) -> SegmentText | None:
    """Return the lines of a segment, None if it is gone."""
    log = context.data_dir.log(closed.topic, closed.partition)
    segment = log.segment_at(closed.base_offset) if log is not None else None
    if log is None or segment is None:
        return None
    return _view(context, log).lines.segment_text(segment)


def _view(context: TreeContext, log: Log) -> PartitionView:
    """Return a separate view: views of the tree are watched for changes, and this one isn't shown."""
    return PartitionView(context, log, f"{tree_name(log.topic)}/{log.partition}")
