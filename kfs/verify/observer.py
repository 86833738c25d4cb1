"""The interface of a segment's checks, which share one pass over its batches."""

from __future__ import annotations

from typing import Protocol

from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.log.block import Block, Damage


class Observer(Protocol):
    """Receives each batch of a segment once, in file order."""

    def rows(self, table: BatchTable) -> None:
        """Process a nonempty table of record batches (v2): intact, in order, not decoded."""
        ...

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """Process a wrapper or a run of messages (v0, v1); ``columns`` is None if the records can't be decoded."""
        ...

    def damage(self, damage: Damage) -> None:
        """Process a damaged byte range, which has no readable records."""
        ...
