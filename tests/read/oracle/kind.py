"""What a kind of case is, and how large its cases may be."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Final, Generic, Self, TypeVar

from kfs.format.batch_header import read_header
from tests.log.damages import Parts
from tests.logs import Batch, log_name

LogT = TypeVar("LogT")
CaseT = TypeVar("CaseT")
Segments = dict[int, list[Batch]]
#: Content by name: the files of a partition directory.
Files = dict[str, bytes]

SUFFIXES: Final = (".log", ".index", ".timeindex")
_MEMORY: Final = Path("/dev/shm")
#: When the files of a directory were last created or renamed, in seconds; one that was changed a moment ago is listed
#: again and again, which is most of what a case costs.
_AT_REST: Final = 1_700_000_000
#: Cases before the next size.
_CASES_PER_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Size:
    """How much there may be of anything, at most."""

    segments: int
    batches: int
    records: int
    events: int
    damages: int

    @classmethod
    def draw(cls, random: Random, number: int) -> Self:
        """Draw the size of the case of a number: the first are small, later ones may be."""
        most = min(1 + number // _CASES_PER_SIZE, 6)
        return cls(
            min(most, 3), random.randint(1, most), random.randint(1, most), random.randint(1, 4 * most), min(most, 3)
        )


class Kind(ABC, Generic[LogT, CaseT]):
    """Cases of one kind: how they are drawn and written, and what has to hold of each."""

    @abstractmethod
    def draw_log(self, random: Random, size: Size, directory: Path) -> LogT:
        """Draw a log as a broker has written it, into an empty directory; it is to be damaged several times."""

    @abstractmethod
    def draw(self, random: Random, size: Size, log: LogT) -> CaseT:
        """Draw what is done to a log."""

    @abstractmethod
    def write(self, case: CaseT, directory: Path) -> list[Path]:
        """Write the log directories of a case into an empty directory; return them."""

    @abstractmethod
    def judge(self, case: CaseT, roots: Sequence[Path], random: Random) -> None:
        """Hold the views against each other, and against what was written.

        Raises:
            AssertionError: something is wrong.
        """

    @abstractmethod
    def describe(self, case: CaseT) -> Iterator[str]:
        """Yield lines that say what a case is."""

    @abstractmethod
    def traits(self, case: CaseT) -> Iterator[str]:
        """Yield what is worth to be counted of a case, so that nothing is forgotten to be drawn."""


@cache
def _memory() -> Path | None:
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2**28 else None


@contextmanager
def temporary_directory(below: Path | None = None) -> Iterator[Path]:
    """Make a directory, in memory where that can be had and nothing else is said."""
    with tempfile.TemporaryDirectory(dir=below or _memory()) as name:
        yield Path(name)


def write_files(root: Path, files: Files) -> Path:
    """Write the files of a partition, ``t-0``, into a log directory that isn't there yet; return the log directory."""
    directory = root / "t-0"
    directory.mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    os.utime(directory, (_AT_REST, _AT_REST))
    return root


def format_of(one: Batch) -> str:
    """Return the format and the codec of a batch, such as ``v1 gzip``."""
    header = read_header(one.data, 0, 0)
    return f"v{header.magic} {header.codec_label}"


def describe_parts(base: int, parts: Parts) -> Iterator[str]:
    """Yield lines that say what became of the batches of a segment."""
    yield log_name(base)
    for part in parts:
        if part.was is None:
            yield f"  {len(part.data)} bytes of junk"
            continue
        state = "intact" if part.is_intact else "moved" if part.is_moved else "broken" if part.data else "cut off"
        offsets = f"offsets {part.was.first_offset} to {part.was.last_offset}"
        yield f"  {offsets}, {format_of(part.was)}, {len(part.data)} of {len(part.was.data)} bytes: {state}"
