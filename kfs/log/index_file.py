"""The bytes of an offset or time index: mapped for a closed segment, read for the active one.

Access to an mmap past the end of a file that shrank raises SIGBUS, which Python can't catch. A process is also limited
to 65,530 maps. So only closed segments are mapped, the maps count in the budget of descriptors, and ``fstat`` precedes
every use. A file that changed in any way is mapped again.
"""

from __future__ import annotations

import mmap
import threading
from typing import Final, NamedTuple

from kfs.errors import CorruptData
from kfs.storage.descriptors import BUDGET
from kfs.storage.listing import FoundFile
from kfs.storage.open_files import FileChanged, FilePool, OpenFile
from kfs.storage.status import Version

_COPIED_BYTES: Final = 4 * 1024 * 1024
_Key = tuple[str, int, int]
#: LogConfig.segment.index.bytes has no upper bound, but int32 positions in a segment impose one.
_LARGEST_INDEX: Final = 2**31 - 1


class EntryLayout(NamedTuple):
    """The size of an entry, and the position of its relative offset (int32), both in bytes."""

    size: int
    offset_field: int


class IndexBytes(NamedTuple):
    """The entries of an index file at one moment, without the preallocated tail of zeros.

    ``file_size`` is the size of the whole file. ``version`` identifies the file and its state.
    """

    data: mmap.mmap | bytes
    entries: int
    file_size: int
    version: Version

    def copied(self, layout: EntryLayout) -> IndexBytes:
        """Return the same with copied entries, for callers that keep them."""
        return self._replace(data=self.data[: self.entries * layout.size])


class IndexPool:
    """Provides the bytes of index files, and limits how many are mapped: a map goes when its file is closed."""

    def __init__(self, files: FilePool) -> None:
        self._files = files
        self._copies: dict[_Key, IndexBytes] = {}  # the newest is last
        self._copied_bytes = 0
        self._lock = threading.Lock()

    def bytes_of(
        self, found: FoundFile, layout: EntryLayout, *, closed: bool, owner: int = 0, anew: bool = True
    ) -> IndexBytes:
        """Return the content of an index; the caller must use it at once and not keep it.

        ``owner`` and ``anew`` are those of :meth:`FilePool.open`.

        Raises:
            CorruptData: the file is gone, replaced, or too large for an index.
            Shortage: no descriptor or map is available.
        """
        key = (found.path, found.inode, owner)
        file = self._files.open(*key, anew=anew)
        version = file.version()
        known = file.kept if closed else self._copies.get(key)
        if isinstance(known, IndexBytes) and known.version == version:
            return known
        content = _load(file, version, layout, closed=closed)
        if closed:
            file.kept = content
        else:
            self._keep_copy(key, content)
        return content

    def _keep_copy(self, key: _Key, content: IndexBytes) -> None:
        with self._lock:
            old = self._copies.pop(key, None)
            self._copies[key] = content
            self._copied_bytes += _weight(content) - (_weight(old) if old is not None else 0)
            while self._copied_bytes > _COPIED_BYTES:
                self._copied_bytes -= _weight(self._copies.pop(next(iter(self._copies))))

    def close(self) -> None:
        """Drop all copies; maps are closed with their files."""
        with self._lock:
            self._copies.clear()
            self._copied_bytes = 0


def _weight(content: IndexBytes) -> int:
    return len(content.data) + 768  # overhead of the objects and the key


def _load(file: OpenFile, version: Version, layout: EntryLayout, *, closed: bool) -> IndexBytes:
    size = version.size
    if size > _LARGEST_INDEX:
        raise CorruptData(f"index of {size} bytes", 0, file.path)
    entries = _entry_count(file, size, layout)
    if closed and size:
        return IndexBytes(_mapped(file, size), entries, size, version)
    return IndexBytes(file.read(0, entries * layout.size), entries, size, version)


def _mapped(file: OpenFile, size: int) -> mmap.mmap:
    descriptor = file.descriptor()
    try:
        mapped = BUDGET.attempt(lambda: mmap.mmap(descriptor.number, size, access=mmap.ACCESS_READ), file.path)
    except ValueError:  # it shrank after its size was read
        raise FileChanged(f"file was truncated: it had {size} bytes", 0, file.path) from None
    except OSError as error:  # the filesystem doesn't support mmap
        raise CorruptData(error.strerror or str(error), 0, file.path) from None
    descriptor.note_map()
    return mapped


def _entry_count(file: OpenFile, size: int, layout: EntryLayout) -> int:
    """Count the entries before the preallocated tail: only the first entry can have a relative offset of 0."""
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
