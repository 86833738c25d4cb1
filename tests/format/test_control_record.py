"""Control records: as real brokers write them, as Kafka's tool prints them, and as newer brokers might."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.control_record import (
    AbortMarker,
    CommitMarker,
    ControlRecord,
    ControlRecordType,
    EndTransactionMarker,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    LeaderChangeVoter,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControlRecord,
    Voter,
    VoterEndpoint,
    encode_control_record,
    parse_control_record,
)
from kfs.format.uuid import Uuid
from tests.expected import expected_records
from tests.format.integers import int16s, int32s, int64s
from tests.format.refusal import refused_at

# --- strategies -----------------------------------------------------------------------------------------------------

uuids = st.binary(min_size=16, max_size=16).map(Uuid)
versions = st.integers(0, 2**15 - 1)
endpoints = st.builds(VoterEndpoint, name=st.text(), host=st.text(), port=st.integers(0, 2**16 - 1))
voters = st.builds(
    Voter,
    voter_id=int32s,
    voter_directory_id=uuids,
    endpoints=st.lists(endpoints, max_size=3).map(tuple),
    min_supported_version=int16s,
    max_supported_version=int16s,
)


def leader_changes(
    versions: st.SearchStrategy[int], voter: st.SearchStrategy[LeaderChangeVoter]
) -> st.SearchStrategy[LeaderChange]:
    some = st.lists(voter, max_size=4).map(tuple)
    return st.builds(LeaderChange, leader_id=int32s, voters=some, granting_voters=some, version=versions)


known_control_records: st.SearchStrategy[ControlRecord] = st.one_of(
    st.builds(AbortMarker, coordinator_epoch=int32s, version=versions),
    st.builds(CommitMarker, coordinator_epoch=int32s, version=versions),
    leader_changes(st.just(0), st.builds(LeaderChangeVoter, voter_id=int32s)),
    leader_changes(st.integers(1, 2**15 - 1), st.builds(LeaderChangeVoter, voter_id=int32s, voter_directory_id=uuids)),
    st.builds(SnapshotHeader, last_contained_log_timestamp=int64s, version=versions),
    st.builds(SnapshotFooter, version=versions),
    st.builds(KRaftVersion, kraft_version=int16s, version=versions),
    st.builds(KRaftVoters, voters=st.lists(voters, max_size=3).map(tuple), version=versions),
)
unknown_control_records = st.integers(7, 2**15 - 1).flatmap(
    lambda type_id: st.builds(
        UnknownControlRecord,
        type=st.just(type_id),
        key=st.binary(max_size=4).map(lambda more: b"\x00\x00" + type_id.to_bytes(2, "big") + more),
        value=st.none() | st.binary(max_size=20),
    )
)


# --- recorded ones --------------------------------------------------------------------------------------------------

SOURCES = [
    ("b_txn", "expected.jsonl"),
    ("b39_txn", "expected.jsonl"),
    ("c_clean", "expected.jsonl"),
    ("d_groups", "expected.jsonl"),
    ("e_meta", "expected_checkpoints.jsonl"),
    ("e39_meta", "expected_checkpoints.jsonl"),
    ("g_running", "expected.jsonl"),
]


@pytest.mark.parametrize(("name", "oracle"), SOURCES)
def test_control_records_of_real_brokers_are_understood_and_written_alike(
    name: str, oracle: str, corpus: Callable[[str], Path]
) -> None:
    recorded = [expected.record for expected in expected_records(corpus(name), oracle) if expected.is_control]
    assert recorded
    for record in recorded:
        control_record = parse_control_record(record.key, record.value)
        assert not isinstance(control_record, UnknownControlRecord)
        assert encode_control_record(control_record) == (record.key, record.value)


PRINTED = re.compile(rb"offset: (\d+) .*headerKeys: \[\] (endTxnMarker|LeaderChange|SnapshotHeader|SnapshotFooter)(.*)")


def printed_by_kafka(corpus: Path) -> Iterator[tuple[str, int, str]]:
    """Yield file, offset and text of every control record in the output of Kafka's dump tool."""
    for dump in sorted(corpus.glob("dump/**/*.txt")):
        for offset, kind, fields in PRINTED.findall(dump.read_bytes()):
            file = str(dump.relative_to(corpus / "dump")).removesuffix(".txt")
            yield file, int(offset), (kind + fields).decode()


def as_kafka_prints_it(record: ControlRecord) -> str:
    match record:
        case EndTransactionMarker(coordinator_epoch=epoch):
            assert isinstance(record, AbortMarker | CommitMarker)
            return f"endTxnMarker: {record.type.name} coordinatorEpoch: {epoch}"
        case SnapshotHeader(last_contained_log_timestamp=timestamp, version=version):
            return f'SnapshotHeader {{"version":{version},"lastContainedLogTimestamp":{timestamp}}}'
        case SnapshotFooter(version=version):
            return f'SnapshotFooter {{"version":{version}}}'
        case LeaderChange():
            fields = {
                "version": record.version,
                "leaderId": record.leader_id,
                "voters": [{"voterId": voter.voter_id} for voter in record.voters],
                "grantingVoters": [{"voterId": voter.voter_id} for voter in record.granting_voters],
            }
            return "LeaderChange: " + json.dumps(fields, separators=(",", ":"))
    raise AssertionError(record)


