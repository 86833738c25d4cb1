"""One copy of ``__cluster_metadata-0``: the newest complete snapshot, then the log's records after it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.control_record import ControlRecordType
from kfs.format.layout import MAX_INT64
from kfs.format.quorum_state import QuorumState, parse_quorum_state
from kfs.format.uuid import Uuid
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.replay import Replay
from kfs.log.bulk import DecodedBatches
from kfs.log.healing import Healer
from kfs.log.log import Log
from kfs.log.log_dir import BOOTSTRAP_CHECKPOINT
from kfs.log.log_segments import MOST_LOOKS
from kfs.log.partition_directory import QUORUM_STATE, PartitionDirectory
from kfs.log.problem import Problem, Problems
from kfs.log.segment import Segment
from kfs.log.segment_files import SegmentFiles
from kfs.log.storage import Storage
from kfs.storage.listing import FoundFile, found_at
from kfs.storage.open_files import FileChanged
from kfs.storage.side_file import read_side_file

#: ``Snapshots.java``: the end offset and the epoch of a snapshot.
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint(\.deleted|\.part)?\Z")
#: The start of a record with a topic name: frame version 1, type 2 (``TopicRecord``).
_TOPIC_RECORD: Final = b"\x01\x02"
_CONTROL_TYPE: Final = slice(2, 4)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot file, with the state of all records below ``end_offset``.

    ``suffix`` is ``.deleted`` for a snapshot that waits for removal, and ``.part`` for an unfinished one.
    """

    file: FoundFile
    end_offset: int
    epoch: int
    suffix: str = ""

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.file.path


