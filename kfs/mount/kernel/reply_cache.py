"""The reply cache: replies to LOOKUP and READ of numbered files that were found together.

A random reader costs two requests for each file, most of whose time is spent in Python. So a directory's answer for the
neighbours of a file that was looked up (:class:`~kfs.tree.node.NumberedFiles`) is kept for a moment. Requests for those
are answered where they are read from the device; all others are passed on. The cache keeps nothing alive: contents that
the tree drops disappear from it.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cache
from typing import Final

from kfs.compiled import compiled_or_python
from kfs.mount.kernel.protocol import (
    FUSE_MIN_READ_BUFFER,
    IN_HEADER,
    IN_HEADER_SIZE,
    OUT_HEADER,
    OUT_HEADER_SIZE,
    READ_IN,
    Opcode,
    entry_reply,
)
from kfs.mount.request_counts import RequestCounts
from kfs.tree.node import FileContents, NumberedFiles

#: How long, in seconds, a directory's answer is used without asking again.
HELD_SECONDS: Final = 0.25
#: The most groups of files kept.
MOST_GROUPS: Final = 8192
#: Errors of a reply that can be ignored: the request was interrupted and answered elsewhere, or its caller is gone.
NOT_WAITED_FOR: Final = (errno.ENOENT, errno.ENODEV)

#: All numbers with that many digits are below 2**63.
_MOST_DIGITS: Final = 18
_LOOKUP: Final = int(Opcode.LOOKUP)
_READ: Final = int(Opcode.READ)


class _Group:
    """Files found together, in a directory that is not asked again for a moment."""

    __slots__ = ("contents", "directory", "id_of_zero", "stamp")

    def __init__(self, directory: _Directory, files: NumberedFiles) -> None:
        self.directory = directory
        self.contents = files.contents
        self.stamp = files.stamp
        self.id_of_zero = files.stamp.id_of_zero

    def find(self, number: int) -> tuple[FileContents, int] | None:
        """Return a file's contents and its index in them, if they are still kept."""
        contents = self.contents()
        if contents is None:
            return None
        at = bisect_left(contents.offsets, number)
        return (contents, at) if at < len(contents.offsets) and contents.offsets[at] == number else None


class _SortedGroups:
    """Groups, ordered by the lowest key of each."""

    __slots__ = ("groups", "keys")

    def __init__(self) -> None:
        self.keys = array("q")
        self.groups: list[_Group] = []

    def put(self, key: int, group: _Group) -> None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            self.groups[at] = group
        else:
            self.groups.insert(at, group)  # first: a concurrent search then finds one group too many, not too few
            self.keys.insert(at, key)

    def find(self, key: int) -> _Group | None:
        at = bisect_right(self.keys, key) - 1
        return self.groups[at] if at >= 0 else None


class _Directory:
    """What a directory said, and until when (monotonic clock) it is not asked again."""

    __slots__ = ("by_number", "state", "suffix", "until")

    def __init__(self, files: NumberedFiles) -> None:
        self.state = files.state
        self.suffix = files.suffix.encode()
        self.until = 0.0
        self.by_number = _SortedGroups()


class ReplyTable:
    """The cached groups. Writers hold a lock; readers need none."""

    def __init__(self) -> None:
        self.by_id = _SortedGroups()
        self.directories: dict[int, _Directory] = {}

    def put(self, directory_id: int, files: NumberedFiles, until: float) -> bool:
        """Add files that are valid until ``until``; return False if there is no room or the directory has changed."""
        contents = files.contents()
        if contents is None:
            return True
        directory = self.directories.get(directory_id)
        if len(self.by_id.keys) >= MOST_GROUPS or (directory is not None and directory.state != files.state):
            return False
        if directory is None:
            directory = self.directories[directory_id] = _Directory(files)
        group = _Group(directory, files)
        directory.by_number.put(contents.offsets[0], group)
        self.by_id.put(group.id_of_zero + contents.offsets[0], group)
        directory.until = until
        return True

    def expire(self, directory_id: int) -> None:
        """Use nothing cached of a directory until something is put for it again."""
        directory = self.directories.get(directory_id)
        if directory is not None:
            directory.until = 0.0


