"""How the checks of a segment are fed: all of them from one pass over its batches."""

from __future__ import annotations

from typing import Protocol

from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.log.block import Block, Damage


class Observer(Protocol):
    """Sees the batches of a segment in the order in which they lie there, each once."""

    def rows(self, table: BatchTable) -> None:
        """Take the record batches (v2) of a table, at least one: intact, in order, not decoded."""
        ...

    def messages(self, block: Block, columns: RecordColumns | None) -> None:
        """Take a wrapper or a run of messages (v0, v1), and its records; None where they can't be had."""
        ...

    def damage(self, damage: Damage) -> None:
        """Take bytes that hold no records."""
        ...