@dataclass(frozen=True, slots=True)
class MetadataState:
    """The state of a metadata log up to :attr:`Replay.end_offset`.

    ``snapshot`` is the snapshot that it is based on, or None if it is based on the log alone or on
    ``bootstrap.checkpoint``. ``stopped`` is the reason if replay stopped before the log's end. ``is_partial`` says that
    the log begins above 0 and no snapshot has the state before that.
    """

    replay: Replay
    snapshot: Snapshot | None
    is_bootstrap: bool
    is_partial: bool
    stopped: str | None

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster."""
        return self.replay.image


class MetadataLog:
    """A directory of the metadata log, followed as it grows; creating it reads nothing."""

    def __init__(
        self,
        directory: PartitionDirectory,
        storage: Storage,
        cluster_id: str | None = None,
        others: Callable[[], Sequence[PartitionDirectory]] = tuple,
    ) -> None:
        """Open the log; ``others`` returns the directories of other copies, which can restore lost records."""
        self.directory = directory
        self.cluster_id = cluster_id
        self.log = Log(directory, storage, copies=Healer(directory, others))
        self._storage = storage
        self._state: MetadataState | None = None
        #: The source of the state: the log's incarnation, segments with their sizes, and snapshots.
        self._state_of: tuple[object, ...] = ()
        self._place: tuple[Segment, int, int] | None = None
        self._reading = threading.Lock()
        self._names: tuple[tuple[str, ...], dict[Uuid, str]] = ((), {})

    @property
    def problems(self) -> Problems:
        """The problems of its files."""
        return self.log.problems

    # -- files

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshot files, complete or not: newest first, then those to be removed, then unfinished ones."""
        _ = self.log.segments
        found = []
        for name, file in list(self.log.files.others.items()):
            match = _SNAPSHOT.match(name)
            if match and int(match[1]) <= MAX_INT64:
                found.append(Snapshot(file, int(match[1]), int(match[2]), match[3] or ""))
        order = {"": 0, ".deleted": 1, ".part": 2}
        return sorted(found, key=lambda one: (order[one.suffix], -one.end_offset, -one.epoch))

    def quorum_state(self) -> QuorumState | None:
        """Return ``quorum-state``; None if it is missing or unreadable; the latter is a problem."""
        try:
            return read_side_file(os.path.join(self.directory.path, QUORUM_STATE), parse_quorum_state)
        except CorruptData as error:
            self.problems.add_error(error)
            return None

    def standing(self) -> tuple[int, bool, int, int]:
        """Return the rank of this log among those of several brokers; the greatest is used.

        It consists of the epoch, whether the state is complete from the beginning, how far the log can be read, and
        where it ends. The epoch and the end are those of the log or of the newest snapshot.
        """
        ends = [(one.epoch, one.end_offset) for one in self.snapshots() if not one.suffix]
        if self.log.segments:
            ends.append((self.log.last_leader_epoch(), self.log.log_end_offset))
        epoch, end = max(ends, default=(-1, 0))
        state = self.state()
        return epoch, not state.is_partial, state.replay.end_offset, end

    def snapshot_fault(self, snapshot: Snapshot) -> str | None:
        """Return why a snapshot can't be used, or None if it is complete."""
        if snapshot.suffix == ".part":
            return "it was never finished"
        try:
            self._read_snapshot(snapshot.file, Replay(), Problems())
        except CorruptData as error:
            return str(error)
        return None

    # -- state

    def state(self) -> MetadataState:
        """Return the state at the log's end; while the log only grows, earlier records aren't read again."""
        with self._reading:
            state = self._brought_up_to_date()
            for _ in range(MOST_LOOKS - 1):
                _ = self.log.segments
                if self.log.incarnation == self._state_of[0]:
                    break
                state = self._brought_up_to_date()
            return state

    def _brought_up_to_date(self) -> MetadataState:
        segments = self.log.segments
        files = (
            self.log.incarnation,
            [(segment, segment.size()) for segment in segments],
            [snapshot.path for snapshot in self.snapshots()],
        )
        state = self._state
        if state is None or files != self._state_of:
            grows = state is not None and self._state_of[0] == files[0] and segments and state.stopped is None
            state = self._extended(state) if grows and state is not None else self._load(MAX_INT64)
            self._state, self._state_of = state, files
        return state

    def state_at(self, end_offset: int) -> MetadataState:
        """Return the state of the records below ``end_offset``."""
        with self._reading:
            place = self._place
            try:
                return self._load(end_offset)
            finally:
                self._place = place

    def _extended(self, state: MetadataState) -> MetadataState:
        if state.is_bootstrap:
            return self._load(MAX_INT64)
        replay = state.replay.copy()
        stopped = self._follow(replay, MAX_INT64)
        if stopped is not None:
            return self._load(MAX_INT64)  # a new snapshot may exist if the log now begins after the replayed records
        return MetadataState(replay, state.snapshot, False, state.is_partial, None)

    def _load(self, end_offset: int) -> MetadataState:
        self._place = None
        segments = self.log.segments
        replay, snapshot = self._newest_snapshot(end_offset)
        first = segments[0].base_offset if segments else 0
        is_partial = snapshot is None and first > 0
        if is_partial:
            reason = f"the log begins at offset {first}, and no snapshot has what was before"
            self.problems.add(Problem(self.directory.path, 0, 0, reason))
            replay.end_offset = first
        stopped = self._follow(replay, end_offset)
        if snapshot is None and not replay.end_offset:
            bootstrap = self.bootstrap()
            if bootstrap is not None:
                return MetadataState(bootstrap, None, True, False, stopped)
        return MetadataState(replay, snapshot, False, is_partial, stopped)

    def _newest_snapshot(self, end_offset: int) -> tuple[Replay, Snapshot | None]:
        for snapshot in self.snapshots():
            if snapshot.suffix == ".part" or snapshot.end_offset > end_offset:
                continue
            try:
                replay = Replay()
                self._read_snapshot(snapshot.file, replay, self.problems)
            except CorruptData as error:
                self.problems.add(Problem(snapshot.path, error.position, 0, f"not used: {error.reason}"))
                continue
            replay.end_offset, replay.epoch = snapshot.end_offset, snapshot.epoch
            return replay, snapshot
        return Replay(), None

    def bootstrap(self) -> Replay | None:
        """Return the initial state in ``bootstrap.checkpoint``; None if it is missing or incomplete."""
        path = os.path.join(os.path.dirname(self.directory.path), BOOTSTRAP_CHECKPOINT)
        return read_bootstrap(path, self._storage, self.problems)

    def _read_snapshot(self, file: FoundFile, replay: Replay, problems: Problems) -> None:
        read_snapshot(Segment(SegmentFiles(0, file), self._storage, problems), replay)

    def _follow(self, replay: Replay, end_offset: int) -> str | None:
        """Apply the log's records from the end of ``replay`` on; return the reason for stopping early, or None."""
        for segment in self.log.segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= replay.end_offset:
                continue
            if replay.end_offset >= end_offset:
                return None
            try:
                stopped = self._follow_segment(segment, replay, end_offset)
            except FileChanged as error:  # the next refresh reports it
                self.log.look_again()
                stopped = str(error)
            except CorruptData as error:
                self.problems.add_error(error)
                stopped = str(error)
            if stopped is not None:
                return stopped
        return None

    def _follow_segment(self, segment: Segment, replay: Replay, end_offset: int) -> str | None:
        position, after = 0, None
        if self._place is not None and self._place[0] is segment:
            _, position, after = self._place
        for item in segment.bulk(position, after):
            if isinstance(item, DecodedBatches):
                if item.base_offset > replay.end_offset:
                    return self._gap(item, replay.end_offset)
                apply_records(item, replay, end_offset)
                self._place = segment, item.end, item.last_offset
            elif item.lost is not None:
                return str(item.problem.error())
        return None

    def _gap(self, item: DecodedBatches, end_offset: int) -> str:
        reason = f"the offsets {end_offset} to {item.base_offset - 1} are missing: later records aren't applied"
        self.problems.add(Problem(item.file, item.position, 0, reason))
        return f"{item.file}: position {item.position}: {reason}"

    # -- names of removed topics

    def former_names(self) -> dict[Uuid, str]:
        """Return all topic names by id from all files in the directory, including files that wait for removal."""
        snapshots = self.snapshots()
        files = [segment.files.log for segment in self.log.segments]
        files += [found for found in self.log.files.superseded if found.path.endswith(".log.deleted")]
        files += [snapshot.file for snapshot in snapshots]
        key = tuple(sorted(found.path for found in files))
        if self._names[0] != key:
            names: dict[Uuid, str] = {}
            for found in files:
                with suppress(CorruptData):
                    names |= dict(self._names_in(found))
            self._names = key, names
        return self._names[1]

    def _names_in(self, found: FoundFile) -> Iterator[tuple[Uuid, str]]:
        name = os.path.basename(found.path)
        base = 0 if ".checkpoint" in name else int(name.partition(".")[0])
        segment = Segment(SegmentFiles(base, found), self._storage, Problems())
        for item in segment.bulk():
            if isinstance(item, DecodedBatches) and not item.is_control:
                columns = item.columns
                for index in range(len(columns)):
                    value = columns.value(index)
                    if value is not None and value.startswith(_TOPIC_RECORD):
                        replay = Replay()
                        replay.record(found.path, columns.offsets[index], value)
                        yield from ((topic.id, topic.name) for topic in replay.image.topics.values())


