"""Control records: written by brokers into a log, and interpreted by readers, but never returned by consumers.

The key has the type (``ControlRecordType.java``), and the value has the fields. For the end of a transaction these are
those of ``EndTransactionMarker.java``. For KRaft they are a flexible message (KIP-595, KIP-630, KIP-853). Every value
begins with its version. As in Kafka, a version above the highest known one is read as the highest, bytes after the last
known field are ignored, and an unknown type is no error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final, Self

from kfs.errors import CorruptData
from kfs.format.flexible import FlexibleReader, FlexibleWriter
from kfs.format.uuid import ZERO_UUID, Uuid

_KEY: Final = struct.Struct(">hh")  # version, type
_KEY_VERSION: Final = 0


class ControlRecordType(IntEnum):
    """The type of a control record (``ControlRecordType.java``)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a transaction of the batch's producer (``EndTransactionMarker.java``); there are two subclasses."""

    coordinator_epoch: int
    version: int = 0

    @classmethod
    def read(cls, reader: FlexibleReader, version: int) -> Self:
        return cls(coordinator_epoch=reader.read_int32(), version=version)

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_int32(self.coordinator_epoch)


@dataclass(frozen=True, slots=True)
class AbortMarker(EndTransactionMarker):
    """The marker of an aborted transaction, whose records ``read_committed`` hides."""

    type: ClassVar[ControlRecordType] = ControlRecordType.ABORT


@dataclass(frozen=True, slots=True)
class CommitMarker(EndTransactionMarker):
    """The marker of a committed transaction."""

    type: ClassVar[ControlRecordType] = ControlRecordType.COMMIT


@dataclass(frozen=True, slots=True)
class LeaderChangeVoter:
    """A voter in ``LeaderChangeMessage.json``; version 0 of that message has no directory id."""

    voter_id: int
    voter_directory_id: Uuid = ZERO_UUID


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The start of a KRaft leader's epoch (``LeaderChangeMessage.json``)."""

    type: ClassVar[ControlRecordType] = ControlRecordType.LEADER_CHANGE

    leader_id: int
    voters: tuple[LeaderChangeVoter, ...]
    granting_voters: tuple[LeaderChangeVoter, ...]
    version: int = 0

    @classmethod
    def read(cls, reader: FlexibleReader, version: int) -> Self:
        def read_voter(reader: FlexibleReader) -> LeaderChangeVoter:
            voter_id = reader.read_int32()
            voter_directory_id = reader.read_uuid() if version >= 1 else ZERO_UUID
            reader.read_tagged_fields()
            return LeaderChangeVoter(voter_id, voter_directory_id)

        leader_id = reader.read_int32()
        voters = reader.read_array(read_voter)
        granting_voters = reader.read_array(read_voter)
        reader.read_tagged_fields()
        return cls(leader_id, voters, granting_voters, version)

    def write(self, writer: FlexibleWriter) -> None:
        def write_voter(writer: FlexibleWriter, voter: LeaderChangeVoter) -> None:
            writer.write_int32(voter.voter_id)
            if self.version >= 1:
                writer.write_uuid(voter.voter_directory_id)
            elif voter.voter_directory_id != ZERO_UUID:
                raise ValueError("version 0 of LeaderChangeMessage has no directory ids")
            writer.write_tagged_fields()

        writer.write_int32(self.leader_id)
        writer.write_array(self.voters, write_voter)
        writer.write_array(self.granting_voters, write_voter)
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The first record of a snapshot (``SnapshotHeaderRecord.json``).

    ``last_contained_log_timestamp`` is the append time, in milliseconds, of the last record that the snapshot covers.
    """

    type: ClassVar[ControlRecordType] = ControlRecordType.SNAPSHOT_HEADER

    last_contained_log_timestamp: int
    version: int = 0

    @classmethod
    def read(cls, reader: FlexibleReader, version: int) -> Self:
        last_contained_log_timestamp = reader.read_int64()
        reader.read_tagged_fields()
        return cls(last_contained_log_timestamp, version)

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_int64(self.last_contained_log_timestamp)
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """The last record of a complete snapshot (``SnapshotFooterRecord.json``)."""

    type: ClassVar[ControlRecordType] = ControlRecordType.SNAPSHOT_FOOTER

    version: int = 0

    @classmethod
    def read(cls, reader: FlexibleReader, version: int) -> Self:
        reader.read_tagged_fields()
        return cls(version)

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """The finalized ``kraft.version`` feature (``KRaftVersionRecord.json``)."""

    type: ClassVar[ControlRecordType] = ControlRecordType.KRAFT_VERSION

    kraft_version: int
    version: int = 0

    @classmethod
    def read(cls, reader: FlexibleReader, version: int) -> Self:
        kraft_version = reader.read_int16()
        reader.read_tagged_fields()
        return cls(kraft_version, version)

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_int16(self.kraft_version)
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class VoterEndpoint:
    """A listener of a voter."""

    name: str
    host: str
    port: int

    @classmethod
    def read(cls, reader: FlexibleReader) -> Self:
        endpoint = cls(reader.read_string(), reader.read_string(), reader.read_uint16())
        reader.read_tagged_fields()
        return endpoint

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_string(self.name)
        writer.write_string(self.host)
        writer.write_uint16(self.port)
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the KRaft quorum, and the range of ``kraft.version`` that it supports."""

    voter_id: int
    voter_directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]
    min_supported_version: int
    max_supported_version: int

    @classmethod
    def read(cls, reader: FlexibleReader) -> Self:
        voter_id = reader.read_int32()
        voter_directory_id = reader.read_uuid()
        endpoints = reader.read_array(VoterEndpoint.read)
        min_supported_version = reader.read_int16()
        max_supported_version = reader.read_int16()
        reader.read_tagged_fields()  # of KRaftVersionFeature, the struct with the two versions
        reader.read_tagged_fields()
        return cls(voter_id, voter_directory_id, endpoints, min_supported_version, max_supported_version)

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_int32(self.voter_id)
        writer.write_uuid(self.voter_directory_id)
        writer.write_array(self.endpoints, lambda writer, endpoint: endpoint.write(writer))
        writer.write_int16(self.min_supported_version)
        writer.write_int16(self.max_supported_version)
        writer.write_tagged_fields()
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class KRaftVoters:
    """The voters of the KRaft quorum from this record on (``VotersRecord.json``, KIP-853)."""

    type: ClassVar[ControlRecordType] = ControlRecordType.KRAFT_VOTERS

    voters: tuple[Voter, ...]
    version: int = 0

    @classmethod
    def read(cls, reader: FlexibleReader, version: int) -> Self:
        voters = reader.read_array(Voter.read)
        reader.read_tagged_fields()
        return cls(voters, version)

    def write(self, writer: FlexibleWriter) -> None:
        writer.write_array(self.voters, lambda writer, voter: voter.write(writer))
        writer.write_tagged_fields()


