"""Reading a log in order, and on from there when it has grown."""

from __future__ import annotations

from collections.abc import Iterator

from kfs.log.bulk import DecodedBatches
from kfs.log.log import Log
from kfs.read.sight import Unreadable
from kfs.storage.open_files import FileChanged


class LogFollower:
    """Follows the log of one partition as a coordinator loads it: from the log start offset to the log's end.

    :meth:`read_on` yields what has come since it last was asked. Once segments were compacted, cut or deleted, or the
    log start offset was moved, what was read before :attr:`is_void`: who keeps state of it forgets that, and has the
    reader :meth:`begin` anew. What is damaged is among the log's problems, and yielded.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Records below it, which the first batch may hold, are not for the reader.
        self.start = 0
        self._incarnation = -1
        self._slot = -1
        self._position = 0
        self._after: int | None = None
        self._read_up_to = 0

    @property
    def is_void(self) -> bool:
        """Whether what was read before is no longer what the log holds; so it is before the first reading."""
        _ = self.log.segments  # looks for changes
        return self._incarnation != self.log.incarnation or self.start != self.log.log_start_offset

    def begin(self) -> None:
        """Take nothing for read."""
        _ = self.log.segments
        incarnation = self.log.incarnation
        self.start = self.log.log_start_offset
        self._incarnation = incarnation  # last: what can't be asked for just now is void still
        self._slot = -1
        self._read_up_to = self.start

    def read_on(self) -> Iterator[DecodedBatches | Unreadable]:
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
                    self._position, self._after = segment.position_before(max(self.start, segment.base_offset))
                    self._slot = segment.slot
                for item in reader.items(self._position, self._after):
                    self._position = item.end
                    self._after = item.last_offset if item.last_offset >= 0 else self._after
                    yield item
                if segment.next_base_offset is not None:
                    self._read_up_to = segment.next_base_offset
        except FileChanged:
            self._incarnation = -1
            self.log.look_again()
            raise
