"""Files of a partition that got each other's names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.logs import log_name


def exchange(directory: Path, ring: Sequence[int], suffixes: Sequence[str]) -> None:
    """Give the files of each base offset the names of the next one, the last's those of the first."""
    for suffix in suffixes:
        contents = [(directory / log_name(base, suffix)).read_bytes() for base in ring]
        for base, content in zip((*ring[1:], *ring[:1]), contents, strict=True):
            (directory / log_name(base, suffix)).write_bytes(content)
