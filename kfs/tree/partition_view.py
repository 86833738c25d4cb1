"""One partition as the tree shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.tree.context import TreeContext
from kfs.tree.partition_records import PartitionRecords
from kfs.tree.visible_log import VisibleLog

if TYPE_CHECKING:
    from kfs.tree.partition_lines import PartitionLines


class PartitionView(VisibleLog):
    """The visible part of a log, its records by offset, and its line files."""

    __slots__ = ("_lines", "records")

    def __init__(
        self, context: TreeContext, log: Log, path: str, choose_range: Callable[[Log], OffsetRange] = Log.visible
    ) -> None:
        super().__init__(context, log, path, choose_range)
        self.records = PartitionRecords(self)
        self._lines: PartitionLines | None = None

    @property
    def lines(self) -> PartitionLines:
        """The line files; the same object always, as it knows what was promised of them."""
        if self._lines is None:
            from kfs.tree.partition_lines import PartitionLines  # only here: single records need none

            with self.context.lock:
                if self._lines is None:  # no other thread was faster
                    self._lines = PartitionLines(self)
        return self._lines

    @property
    def promised_files(self) -> dict[int, int]:
        """See :attr:`PartitionLines.promised_files`."""
        return {} if self._lines is None else self._lines.promised_files