class ReplyCache:
    """Reads requests from ``device`` and answers those whose reply is cached.

    Passes on reads of files whose id ``is_followed`` accepts. One thread reads, several may put. :meth:`next_request`
    takes ``most_seconds`` at most, if given.
    """

    table_class: type[ReplyTable] = ReplyTable
    #: For what is answered here, and for what is passed on.
    counts_class: type[RequestCounts] = RequestCounts

    def __init__(self, device: int, is_followed: Callable[[int], bool], most_seconds: float | None = None) -> None:
        self.device = device
        self.is_followed = is_followed
        self.most_seconds = most_seconds
        if most_seconds is not None:
            os.set_blocking(device, False)  # a request may be withdrawn after it was announced
        self.table = self.table_class()
        self._changing = threading.Lock()
        #: The requests that were answered from the cache.
        self.counts = self.counts_class()

    def put(self, directory_id: int, files: NumberedFiles) -> None:
        """Cache these files, as the directory describes them now."""
        until = time.monotonic() + HELD_SECONDS
        with self._changing:
            if not self.table.put(directory_id, files, until):
                self.table = self.table_class()
                self.table.put(directory_id, files, until)

    def hand_on_next(self, directory_id: int) -> None:
        """Pass on LOOKUPs in a directory until something is put for it again."""
        self.table.expire(directory_id)

    def next_request(self) -> bytes:
        """Answer requests from the cache; return the first that isn't there.

        Raises:
            OSError: the device, or a request on it, is gone; with ETIMEDOUT, the most seconds are over.
        """
        until = None if self.most_seconds is None else time.monotonic() + self.most_seconds
        while True:
            if until is not None and not self._comes_before(until):
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            request = os.read(self.device, FUSE_MIN_READ_BUFFER)
            begun = time.monotonic_ns()
            _, opcode, unique, node_id = IN_HEADER.unpack_from(request)
            if opcode == _LOOKUP:
                reply = self._entry(unique, node_id, request)
            elif opcode == _READ:
                reply = self._data(unique, node_id, request)
            else:
                return request
            if reply is None:
                return request
            try:
                os.writev(self.device, reply)
            except OSError as error:
                if error.errno not in NOT_WAITED_FOR:
                    raise
            self.counts.add(opcode, begun, read_bytes=len(reply[1]) if opcode == _READ else 0)

    def _comes_before(self, until: float) -> bool:
        """Wait for a request, until a time by the monotonic clock; return whether there is one."""
        left = until - time.monotonic()
        if left <= 0:
            return False
        arrival = select.poll()
        arrival.register(self.device, select.POLLIN)
        return bool(arrival.poll(left * 1000))

    def _entry(self, unique: int, node_id: int, request: bytes) -> tuple[bytes, ...] | None:
        directory = self.table.directories.get(node_id)
        if directory is None or directory.until < time.monotonic():
            return None
        name = request[IN_HEADER_SIZE:-1]  # a zero byte follows it
        digits = name.removesuffix(directory.suffix)
        if len(digits) > _MOST_DIGITS or not digits.isdigit() or b"%d%s" % (int(digits), directory.suffix) != name:
            return None
        number = int(digits)
        group = directory.by_number.find(number)
        found = group.find(number) if group is not None else None
        if group is None or found is None:
            return None
        contents, at = found
        size = contents.starts[at + 1] - contents.starts[at]
        return (entry_reply(unique, group.stamp.attributes(number, size, contents.timestamps[at])),)

    def _data(self, unique: int, node_id: int, request: bytes) -> tuple[bytes, ...] | None:
        group = self.table.by_id.find(node_id)
        if group is None or group.directory.until < time.monotonic():
            return None
        _, offset, size = READ_IN.unpack_from(request, IN_HEADER_SIZE)
        found = group.find(node_id - group.id_of_zero)
        if found is None or (not offset and self.is_followed(node_id)):
            return None
        contents, at = found
        start = contents.starts[at] + offset
        data = contents.buffer[start : min(start + size, contents.starts[at + 1])]
        return OUT_HEADER.pack(OUT_HEADER_SIZE + len(data), 0, unique), data


@cache
def reply_cache_class() -> type[ReplyCache]:
    """Return the class to use, as chosen by :func:`~kfs.compiled.compiled_or_python`; raises as that does."""
    return compiled_or_python(lambda: ReplyCache, _import_compiled)


def _import_compiled() -> type[ReplyCache]:
    from kfs.mount.kernel.compiled_reply_cache import CompiledReplyCache

    return CompiledReplyCache
