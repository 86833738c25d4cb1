"""Committed offsets: what counts of plain commits, tombstones and transactions, and what is kept of the rest."""

from __future__ import annotations

import base64
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.codecs import Codec
from kfs.internal.groups import Group, GroupPartition, Groups
from kfs.internal.offset_commits import canonical_key
from kfs.internal.schema import Malformed, Value
from tests.internal.group_logs import TOPIC_ID, InternalPartition, commit, groups_of, legacy_commit, no_group
from tests.logs import START


def group_in(groups: Groups, name: str) -> Group:
    group = groups.group(name)
    assert group is not None
    return group


def offsets_of(groups: Groups, name: str) -> dict[tuple[str, int], int | None]:
    return {(each.topic, each.partition): each.offset for each in group_in(groups, name).partitions}


def only(groups: Groups, name: str) -> GroupPartition:
    (partition,) = group_in(groups, name).partitions
    return partition


def test_the_newest_commit_counts(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 5), commit("g", "a", 1, 6), commit("h", "a", 0, 1))
    log.append(commit("g", "a", 0, 4))
    groups = groups_of(tmp_path)
    assert groups.names() == ("g", "h")
    assert offsets_of(groups, "g") == {("a", 0): 4, ("a", 1): 6}


@pytest.mark.parametrize("codec", list(Codec))
def test_commits_may_be_compressed(tmp_path: Path, codec: Codec) -> None:
    log = InternalPartition(tmp_path)
    log.append(*[commit("g", "a", 0, offset) for offset in range(20)], codec=codec)
    log.append(*[commit("g", "b", 0, offset) for offset in range(20)], codec=codec, producer=1)
    log.end(1, is_commit=True)
    assert offsets_of(groups_of(tmp_path), "g") == {("a", 0): 19, ("b", 0): 19}


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_value_says_what_it_has(tmp_path: Path, version: int) -> None:
    fields: dict[str, Value] = {"leaderEpoch": 3, "metadata": "märz", "expireTimestamp": START + 9, "topicId": TOPIC_ID}
    InternalPartition(tmp_path).append(commit("g", "a", 0, 5, version=version, **fields))
    committed = only(groups_of(tmp_path), "g").committed
    assert committed is not None
    assert (committed.offset, committed.metadata, committed.commit_timestamp) == (5, "märz", START)
    assert committed.version == version
    assert committed.leader_epoch == (3 if version >= 3 else None)
    assert committed.expire_timestamp == (START + 9 if version == 1 else None)
    assert committed.topic_id == (str(TOPIC_ID) if version >= 4 else None)


def test_a_commit_of_the_oldest_type_is_of_the_same_key(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(legacy_commit("g", "a", 0, 5), legacy_commit("g", "b", 0, 6))
    log.append(commit("g", "a", 0, 7))
    assert offsets_of(groups_of(tmp_path), "g") == {("a", 0): 7, ("b", 0): 6}


def test_keys_that_mean_the_same_are_the_same(tmp_path: Path) -> None:
    plain = commit("g\ufffd", "a", 0, 5)[0]
    assert plain is not None
    broken = plain.replace("\ufffd".encode(), b"\xff").replace(b"\x00\x04g", b"\x00\x02g")
    longer = plain + b"more"
    assert {canonical_key(key) for key in (plain, broken, longer)} == {plain}
    log = InternalPartition(tmp_path)
    value = commit("g", "a", 0, 8)[1]
    log.append(commit("g\ufffd", "a", 0, 5), (broken, value))
    assert offsets_of(groups_of(tmp_path), "g\ufffd") == {("a", 0): 8}
    log.append((longer, None))
    assert groups_of(tmp_path).names() == ()


@pytest.mark.parametrize("key", ["0001", "0001ffff", "00010001", "0001000167ffff00000000", "00010001670001610000"])
def test_what_is_no_key_of_a_commit_is_refused(key: str) -> None:
    with pytest.raises(Malformed):
        canonical_key(bytes.fromhex(key))


def test_a_tombstone_deletes_the_commit_and_with_the_last_the_group(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 5), commit("g", "a", 1, 6), commit("h", "a", 0, 1))
    log.append(commit("g", "a", 0, None), commit("h", "a", 0, None), commit("never", "a", 0, None))
    groups = groups_of(tmp_path)
    assert groups.names() == ("g",)
    assert offsets_of(groups, "g") == {("a", 1): 6}