@pytest.mark.parametrize(("name", "oracle"), SOURCES)
def test_control_records_say_what_kafkas_own_tool_says(name: str, oracle: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    printed = {(file, offset): text for file, offset, text in printed_by_kafka(root)}
    compared = 0
    for expected in expected_records(root, oracle):
        text = printed.get((expected.file, expected.record.offset))
        if expected.is_control and text is not None:
            control_record = parse_control_record(expected.record.key, expected.record.value)
            assert as_kafka_prints_it(control_record) == text
            compared += 1
    assert compared


# --- any ------------------------------------------------------------------------------------------------------------


@given(known_control_records | unknown_control_records)
def test_a_control_record_is_read_back(record: ControlRecord) -> None:
    assert parse_control_record(*encode_control_record(record)) == record


@given(known_control_records, st.binary(min_size=1, max_size=9))
def test_what_a_newer_version_appends_is_ignored(record: ControlRecord, more: bytes) -> None:
    key, value = encode_control_record(record)
    assert value is not None
    assert parse_control_record(key + more, value + more) == record


@given(known_control_records)
def test_a_value_that_is_cut_off_is_refused_wherever_it_is_cut(record: ControlRecord) -> None:
    key, value = encode_control_record(record)
    assert value is not None
    for end in range(len(value)):
        position = refused_at(lambda cut: parse_control_record(key, cut), value[:end])
        assert position is not None
        assert position <= end


@given(st.integers(0, 6), st.binary(max_size=60))
def test_any_value_is_understood_or_refused(type_id: int, value: bytes) -> None:
    refused_at(lambda any_value: parse_control_record(bytes((0, 0, 0, type_id)), any_value), value)


def test_the_types_have_the_numbers_of_kafka() -> None:
    names = ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert [(record_type.name, record_type.value) for record_type in ControlRecordType] == [
        (name, number) for number, name in enumerate(names)
    ]


def test_voters_are_laid_out_as_their_definition_says() -> None:
    directory_id = Uuid(bytes(range(16)))
    voter = Voter(1, directory_id, (VoterEndpoint("CONTROLLER", "node-1", 9093),), 0, 1)
    key, value = encode_control_record(KRaftVoters((voter,)))
    assert key == bytes.fromhex("0000 0006")
    assert value == b"".join(
        (
            b"\x00\x00",  # version
            b"\x02",  # one voter
            b"\x00\x00\x00\x01",
            directory_id.raw,
            b"\x02\x0bCONTROLLER\x07node-1\x23\x85\x00",  # one endpoint
            b"\x00\x00\x00\x01\x00",  # supported versions
            b"\x00\x00",
        )
    )


def test_unknown_tagged_fields_are_skipped_in_every_structure() -> None:
    tagged = b"\x01\x05\x03abc"
    value = b"".join(
        (
            b"\x00\x00\x02",
            b"\x00\x00\x00\x01" + bytes(16),
            b"\x02\x02a\x02b\x00\x09" + tagged,
            b"\x00\x00\x00\x01" + tagged,
            tagged,
            tagged,
        )
    )
    voter = Voter(1, Uuid(bytes(16)), (VoterEndpoint("a", "b", 9),), 0, 1)
    assert parse_control_record(bytes.fromhex("0000 0006"), value) == KRaftVoters((voter,))


def test_a_leader_change_names_directories_from_version_1_on() -> None:
    directory_id = Uuid(bytes(range(16)))
    voter = LeaderChangeVoter(3, directory_id)
    _, value = encode_control_record(LeaderChange(3, (voter,), (), version=1))
    assert value == b"\x00\x01\x00\x00\x00\x03" + b"\x02\x00\x00\x00\x03" + directory_id.raw + b"\x00\x01\x00"
    with pytest.raises(ValueError, match="version 0 of LeaderChangeMessage has no directory ids"):
        encode_control_record(LeaderChange(3, (voter,), (), version=0))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"", "the key of a control record is null, expected at least 4 bytes"),
        (b"\x00\x00\x00", b"", "the key of a control record is 3 bytes, expected at least 4 bytes"),
        (b"\xff\xff\x00\x00", b"", "the key of a control record has version -1"),
        (b"\x00\x00\x00\x01", None, "a control record COMMIT without a value"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00", "version -1 of a control record COMMIT"),
    ],
)
def test_what_no_broker_writes_is_refused(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(CorruptData) as refusal:
        parse_control_record(key, value)
    assert refusal.value.reason == reason
