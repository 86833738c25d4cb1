"""What of a partition's files must be the same where two have recovered it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kfs.errors import CorruptData
from kfs.format.producer_snapshot import parse_producer_snapshot

_ENTRY_SIZES = {".index": 8, ".timeindex": 12}


def partitions(root: Path) -> Iterator[Path]:
    """Return the partition directories of a log directory."""
    return (path for path in sorted(root.iterdir()) if path.is_dir())


def content_of(path: Path) -> object:
    """Return what of a file must be the same: producers in whichever order, indexes without what isn't used."""
    data = path.read_bytes()
    if path.suffix == ".snapshot":
        try:
            return {entry.producer_id: entry for entry in parse_producer_snapshot(data)}
        except CorruptData:
            return data
    return _entries(data, _ENTRY_SIZES[path.suffix]) if path.suffix in _ENTRY_SIZES else data


def _entries(data: bytes, size: int) -> list[bytes]:
    """Return the entries of an index: what is no whole one at the end, or preallocated, isn't one."""
    found = [data[at : at + size] for at in range(0, len(data) - size + 1, size)]
    while len(found) > 1 and not any(found[-1]):
        found.pop()
    return found
