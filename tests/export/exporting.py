"""Running an export."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kfs.export.output import OutputFormat
from kfs.export.records import Export
from kfs.export.selection import Selection
from kfs.log.data_dir import DataDir
from kfs.log.problem import Problem
from kfs.log.storage import Storage

EVERYTHING = Selection()
LINES = OutputFormat()


def exported(
    root: Path,
    topic: str,
    partition: int | None = None,
    *,
    selection: Selection = EVERYTHING,
    output: OutputFormat = LINES,
    first: int | None = None,
    last: int | None = None,
    jobs: int = 1,
) -> tuple[bytes, list[Problem]]:
    """Return the bytes of an export and its problems."""
    data_dir = DataDir([str(root)], Storage())
    try:
        return written(Export(data_dir, selection, output, first, last, jobs), topic, partition)
    finally:
        data_dir.close()


def written(export: Export, topic: str, partition: int | None = None) -> tuple[bytes, list[Problem]]:
    """Return the bytes that an export writes and its problems."""
    with tempfile.TemporaryFile() as out:
        problems = list(export.write(out.fileno(), topic, partition))
        out.seek(0)
        return out.read(), problems
