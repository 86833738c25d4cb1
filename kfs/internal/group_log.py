"""The state of one partition of ``__consumer_offsets``, as a coordinator has it in memory after loading it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby

from kfs.errors import CorruptData
from kfs.format.columns import RecordColumns
from kfs.format.control_record import ControlRecordType, control_record_type
from kfs.format.layout import NO_PRODUCER_ID
from kfs.internal.group_records import GroupRecords, RawRecord
from kfs.internal.offset_commits import OffsetCommits, canonical_key, is_offset_commit
from kfs.internal.schema import Malformed
from kfs.internal.topic_state import TopicState
from kfs.log.bulk import DecodedBatches


class GroupLog(TopicState):
    """The groups and commits of one partition.

    Its memory holds only the newest commit of each key and the records of existing groups, however large the log is.
    """

    def _forget(self) -> None:
        self.offsets = OffsetCommits()
        self.groups = GroupRecords()

    def coordinated(self) -> Iterable[str]:
        """Return the groups; see :meth:`TopicState.coordinated`."""
        return self.offsets.groups().union(self.groups.groups)

    def written(self) -> Iterator[tuple[bytes, RawRecord]]:
        """Yield the current records: commits by canonical key, and group records by key.

        Pending commits are excluded.
        """
        yield from self.offsets.committed.items()
        for group in self.groups.groups.values():
            yield from group.records.items()

    def _replay(self, records: DecodedBatches) -> None:
        columns, table = records.columns, records.table
        start = bisect_left(columns.offsets, self._reader.start)
        if records.is_control:
            self._end_transactions(records, start)
            return
        if columns.faults:
            whole = [index for index in range(start, len(columns)) if index not in columns.faults]
            columns, start = columns.take(whole), 0
        row = records.first
        for producer_id, rows in groupby(table.producer_ids[row : records.stop]):
            row += sum(1 for _ in rows)
            stop = len(columns)
            if row < records.stop:
                stop = bisect_left(columns.offsets, table.last_offsets[row - 1] + 1, start)
            self._replay_rows(records, columns, producer_id, start, stop)
            start = stop

    def _replay_rows(
        self, records: DecodedBatches, columns: RecordColumns, producer_id: int, start: int, stop: int
    ) -> None:
        """Apply the records from ``start`` to ``stop``; there may be millions, so the common case is inlined."""
        buffer, committed = columns.buffer, self.offsets.committed
        is_outside_transaction = producer_id == NO_PRODUCER_ID
        commit_in_transaction = self.offsets.commit_in_transaction
        rows = columns.slice(start, stop)
        for offset, key_start, key_length, value_start, value_length in zip(
            rows.offsets, rows.key_starts, rows.key_lengths, rows.value_starts, rows.value_lengths, strict=True
        ):
            key = buffer[key_start : key_start + key_length]
            if value_length >= 0 and key in committed:
                if is_outside_transaction:
                    committed[key] = offset, buffer[value_start : value_start + value_length]
                else:
                    value = buffer[value_start : value_start + value_length]
                    commit_in_transaction(producer_id, key, (offset, value))
                continue
            value_or_none = buffer[value_start : value_start + value_length] if value_length >= 0 else None
            try:
                self._replay_one(producer_id, offset, key if key_length >= 0 else None, value_or_none)
            except Malformed as error:
                self._keep_unread(records, offset, key if key_length >= 0 else None, value_or_none, error)

    def _replay_one(self, producer_id: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            raise Malformed("a record without a key")
        if not is_offset_commit(key):
            objection = self.groups.replay(key, offset, value)
            if objection is not None:
                raise Malformed(objection)
            return
        key = canonical_key(key)
        if value is None:
            self.offsets.delete(key, offset)
        elif producer_id == NO_PRODUCER_ID:
            self.offsets.commit(key, (offset, value))
        else:
            self.offsets.commit_in_transaction(producer_id, key, (offset, value))

    def _end_transactions(self, records: DecodedBatches, start: int) -> None:
        columns, table = records.columns, records.table
        for row in range(records.first, records.stop):
            stop = bisect_left(columns.offsets, table.last_offsets[row] + 1, start)
            for index in range(start, stop):
                key = columns.key(index)
                try:
                    marker = control_record_type(key)
                except CorruptData as error:
                    self._keep_unread(records, columns.offsets[index], key, columns.value(index), error)
                    continue
                if marker in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                    is_committed = marker == ControlRecordType.COMMIT
                    self.offsets.end_transaction(table.producer_ids[row], is_committed=is_committed)
            start = stop
