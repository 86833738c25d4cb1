"""How the allocator, where it is glibc's, gets memory from the kernel and gives it back."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

#: ``mallopt`` parameters of glibc's ``malloc.h``.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 64 * 1024 * 1024
_LARGE_BYTES: Final = 32 * 1024 * 1024  # the most it accepts
_GROWTH_BYTES: Final = 1024 * 1024
_SPARE_BYTES: Final = 8 * 1024 * 1024
_REPLY_BYTES: Final = 4 * 1024 * 1024


def keep_freed_memory() -> None:
    """Keep up to 64 MiB of what is freed: for a process that does nothing but fill and free large buffers.

    The allocator gives large buffers back otherwise, and the next one is made of pages that the kernel has to
    clear first: a fifth of the time that it takes to print a topic.
    """
    _set(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _set(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def share_one_heap() -> None:
    """Have all threads allocate from one heap, which grows by the megabyte: for a process that answers from threads.

    A heap that belongs to a thread grows by the page, with a system call each time: 2 % of the time that reads of
    single records take. And what one thread has freed, no other can use. What a reply is made of, up to 4 MiB, comes
    from the heap, too: memory of its own would be pages that the kernel clears first, half of the time of a large read.
    """
    _set(_M_ARENA_MAX, 1)
    _set(_M_MMAP_THRESHOLD, _REPLY_BYTES)
    _set(_M_TOP_PAD, _GROWTH_BYTES)
    _set(_M_TRIM_THRESHOLD, _SPARE_BYTES)


def _set(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(parameter, value)
