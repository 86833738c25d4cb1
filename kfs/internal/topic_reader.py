"""Reading a partition of one of Kafka's own topics in order, and on from there when it has grown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.log.block import Damage
from kfs.log.bulk import Records, Undecodable
from kfs.log.log import Log
from kfs.log.open_files import FileChanged
from kfs.log.problem import Problem

#: How often a log is begun anew that is compacted, or cut, while it is read.
_MOST_ATTEMPTS: Final = 5
#: Records that can't be read are kept up to this many; more are counted.
_MOST_UNREAD: Final = 1_000


class TopicReader:
    """Follows the log of one partition as a coordinator loads it: from the log start offset to the log's end.

    :meth:`read_on` yields what has come since it last was asked. Once segments were compacted, cut or deleted, or the
    log start offset was moved, what was read before :attr:`is_void`: who keeps state of it forgets that, and has the
    reader :meth:`begin` anew. What is damaged is among the log's problems, and yielded.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Records below it, which the first batch may hold, are not for whoever reads.
        self.start = 0
        self._incarnation = -1
        self._slot = -1
        self._position = 0
        self._seen: int | None = None
        self._read_up_to = 0

    @property
    def is_void(self) -> bool:
        """Whether what was read before is no longer what the log holds; so it is before the first reading."""
        _ = self.log.segments  # looks for changes
        return self._incarnation != self.log.incarnation or self.start != self.log.log_start_offset

    def begin(self) -> None:
        """Take nothing for read."""
        _ = self.log.segments
        self._incarnation = self.log.incarnation
        self.start = self.log.log_start_offset
        self._slot = -1
        self._read_up_to = self.start

    def read_on(self) -> Iterator[Records | Undecodable | Damage]:
        """Yield what follows what was yielded before.

        Raises:
            FileChanged: the log changed under the reading; what was read is void.
        """
        try:
            for segment in self.log.segments:
                if segment.next_base_offset is not None and segment.next_base_offset <= self._read_up_to:
                    continue
                reader = segment.bulk_reader()
                if segment.slot != self._slot:
                    self._position, self._seen = segment.position_before(max(self.start, segment.base_offset))
                    self._slot = segment.slot
                for item in reader.items(self._position, self._seen):
                    self._position = item.end
                    if isinstance(item, Records):
                        self._seen = item.last_offset
                    elif isinstance(item, Undecodable):
                        self._seen = item.block.header.last_offset
                    yield item
                if segment.next_base_offset is not None:
                    self._read_up_to = segment.next_base_offset
        except FileChanged:
            self._incarnation = -1
            self.log.look_again()
            raise


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """A record that can't be read, as it is, and why; ``file`` and ``position`` (in bytes) are its batch's."""

    file: str
    position: int
    offset: int
    key: bytes | None
    value: bytes | None
    reason: str

    def problem(self) -> Problem:
        """Return what is wrong with it."""
        return Problem(self.file, self.position, 0, f"offset {self.offset}: {self.reason}")


class TopicState(ABC):
    """What the records of a partition add up to, as far as they were read: :meth:`refresh` reads on.

    Not for several threads at once.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Grows with every change.
        self.version = 0
        #: By key, or by offset where that is null.
        self.unread: dict[bytes | int, UnreadRecord] = {}
        self.unread_dropped = 0
        #: How many stretches of the log were damaged.
        self.damaged = 0
        self._reader = TopicReader(log)
        self._forget()

    def refresh(self) -> None:
        """Read what has come since the last time; all, if what was read is no longer what the log holds.

        Raises:
            FileChanged: the log changes faster than it can be read.
        """
        for attempt in range(_MOST_ATTEMPTS):
            try:
                if self._reader.is_void:
                    self._forget()
                    self.unread.clear()
                    self.unread_dropped = self.damaged = 0
                    self._reader.begin()
                    self.version += 1
                for item in self._reader.read_on():
                    self.version += 1
                    if isinstance(item, Records):
                        self._replay(item)
                        self.damaged += len(item.columns.faults)
                    else:
                        self.damaged += not isinstance(item, Damage) or item.loses_records
            except FileChanged:
                if attempt == _MOST_ATTEMPTS - 1:
                    raise
            else:
                return

    @abstractmethod
    def _forget(self) -> None:
        """Be as before the first record."""

    @abstractmethod
    def _replay(self, records: Records) -> None:
        """Apply records; of batches that reach below the start of the reader, those from there on."""

    def _keep_unread(
        self, records: Records, offset: int, key: bytes | None, value: bytes | None, error: CorruptData
    ) -> None:
        name = offset if key is None else key
        if key is not None and value is None:  # whatever it was is deleted
            self.unread.pop(name, None)
            return
        if len(self.unread) >= _MOST_UNREAD and name not in self.unread:
            self.unread_dropped += 1
            return
        row = bisect_left(records.table.last_offsets, offset, records.first, records.stop)
        position = records.table.positions[min(row, records.stop - 1)]
        self.unread[name] = UnreadRecord(records.file, position, offset, key, value, error.reason)
