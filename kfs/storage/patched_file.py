"""A file in which some extents are read from other files: another copy has what is damaged in this one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kfs.storage.open_files import OpenFile, Patched
from kfs.storage.status import Status, Version


class Extent(NamedTuple):
    """``length`` bytes of a file from ``start`` on (None: to its current end).

    ``path`` and ``inode`` identify the file as listed. For extents of the patched file itself they are its own.
    """

    path: str
    inode: int
    start: int
    length: int | None


#: The extents of a patched file, in order. Only the last may lack a length, and it belongs to the file itself.
Patch = tuple[Extent, ...]


class PatchedFile(OpenFile):
    """An open file with a patch applied; positions refer to the patched content, not to the file on disk.

    ``opened`` opens the file of an extent, and raises :class:`FileChanged`. ``spoil`` is called with the reason if that
    file was truncated.
    """

    __slots__ = ("_base", "_of", "_patch", "_spoil", "_starts")

    def __init__(
        self, base: OpenFile, patch: Patch, opened: Callable[[Extent], OpenFile], spoil: Callable[[str], None]
    ) -> None:
        self.path, self.inode = base.path, base.inode
        self.unreadable: dict[int, str] = {}
        self.kept: object = None
        self._base = base
        self._patch = patch
        self._of = opened
        self._spoil = spoil
        self._starts = [0]
        for extent in patch[:-1]:
            assert extent.length is not None
            self._starts.append(self._starts[-1] + extent.length)

    def status(self) -> Status:
        """The status of the file itself, with the size of the patched content."""
        status = self._base.status()
        return status._replace(size=self._size(status.size))

    def version(self) -> Version:
        """See :meth:`OpenFile.version`; the size is that of the patched content."""
        return self.status().version

    def size_and_time(self) -> tuple[int, int]:
        """See :meth:`OpenFile.size_and_time`."""
        size, mtime_ns = self._base.size_and_time()
        return self._size(size), mtime_ns

    def size(self) -> int:
        """The current size in bytes."""
        return self._size(self._base.size())

    def _size(self, base_size: int) -> int:
        last = self._patch[-1]
        length = max(base_size - last.start, 0) if last.length is None else last.length
        return self._starts[-1] + length

    def read(self, position: int, length: int) -> bytes:
        """See :meth:`OpenFile.read`; missing bytes of another file also raise :class:`FileChanged`."""
        parts: list[bytes] = []
        for extent, start, end in self._extents(position, position + length):
            data = self._file(extent).read(start, end - start)
            parts.append(data)
            if len(data) < end - start:
                if extent.length is not None:
                    self._spoil(f"{extent.path} was truncated")
                    raise Patched("file was truncated", start + len(data), extent.path)
                break
        return b"".join(parts)

    def _extents(self, position: int, stop: int) -> Iterator[tuple[Extent, int, int]]:
        """Yield the extents that contain bytes of a range, each with the start and end in the extent's file."""
        for index in range(max(bisect_right(self._starts, position) - 1, 0), len(self._patch)):
            begin, extent = self._starts[index], self._patch[index]
            if begin >= stop:
                return
            end = stop if extent.length is None else min(stop, begin + extent.length)
            start = max(position, begin)
            if start < end:
                yield extent, extent.start + start - begin, extent.start + end - begin

    def extents(self, start: int, end: int) -> Iterator[tuple[OpenFile, int, int]]:
        """See :meth:`OpenFile.extents`."""
        for extent, first, last in self._extents(start, end):
            yield self._file(extent), first, last

    def _file(self, extent: Extent) -> OpenFile:
        return self._base if extent.path == self.path else self._of(extent)

    def read_error(self, position: int, length: int) -> str | None:
        """See :meth:`OpenFile.read_error`."""
        for file, start, end in self.extents(position, position + length):
            if error := file.read_error(start, end - start):
                return error
        return None

    def where(self, position: int) -> tuple[str, int]:
        """See :meth:`OpenFile.where`."""
        for begin, extent in zip(reversed(self._starts), reversed(self._patch), strict=True):
            if position >= begin:
                return extent.path, extent.start + position - begin
        return self.path, position

    def end_of_extent(self, position: int) -> int | None:
        """See :meth:`OpenFile.end_of_extent`."""
        at = bisect_right(self._starts, position)
        return self._starts[at] if at < len(self._starts) else None

    def sought(self, position: int, whence: int) -> int | None:
        """See :meth:`OpenFile.sought`."""
        return None
