"""Finds the topics, partitions, offsets and times for which a pyarrow filter can be true.

It asks pyarrow itself: ``Dataset.get_fragments(filter)`` omits fragments whose guarantee contradicts the filter. So
no code here interprets expressions, and a filter that pyarrow can't simplify restricts nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kfs.format.layout import MAX_INT64
from kfs.log.log import Log
from kfs.read.selection import Selection
from kfs.render.arrow_columns import Column

#: The names of columns, or a mapping of result names to expressions.
Projection = Sequence[str] | Mapping[str, Any]

_FORM: Final = ds.IpcFileFormat()
_FILES: Final = LocalFileSystem()
_MICROSECONDS: Final = 1000


class Condition:
    """A filter on rows; the schema must have all columns that the filter uses."""

    def __init__(self, schema: pa.Schema, expression: ds.Expression) -> None:
        self._schema = schema
        self._expression = expression
        self._used = columns_used(schema, (), expression)

    def logs_of(self, logs: Iterable[Log]) -> Iterator[Log]:
        """Yield the logs whose rows can match the filter."""
        listed = tuple(logs)
        topic, partition = ds.field(Column.TOPIC.label), ds.field(Column.PARTITION.label)
        possible = self._possible([(topic == log.topic) & (partition == log.partition) for log in listed])
        return (listed[index] for index in possible)

    def selection(self) -> Selection:
        """Return a selection of offsets and times that includes all records that match the filter."""
        start, end = self._range_of(Column.OFFSET)
        times = [self._times(Column.TIMESTAMP, _MICROSECONDS), self._times(Column.TIMESTAMP_MILLIS, 1)]
        return Selection(start, end).within(times[0]).within(times[1])

    def _times(self, column: Column, per_millisecond: int) -> Selection:
        """Return the range of times; unbounded if rows before 1970 or without a time can match."""
        field, zero = ds.field(column.label), self._scalar(column, 0)
        if column.label not in self._used or self._possible([field < zero, field.is_null()]):
            return Selection()
        start, end = self._range_of(column)
        before = None if end == MAX_INT64 else (end - 1) // per_millisecond + 1
        return Selection(since=start // per_millisecond, before=before)

    def _range_of(self, column: Column) -> tuple[int, int]:
        """Return the range of a column's values, from 0 on, for which the filter can be true; the end is exclusive."""
        if column.label not in self._used:
            return 0, MAX_INT64
        field, values = ds.field(column.label), range(MAX_INT64)
        below = bisect_left(values, True, key=lambda value: self._is_possible(field < self._scalar(column, value)))
        end = bisect_left(values, True, key=lambda value: not self._is_possible(field >= self._scalar(column, value)))
        return max(below - 1, 0), end

    def _scalar(self, column: Column, value: int) -> pa.Scalar:
        return pa.scalar(value, self._schema.field(column.label).type)

    def _is_possible(self, guarantee: ds.Expression) -> bool:
        return bool(self._possible([guarantee]))

    def _possible(self, guarantees: Sequence[ds.Expression]) -> list[int]:
        """Return the indexes of the guarantees that allow the filter to be true."""
        fragments = [
            _FORM.make_fragment(str(index), _FILES, partition_expression=guarantee)
            for index, guarantee in enumerate(guarantees)
        ]
        dataset = ds.FileSystemDataset(fragments, self._schema, _FORM)
        return [int(fragment.path) for fragment in dataset.get_fragments(self._expression)]


def columns_used(schema: pa.Schema, columns: Projection, expression: ds.Expression | None) -> list[str]:
    """Return the names of the columns that a projection and a filter need, in schema order."""
    return [name for name in schema.names if not _can_do_without(name, schema, columns, expression)]


def _can_do_without(name: str, schema: pa.Schema, columns: Projection, expression: ds.Expression | None) -> bool:
    others = schema.remove(schema.get_field_index(name))
    columns = columns if isinstance(columns, Mapping) else list(columns)
    try:
        ds.InMemoryDataset(others.empty_table()).scanner(columns=columns, filter=expression)
    except pa.ArrowInvalid:
        return False
    return True
