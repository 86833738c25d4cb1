"""The state that a metadata log and its snapshots make, whole, damaged, and growing."""

from __future__ import annotations

import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.format.control_record import (
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    LeaderChangeVoter,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    VoterEndpoint,
)
from kfs.format.varint import encode_unsigned_varint
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.metadata_log import MetadataLog, MetadataState
from kfs.internal.cluster.replay import MOST_SKIPPED, Replay
from kfs.internal.topics import CLUSTER_METADATA_KINDS
from tests.internal.cluster.reading import metadata_log
from tests.internal.cluster.writing import (
    DIRECTORY,
    History,
    batch,
    config,
    control_batch,
    log_bytes,
    partition,
    snapshot_bytes,
    topic,
    uuid,
    value,
    write_log,
    write_segment,
    write_snapshot,
)

CORPORA: Final = ("e_meta", "e39_meta")


def names(state: MetadataState) -> list[str]:
    return sorted(state.image.topic_ids)


def content(image: MetadataImage) -> MetadataImage:
    """Return what a snapshot can hold of an image."""
    return replace(image, removed_topics={})


def copied(data: Path, target: Path) -> Path:
    """Copy a corpus' metadata log, to be changed."""
    shutil.copytree(data / DIRECTORY, target / DIRECTORY)
    for file in (target / DIRECTORY).iterdir():
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return target


# --- snapshots and the log ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CORPORA)
def test_the_whole_log_makes_what_a_snapshot_and_the_rest_of_it_make(
    name: str, corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    data = corpus(name) / "data"
    whole = copied(data, tmp_path)
    for file in (whole / DIRECTORY).iterdir():
        if file.name.endswith((".log.deleted", ".index.deleted", ".timeindex.deleted")):
            file.rename(file.with_name(file.name.removesuffix(".deleted")))
        elif ".checkpoint" in file.name and "leader" not in file.name:
            file.unlink()
    usual, alone = metadata_log(data).state(), metadata_log(whole).state()
    assert usual.snapshot is not None
    assert alone.snapshot is None
    assert (alone.is_partial, alone.stopped) == (False, None)
    assert content(alone.image) == content(usual.image)
    assert alone.replay.end_offset == usual.replay.end_offset
    assert alone.replay.timestamp == usual.replay.timestamp


@pytest.mark.parametrize("name", CORPORA)
def test_each_snapshot_is_the_state_at_its_offset(name: str, corpus: Callable[[str], Path], tmp_path: Path) -> None:
    whole = copied(corpus(name) / "data", tmp_path)
    snapshots = [one for one in metadata_log(whole).snapshots() if one.suffix != ".part"]
    assert len(snapshots) >= 3
    for file in (whole / DIRECTORY).iterdir():
        if file.name.endswith(".log.deleted"):
            file.rename(file.with_name(file.name.removesuffix(".deleted")))
    kept = tmp_path / "kept"
    kept.mkdir()
    for snapshot in snapshots:
        shutil.move(snapshot.path, kept / Path(snapshot.path).name)
    for snapshot in snapshots:
        at = metadata_log(whole).state_at(snapshot.end_offset)
        alone = tmp_path / f"alone-{snapshot.end_offset}"
        (alone / DIRECTORY).mkdir(parents=True)
        shutil.copy(kept / Path(snapshot.path).name, alone / DIRECTORY)
        said = metadata_log(alone).state()
        assert said.snapshot is not None
        assert at.replay.end_offset == said.replay.end_offset == snapshot.end_offset
        assert content(at.image) == content(said.image)
        assert at.replay.timestamp == said.replay.timestamp


def test_the_newest_whole_snapshot_counts(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("late", 9)]], offset=20)
    write_snapshot(directory, 10, [topic("old", 1)])
    write_snapshot(directory, 20, [topic("new", 2)])
    write_snapshot(directory, 20, [topic("deleted", 3)], epoch=2, suffix=".deleted")
    write_snapshot(directory, 30, [topic("unfinished", 4)], suffix=".part")
    log = metadata_log(tmp_path)
    assert names(log.state()) == ["late", "new"]
    assert [log.snapshot_fault(one) is None for one in log.snapshots()] == [True, True, True, False]


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda data: data[: -len(control_batch(2, SnapshotFooter()))], "no SNAPSHOT_FOOTER"),
        (lambda data: data[:-5], "no SNAPSHOT_FOOTER"),
        (lambda data: data[: data.index(b"new")] + b"nev" + data[data.index(b"new") + 3 :], "CRC"),
        (lambda data: data[len(control_batch(0, SnapshotHeader(0))) :], "not a SNAPSHOT_HEADER"),
        (lambda data: data + batch(3, [topic("more", 7)]), "follow the SNAPSHOT_FOOTER"),
        (lambda data: b"", "not a SNAPSHOT_HEADER"),
        (lambda data: b"garbage " * 50, ""),
        (lambda data: b"\0" * 500, "not a SNAPSHOT_HEADER"),
    ],
)
def test_a_snapshot_that_is_not_whole_is_told_and_not_used(
    break_it: Callable[[bytes], bytes], reason: str, tmp_path: Path
) -> None:
    directory = write_log(tmp_path, [[topic("late", 9)]], offset=10)
    write_snapshot(directory, 10, [topic("old", 1)])
    newer = directory / f"{11:020d}-{1:010d}.checkpoint"
    newer.write_bytes(break_it(snapshot_bytes([topic("new", 2)])))
    log = metadata_log(tmp_path)
    assert names(log.state()) == ["late", "old"]
    problems = [problem for problem in log.problems if problem.file == str(newer)]
    assert any(reason in problem.reason for problem in problems)
    assert log.snapshot_fault(log.snapshots()[0]) is not None


