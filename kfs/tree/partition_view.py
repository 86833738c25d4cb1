"""One partition as the tree shows it."""

from __future__ import annotations

from collections.abc import Callable

from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.tree.context import TreeContext
from kfs.tree.partition_lines import PartitionLines
from kfs.tree.partition_records import PartitionRecords
from kfs.tree.visible_log import VisibleLog


class PartitionView(VisibleLog):
    """The visible part of a log, its records by offset, and its line files."""

    def __init__(
        self, context: TreeContext, log: Log, path: str, choose_range: Callable[[Log], OffsetRange] = Log.visible
    ) -> None:
        super().__init__(context, log, path, choose_range)
        self.records = PartitionRecords(self)
        self.lines = PartitionLines(self)
