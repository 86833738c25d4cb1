"""Control records in the format of ``kafka-dump-log`` (``DumpLogSegments.printControlRecord``)."""

from __future__ import annotations

from typing import Final

from kfs.errors import CorruptData
from kfs.format.control_record import (
    AbortMarker,
    CommitMarker,
    ControlRecord,
    ControlRecordType,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    LeaderChangeVoter,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControlRecord,
    Voter,
    parse_control_record,
)
from kfs.internal.message_json import Json, json_text

_LABELS: Final = {
    ControlRecordType.LEADER_CHANGE: "LeaderChange:",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlRecordType.KRAFT_VERSION: "KRaftVersion",
    ControlRecordType.KRAFT_VOTERS: "KRaftVoters",
}


def control_text(key: bytes | None, value: bytes | None) -> str:
    """Return the text that follows a control record's metadata."""
    try:
        record = parse_control_record(key, value)
    except CorruptData as error:
        return f"controlType: undecodable ({error.reason})"
    if isinstance(record, AbortMarker | CommitMarker):
        return f"endTxnMarker: {record.type.name} coordinatorEpoch: {record.coordinator_epoch}"
    if isinstance(record, UnknownControlRecord):
        return f"controlType: UNKNOWN({record.type})"
    return f"{_LABELS[record.type]} {json_text(control_json(record))}"


def control_json(record: ControlRecord) -> dict[str, Json]:
    """Return the fields of a control record with the names of Kafka's ``JsonConverter``."""
    if isinstance(record, UnknownControlRecord):
        return {}
    fields: dict[str, Json] = {"version": record.version}
    if isinstance(record, AbortMarker | CommitMarker):
        fields["coordinatorEpoch"] = record.coordinator_epoch
    elif isinstance(record, LeaderChange):
        fields["leaderId"] = record.leader_id
        fields["voters"] = [_change_voter(voter, record.version) for voter in record.voters]
        fields["grantingVoters"] = [_change_voter(voter, record.version) for voter in record.granting_voters]
    elif isinstance(record, SnapshotHeader):
        fields["lastContainedLogTimestamp"] = record.last_contained_log_timestamp
    elif isinstance(record, KRaftVersion):
        fields["kRaftVersion"] = record.kraft_version
    elif isinstance(record, KRaftVoters):
        fields["voters"] = [_voter(voter) for voter in record.voters]
    else:
        assert isinstance(record, SnapshotFooter)
    return fields


def _change_voter(voter: LeaderChangeVoter, version: int) -> Json:
    fields: dict[str, Json] = {"voterId": voter.voter_id}
    if version >= 1:
        fields["voterDirectoryId"] = str(voter.voter_directory_id)
    return fields


def _voter(voter: Voter) -> Json:
    return {
        "voterId": voter.voter_id,
        "voterDirectoryId": str(voter.voter_directory_id),
        "endpoints": [{"name": one.name, "host": one.host, "port": one.port} for one in voter.endpoints],
        "kRaftVersionFeature": {
            "minSupportedVersion": voter.min_supported_version,
            "maxSupportedVersion": voter.max_supported_version,
        },
    }
