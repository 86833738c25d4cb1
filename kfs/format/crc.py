"""CRC-32C, which covers record batches (v2) and producer snapshots."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from kfs.compiled import compiled_or_python

_Crc: TypeAlias = "Callable[[bytes | bytearray | memoryview], int]"


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``; :func:`~kfs.compiled.compiled_or_python` picks the code."""
    return _chosen()(data)


@cache
def _chosen() -> _Crc:
    return compiled_or_python(lambda: _of_library, _import_compiled)


def _import_compiled() -> _Crc:
    from kfs.format.compiled_decode import crc32c

    return crc32c


def _of_library(data: bytes | bytearray | memoryview) -> int:
    from crc32c import crc32c  # a local import: it takes longer than importing all of kfs.format

    return int(crc32c(data))
