"""``quorum-state``: the persistent election state of a KRaft replica (``FileQuorumStateStore.java``), as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kfs.errors import CorruptData
from kfs.format.json_object import parse_json_object
from kfs.format.uuid import ZERO_UUID, Uuid, parse_uuid


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The last election that the replica knows of; an id of -1 means none.

    ``voters`` are the configured voter ids in version 0. It is None in version 1 (KIP-853), whose voters are in the
    metadata log.
    """

    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: Uuid
    voters: tuple[int, ...] | None
    version: int


def parse_quorum_state(data: bytes) -> QuorumState:
    """Parse a ``quorum-state``.

    Raises:
        CorruptData: it isn't valid JSON of that kind.
    """
    content = parse_json_object(data)
    voters = content.get("currentVoters")
    if voters is not None and not (isinstance(voters, list) and all(isinstance(voter, dict) for voter in voters)):
        raise CorruptData("currentVoters is no list of objects")
    directory = content.get("votedDirectoryId", str(ZERO_UUID))
    if not isinstance(directory, str):
        raise CorruptData("votedDirectoryId is no text")
    return QuorumState(
        _number(content, "leaderId"),
        _number(content, "leaderEpoch"),
        _number(content, "votedId"),
        parse_uuid(directory.encode()),
        None if voters is None else tuple(_number(voter, "voterId") for voter in voters),
        _number(content, "data_version"),
    )


def _number(content: Mapping[str, object], name: str) -> int:
    value = content.get(name, -1)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptData(f"{name} is {value!r}, expected a number")
    return value