def test_offsets_are_shown_though_their_group_was_deleted(tmp_path: Path) -> None:
    InternalPartition(tmp_path).append(commit("g", "a", 0, 5), no_group("g"))
    group = group_in(groups_of(tmp_path), "g")
    assert (group.description.state, group.description.is_simple) == ("Empty", True)


def test_a_commit_in_a_transaction_counts_when_that_is_committed(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 5))
    log.append(commit("g", "a", 0, 9, metadata="in it"), producer=4)
    pending = only(groups_of(tmp_path), "g")
    assert pending.offset == 5
    assert [(each.offset, each.metadata, each.producer_id) for each in pending.pending] == [(9, "in it", 4)]
    log.end(4, is_commit=True)
    done = only(groups_of(tmp_path), "g")
    assert (done.offset, done.pending) == (9, ())


def test_a_commit_in_an_aborted_transaction_never_counts(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 5))
    log.append(commit("g", "a", 0, 9), commit("never", "a", 0, 9), producer=4)
    log.end(4, is_commit=False)
    groups = groups_of(tmp_path)
    assert groups.names() == ("g",)
    assert (only(groups, "g").offset, only(groups, "g").pending) == (5, ())


def test_a_group_with_nothing_but_pending_commits_is_there(tmp_path: Path) -> None:
    InternalPartition(tmp_path).append(commit("g", "a", 0, 9), producer=4)
    partition = only(groups_of(tmp_path), "g")
    assert (partition.committed, partition.offset) == (None, None)
    assert [each.offset for each in partition.pending] == [9]


def test_a_plain_commit_behind_one_in_a_transaction_stays(tmp_path: Path) -> None:
    """``replayEndTransactionMarker`` keeps the one whose record is the later, not the one that counts later."""
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 9), producer=4)
    log.append(commit("g", "a", 0, 7))
    log.end(4, is_commit=True)
    assert only(groups_of(tmp_path), "g").offset == 7


def test_of_two_transactions_the_later_commit_stays(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 1), producer=1)
    log.append(commit("g", "a", 0, 2), producer=2)
    log.end(2, is_commit=True)
    log.end(1, is_commit=True)
    assert only(groups_of(tmp_path), "g").offset == 2


def test_a_tombstone_takes_what_is_pending_with_it(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 9), commit("g", "b", 0, 3), producer=4)
    log.append(commit("g", "a", 0, None))
    log.append(commit("g", "c", 0, 4), producer=4)
    groups = groups_of(tmp_path)
    assert {(each.topic, len(each.pending)) for each in group_in(groups, "g").partitions} == {("b", 1), ("c", 1)}
    log.end(4, is_commit=True)
    assert offsets_of(groups_of(tmp_path), "g") == {("b", 0): 3, ("c", 0): 4}


def test_a_commit_after_the_tombstone_is_pending_anew(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 9), producer=4)
    log.append(commit("g", "a", 0, None))
    log.append(commit("g", "a", 0, 10), producer=4)
    log.end(4, is_commit=True)
    assert only(groups_of(tmp_path), "g").offset == 10