def test_a_log_whose_beginning_is_gone_goes_on_from_the_snapshot(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("b", 2)], [topic("c", 3)]], offset=9)
    write_snapshot(directory, 10, [topic("a", 1)])
    assert names(metadata_log(tmp_path).state()) == ["a", "c"]


def test_what_lies_between_a_snapshot_and_the_log_is_missed(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("b", 2)]], offset=15)
    write_snapshot(directory, 10, [topic("a", 1)])
    log = metadata_log(tmp_path)
    state = log.state()
    assert names(state) == ["a"]
    assert state.replay.end_offset == 10
    assert state.stopped is not None
    assert "offsets 10 to 14 are missing" in state.stopped
    assert [problem.reason for problem in log.problems] == [
        "the offsets 10 to 14 are missing: later records aren't applied"
    ]


def test_without_a_snapshot_a_log_whose_beginning_is_gone_says_what_it_can(tmp_path: Path) -> None:
    write_log(tmp_path, [[topic("b", 2), partition(0, 1), partition(0, 2)]], offset=15)
    log = metadata_log(tmp_path)
    state = log.state()
    assert state.is_partial
    assert names(state) == ["b"]
    assert [skipped.offset for skipped in state.replay.skipped] == [16]
    assert any("begins at offset 15" in problem.reason for problem in log.problems)


def test_a_corrupt_batch_ends_what_is_known(tmp_path: Path) -> None:
    first, second = log_bytes([[topic("a", 1)]]), bytearray(log_bytes([[topic("b", 2)]], 1))
    second[-2] ^= 0xFF
    write_segment(tmp_path, first + bytes(second) + log_bytes([[topic("c", 3)]], 2))
    log = metadata_log(tmp_path)
    state = log.state()
    assert names(state) == ["a"]
    assert state.replay.end_offset == 1
    assert state.stopped is not None
    assert f"position {len(first)}" in state.stopped
    assert len(log.problems) > 0


def test_a_batch_cut_short_is_the_end_of_the_log(tmp_path: Path) -> None:
    write_segment(tmp_path, log_bytes([[topic("a", 1)], [topic("b", 2)]])[:-3])
    state = metadata_log(tmp_path).state()
    assert (names(state), state.stopped) == (["a"], None)


def test_a_missing_segment_ends_what_is_known(tmp_path: Path) -> None:
    write_log(tmp_path, [[topic("a", 1)]])
    write_log(tmp_path, [[topic("c", 3)]], offset=5)
    state = metadata_log(tmp_path).state()
    assert names(state) == ["a"]
    assert "offsets 1 to 4 are missing" in (state.stopped or "")


