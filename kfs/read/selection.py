"""Which records are wanted, decided on columns before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kfs.format.columns import RecordColumns
from kfs.format.layout import MAX_INT64


@dataclass(frozen=True, slots=True)
class Selection:
    """Records whose offset is in ``start`` to ``end`` (exclusive), and of which all else that is given is true.

    ``since`` and ``before`` are milliseconds: timestamps from the one up to, not including, the other.
    ``keys`` are whole keys, of which a record has one; ``value_pattern`` is found somewhere in the value; ``headers``
    are names with values (None: null) of which each record has all.
    """

    start: int = 0
    end: int = MAX_INT64
    since: int | None = None
    before: int | None = None
    keys: frozenset[bytes] | None = None
    value_pattern: re.Pattern[bytes] | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    @property
    def looks_inside(self) -> bool:
        """Whether offsets alone don't tell which records are wanted."""
        given = (self.since, self.before, self.keys, self.value_pattern)
        return any(part is not None for part in given) or bool(self.headers)

    def indexes(self, columns: RecordColumns, among: Sequence[int]) -> list[int]:
        """Return which records of a block are wanted, ``among`` those of these indexes; offsets are not looked at."""
        tests = self._tests(columns)
        return [index for index in among if all(test(index) for test in tests)]

    def _tests(self, columns: RecordColumns) -> list[Callable[[int], bool]]:
        """What is asked of each record, the cheapest first."""
        tests: list[Callable[[int], bool]] = []
        timestamps = columns.timestamps
        since, before, keys = self.since, self.before, self.keys
        if since is not None:
            tests.append(lambda index: timestamps[index] >= since)
        if before is not None:
            tests.append(lambda index: 0 <= timestamps[index] < before)
        if keys is not None:
            sizes = frozenset(map(len, keys))
            tests.append(lambda index: columns.key_lengths[index] in sizes and columns.key(index) in keys)
        if self.value_pattern is not None:
            tests.append(lambda index: self._value_matches(columns, index))
        if self.headers:
            tests.append(lambda index: set(self.headers) <= set(columns.headers(index)))
        return tests

    def _value_matches(self, columns: RecordColumns, index: int) -> bool:
        assert self.value_pattern is not None
        value = columns.value(index)
        return value is not None and self.value_pattern.search(value) is not None


def gathered(columns: RecordColumns, indexes: Sequence[int]) -> RecordColumns:
    """Return the columns of just those records, over the same buffer."""
    if len(indexes) == len(columns):
        return columns
    if indexes and indexes[-1] - indexes[0] + 1 == len(indexes):
        return columns.slice(indexes[0], indexes[-1] + 1)
    return columns.take(indexes)
