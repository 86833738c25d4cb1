"""Follows the log of one partition for a reader: each wanted record once, as soon as it is appended and visible.

A position is an offset, the topic id, and the leader epoch of the record before the offset. They show whether the log
was truncated or re-created since it was read, as for a consumer (KIP-320).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kfs.log.identity import Identity, identity_at, other_log, topic_id_of
from kfs.log.log import Log
from kfs.log.log_segments import MOST_LOOKS
from kfs.log.problem import DamagePolicy
from kfs.log.remote_offsets import Tier
from kfs.read.isolation import CommittedReader
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_reader import LogReader
from kfs.read.plan import BatchRange, holds_some_of, of_span
from kfs.read.selection import Selection
from kfs.read.split_reader import SelectedRecords, SplitReader, last_in
from kfs.read.wanted_offsets import WantedOffsets, lost_at_end, wanted_offsets
from kfs.storage.open_files import FileChanged
from kfs.storage.status import status_at

#: How old damage at a log's end has to be, in nanoseconds, to be taken for more than a batch that is being written.
_SETTLED_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a followed partition, and what that means for its reader, in words."""

    text: str


@dataclass(frozen=True, slots=True)
class Following:
    """The records to follow: those of ``selection``, the ``first`` ones only if that isn't None."""

    selection: Selection
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    first: int | None = None
    on_damage: DamagePolicy = DamagePolicy.FAIL


