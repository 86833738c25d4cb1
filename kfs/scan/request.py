"""What is wanted of records: small, ready to be sent to other processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.render.arrow_columns import SPARK_COLUMNS, Column

DEFAULT_BATCH_ROWS: Final = 16 * 1024
#: A batch that has as many bytes of keys, values and headers gets no more.
DEFAULT_BATCH_BYTES: Final = 32 * 1024 * 1024
#: More rows than that are never in a batch: int32 then counts the bytes of the longest topic's name, too.
_MOST_ROWS: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """Which columns of which records, and how many rows and bytes make a batch, at most or so.

    ``batch_rows`` is never exceeded; a batch has more bytes than ``batch_bytes`` by what one block has, at most.
    """

    columns: tuple[Column, ...] = SPARK_COLUMNS
    selection: Selection = field(default_factory=Selection)
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES

    def __post_init__(self) -> None:
        if self.batch_rows < 1 or self.batch_bytes < 1:
            raise ValueError(f"a batch of {self.batch_rows} rows and {self.batch_bytes} bytes")
        object.__setattr__(self, "batch_rows", min(self.batch_rows, _MOST_ROWS))