# --- transactions ---------------------------------------------------------------------------------------------------

BEGIN: Final = value("begin_transaction", name="one")


def test_a_transaction_holds_when_it_has_ended(tmp_path: Path) -> None:
    write_log(tmp_path, [[topic("a", 1), BEGIN], [topic("b", 2)], [value("end_transaction"), topic("c", 3)]])
    log = metadata_log(tmp_path)
    assert names(log.state_at(3)) == ["a"]
    assert names(log.state_at(4)) == ["a", "b"]
    assert names(log.state()) == ["a", "b", "c"]


def test_an_aborted_transaction_never_was(tmp_path: Path) -> None:
    write_log(tmp_path, [[topic("a", 1)], [BEGIN, topic("b", 2)], [value("abort_transaction")], [topic("c", 3)]])
    state = metadata_log(tmp_path).state()
    assert names(state) == ["a", "c"]
    assert state.replay.transaction is None
    assert state.replay.skipped == ()


def test_of_an_open_transaction_nothing_holds_yet(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("a", 1)], [BEGIN, topic("b", 2)]])
    log = metadata_log(tmp_path)
    state = log.state()
    assert names(state) == ["a"]
    transaction = state.replay.transaction
    assert transaction is not None
    assert (transaction.offset, transaction.name, len(transaction.records)) == (1, "one", 1)
    with (directory / f"{0:020d}.log").open("ab") as file:
        file.write(log_bytes([[value("end_transaction")]], 3))
    log.log.look_again()
    assert names(log.state()) == ["a", "b"]
    assert names(state) == ["a"]


def test_markers_that_fit_no_transaction_are_told(tmp_path: Path) -> None:
    write_log(tmp_path, [[value("end_transaction"), BEGIN, BEGIN, topic("a", 1), value("end_transaction")]])
    state = metadata_log(tmp_path).state()
    assert names(state) == ["a"]
    assert [(one.offset, one.reason) for one in state.replay.skipped] == [
        (0, "END_TRANSACTION_RECORD: no transaction is open"),
        (2, "BEGIN_TRANSACTION_RECORD: a transaction is open since offset 1"),
    ]


# --- records that can't be applied ----------------------------------------------------------------------------------


def framed(type_id: int, version: int, data: bytes = b"") -> bytes:
    return b"".join(map(encode_unsigned_varint, (1, type_id, version))) + data


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (framed(99, 0, b"xyz"), "type 99 version 0: Unknown metadata id 99"),
        (framed(16, 0, b"\x02f\x00"), "REMOVE_FEATURE_LEVEL_RECORD version 0: Unknown metadata id 16"),
        (topic("x", 5)[:-1], "TOPIC_RECORD version 0: "),
        (topic("x", 5) + b"!", "TOPIC_RECORD version 0: Found 1 byte(s) of garbage after 2"),
        (framed(3, 9, b""), "PARTITION_RECORD version 9: "),
        (b"", ""),
        (b"\xff" * 9, ""),
        (b"\x00\x02\x00", "frame version 0, expected 1"),
        (partition(0, 77), "PARTITION_RECORD: no topic has the id"),
        (value("partition_change", partitionId=8, topicId=uuid(1)), "PARTITION_CHANGE_RECORD: a has no partition 8"),
        (value("remove_topic", topicId=uuid(77)), "REMOVE_TOPIC_RECORD: no topic has the id"),
        (value("fence_broker", id=3, epoch=1), "FENCE_BROKER_RECORD: broker 3 isn't registered"),
        (value("unregister_broker", brokerId=3), "UNREGISTER_BROKER_RECORD: broker 3 isn't registered"),
        (value("remove_access_control_entry", id=uuid(1)), "REMOVE_ACCESS_CONTROL_ENTRY_RECORD: no access control"),
        (value("clear_elr", topicName="z"), "CLEAR_ELR_RECORD: there is no topic z"),
        (partition(0, 1, (1, 2), directories=(uuid(5),)), "PARTITION_RECORD: 1 directories for 2 replicas"),
        (None, "a record without a value"),
    ],
)
def test_a_record_that_cant_be_applied_is_told_kept_and_left_out(
    bad: bytes | None, reason: str, tmp_path: Path
) -> None:
    data = log_bytes([[topic("a", 1)]]) + batch(1, [bad]) + log_bytes([[topic("b", 2)]], 2)
    write_segment(tmp_path, data)
    state = metadata_log(tmp_path).state()
    assert names(state) == ["a", "b"]
    assert (state.stopped, state.replay.end_offset, state.replay.skipped_count) == (None, 3, 1)
    (skipped,) = state.replay.skipped
    assert (skipped.offset, skipped.value) == (1, bad)
    assert reason in skipped.reason


