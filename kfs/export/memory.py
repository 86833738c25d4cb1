"""How freed memory is kept, for a process that does nothing but fill and free large buffers."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

#: ``mallopt`` parameters of glibc's ``malloc.h``.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * 1024 * 1024
_LARGE_BYTES: Final = 32 * 1024 * 1024  # the most it accepts


def keep_freed_memory() -> None:
    """Have the allocator keep up to 64 MiB of what is freed, where it is glibc's.

    It gives large buffers back otherwise, and the next one is made of pages that the kernel has to
    clear first: a fifth of the time that it takes to print a topic.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
