"""Selects the wanted records by their columns, before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from re import _parser  # type: ignore[attr-defined]  # the module that compiles patterns; there is no public one
from typing import Final, Protocol

from kfs.compiled import compiled_or_python
from kfs.format.columns import RecordColumns
from kfs.format.layout import MAX_INT64, TIMESTAMP_TYPE_MASK

#: The characters that have a special meaning in a regular expression.
_SPECIAL: Final = frozenset(rb".^$*+?{}[]\\|()")
#: The shortest text that rules out enough values to be worth its search.
_LEAST_TEXT: Final = 3


@dataclass(frozen=True, slots=True)
class Selection:
    """The records with offsets from ``start`` to ``end`` (exclusive) that meet all other given conditions.

    ``since`` and ``before`` (exclusive) bound the timestamp, in milliseconds. The key must equal one of ``keys``.
    ``value_pattern`` must match somewhere in the value. ``headers`` are names and values (None: null), and the record
    must have all of them.
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
        """Whether the selection depends on more than offsets."""
        return self.has_times or self.looks_into_records

    @property
    def has_times(self) -> bool:
        """Whether the selection depends on timestamps."""
        return self.since is not None or self.before is not None

    @property
    def looks_into_records(self) -> bool:
        """Whether the selection depends on keys, values or headers."""
        return self.keys is not None or self.value_pattern is not None or bool(self.headers)

    def within(self, other: Selection) -> Selection:
        """Return this selection, restricted to the offsets and times of another."""
        since = max((time for time in (self.since, other.since) if time is not None), default=None)
        before = min((time for time in (self.before, other.before) if time is not None), default=None)
        return replace(
            self, start=max(self.start, other.start), end=min(self.end, other.end), since=since, before=before
        )

    def indexes(self, columns: RecordColumns, among: Sequence[int]) -> Sequence[int]:
        """Return the indexes of the wanted records, of those in ``among``; this doesn't check offsets."""
        pattern = self.value_pattern
        text = None if pattern is None else required_text(pattern)
        found: Sequence[int] = among
        if self.since is not None or self.before is not None or self.keys is not None or text is not None:
            found = _rows().wanted(columns, among, self.since, self.before, self.keys, text)
        if pattern is not None and not is_literal(pattern):
            values = ((index, columns.value(index)) for index in found)
            found = [index for index, value in values if value is not None and pattern.search(value) is not None]
        if self.headers:
            found = [index for index in found if set(self.headers) <= set(columns.headers(index))]
        return found

    def may_hold(self, attributes: int, max_timestamp: int) -> bool:
        """Return whether a record batch (v2) can hold wanted records, by its header.

        The header bounds timestamps only from above (``DefaultRecordBatch``): a record may be older than the first one
        of its batch. With LogAppendTime all records have the max timestamp.
        """
        if self.since is not None and max_timestamp < self.since:
            return False
        return self.before is None or not attributes & TIMESTAMP_TYPE_MASK or 0 <= max_timestamp < self.before

    def begins_late(self, base_timestamp: int) -> bool:
        """Whether a batch begins with a record that isn't wanted for its lateness; those after it may be earlier."""
        return self.before is not None and base_timestamp >= self.before


class Rows(Protocol):
    """Selects records of a block, and extracts their columns."""

    @staticmethod
    def wanted(
        columns: RecordColumns,
        among: Sequence[int],
        since: int | None,
        before: int | None,
        keys: frozenset[bytes] | None,
        text: bytes | None,
    ) -> Sequence[int]:
        """Return the indexes of the records that meet the conditions of a :class:`Selection`, of those in ``among``.

        The value must contain ``text`` literally.
        """
        ...

    @staticmethod
    def taken(columns: RecordColumns, indexes: Sequence[int]) -> RecordColumns:
        """Return the columns of the records at ``indexes``, over the same buffer."""
        ...


class PythonRows:
    """The Python equivalent of the compiled code."""

    @staticmethod
    def wanted(
        columns: RecordColumns,
        among: Sequence[int],
        since: int | None,
        before: int | None,
        keys: frozenset[bytes] | None,
        text: bytes | None,
    ) -> Sequence[int]:
        """See :meth:`Rows.wanted`."""
        found, timestamps = among, columns.timestamps
        if since is not None:
            found = [index for index in found if timestamps[index] >= since]
        if before is not None:
            found = [index for index in found if 0 <= timestamps[index] < before]
        if keys is not None:
            sizes = frozenset(map(len, keys))
            found = [index for index in found if columns.key_lengths[index] in sizes and columns.key(index) in keys]
        if text is not None:
            values = ((index, columns.value(index)) for index in found)
            found = [index for index, value in values if value is not None and text in value]
        return found

    @staticmethod
    def taken(columns: RecordColumns, indexes: Sequence[int]) -> RecordColumns:
        """See :meth:`Rows.taken`."""
        return columns.take(indexes)


@cache
def _rows() -> type[Rows]:
    return compiled_or_python(lambda: PythonRows, _import_compiled)


def _import_compiled() -> type[Rows]:
    from kfs.read.compiled_selection import CompiledRows

    return CompiledRows


def is_literal(pattern: re.Pattern[bytes]) -> bool:
    """Whether a pattern matches exactly the values that contain its own text."""
    return not pattern.flags & (re.IGNORECASE | re.VERBOSE) and not _SPECIAL.intersection(pattern.pattern)


@lru_cache(maxsize=16)
def required_text(pattern: re.Pattern[bytes]) -> bytes | None:
    """Return the longest text that every match of a pattern contains, or None if none is known.

    A value without it is ruled out by one search through it, which takes a tenth of the time of the pattern's.
    """
    if is_literal(pattern):
        return pattern.pattern
    if pattern.flags & re.IGNORECASE:
        return None
    longest, text = b"", bytearray()
    for operation, argument in _parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG):
        if operation is _parser.LITERAL:
            text.append(argument)
        else:
            text.clear()
        longest = max(longest, bytes(text), key=len)
    return longest if len(longest) >= _LEAST_TEXT else None


def rows_of(columns: RecordColumns, indexes: Sequence[int]) -> RecordColumns:
    """Return the columns of the records at ``indexes``, over the same buffer."""
    if len(indexes) == len(columns):
        return columns
    if indexes and indexes[-1] - indexes[0] + 1 == len(indexes):
        return columns.slice(indexes[0], indexes[-1] + 1)
    return _rows().taken(columns, indexes)
