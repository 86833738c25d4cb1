"""Reading of the small files next to the segments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final, TypeVar

from kfs.errors import CorruptData
from kfs.storage.open_files import FileGone, OpenFile
from kfs.storage.status import Version, status_at, status_if_there

_LARGEST: Final = 64 * 1024 * 1024
#: A file written this recently, in nanoseconds, may be incomplete: some are written in place instead of being renamed.
_JUST_WRITTEN_NS: Final = 250_000_000
#: The pause in seconds before another attempt, and the maximum number of attempts.
_PAUSE_SECONDS: Final = 0.025
_MOST_PAUSES: Final = 12
#: Versions that no file has: for a failed read, and for a path that can't be queried.
_NOT_READ: Final = Version(-1, -1, -1, -1)
_NOT_ASKED: Final = Version(-2, -2, -2, -2)
Parsed = TypeVar("Parsed")


def read_side_file(path: str, parse: Callable[[bytes], Parsed]) -> Parsed | None:
    """Parse a whole file; return None if it doesn't exist, and retry if it is just being written.

    Raises:
        CorruptData: it can't be read or parsed, or is larger than 64 MiB; the error names the file.
        Shortage: no descriptor is available.
    """
    for _ in range(_MOST_PAUSES):
        try:
            return _read(path, parse)
        except CorruptData:
            if not _was_just_written(path):
                raise
        time.sleep(_PAUSE_SECONDS)
    return _read(path, parse)


def _was_just_written(path: str) -> bool:
    try:
        return 0 <= time.time_ns() - status_at(path).mtime_ns < _JUST_WRITTEN_NS
    except OSError:
        return False


def _read(path: str, parse: Callable[[bytes], Parsed]) -> Parsed | None:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CorruptData(error.strerror or str(error), 0, path) from None
    try:
        file = OpenFile(path)
    except FileGone:
        if os.path.islink(path):
            raise
        return None  # deleted meanwhile
    size = file.size()
    if size > _LARGEST:
        raise CorruptData(f"{size} bytes, more than such a file can have ({_LARGEST})", 0, path)
    try:
        return parse(file.read(0, size))
    except CorruptData as error:
        raise error.located(path) from None


class Watched:
    """Remembers the version of a path, to tell whether it must be read again; initially the path counts as missing."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: Version | None = None

    def changed(self, path: str) -> bool:
        """Whether the file or directory at ``path`` differs from that at the last call."""
        try:
            status = status_if_there(path)
            now = None if status is None else status.version
        except OSError:  # reading it raises the error
            now = _NOT_ASKED
        last, self._last = self._last, now
        return last != now

    def look_again(self) -> None:
        """Make the next call report a change, because the file couldn't be read."""
        self._last = _NOT_READ
