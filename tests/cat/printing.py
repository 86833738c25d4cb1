"""Running what ``kfs cat`` runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kfs.cat.output import OutputFormat
from kfs.cat.records import CatRequest, Place
from kfs.cli.places import Records, places_of
from kfs.log.data_dir import DataDir
from kfs.log.problem import Problem
from kfs.log.storage import Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection

EVERYTHING = Selection()
LINES = OutputFormat()


def printed(
    root: Path | Sequence[Path],
    topic: str,
    partition: int | None = None,
    *,
    selection: Selection = EVERYTHING,
    output: OutputFormat = LINES,
    first: int | None = None,
    last: int | None = None,
    jobs: int = 1,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> tuple[bytes, list[Problem]]:
    """Return the bytes of a request and its problems."""
    roots = [root] if isinstance(root, Path) else root
    data_dir = DataDir(list(map(str, roots)), Storage())
    try:
        return written(CatRequest(selection, output, first, last, jobs, isolation), data_dir, topic, partition)
    finally:
        data_dir.close()


def written(
    request: CatRequest, data_dir: DataDir, topic: str, partition: int | None = None
) -> tuple[bytes, list[Problem]]:
    """Return the bytes that a request writes and its problems."""
    with tempfile.TemporaryFile() as out:
        problems = list(request.write(out.fileno(), places(data_dir, topic, partition)))
        out.seek(0)
        return out.read(), problems


def places(data_dir: DataDir, topic: str, partition: int | None = None) -> list[Place]:
    """Return what a path names."""
    return places_of(data_dir, [Records(topic, partition)], deleted=False)


def offsets_in(lines: bytes) -> list[int]:
    """Return the offsets of records that were put out as lines of JSON."""
    return [json.loads(line)["offset"] for line in lines.splitlines()]
