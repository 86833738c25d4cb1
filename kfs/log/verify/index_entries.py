"""The entries of an index file as they are in the file, wrong ones too, and where its tail of zeros begins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kfs.errors import CorruptData
from kfs.log.open_files import OpenFile
from kfs.log.resync import next_data
from kfs.log.segment_files import FoundFile
from kfs.log.verify.finding import Findings, Kind, Severity

_CHUNK: Final = 1024 * 1024
#: More entries than a segment of int32 positions gives at the default interval, 25 times over.
_MOST_BYTES: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class IndexKinds:
    """What the findings about one of the two indexes are called."""

    name: str
    missing: Kind
    size: Kind
    zeros: Kind


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """The content of an index: ``data`` without the zeros at its end, as whole entries of ``layout``."""

    path: str
    data: bytes
    layout: Struct
    file_size: int

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return self.layout.iter_unpack(self.data)

    def __len__(self) -> int:
        return len(self.data) // self.layout.size

    def bytes_of(self, number: int) -> tuple[int, int]:
        """Return where in the file the entry ``number``, from 0, begins and ends."""
        return number * self.layout.size, (number + 1) * self.layout.size


def read_entries(
    found: FoundFile, layout: Struct, kinds: IndexKinds, findings: Findings, *, may_be_preallocated: bool
) -> IndexEntries | None:
    """Read an index, and say what is wrong with its size and with zeros at its end; None where it can't be read."""
    try:
        file = OpenFile(found.path)
        size = file.size()
        used = _used(file, size)
    except CorruptData as error:
        severity = None if os.path.lexists(found.path) else Severity.INFO  # of a log that is in use
        findings.add(Kind.READ_ERROR, found.path, error.reason, severity=severity)
        return None
    if used is None:
        reason = f"more than {_MOST_BYTES} bytes of entries: not looked at"
        findings.add(kinds.size, found.path, reason, bytes=(0, size))
        return None
    if size % layout.size:
        start = size - size % layout.size
        reason = f"{size} bytes, not a multiple of the {layout.size} of an entry"
        findings.add(kinds.size, found.path, reason, bytes=(start, size))
    entries = min(-(-len(used) // layout.size), size // layout.size)
    data = used[: entries * layout.size].ljust(entries * layout.size, b"\0")
    if size - len(data) >= layout.size:
        what = "preallocated" if may_be_preallocated else "which only the index of an active segment may have"
        severity = Severity.INFO if may_be_preallocated else None
        findings.add(
            kinds.zeros,
            found.path,
            f"{size - len(data)} bytes of zeros after {entries} entries, {what}",
            bytes=(len(data), size),
            severity=severity,
        )
    return IndexEntries(found.path, data, layout, size)


def _used(file: OpenFile, size: int) -> bytes | None:
    """Return the file without the zeros at its end, None where that is too much; zeros at the end cost no memory."""
    used = bytearray()
    position = 0
    while position < size:
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


def check_order(
    entries: IndexEntries, is_after: Callable[[tuple[int, int], tuple[int, int]], bool], kind: Kind, findings: Findings
) -> None:
    """Say of each entry that isn't after the one before it, and of negative ones, that they can't be."""
    previous = (-1, -1)
    for number, entry in enumerate(entries):
        if min(entry) < 0 or not is_after(entry, previous):
            reason = f"entry {entry} after {previous}" if number else f"negative entry {entry}"
            findings.add(kind, entries.path, reason, bytes=entries.bytes_of(number))
        previous = entry