def test_tagged_fields_that_are_not_known_are_counted(tmp_path: Path) -> None:
    known = topic("a", 1)
    tagged = known[:-1] + b"\x01" + encode_unsigned_varint(40) + b"\x03abc"
    write_log(tmp_path, [[tagged]])
    state = metadata_log(tmp_path).state()
    assert names(state) == ["a"]
    assert (state.replay.unknown_tags, state.replay.skipped) == (1, ())


def test_so_many_records_are_kept_and_the_others_counted() -> None:
    replay = Replay()
    for offset in range(MOST_SKIPPED + 5):
        replay.record("f", offset, b"")
    assert (len(replay.skipped), replay.skipped_count) == (MOST_SKIPPED, MOST_SKIPPED + 5)


# --- control records ------------------------------------------------------------------------------------------------


def test_the_quorum_is_what_control_records_say(tmp_path: Path) -> None:
    voter = Voter(4, uuid(4), (VoterEndpoint("CONTROLLER", "c4", 9093),), 0, 1)
    leader = LeaderChange(4, (LeaderChangeVoter(4, uuid(4)), LeaderChangeVoter(5, uuid(5))), (), 1)
    data = control_batch(0, leader, leader_epoch=7) + control_batch(1, KRaftVersion(1), KRaftVoters((voter,)))
    write_segment(tmp_path, data + batch(3, [topic("a", 1)], leader_epoch=7))
    replay = metadata_log(tmp_path).state().replay
    assert (replay.leader_id, replay.leader_epoch, replay.voter_ids) == (4, 7, (4, 5))
    assert (replay.kraft_version, replay.voters, replay.epoch) == (1, (voter,), 7)


def test_voters_in_a_snapshot_count(tmp_path: Path) -> None:
    voter = Voter(4, uuid(4), (), 0, 1)
    data = control_batch(0, SnapshotHeader(5), KRaftVersion(1), KRaftVoters((voter,)))
    data += control_batch(3, SnapshotFooter())
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / f"{0:020d}-{0:010d}.checkpoint").write_bytes(data)
    replay = metadata_log(tmp_path).state().replay
    assert (replay.voters, replay.kraft_version, replay.end_offset) == ((voter,), 1, 0)


# --- a log that grows -----------------------------------------------------------------------------------------------


def test_a_log_that_grows_is_read_from_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_log(tmp_path, [[topic("a", 1)]])
    log = metadata_log(tmp_path)
    assert names(log.state()) == ["a"]
    seen: list[int] = []
    record = Replay.record

    def counted(self: Replay, file: str, offset: int, data: bytes | None) -> None:
        seen.append(offset)
        record(self, file, offset, data)

    monkeypatch.setattr(Replay, "record", counted)
    with (directory / f"{0:020d}.log").open("ab") as file:
        file.write(log_bytes([[topic("b", 2)]], 1))
    log.log.look_again()
    assert names(log.state()) == ["a", "b"]
    write_log(tmp_path, [[topic("c", 3)]], offset=2)
    log.log.look_again()
    assert names(log.state()) == ["a", "b", "c"]
    assert log.state() is log.state()
    assert seen == [1, 2]


def test_a_log_that_is_cut_is_read_anew(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("a", 1)], [topic("b", 2)]])
    log = metadata_log(tmp_path)
    assert names(log.state()) == ["a", "b"]
    (directory / f"{0:020d}.log").write_bytes(log_bytes([[topic("a", 1)]]))
    log.log.look_again()
    log.state()
    log.log.look_again()
    assert names(log.state()) == ["a"]


