"""What is wanted of records, and the pieces of work it is split into: small, ready to be sent to other processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kfs.log.directory_name import DirectoryName
from kfs.log.healing import Healer
from kfs.log.log import Log
from kfs.log.log_dir import LogDir
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problems
from kfs.log.storage import Storage
from kfs.read.isolation import IsolationLevel
from kfs.read.plan import WantedOffsets, Work
from kfs.read.selection import Selection
from kfs.render.arrow_columns import SPARK_COLUMNS, Column

DEFAULT_BATCH_ROWS: Final = 16 * 1024
#: A batch that has as many bytes of keys, values and headers gets no more.
DEFAULT_BATCH_BYTES: Final = 32 * 1024 * 1024
#: More rows than that are never in a batch: int32 then counts the bytes of the longest topic's name, too.
_MOST_ROWS: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """Which columns of which records, and how many rows and bytes make a batch, at most or so.

    ``batch_rows`` is never exceeded; a batch has more bytes than ``batch_bytes`` by what one block has, at most.
    """

    columns: tuple[Column, ...] = SPARK_COLUMNS
    selection: Selection = field(default_factory=Selection)
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES

    def __post_init__(self) -> None:
        if self.batch_rows < 1 or self.batch_bytes < 1:
            raise ValueError(f"a batch of {self.batch_rows} rows and {self.batch_bytes} bytes")
        object.__setattr__(self, "batch_rows", min(self.batch_rows, _MOST_ROWS))


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where a log is, so that another process can open it: its segments, not what checkpoints say of them.

    ``copies`` are other copies of it, each with the log directory that it is in; of the log itself that is ``log_dir``.
    """

    path: str
    name: DirectoryName
    loose: tuple[str, ...]
    max_batch_bytes: int
    log_dir: str | None = None
    copies: tuple[tuple[str, DirectoryName, str | None], ...] = ()

    @classmethod
    def of(cls, log: Log) -> LogSource:
        """Return the source of a log that is open here."""
        directory = log.directory
        copies = tuple((each.path, each.name, _path_of(each)) for each in log.other_copies())
        limit = log.storage.max_batch_bytes
        return cls(directory.path, directory.name, directory.loose, limit, _path_of(directory), copies)

    def open(self) -> Log:
        """Open the log; nothing is read yet."""
        directory = PartitionDirectory(self.path, self.name, None, self.loose)
        return Log(directory, Storage(max_batch_bytes=self.max_batch_bytes), healer=self._healer())

    def _healer(self) -> Healer | None:
        if not self.copies:
            return None
        itself, *others = (
            PartitionDirectory(path, name, None if log_dir is None else LogDir(log_dir, Problems()))
            for path, name, log_dir in ((self.path, self.name, self.log_dir), *self.copies)
        )
        return Healer(itself, lambda: others)


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work: where, and which offsets of it are wanted."""

    source: LogSource
    work: Work
    offsets: WantedOffsets


@dataclass(frozen=True, slots=True)
class Assignment:
    """A task, and its log as it is open here."""

    task: Task
    log: Log


def _path_of(directory: PartitionDirectory) -> str | None:
    return None if directory.log_dir is None else directory.log_dir.path
