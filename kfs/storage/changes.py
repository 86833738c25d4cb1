"""Waiting until files in directories may have changed: inotify where the system has it, polling everywhere.

An event only ends a wait early. Some filesystems tell of no change that another machine makes (NFS, SMB), or of none at
all, and events are lost when too many are pending. So a caller looks at everything now and then, more often where a
directory may change untold, and correctness never depends on events.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

#: ``linux/inotify.h``: a file in the directory was written to; names were made, renamed or removed; the directory was.
_MASK: Final = 0x2 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_QUEUE_OVERFLOW: Final = 0x4000
_MOVE_SELF: Final = 0x800
#: The system's word that it watches a directory no longer.
_IGNORED: Final = 0x8000
#: Watch descriptor, mask, cookie, length of the name.
_EVENT: Final = struct.Struct("iIII")
_EVENTS_BYTES: Final = 64 * 1024
#: ``struct statfs`` is smaller; its first field is the type.
_STATFS_BYTES: Final = 512
#: Filesystems (``linux/magic.h``) that may change without an event: other machines or processes write to their files.
_UNTOLD: Final = frozenset(
    {
        0x6969,  # NFS
        *(0x517B, 0xFF534D42, 0xFE534D42),  # SMB, CIFS, SMB 2
        0x65735546,  # FUSE
        0x01021997,  # 9p
        0x00C36400,  # Ceph
        0x5346414F,  # AFS
        0x0BD00BD0,  # Lustre
        0x47504653,  # GPFS
        0x794C7630,  # overlay: changes of the files below it
    }
)
_TYPE_MASK: Final = 0xFFFFFFFF
_MOST_WATCHES: Final = Path("/proc/sys/fs/inotify/max_user_watches")

#: The names that changed, by the directory that they are in; an empty name stands for the directory itself.
ChangedNames: TypeAlias = "dict[str, set[str]]"


def fair_share_of_watches() -> int:
    """Return how many directories a process may watch that runs for long: half of what its user may."""
    try:
        return int(_MOST_WATCHES.read_text()) // 2
    except (OSError, ValueError):
        return 0


class Changes:
    """Waits for changes in directories; not thread-safe, except that :meth:`wake` may be called from anywhere.

    :attr:`poll_seconds` is how often to look without an event: ``often`` if a directory may change without one, else
    ``seldom``. No more than ``most`` directories are watched, if that is given.
    """

    def __init__(self, *, often: float, seldom: float, most: int | None = None) -> None:
        self._often = often
        self._seldom = seldom
        self._most = most
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._events = self._opened()
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._numbers: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._untold: set[str] = set()

    def _opened(self) -> int:
        """Return the descriptor of a new inotify instance, or -1 if the system has none (left)."""
        try:
            return int(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        except AttributeError:  # not Linux
            return -1

    @property
    def poll_seconds(self) -> float:
        """How often to look, in seconds."""
        return self._often if self._untold else self._seldom

    def watch(self, directories: Iterable[str]) -> None:
        """Watch these directories from now on, and no others; one that can't be watched is polled."""
        wanted = set(directories)
        for path in (self._numbers.keys() | self._untold) - wanted:
            self.discard(path)
        for path in sorted(wanted - self._numbers.keys()):
            self.add(path)

    def add(self, path: str) -> bool:
        """Watch this directory, too; return whether there will be an event for every change in it."""
        if path not in self._numbers:
            if self._add(path) and not _is_untold(self._libc, path):
                self._untold.discard(path)
            else:
                self._untold.add(path)
        return self.is_told(path)

    def discard(self, path: str) -> None:
        """Watch this directory no more."""
        if path in self._numbers:
            self._forget(path)
        self._untold.discard(path)

    def is_told(self, path: str) -> bool:
        """Whether there is an event for every change in this directory."""
        return path in self._numbers and path not in self._untold

    def _add(self, path: str) -> bool:
        """Watch a directory; return whether that is possible. It isn't if it is gone, or the limit is reached."""
        if self._events < 0 or (self._most is not None and len(self._numbers) >= self._most):
            return False
        number = int(self._libc.inotify_add_watch(self._events, os.fsencode(path), _MASK))
        if number < 0:
            return False
        before = self._paths.get(number)
        if before is not None:  # the same directory under another name
            self._numbers.pop(before, None)
        self._numbers[path] = number
        self._paths[number] = path
        return True

    def _forget(self, path: str) -> None:
        number = self._numbers.pop(path)
        self._paths.pop(number, None)
        self._libc.inotify_rm_watch(self._events, number)  # fails if the directory is gone: nothing is left to remove

    def wait(self, seconds: float, reader: int | None = None) -> ChangedNames | None:
        """Wait at most ``seconds`` for a change; return the names that events report, or None if events were lost.

        There are none after a wait without an event. ``reader`` is a pipe that is written to.

        Raises:
            BrokenPipeError: nobody reads the pipe any more.
        """
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._events >= 0:
            poll.register(self._events, select.POLLIN)
        if reader is not None:
            poll.register(reader, 0)
        ready = dict(poll.poll(max(0, math.ceil(seconds * 1000))))
        if reader is not None and ready.get(reader, 0) & (select.POLLERR | select.POLLNVAL):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        return self._read_events() if self._events in ready else {}

    def _read_events(self) -> ChangedNames | None:
        """Return what all pending events tell; None if some were lost."""
        changed: ChangedNames = {}
        are_lost = False
        with suppress(BlockingIOError):
            while data := os.read(self._events, _EVENTS_BYTES):
                at = 0
                while at < len(data):
                    number, mask, _, length = _EVENT.unpack_from(data, at)
                    at += _EVENT.size
                    name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
                    at += length
                    are_lost = are_lost or bool(mask & _QUEUE_OVERFLOW)
                    path = self._paths.get(number)
                    if path is not None:
                        changed.setdefault(path, set()).add(name)
                        if mask & (_IGNORED | _MOVE_SELF):  # another one may take its name
                            self._forget(path)
        return None if are_lost else changed

    def wake(self) -> None:
        """End the current wait, or the next one."""
        with suppress(OSError):  # it is full, or closed: the wait ends anyway
            os.write(self._waker, b"x")

    def close(self) -> None:
        """Release the descriptors."""
        for number in (self._events, self._woken, self._waker):
            if number >= 0:
                os.close(number)
        self._events = -1
        self._numbers.clear()
        self._paths.clear()


def _is_untold(libc: ctypes.CDLL, path: str) -> bool:
    """Whether files in a directory may change without an event, going by the type of its filesystem."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        return True
    return ctypes.c_long.from_buffer(buffer).value & _TYPE_MASK in _UNTOLD
