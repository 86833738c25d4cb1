"""Dumps files: reads each file, passes its content to a form, and reports problems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeVar

from kfs.dump.batches import DumpedBatch, batches_of
from kfs.dump.forms import Form
from kfs.dump.index_check import Outline, check_offsets, check_times
from kfs.dump.kinds import FileKind, base_offset, kind_of, snapshot_end
from kfs.dump.problems import DumpProblems, HoleFinder, Pair
from kfs.errors import CorruptData
from kfs.format.aborted_txn import parse_aborted_transactions
from kfs.format.batch_header import BatchHeader, is_intact, read_header
from kfs.format.checkpoint import parse_leader_epoch_checkpoint, parse_offset_checkpoint
from kfs.format.json_object import parse_json_object
from kfs.format.layout import BATCH_OVERHEAD, MAGIC_V2, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.producer_snapshot import parse_producer_snapshot
from kfs.format.properties import parse_properties
from kfs.log.block import Damage
from kfs.log.bulk import BulkReader, DecodedBatches, Undecodable
from kfs.log.log_dir import BOOTSTRAP_CHECKPOINT
from kfs.log.offset_range import SegmentBounds
from kfs.log.problem import Problem
from kfs.log.storage import Storage
from kfs.log.walk import SegmentWalk
from kfs.storage.open_files import OpenFile
from kfs.storage.side_file import read_side_file

Parsed = TypeVar("Parsed")
#: The number of index entries to format at once.
_MOST_ENTRIES: Final = 16_384


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What to dump: records or only batches, ``max_bytes`` of a log, and of an index only a sanity check or a check."""

    is_deep: bool = False
    max_bytes: int | None = None
    sanity_only: bool = False
    verify_only: bool = False


