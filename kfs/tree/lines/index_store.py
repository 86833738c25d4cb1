"""Line indexes of closed segments, kept in the user's cache directory between mounts."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import zlib
from collections.abc import Iterator
from typing import Final

from platformdirs import user_cache_dir

from kfs.storage.atomic_file import replacing
from kfs.tree.lines.index import FORMAT_VERSION, LineIndex

_LOG = logging.getLogger("kfs")
DEFAULT_STORE_BYTES: Final = 256 * 1024 * 1024
_SUFFIX: Final = ".index"


def default_directory() -> str:
    """Return the directory of the indexes, such as ``~/.cache/kfs/lines``."""
    return os.path.join(user_cache_dir("kfs", appauthor=False), "lines")


class LineIndexStore:
    """A directory of indexes, each in a file named by the digest of its key.

    The file repeats the whole key and has a checksum, and both must match: an index with another key, or a damaged one,
    is ignored. Files are written beside and renamed into place. When they exceed ``capacity`` bytes together, the least
    recently used go. An unwritable directory is no error: indexes are then made anew each time.
    """

    def __init__(self, directory: str, capacity: int = DEFAULT_STORE_BYTES) -> None:
        self.directory = directory
        self.capacity = capacity
        self._size: int | None = None

    def check(self) -> None:
        """Raise OSError if indexes can't be stored."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.directory):
            pass

    def has(self, key: str) -> bool:
        """Return whether there is a file for ``key``: cheaper than loading it."""
        return os.path.exists(self._path(key))

    def load(self, key: str) -> LineIndex | None:
        """Return the index stored under ``key``, or None."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                content = file.read(self.capacity)
            os.utime(path)
        except OSError:
            return None
        header = _header(key)
        body = content[len(header) + 4 :]
        if not content.startswith(header) or zlib.crc32(body) != int.from_bytes(
            content[len(header) : len(header) + 4], "big"
        ):
            return None
        try:
            return LineIndex.decode(body)
        except ValueError:
            return None

    def save(self, key: str, index: LineIndex) -> None:
        """Store an index under ``key``."""
        body = index.encode()
        content = _header(key) + zlib.crc32(body).to_bytes(4, "big") + body
        if len(content) > self.capacity // 4:
            return
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self._make_room(len(content))
            with replacing(self._path(key), is_durable=False, is_private=True) as file:
                file.write(content)
        except OSError as error:
            _LOG.info("%s: can't keep an index: %s", self.directory, error.strerror)

    def _path(self, key: str) -> str:
        return os.path.join(self.directory, hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest() + _SUFFIX)

    def _make_room(self, size: int) -> None:
        if self._size is None or self._size + size > self.capacity:
            files = sorted(self._files())
            total = sum(length for _, length, _ in files)
            for _, length, path in files:
                if total + size <= self.capacity * 3 // 4:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(path)
                total -= length
            self._size = total
        self._size += size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yield the time of last use, the size and the path of each index, and of leftovers of a crash."""
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    yield status.st_mtime, status.st_size, entry.path


def _header(key: str) -> bytes:
    return f"kfs line index {FORMAT_VERSION}\n{key}\n".encode(errors="surrogateescape")
