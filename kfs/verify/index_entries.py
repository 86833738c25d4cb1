"""The raw entries of an index file, including wrong ones, without the zeros at its end."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import le, lt
from struct import Struct
from typing import Final

from kfs.errors import CorruptData
from kfs.storage.holes import next_data
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import OpenFile, open_listed
from kfs.verify.finding import FindingKind, Findings, Severity
from kfs.verify.side_files import severity_of

_CHUNK: Final = 1024 * 1024
#: 25 times the entries that a segment with int32 positions has at the default index interval.
_MOST_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """The entry layout of the offset index or the time index, and the kinds of its findings.

    ``first`` and ``second`` each unpack one of an entry's two numbers. Both structs span the whole entry.
    """

    first: Struct
    second: Struct
    missing: FindingKind
    size_kind: FindingKind
    zeros: FindingKind
    order: FindingKind

    @property
    def size(self) -> int:
        """The size of an entry in bytes."""
        return self.first.size


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """The entries of an index as two columns of numbers, without the zeros at the file's end."""

    path: str
    layout: IndexLayout
    first: array[int]
    second: array[int]
    file_size: int

    def __len__(self) -> int:
        return len(self.first)

    @property
    def used(self) -> int:
        """The size of all entries in bytes."""
        return len(self) * self.layout.size

    @property
    def is_preallocated(self) -> bool:
        """Whether at least one entry of zeros follows, as in the preallocated index of an active segment."""
        return self.file_size - self.used >= self.layout.size

    def bytes_of(self, number: int) -> tuple[int, int]:
        """Return the byte positions at which entry ``number``, counted from 0, begins and ends."""
        return number * self.layout.size, (number + 1) * self.layout.size


class EntryQueue:
    """Hands out entry numbers in the order of one column; in a damaged index this differs from the file's order."""

    def __init__(self, column: array[int], *, is_ordered: bool) -> None:
        self._column = column
        self._order: Sequence[int] = range(len(column))
        if not is_ordered:
            self._order = sorted(self._order, key=column.__getitem__)
        self._next = 0

    def below(self, limit: int) -> Sequence[int]:
        """Remove and return the remaining entries whose value is below ``limit``."""
        start = self._next
        self._next = bisect_left(self._order, limit, lo=start, key=self._column.__getitem__)
        return self._order[start : self._next]


def read_entries(
    found: FoundFile, layout: IndexLayout, findings: Findings, *, may_be_preallocated: bool
) -> IndexEntries | None:
    """Read an index; report a wrong size and zeros at the end. Return None if it can't be read or is too large."""
    try:
        file = open_listed(found.path, found.inode)
        size = file.size()
        used = _used(file, size)
    except CorruptData as error:
        findings.add(FindingKind.READ_ERROR, found.path, error.reason, severity=severity_of(error, found.path))
        return None
    if used is None:
        reason = f"more than {_MOST_BYTES} bytes of entries: not checked"
        findings.add(layout.size_kind, found.path, reason, bytes=(0, size))
        return None
    if size % layout.size:
        start = size - size % layout.size
        reason = f"{size} bytes, not a multiple of the {layout.size} of an entry"
        findings.add(layout.size_kind, found.path, reason, bytes=(start, size))
    entries = min(-(-len(used) // layout.size), size // layout.size)
    data = used[: entries * layout.size].ljust(entries * layout.size, b"\0")
    if size - len(data) >= layout.size:
        what = "preallocated" if may_be_preallocated else "which only the index of an active segment may have"
        severity = Severity.INFO if may_be_preallocated else None
        findings.add(
            layout.zeros,
            found.path,
            f"{size - len(data)} bytes of zeros after {entries} entries, {what}",
            bytes=(len(data), size),
            severity=severity,
        )
    first, second = (
        array("q", (number for (number,) in column.iter_unpack(data))) for column in (layout.first, layout.second)
    )
    return IndexEntries(found.path, layout, first, second, size)


def _used(file: OpenFile, size: int) -> bytes | None:
    """Return the file without the zeros at its end, which take no memory; None above :data:`_MOST_BYTES`."""
    used = bytearray()
    position = 0
    while position < size:
        if size > _CHUNK:  # else reading a hole costs less than looking for its end
            position = next_data(file, position, size)
        chunk = file.read(position, min(_CHUNK, size - position))
        if not chunk:
            break
        if chunk.count(0) != len(chunk):
            if position + len(chunk) > _MOST_BYTES:
                return None
            used += bytes(position - len(used)) + chunk
        position += len(chunk)
    return bytes(used).rstrip(b"\0")


def check_order(entries: IndexEntries, findings: Findings, *, strictly: bool) -> bool:
    """Report negative entries and entries out of order; return whether there are none.

    With ``strictly``, both numbers must increase from entry to entry. Otherwise they may repeat.
    """
    is_before = lt if strictly else le
    columns = entries.first, entries.second
    if all(column[0] >= 0 and all(map(is_before, column, column[1:])) for column in columns if column):
        return True
    previous = (-1, -1)
    for number, entry in enumerate(zip(*columns, strict=True)):
        if min(entry) < 0 or not all(map(is_before, previous, entry)):
            reason = f"entry {entry} after {previous}" if number else f"negative entry {entry}"
            findings.add(entries.layout.order, entries.path, reason, bytes=entries.bytes_of(number))
        previous = entry
    return False
