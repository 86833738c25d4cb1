"""Doing one piece of work: from log bytes to output bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kfs.export.output import OutputFormat, Writer
from kfs.log.data_dir import DataDir
from kfs.log.problem import Problem
from kfs.read.isolation import IsolationLevel
from kfs.read.piece import Chosen, Left, PieceReader
from kfs.read.plan import WantedOffsets, Work
from kfs.read.selection import Selection


@dataclass(frozen=True, slots=True)
class Done:
    """Output of some blocks: the bytes, and what could not be read."""

    data: bytes = b""
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Worker:
    """Does pieces of work on one data directory; ``left`` is where the last one ended, None if that was not reached."""

    data_dir: DataDir
    selection: Selection
    output: OutputFormat
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    reader: PieceReader = field(init=False)
    _writers: dict[tuple[str, int], Writer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = PieceReader(self.selection, self.isolation)

    @property
    def left(self) -> Left | None:
        """See :attr:`PieceReader.left`."""
        return self.reader.left

    def do(self, work: Work, offsets: WantedOffsets) -> Iterator[Done]:
        """Yield the output of a piece, block by block; errors as :meth:`choose`."""
        for chosen in self.choose(work, offsets):
            yield self.render(work, chosen)

    def render(self, work: Work, chosen: Chosen) -> Done:
        """Return the output of records of a piece."""
        if chosen.records is None or not chosen.indexes:
            return Done(problems=chosen.problems)
        key = (work.topic, work.partition)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = self.output.writer(*key)
        return Done(writer(chosen.records.columns, chosen.indexes), chosen.problems)

    def choose(self, work: Work, offsets: WantedOffsets) -> Iterator[Chosen]:
        """See :meth:`PieceReader.choose`."""
        return self.reader.choose(self.data_dir.log(work.topic, work.partition), work, offsets)