class Dumper:
    """Dumps one file after another in one form."""

    def __init__(
        self, form: Form, options: DumpOptions, findings: DumpProblems, storage: Storage, ignore: Callable[[str], None]
    ) -> None:
        self._form = form
        self._options = options
        self._findings = findings
        self._storage = storage
        self._ignore = ignore
        self._dumps: dict[FileKind, Callable[[str], Iterator[bytes]]] = {
            FileKind.LOG: self._segment,
            FileKind.SNAPSHOT: self._snapshot,
            FileKind.OFFSET_INDEX: self._offset_index,
            FileKind.TIME_INDEX: self._time_index,
            FileKind.TRANSACTION_INDEX: self._transaction_index,
            FileKind.PRODUCER_SNAPSHOT: self._producer_snapshot,
            FileKind.LEADER_EPOCHS: self._leader_epochs,
            FileKind.OFFSET_CHECKPOINT: self._offset_checkpoint,
            FileKind.PARTITION_METADATA: self._partition_metadata,
            FileKind.META_PROPERTIES: self._meta_properties,
            FileKind.QUORUM_STATE: self._quorum_state,
        }

    def dump(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a file; report problems, even if the whole file is unreadable."""
        yield self._form.begin(path)
        kind = kind_of(path)
        if kind is None:
            self._ignore(path)
            return
        try:
            yield from self._dumps[kind](path)
        except CorruptData as error:
            yield self._problem(Problem(error.file or path, error.position, 0, error.reason))

    def _problem(self, problem: Problem) -> bytes:
        self._findings.problem(problem)
        return self._form.problem(problem)

    # Logs

    def _segment(self, path: str) -> Iterator[bytes]:
        start = base_offset(path)
        yield self._form.log_start(start)
        yield from self._log(path, start)

    def _snapshot(self, path: str) -> Iterator[bytes]:
        if os.path.basename(path) == BOOTSTRAP_CHECKPOINT:
            yield self._form.bootstrap_snapshot()
        else:
            yield self._form.snapshot_end(*snapshot_end(path))
        yield from self._log(path, 0)

    def _log(self, path: str, start: int) -> Iterator[bytes]:
        problems: list[Problem] = []
        walk = self._walk(path, start, problems.append)
        reader = BulkReader(walk, self._storage, problems.append)
        holes = self._findings.holes(path)
        most = self._options.max_bytes
        end = walk.size if most is None else min(most, walk.size)
        for item in reader.items(end=end):
            if item.end > end:  # a batch's end is known only after it was read
                if isinstance(item, DecodedBatches):
                    yield from self._records_before(end, item, holes)
                break
            yield self._item(item, walk.file, holes)
            while problems:
                yield self._problem(problems.pop(0))
        if most is None and walk.end < walk.size:
            self._findings.trailing_bytes()
            yield self._form.trailing_bytes(walk.size - walk.end)

    def _records_before(self, end: int, records: DecodedBatches, holes: HoleFinder) -> Iterator[bytes]:
        for batch in batches_of(records):
            if batch.header.position + batch.header.size > end:
                return
            if self._options.is_deep and batch.columns is not None:
                holes.look_at(batch.columns.offsets[batch.first : batch.stop])
            yield self._form.batch(batch)

    def _walk(self, path: str, start: int, report: Callable[[Problem], None]) -> SegmentWalk:
        bounds = SegmentBounds(start, None)
        return SegmentWalk(OpenFile(path), bounds, self._storage.max_batch_bytes, report, self._storage.decoder)

    def _item(self, item: DecodedBatches | Undecodable | Damage, file: OpenFile, holes: HoleFinder) -> bytes:
        if isinstance(item, Undecodable):
            return self._form.batch(DumpedBatch(item.block.header))
        if isinstance(item, DecodedBatches):
            if self._options.is_deep:
                holes.look_at(item.columns.offsets)
            if _lacks_records(item):
                return self._form.batch(self._decoded(item.table.header(0), item.table.data(0)))
            return self._form.records(item)
        batch = self._damaged_batch(item, file)
        if batch is None:
            return b""
        if batch.columns is not None:
            holes.look_at(batch.columns.offsets)
        return self._form.batch(batch)

    def _damaged_batch(self, damage: Damage, file: OpenFile) -> DumpedBatch | None:
        """Return a damaged batch, if it can be shown at all: its header's size must match the damaged range."""
        size = damage.problem.size
        try:
            header = read_header(file.read(damage.position, BATCH_OVERHEAD), 0, damage.position)
        except CorruptData:
            return None
        if header.size != size or size > self._storage.max_batch_bytes:
            return None
        return self._decoded(header, file.read(damage.position, size))

    def _decoded(self, header: BatchHeader, data: bytes) -> DumpedBatch:
        is_valid = is_intact(header, data)
        if not self._options.is_deep:
            return DumpedBatch(header, is_valid)
        try:
            columns = self._storage.decoder.decode(header, data, self._storage.max_batch_bytes)
        except CorruptData:
            return DumpedBatch(header, is_valid)
        return DumpedBatch(header, is_valid, columns, 0, len(columns))

    # Indexes

    def _offset_index(self, path: str) -> Iterator[bytes]:
        start, file = base_offset(path), OpenFile(path)
        self._check_size(file, OFFSET_INDEX_ENTRY)
        if file.size() < OFFSET_INDEX_ENTRY.size:
            yield self._form.empty_index()
        elif self._options.sanity_only:
            yield self._sanity(file, OFFSET_INDEX_ENTRY, 0)
        else:
            entries = [(start + relative, position) for relative, position in _entries(file, OFFSET_INDEX_ENTRY, 0)]
            outline = self._outline(path, start)
            if outline is not None:
                mismatches, problems = check_offsets(path, entries, outline)
                self._findings.offset_index(path, mismatches)
                yield from map(self._problem, problems)
                for offset, last in mismatches:
                    reason = f"an entry has offset {offset}, but points behind it, at a batch that ends with {last}"
                    yield self._form.problem(Problem(path, 0, 0, reason))
            yield from self._portions(entries, self._form.offset_entries)

    def _time_index(self, path: str) -> Iterator[bytes]:
        start, file = base_offset(path), OpenFile(path)
        self._check_size(file, TIME_INDEX_ENTRY)
        if self._options.sanity_only:
            yield self._sanity(file, TIME_INDEX_ENTRY, 1)
        else:
            entries = [(timestamp, start + relative) for timestamp, relative in _entries(file, TIME_INDEX_ENTRY, 1)]
            outline = self._outline(path, start)
            if outline is not None:
                found = check_times(entries, outline, start)
                self._findings.time_index(path, found)
                for reason in found.reasons():
                    yield self._form.problem(Problem(path, 0, 0, reason))
            yield from self._portions(entries, self._form.time_entries)

    def _portions(self, entries: list[Pair], lines: Callable[[list[Pair]], bytes]) -> Iterator[bytes]:
        if not self._options.verify_only:
            for at in range(0, len(entries), _MOST_ENTRIES):
                yield lines(entries[at : at + _MOST_ENTRIES])

    def _check_size(self, file: OpenFile, layout: Struct) -> None:
        if file.size() % layout.size:
            reason = f"index of {file.size()} bytes, not a multiple of {layout.size}"
            self._findings.problem(Problem(file.path, file.size() - file.size() % layout.size, 0, reason))

    def _sanity(self, file: OpenFile, layout: Struct, offset_field: int) -> bytes:
        """Do the ``sanityCheck`` of Kafka's index classes, by which a broker judges an index: check its last entry."""
        count = file.size() // layout.size
        if not count:
            return self._form.sane_index()
        first = layout.unpack(file.read(0, layout.size))
        last = layout.unpack(file.read((count - 1) * layout.size, layout.size))
        reason = ""
        if last[offset_field] < 0:
            reason = f"the last entry has relative offset {last[offset_field]}, below the segment's base offset"
        elif layout is TIME_INDEX_ENTRY and last[0] < first[0]:
            reason = f"the last entry has timestamp {last[0]}, the first one {first[0]}"
        if not reason:
            return self._form.sane_index()
        return self._problem(Problem(file.path, (count - 1) * layout.size, layout.size, reason))

    def _outline(self, path: str, start: int) -> Outline | None:
        """Return the outline of the log that belongs to an index; None, and a problem, if there is none."""
        log = os.path.join(os.path.dirname(path), os.path.basename(path).partition(".")[0] + ".log")
        try:
            return Outline(self._walk(log, start, lambda problem: None))  # the log's own dump reports its problems
        except CorruptData as error:
            self._findings.problem(Problem(path, 0, 0, f"not held against {os.path.basename(log)}: {error.reason}"))
            return None

    # The other files

    def _transaction_index(self, path: str) -> Iterator[bytes]:
        start = base_offset(path)
        data = _read(path, bytes)
        try:
            yield self._form.aborted_transactions(parse_aborted_transactions(data, start))
        except CorruptData as error:
            yield self._form.aborted_transactions(parse_aborted_transactions(data[: error.position], start))
            raise

    def _producer_snapshot(self, path: str) -> Iterator[bytes]:
        yield self._form.producers(_read(path, parse_producer_snapshot))

    def _leader_epochs(self, path: str) -> Iterator[bytes]:
        yield self._form.leader_epochs(_read(path, parse_leader_epoch_checkpoint))

    def _offset_checkpoint(self, path: str) -> Iterator[bytes]:
        yield self._form.offset_checkpoint(_read(path, parse_offset_checkpoint))

    def _partition_metadata(self, path: str) -> Iterator[bytes]:
        metadata = _read(path, parse_partition_metadata)
        yield self._form.properties({"version": metadata.version, "topic_id": str(metadata.topic_id)})

    def _meta_properties(self, path: str) -> Iterator[bytes]:
        yield self._form.properties(_read(path, parse_properties))

    def _quorum_state(self, path: str) -> Iterator[bytes]:
        yield self._form.properties(_read(path, parse_json_object))


def _lacks_records(records: DecodedBatches) -> bool:
    """Whether a batch has records outside its log's range; such a batch comes alone, and is shown whole."""
    header = records.table.header(0)
    return len(records.table) == 1 and header.magic == MAGIC_V2 and header.record_count != len(records.columns)


def _entries(file: OpenFile, layout: Struct, offset_field: int) -> Iterator[tuple[int, int]]:
    """Yield the entries of an index as stored, up to the zeros of its preallocation."""
    size = file.size()
    for number, entry in enumerate(layout.iter_unpack(file.read(0, size - size % layout.size))):
        if number and not entry[offset_field]:
            return
        yield entry


def _read(path: str, parse: Callable[[bytes], Parsed]) -> Parsed:
    parsed = read_side_file(path, parse)
    if parsed is None:
        raise CorruptData("no such file", 0, path)
    return parsed
