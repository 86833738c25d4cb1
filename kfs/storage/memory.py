"""Tuning of how glibc's allocator gets memory from the kernel and returns it, and of Python's garbage collection."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

#: ``mallopt`` parameters of glibc's ``malloc.h``.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 64 * 1024 * 1024
_LARGE_BYTES: Final = 32 * 1024 * 1024  # the maximum that glibc accepts
_GROWTH_BYTES: Final = 1024 * 1024
_SPARE_BYTES: Final = 8 * 1024 * 1024
_REPLY_BYTES: Final = 4 * 1024 * 1024
#: New objects before a collection, and collections before one of the older objects: of a command, and of a server.
_GARBAGE_THRESHOLDS: Final = (20_000, 20, 20)
_SERVERS_THRESHOLDS: Final = (7_000, 10, 10)


def keep_freed_memory() -> None:
    """Keep up to 64 MiB of freed memory, for a process that only fills and frees large buffers.

    By default the allocator returns large buffers to the kernel, and the next buffer gets pages that the kernel must
    zero first. That takes a fifth of the time of printing a topic.
    """
    _set(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _set(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def share_one_heap() -> None:
    """Allocate from one heap in all threads, and grow it by the megabyte, for a process that serves from threads.

    A per-thread heap grows by the page, with a system call each time, which takes 2 % of the time of reading single
    records. Also, memory that one thread frees isn't available to the others. Reply buffers of up to 4 MiB come from
    the heap too. If they were mapped separately, the kernel would zero their pages first, which takes half of the time
    of a large read.
    """
    _set(_M_ARENA_MAX, 1)
    _set(_M_MMAP_THRESHOLD, _REPLY_BYTES)
    _set(_M_TOP_PAD, _GROWTH_BYTES)
    _set(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def collect_garbage_less() -> None:
    """Look for reference cycles less often, for a command or a worker, which makes objects for each segment.

    With Python's default of 700 new objects, that takes a seventh of the time of printing 10,000 small segments. A
    mount would keep what only the garbage collection frees: see :func:`collect_garbage_of_server`.
    """
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def collect_garbage_of_server() -> None:
    """Look for reference cycles somewhat less often, and not among present objects, for a process that begins to serve.

    The present objects are modules, classes and functions, which stay. With Python's default, looking takes a fifth of
    the time of a first look into each of thousands of partitions, as the objects that are kept of them grow in number.
    """
    gc.freeze()
    gc.set_threshold(*_SERVERS_THRESHOLDS)


def _set(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
