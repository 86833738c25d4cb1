"""Records that are broken although their batch is intact."""

from __future__ import annotations

from kfs.errors import CorruptData
from kfs.format.columns import RecordColumns


def with_fault(columns: RecordColumns, index: int, fault: CorruptData) -> RecordColumns:
    """Return the columns with the record at ``index`` broken, as if its batch were intact otherwise."""
    return RecordColumns(
        columns.buffer,
        columns.offsets,
        columns.timestamps,
        columns.timestamp_type,
        columns.key_starts,
        columns.key_lengths,
        columns.value_starts,
        columns.value_lengths,
        columns.header_starts,
        {index: fault},
    )