def test_a_log_replaced_by_a_snapshot_is_read_anew(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("a", 1)]])
    log = metadata_log(tmp_path)
    assert names(log.state()) == ["a"]
    (directory / f"{0:020d}.log").unlink()
    write_snapshot(directory, 50, [topic("z", 9)])
    write_log(tmp_path, [[topic("y", 8)]], offset=50)
    log.log.look_again()
    assert names(log.state()) == ["y", "z"]


def test_names_of_topics_that_are_gone_are_found_wherever_they_are(tmp_path: Path) -> None:
    directory = write_log(tmp_path, [[topic("c", 3)]], offset=20)
    (directory / f"{10:020d}.log.deleted").write_bytes(log_bytes([[topic("b", 2)]], 10))
    write_snapshot(directory, 5, [topic("a", 1)], suffix=".deleted")
    write_snapshot(directory, 20, [])
    found = metadata_log(tmp_path).former_names()
    assert found == {uuid(1): "a", uuid(2): "b", uuid(3): "c"}


# --- the image ------------------------------------------------------------------------------------------------------


def test_every_kind_of_record_is_known() -> None:
    """A kind that the decoder knows is applied, or it belongs to transactions."""
    for kind in CLUSTER_METADATA_KINDS.values():
        replay = Replay()
        replay.record("f", 0, value(kind.name.removesuffix("_RECORD").lower()))
        assert all("KeyError" not in one.reason for one in replay.skipped)


def test_a_topic_made_again_has_its_new_id(tmp_path: Path) -> None:
    removed = value("remove_topic", topicId=uuid(1))
    write_log(tmp_path, [[topic("a", 1), config(2, "a", "retention.ms", "1"), removed, topic("a", 2)]])
    image = metadata_log(tmp_path).state().image
    assert image.topic_ids == {"a": uuid(2)}
    assert image.removed_topics == {uuid(1): "a"}
    assert image.configs == {}


def histories() -> st.SearchStrategy[list[list[bytes]]]:
    return st.builds(lambda seed, count: History(random.Random(seed)).batches(count), st.integers(), st.integers(1, 25))


@given(histories(), st.data())
def test_it_does_not_matter_where_the_log_was_looked_at_or_rolled(
    batches: list[list[bytes]], data: st.DataObject
) -> None:
    looks = data.draw(st.sets(st.integers(1, len(batches))))
    rolls = data.draw(st.sets(st.integers(1, len(batches))))
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        offset = base = 0
        directory = write_segment(root, b"")
        log = metadata_log(root)
        for number, values in enumerate(batches, 1):
            with (directory / f"{base:020d}.log").open("ab") as file:
                file.write(log_bytes([values], offset))
            offset += len(values)
            if number in rolls:
                base = offset
                write_segment(root, b"", base)
            if number in looks:
                log.log.look_again()
                log.state()
        log.log.look_again()
        assert_same(log.state(), metadata_log(root).state())


def assert_same(one: MetadataState, other: MetadataState) -> None:
    for field in fields(Replay):
        assert getattr(one.replay, field.name) == getattr(other.replay, field.name), field.name


@given(histories(), st.integers(0, 2**32), st.binary(max_size=40))
def test_whatever_the_bytes_are_nothing_fails(batches: list[list[bytes]], seed: int, noise: bytes) -> None:
    source = random.Random(seed)
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        mangled = [[mangle(source, one, noise) for one in values] for values in batches]
        directory = write_log(root, mangled)
        snapshot = bytearray(snapshot_bytes([one for values in batches[:3] for one in values]))
        snapshot[source.randrange(len(snapshot))] ^= 1 << source.randrange(8)
        (directory / f"{1:020d}-{1:010d}.checkpoint").write_bytes(snapshot)
        log = MetadataLog(metadata_log(root).directory, metadata_log(root).log.storage)
        state = log.state()
        assert state.replay.end_offset == sum(map(len, mangled))
        assert state.stopped is None
        log.former_names()


def mangle(source: random.Random, data: bytes, noise: bytes) -> bytes:
    """Damage a value one time in four."""
    way = source.randrange(16)
    if way == 0:
        return data[: source.randrange(len(data) + 1)]
    if way == 1:
        return data + noise
    if way == 2 and data:
        at = source.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << source.randrange(8))]) + data[at + 1 :]
    return noise if way == 3 else data