class FollowedLog:
    """Reads the records of one partition from a position on, each once.

    The log may roll, lose segments to retention, be compacted, truncated, or re-created. Records that were read are
    never yielded again, unless the log is of another topic by now: then it begins anew, which an :class:`Event` says.
    ``log`` is a parameter throughout, because another copy of the partition may be served meanwhile. Begin with one of
    the ``begin`` methods.
    """

    def __init__(self, following: Following) -> None:
        self._following = following
        self._left = following.first
        self._reader = SplitReader(following.selection, following.isolation)
        self._log: Log | None = None
        self._log_reader: LogReader | None = None
        self._incarnation = -1
        #: The offset to read next, and what identifies the log that was read up to there.
        self._offset = 0
        self._identity = Identity()
        self._place: tuple[str, int] | None = None
        #: Where the log ended when it was read last, if that is above what was read.
        self._known_end = 0
        self._is_cut = False
        self._sound: tuple[str, int] | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted of it, whatever is appended."""
        return self._left == 0 or self._offset >= self._following.selection.end

    # -- where to begin

    def begin_at_start(self, log: Log) -> None:
        """Begin at the log's start, or where the selection begins."""
        self._begin(log, wanted_offsets(log, self._following.selection, self._following.isolation).start)

    def begin_at_end(self, log: Log) -> None:
        """Begin at the end of what is visible: with ``read_committed``, at the last stable offset."""
        self._begin(log, self._visible_in(log).offsets.end)

    def begin_at(self, log: Log, offset: int) -> Iterator[Event]:
        """Begin at an offset, which may be deleted by now, or may not exist yet: an event says so."""
        self._begin(log, offset)
        if offset > self._known_end:
            yield Event(
                f"{log.topic_partition}: offset {offset} is above the log's end {self._known_end}: waiting for it"
            )

    def begin_with_last(self, log: Log, count: int) -> Iterator[SelectedRecords]:
        """Yield the last ``count`` wanted records, and go on at the end.

        Raises:
            FileChanged: the log changes while it is read; nothing was yielded.
        """
        wanted = wanted_offsets(log, self._following.selection, self._following.isolation)
        last = list(last_in(self._reader, log, replace(wanted, asked_end=wanted.end), count))
        self._begin(log, wanted.end)
        for _, selected in last:
            yield from self._counted(selected)

    def _begin(self, log: Log, offset: int) -> None:
        self._visible_in(log)
        self._incarnation = log.incarnation
        self._offset = offset
        self._known_end = min(log.log_end_offset, offset)
        self._remember(log)

    def _remember(self, log: Log) -> None:
        """Remember what identifies the log that was read up to the offset."""
        self._identity = identity_at(log, self._offset)
        self._place = _place_of(log)

    # -- reading on

    def read_on(self, log: Log) -> Iterator[SelectedRecords | Event]:
        """Yield what was appended since the last call, and what happened to the log.

        Raises:
            FileChanged: segments disappear at each attempt. A later call goes on.
            CorruptData: a device fails; or the log ends in damage, and that isn't to be skipped.
            SourceLost: the directory can't be listed.
        """
        reader = self._visible_in(log)
        for looks in range(1, MOST_LOOKS + 1):
            try:
                yield from self._look(log)
                before = self._offset
                yield from self._read(log, reader)
                if before != self._offset:
                    self._remember(log)
                self._look_at_end(log)
                return
            except FileChanged:
                self._reader.forget()
                log.look_again()
                if looks == MOST_LOOKS:
                    raise

    def _visible_in(self, log: Log) -> LogReader:
        """Return the reader that knows what is visible; with ``read_committed`` it remembers open transactions."""
        if self._log_reader is None or self._log is not log:
            is_committed = self._following.isolation is IsolationLevel.READ_COMMITTED
            self._log, self._log_reader = log, LogReader(log, CommittedReader(log) if is_committed else None)
            self._incarnation = -1
        return self._log_reader

    def _look(self, log: Log) -> Iterator[Event]:
        """Look whether this is still the log that was read, and where it begins and ends."""
        _ = log.segments
        end = log.log_end_offset
        if log.incarnation != self._incarnation or end < self._known_end:
            incarnation = log.incarnation
            yield from self._identify(log, end)
            self._incarnation = incarnation
        if self._is_cut and end >= self._known_end:
            self._is_cut = False

    def _identify(self, log: Log, end: int) -> Iterator[Event]:
        where = log.topic_partition
        topic_id, place = topic_id_of(log), _place_of(log)
        if self._is_recreated(topic_id is not None and topic_id == self._identity.topic_id, topic_id is None, place):
            start = log.visible().start
            yield Event(f"{where}: the topic was deleted and re-created: going on at its start, offset {start}")
            self._offset = self._known_end = start
            self._is_cut = False
            self._remember(log)
            return
        other = other_log(log, self._offset, replace(self._identity, topic_id=None))
        if other is not None and other.common is not None:
            yield Event(f"{other.reason}; going on at offset {other.common}")
            self._offset = self._known_end = other.common
            self._is_cut = False
            self._remember(log)
        elif end < self._known_end and not self._is_cut:
            yield Event(
                f"{where}: the log was truncated: it ends at {end}, and was read up to {self._known_end}: going on at "
                f"{self._offset}, or where records of another leader epoch begin"
            )
            self._is_cut = True

    def _is_recreated(self, is_same_topic: bool, is_unknown: bool, place: tuple[str, int] | None) -> bool:
        """Whether the topic was re-created: it has another id. Without ids, the directory is another one."""
        if is_same_topic:
            return False
        if not is_unknown and self._identity.topic_id is not None:
            return True
        was = self._place
        return was is not None and place is not None and was[0] == place[0] and was[1] != place[1]

    def _read(self, log: Log, reader: LogReader) -> Iterator[SelectedRecords | Event]:
        """Read up to the end of what is visible now."""
        visible = reader.offsets
        self._check_unchanged(log)
        if self._offset < visible.start and not self.is_done:
            gone = f"offsets {self._offset} to {visible.start - 1} were {_what_became_of(log, self._offset)}"
            yield Event(f"{log.topic_partition}: {gone} before they were read")
            self._offset = visible.start
        end = min(visible.end, self._following.selection.end)
        wanted = WantedOffsets(self._offset, max(self._offset, end), end)
        for span in [span for span in log.spans if holds_some_of(wanted, span)]:
            yield from self._read_segment(log, span.segment.base_offset, of_span(wanted, span))
            if self.is_done:
                return
        self._offset = wanted.end
        self._known_end = max(self._known_end, self._offset)

    def _check_unchanged(self, log: Log) -> None:
        """Raise :class:`FileChanged` if segments have changed since the last look: they may be those of another log."""
        if log.incarnation != self._incarnation:
            raise FileChanged("the log has changed", 0, log.directory.path)

    def _read_segment(self, log: Log, base_offset: int, wanted: WantedOffsets) -> Iterator[SelectedRecords]:
        segment = log.segment_at(base_offset)
        self._check_unchanged(log)
        if segment is None:
            raise FileChanged("a segment is gone", 0, log.directory.path)
        position, after = segment.position_before(wanted.start)
        batches = BatchRange(log.topic, log.partition, base_offset, position, None, after)
        try:
            for selected in self._reader.select_in(log, segment, batches, wanted):
                yield from self._counted(selected)
                if self._left == 0:
                    return
        except FileChanged:
            self._offset = max(self._offset, min(self._reader.read_up_to, wanted.end))
            self._known_end = max(self._known_end, self._offset)
            raise
        self._offset = max(self._offset, wanted.end)

    def _counted(self, selected: SelectedRecords) -> Iterator[SelectedRecords]:
        """Yield some records, but no more than are left of the first ones."""
        if self._left is not None:
            selected = replace(selected, indexes=selected.indexes[: self._left])
            self._left -= len(selected.indexes)
        yield selected

    def _look_at_end(self, log: Log) -> None:
        """Raise the error of damage at the log's end unless it is to be skipped: reading up to the end doesn't meet it.

        The last batch may just be being written, so damage counts only once the file has been quiet for a while. The
        log's problems name it in any case.
        """
        segment = log.segments[-1] if log.segments else None
        if segment is None or self._following.on_damage is not DamagePolicy.FAIL:
            return
        status = segment.file().status()
        state = segment.files.log.path, status.size
        if state == self._sound or time.time_ns() - status.mtime_ns < _SETTLED_NS:
            return
        damage = lost_at_end(log)
        if damage is not None:
            raise damage.problem.error()
        self._sound = state


def _what_became_of(log: Log, offset: int) -> str:
    """Return what happened to an offset below the log's start on this disk, as far as that is known."""
    remote = log.remote
    if remote is None or offset not in remote or not remote.is_likely:
        return "deleted"
    return "moved to remote storage" if remote.tier is Tier.TOPIC else "deleted, or moved to remote storage,"


def _place_of(log: Log) -> tuple[str, int] | None:
    """Return the path and the inode number of a log's directory, or None if it can't be queried."""
    try:
        return log.directory.path, status_at(log.directory.path).inode
    except OSError:
        return None