def read_snapshot(segment: Segment, replay: Replay) -> None:
    """Apply all records of a snapshot.

    Raises:
        CorruptData: it isn't complete: it has no header, no footer, damage, or records after the footer.
    """
    types: list[int | None] = []
    timestamp = replay.timestamp
    for item in segment.bulk():
        if not isinstance(item, DecodedBatches):
            raise item.problem.error()
        if item.columns.faults:
            raise next(iter(item.columns.faults.values())).located(item.file)
        if item.is_control:
            types += [_control_type(item.columns.key(index)) for index in range(len(item.columns))]
        else:
            types.append(None)
        apply_records(item, replay, MAX_INT64)
        if len(types) == len(item.columns):
            timestamp = replay.timestamp  # from the header; the records have the snapshot's own time
    replay.timestamp = timestamp
    path = segment.files.log.path
    if not types or types[0] != ControlRecordType.SNAPSHOT_HEADER:
        raise CorruptData("the first record is not a SNAPSHOT_HEADER", 0, path)
    if ControlRecordType.SNAPSHOT_FOOTER not in types:
        raise CorruptData("it has no SNAPSHOT_FOOTER: it is incomplete", segment.size(), path)
    if types[-1] != ControlRecordType.SNAPSHOT_FOOTER:
        raise CorruptData("records follow the SNAPSHOT_FOOTER", segment.size(), path)


def read_bootstrap(path: str, storage: Storage, problems: Problems) -> Replay | None:
    """Return the state in a ``bootstrap.checkpoint``; None if it is missing or incomplete; the latter is a problem."""
    found = found_at(path)
    if found is None:
        return None
    replay = Replay()
    try:
        read_snapshot(Segment(SegmentFiles(0, found), storage, problems), replay)
    except CorruptData as error:
        problems.add(Problem(path, error.position, 0, f"not used: {error.reason}"))
        return None
    replay.end_offset = 0
    return replay


def apply_records(records: DecodedBatches, replay: Replay, end_offset: int) -> None:
    """Apply the part of ``records`` that is new to ``replay`` and below ``end_offset``."""
    columns, file, table = records.columns, records.file, records.table
    row = records.first
    for index, offset in enumerate(columns.offsets):
        if offset < replay.end_offset:
            continue
        if offset >= end_offset:
            return
        while offset > table.last_offsets[row]:
            row += 1
        replay.epoch = table.leader_epochs[row]
        if index in columns.faults:
            replay.broken(file, offset, columns.faults[index].reason)
        elif records.is_control:
            replay.control(file, offset, columns.key(index), columns.value(index))
        else:
            replay.record(file, offset, columns.value(index))
            replay.timestamp = columns.timestamps[index]
        replay.end_offset = offset + 1
    replay.end_offset = max(replay.end_offset, min(records.last_offset + 1, end_offset))


def _control_type(key: bytes | None) -> int | None:
    return None if key is None else int.from_bytes(key[_CONTROL_TYPE], "big", signed=True)
