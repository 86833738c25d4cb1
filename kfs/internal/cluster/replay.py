"""In-order replay of the metadata log's records: transactions, control records, and records that can't be applied."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kfs.errors import CorruptData
from kfs.format.control_record import (
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotHeader,
    Voter,
    parse_control_record,
)
from kfs.format.flexible import FlexibleReader
from kfs.format.layout import NO_TIMESTAMP
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.names import REMOVED_RECORD_TYPES
from kfs.internal.metadata import MetadataRecord
from kfs.internal.schema import Malformed
from kfs.internal.topics import CLUSTER_METADATA_KINDS

#: The maximum number of skipped records to keep; more are only counted.
MOST_SKIPPED: Final = 1000


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record that wasn't applied, and the reason; ``value`` is the whole record, which may contain a secret.

    So nothing prints ``value``; it is for callers that request it.
    """

    file: str
    offset: int
    reason: str
    value: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Applicable:
    """A record and its location."""

    file: str
    offset: int
    record: MetadataRecord = field(repr=False)
    value: bytes = field(repr=False)


@dataclass(slots=True)
class OpenMetadataTransaction:
    """An open transaction of the metadata log (KIP-868); its records aren't applied yet."""

    offset: int
    name: str | None
    records: list[Applicable] = field(default_factory=list)


@dataclass(slots=True)
class Replay:
    """The state after applying the records up to, not including, ``end_offset``.

    ``epoch`` is the leader epoch of the last record, and ``timestamp`` its time in milliseconds; -1 means unknown.
    Voters are None if no record has them; then they are configured (``controller.quorum.voters``).
    """

    image: MetadataImage = field(default_factory=MetadataImage)
    end_offset: int = 0
    epoch: int = -1
    timestamp: int = NO_TIMESTAMP
    leader_id: int | None = None
    leader_epoch: int | None = None
    voter_ids: tuple[int, ...] | None = None
    voters: tuple[Voter, ...] | None = None
    kraft_version: int | None = None
    transaction: OpenMetadataTransaction | None = None
    skipped: tuple[SkippedRecord, ...] = ()
    skipped_count: int = 0
    unknown_tags: int = 0

    def copy(self) -> Replay:
        """Return a copy that can be continued while this one is read."""
        transaction = self.transaction
        if transaction is not None:
            transaction = OpenMetadataTransaction(transaction.offset, transaction.name, list(transaction.records))
        return replace(self, image=self.image.copy(), transaction=transaction)

    def control(self, file: str, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Apply a control record, which concerns the quorum."""
        try:
            record = parse_control_record(key, value)
        except CorruptData as error:
            self._skip(SkippedRecord(file, offset, error.reason, value))
            return
        match record:
            case LeaderChange():
                self.leader_id, self.leader_epoch = record.leader_id, self.epoch
                self.voter_ids = tuple(voter.voter_id for voter in record.voters)
            case KRaftVersion():
                self.kraft_version = record.kraft_version
            case KRaftVoters():
                self.voters = record.voters
            case SnapshotHeader():
                self.timestamp = record.last_contained_log_timestamp
            case _:
                pass

    def record(self, file: str, offset: int, value: bytes | None) -> None:
        """Apply a record, or keep it until its transaction ends; one that can't be applied is :attr:`skipped`."""
        try:
            if value is None:
                raise CorruptData("a record without a value")
            record = CLUSTER_METADATA_KINDS.decode(value)
        except CorruptData as error:
            self._skip(SkippedRecord(file, offset, _reason(error, value), value))
            return
        self.unknown_tags += record.message.unknown_tags
        found = Applicable(file, offset, record, value)
        match record.kind.name:
            case "BEGIN_TRANSACTION_RECORD":
                self._begin(found)
            case "END_TRANSACTION_RECORD" | "ABORT_TRANSACTION_RECORD":
                self._end(found, is_committed=record.kind.name == "END_TRANSACTION_RECORD")
            case _ if self.transaction is not None:
                self.transaction.records.append(found)
            case _:
                self._apply(found)

    def broken(self, file: str, offset: int, reason: str) -> None:
        """Note a record that can't be decoded."""
        self._skip(SkippedRecord(file, offset, reason, None))

    def _begin(self, found: Applicable) -> None:
        if self.transaction is not None:
            self._refuse(found, f"a transaction is open since offset {self.transaction.offset}")
            return
        name = found.record.message["name"]
        self.transaction = OpenMetadataTransaction(found.offset, None if name is None else str(name))

    def _end(self, found: Applicable, *, is_committed: bool) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is None:
            self._refuse(found, "no transaction is open")
        elif is_committed:
            for record in transaction.records:
                self._apply(record)

    def _apply(self, found: Applicable) -> None:
        try:
            self.image.replay(found.record)
        except CorruptData as error:
            self._refuse(found, error.reason)

    def _refuse(self, found: Applicable, reason: str) -> None:
        self._skip(SkippedRecord(found.file, found.offset, f"{found.record.kind.name}: {reason}", found.value))

    def _skip(self, skipped: SkippedRecord) -> None:
        self.skipped_count += 1
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped += (skipped,)


def _reason(error: CorruptData, value: bytes | None) -> str:
    """Return why a record can't be decoded, with the name of its type if known."""
    if value is None or not isinstance(error, Malformed):
        return error.reason
    reader = FlexibleReader(value)
    try:
        _, type_id, version = (reader.read_unsigned_varint() for _ in range(3))
    except CorruptData:
        return error.reason
    kind = CLUSTER_METADATA_KINDS.get(type_id)
    name = kind.name if kind is not None else REMOVED_RECORD_TYPES.get(type_id, f"type {type_id}")
    return f"{name} version {version}: {error.reason}"