@dataclass(frozen=True, slots=True)
class UnknownControlRecord:
    """A control record of an unknown type; key and value are kept unchanged."""

    type: int
    key: bytes
    value: bytes | None


KnownControlRecord = (
    AbortMarker | CommitMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters
)
ControlRecord = KnownControlRecord | UnknownControlRecord

_CLASSES: Final[dict[int, type[KnownControlRecord]]] = {
    record_class.type: record_class
    for record_class in (
        AbortMarker,
        CommitMarker,
        LeaderChange,
        SnapshotHeader,
        SnapshotFooter,
        KRaftVersion,
        KRaftVoters,
    )
}


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Parse a record of a control batch.

    Raises:
        CorruptData: the key is too short or has a negative version, or the value is null, too short, or lacks fields of
            its type; ``position`` is in the key or in the value.
    """
    type_id = control_record_type(key)
    if type_id not in _CLASSES:
        assert key is not None
        return UnknownControlRecord(type_id, key, value)
    if value is None:
        raise CorruptData(f"a control record {ControlRecordType(type_id).name} without a value")
    reader = FlexibleReader(value)
    version = reader.read_int16()
    if version < 0:
        raise CorruptData(f"version {version} of a control record {ControlRecordType(type_id).name}")
    return _CLASSES[type_id].read(reader, version)


def control_record_type(key: bytes | None) -> int:
    """Return the type in the key of a control record, a :class:`ControlRecordType` or an unknown one.

    Raises:
        CorruptData: the key is too short or has a negative version.
    """
    if key is None or len(key) < _KEY.size:
        found = "null" if key is None else f"{len(key)} bytes"
        raise CorruptData(f"the key of a control record is {found}, expected at least {_KEY.size} bytes")
    key_version, type_id = _KEY.unpack_from(key)
    if key_version < 0:
        raise CorruptData(f"the key of a control record has version {key_version}")
    return int(type_id)


def encode_control_record(record: ControlRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value of a control record in its own version.

    Raises:
        ValueError: a field does not fit, or does not exist in that version.
    """
    if isinstance(record, UnknownControlRecord):
        return record.key, record.value
    writer = FlexibleWriter()
    writer.write_int16(record.version)
    record.write(writer)
    return _KEY.pack(_KEY_VERSION, record.type), writer.getvalue()
