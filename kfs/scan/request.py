"""The request of a scan: small enough to be sent to other processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.render.arrow_columns import SPARK_COLUMNS, Column

DEFAULT_BATCH_ROWS: Final = 16 * 1024
#: A batch with this many bytes of keys, values and headers is full.
DEFAULT_BATCH_BYTES: Final = 32 * 1024 * 1024
#: The maximum number of rows in a batch, so that even the bytes of the longest topic name fit an int32.
_MOST_ROWS: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """The columns and records to read, and the maximum rows and approximate maximum bytes of a batch.

    ``batch_rows`` is never exceeded; ``batch_bytes`` is exceeded by at most one block.
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
