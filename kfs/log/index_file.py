"""The bytes of an offset or time index: mapped for a closed segment, read for the active one.

An mmap past the end of a file that shrank is a SIGBUS, which Python can't catch, and a process has
65,530 maps. So maps are few (a bounded pool), only of closed segments, and ``fstat`` is asked before every
use: a file that changed in any way is mapped anew.
"""

from __future__ import annotations

import mmap
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from cachetools import LRUCache

from kfs.errors import CorruptData
from kfs.log.open_files import FilePool, OpenFile
from kfs.log.segment_files import FoundFile

#: Each holds two descriptors (mmap keeps one of its own), of the 1,024 that a process has by default.
_MOST_MAPS: Final = 256
_COPIED_BYTES: Final = 8 * 1024 * 1024
_Key = tuple[str, int]
#: LogConfig.segment.index.bytes has no upper bound of its own, int32 positions in a segment do.
_LARGEST_INDEX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """How long an entry is, and where in it the relative offset (int32) lies, in bytes."""

    size: int
    offset_field: int


@dataclass(frozen=True, slots=True)
class IndexBytes:
    """The entries of an index file at one moment, its preallocated tail of zeros aside.

    ``file_size`` is that of the whole file; ``identity`` changes whenever the file does.
    """

    data: mmap.mmap | bytes
    entries: int
    file_size: int
    identity: tuple[int, int, int]

    def copied(self, layout: EntryLayout) -> IndexBytes:
        """Return the same with the entries copied, for whoever needs them longer than a moment."""
        return replace(self, data=self.data[: self.entries * layout.size])


class IndexPool:
    """Gives the bytes of index files, few of them mapped at a time."""

    def __init__(self, files: FilePool) -> None:
        self._files = files
        self._maps: LRUCache[_Key, tuple[OpenFile, IndexBytes]] = LRUCache(_MOST_MAPS)
        self._copies: LRUCache[_Key, tuple[OpenFile, IndexBytes]] = LRUCache(
            _COPIED_BYTES, getsizeof=lambda known: len(known[1].data) + 200
        )
        self._lock = threading.Lock()

    def bytes_of(self, found: FoundFile, layout: EntryLayout, *, closed: bool) -> IndexBytes:
        """Return the content of an index; the caller uses it at once and does not keep it.

        Raises:
            CorruptData: the file is gone, replaced, or larger than an index can be.
        """
        key = (found.path, found.inode)
        cache = self._maps if closed else self._copies
        with self._lock:
            known = cache.get(key)
        if known is not None and _identity(known[0]) == known[1].identity:
            return known[1]
        file = self._files.open(found.path, found.inode)
        content = _load(file, layout, closed=closed)
        with self._lock, suppress(ValueError):  # too large to be kept
            cache[key] = (file, content)
        return content

    def close(self) -> None:
        """Drop every map."""
        with self._lock:
            self._maps.clear()
            self._copies.clear()


def _load(file: OpenFile, layout: EntryLayout, *, closed: bool) -> IndexBytes:
    identity = _identity(file)
    size = identity[1]
    if size > _LARGEST_INDEX:
        raise CorruptData(f"index of {size} bytes", 0, file.path)
    entries = _entry_count(file, size, layout)
    if closed and size:
        return IndexBytes(mmap.mmap(file.fd, size, access=mmap.ACCESS_READ), entries, size, identity)
    return IndexBytes(file.read(0, entries * layout.size), entries, size, identity)


def _entry_count(file: OpenFile, size: int, layout: EntryLayout) -> int:
    """Count entries up to the preallocated tail: only the first one can have a relative offset of 0."""
    low, high = 0, size // layout.size
    while low < high:
        middle = (low + high) // 2
        if any(file.read(middle * layout.size + layout.offset_field, 4)):
            low = middle + 1
        else:
            high = middle
    if not low and any(file.read(0, layout.size)):
        return 1
    return low


def _identity(file: OpenFile) -> tuple[int, int, int]:
    status = os.fstat(file.fd)
    return status.st_ino, status.st_size, status.st_mtime_ns
