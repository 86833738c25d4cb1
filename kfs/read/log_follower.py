"""Reads a log in order, and continues there when the log has grown."""

from __future__ import annotations

from collections.abc import Iterator

from kfs.log.bulk import DecodedBatches
from kfs.log.log import Log
from kfs.read.sight import Unreadable
from kfs.storage.open_files import FileChanged


class LogFollower:
    """Follows the log of one partition as a coordinator loads it: from the log start offset to the log's end.

    :meth:`read_on` yields what was appended since its last call. If segments are compacted, cut or deleted, or the log
    start offset moves, everything read before :attr:`is_void`: the caller must drop the state that it built, and call
    :meth:`begin`. Damage is added to the log's problems, and yielded.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        #: The caller must ignore records below this offset; the first batch may have some.
        self.start = 0
        self._incarnation = -1
        self._slot = -1
        self._position = 0
        self._after: int | None = None
        self._read_up_to = 0

    @property
    def is_void(self) -> bool:
        """Whether the log no longer has what was read before; also true before the first call of :meth:`begin`."""
        _ = self.log.segments  # looks for changes
        return self._incarnation != self.log.incarnation or self.start != self.log.log_start_offset

    def begin(self) -> None:
        """Restart at the log start offset."""
        _ = self.log.segments
        incarnation = self.log.incarnation
        self.start = self.log.log_start_offset
        self._incarnation = incarnation  # last: if a line above raises, the reader stays void
        self._slot = -1
        self._read_up_to = self.start

    def read_on(self) -> Iterator[DecodedBatches | Unreadable]:
        """Yield the items after those that were yielded before.

        Raises:
            FileChanged: the log changed while it was read; everything read before is void.
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
