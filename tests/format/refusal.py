"""The only way in which a parser may fail."""

from __future__ import annotations

from collections.abc import Callable

from kfs.errors import CorruptData


def refused_at(parse: Callable[[bytes], object], data: bytes) -> int | None:
    """Return the position that ``parse`` complains of, None where it doesn't; any other error passes through."""
    try:
        parse(data)
    except CorruptData as error:
        return error.position
    return None
