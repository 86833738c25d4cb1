"""``quorum-state``: both versions, and what is none."""

from __future__ import annotations

import json

import pytest

from kfs.errors import CorruptData
from kfs.format.quorum_state import QuorumState, parse_quorum_state
from kfs.format.uuid import ZERO_UUID, Uuid

ID = Uuid(bytes(range(16)))


def test_version_0_names_the_voters() -> None:
    data = b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
    data += b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    assert parse_quorum_state(data) == QuorumState(1, 7, -1, ZERO_UUID, (1, 2), 0)


def test_version_1_names_the_directory_voted_for() -> None:
    content = {"leaderId": -1, "leaderEpoch": 8, "votedId": 3, "votedDirectoryId": str(ID), "data_version": 1}
    assert parse_quorum_state(json.dumps(content).encode()) == QuorumState(-1, 8, 3, ID, None, 1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[1]",
        b'{"leaderId":"one"}',
        b'{"leaderId":true}',
        b'{"currentVoters":7}',
        b'{"currentVoters":[1]}',
        b'{"currentVoters":[{"voterId":null}]}',
        b'{"votedDirectoryId":5}',
        b'{"votedDirectoryId":"short"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_anything_else_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_quorum_state(data)
