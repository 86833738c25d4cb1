"""A file of which some bytes are read from other files: what is damaged in one copy, another copy has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kfs.storage.open_files import FileChanged, OpenFile
from kfs.storage.status import Status, Version


class Patched(FileChanged):
    """The file is read with a patch from now on, or another one, which moves what is in it: offsets stay the same."""


class Extent(NamedTuple):
    """Bytes from ``start`` on of a file, ``length`` of them (None: to its end, wherever that is by then).

    ``path`` and ``inode`` are of the file as a listing showed it, those of the patched file itself where they are its.
    """

    path: str
    inode: int
    start: int
    length: int | None


#: What a patched file consists of, in order; only the last extent may be without a length, and is of the file itself.
Patch = tuple[Extent, ...]


class PatchedFile(OpenFile):
    """An open file as a patch makes it. Its positions are those of what is read, not those in the file.

    ``opened`` opens the file of an extent, and raises :class:`FileChanged`; ``spoil`` is called
    with the reason where that file was replaced or cut.
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
        """What is known of the file itself, but for the size."""
        status = self._base.status()
        return status._replace(size=self._size(status.size))

    def version(self) -> Version:
        """See :meth:`OpenFile.version`; the size is that of what is read."""
        return self.status().version

    def size_and_time(self) -> tuple[int, int]:
        """See :meth:`OpenFile.size_and_time`."""
        size, mtime_ns = self._base.size_and_time()
        return self._size(size), mtime_ns

    def size(self) -> int:
        """The size in bytes, now."""
        return self._size(self._base.size())

    def _size(self, base_size: int) -> int:
        last = self._patch[-1]
        length = max(base_size - last.start, 0) if last.length is None else last.length
        return self._starts[-1] + length

    def read(self, position: int, length: int) -> bytes:
        """See :meth:`OpenFile.read`; what is missing of another file is a :class:`FileChanged`, too."""
        parts: list[bytes] = []
        for extent, start, end in self._extents(position, position + length):
            data = self._file(extent).read(start, end - start)
            parts.append(data)
            if len(data) < end - start:
                if extent.length is not None:
                    self._spoil(f"{extent.path} was cut")
                    raise Patched("file was cut", start + len(data), extent.path)
                break
        return b"".join(parts)

    def _extents(self, position: int, stop: int) -> Iterator[tuple[Extent, int, int]]:
        """Yield the extents that bytes of the patched file lie in, and from where to where in the file of each."""
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