def test_a_marker_ends_only_what_its_own_producer_has_open(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    log.append(commit("g", "a", 0, 1), producer=1)
    log.append(commit("g", "b", 0, 2), producer=2)
    log.end(3, is_commit=True)
    log.end(2, is_commit=True)
    partitions = {each.topic: each for each in group_in(groups_of(tmp_path), "g").partitions}
    assert partitions["a"].offset is None
    assert partitions["b"].offset == 2


def test_a_value_that_cannot_be_read_is_shown_as_it_is(tmp_path: Path) -> None:
    log = InternalPartition(tmp_path)
    key, value = commit("g", "a", 0, 5)
    assert value is not None
    log.append((key, value[:-4]), (commit("g", "b", 0, 1)[0], b"\x00\x09abc"), (commit("g", "c", 0, 1)[0], b""))
    groups = groups_of(tmp_path)
    partitions = group_in(groups, "g").partitions
    assert [each.offset for each in partitions] == [None, None, None]
    committed = [each.committed for each in partitions if each.committed is not None]
    assert [base64.b64decode(each.raw or "-") for each in committed] == [value[:-4], b"\x00\x09abc", b""]
    assert all(each.problem for each in committed)
    assert [record.offset for _, record in groups.state_problems().unread] == [0, 1, 2]
    assert [record.value for _, record in groups.state_problems().unread] == [value[:-4], b"\x00\x09abc", b""]
    assert "version 9" in [record.reason for _, record in groups.state_problems().unread][1]


# --- against a naive reading ----------------------------------------------------------------------------------------

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Commit:
    key: Key
    offset: int | None
    producer: int


@dataclass(frozen=True, slots=True)
class End:
    producer: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class Roll:
    pass


@dataclass(frozen=True, slots=True)
class Look:
    """What was read so far is to be right, too."""


Event = Commit | End | Roll | Look

_keys = st.tuples(st.sampled_from(["g", "h", "łódź"]), st.sampled_from(["a", "b"]), st.integers(0, 1))
_events = st.lists(
    st.builds(Commit, _keys, st.none() | st.integers(0, 99), st.sampled_from([-1, -1, 1, 2, 3]))
    | st.builds(End, st.integers(1, 3), st.booleans())
    | st.just(Roll())
    | st.just(Look()),
    max_size=40,
)


class Naive:
    """What ``OffsetMetadataManager.java`` does, in so many words."""

    def __init__(self) -> None:
        self.offsets: dict[Key, tuple[int, int]] = {}
        self.pending: dict[int, dict[Key, tuple[int, int]]] = defaultdict(dict)

    def replay(self, event: Event, record_offset: int) -> None:
        if isinstance(event, Commit):
            if event.offset is None:
                self.offsets.pop(event.key, None)
                for pending in self.pending.values():
                    pending.pop(event.key, None)
            elif event.producer == -1:
                self.offsets[event.key] = record_offset, event.offset
            else:
                self.pending[event.producer][event.key] = record_offset, event.offset
        elif isinstance(event, End):
            for key, found in self.pending.pop(event.producer, {}).items():
                if event.is_commit and (key not in self.offsets or found[0] > self.offsets[key][0]):
                    self.offsets[key] = found

    def committed(self) -> dict[Key, int]:
        return {key: offset for key, (_, offset) in self.offsets.items()}

    def pending_offsets(self) -> set[tuple[int, Key, int]]:
        return {
            (producer, key, offset)
            for producer, pending in self.pending.items()
            for key, (_, offset) in pending.items()
        }


def _committed(groups: Groups) -> dict[Key, int]:
    return {
        (name, each.topic, each.partition): each.offset
        for name in groups.names()
        for each in group_in(groups, name).partitions
        if each.offset is not None
    }


def _pending(groups: Groups) -> set[tuple[int, Key, int]]:
    return {
        (found.producer_id, (name, each.topic, each.partition), found.offset)
        for name in groups.names()
        for each in group_in(groups, name).partitions
        for found in each.pending
        if found.producer_id is not None and found.offset is not None
    }


@pytest.mark.usefixtures("eager")
@given(_events, st.booleans())
def test_any_log_is_read_as_kafka_reads_it_at_once_and_as_it_grows(events: list[Event], is_legacy: bool) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        log, naive, following = InternalPartition(root), Naive(), groups_of(root)
        for event in events:
            if isinstance(event, Roll):
                log.roll()
                continue
            if isinstance(event, Look):
                assert _committed(following) == naive.committed()
                continue
            naive.replay(event, log.next_offset)
            if isinstance(event, End):
                log.end(event.producer, is_commit=event.is_commit)
            elif is_legacy and event.offset is not None:
                log.append(legacy_commit(*event.key, event.offset), producer=event.producer)
            else:
                log.append(commit(*event.key, event.offset), producer=event.producer)
        for groups in (groups_of(root), following):
            assert _committed(groups) == naive.committed()
            assert _pending(groups) == naive.pending_offsets()
