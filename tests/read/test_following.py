"""Following logs: each record once and in order, and a word about everything else that happens to them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from kfs.errors import CorruptData
from kfs.format.writer import encode_batch
from kfs.log.log import Log
from kfs.log.problem import DamagePolicy
from kfs.read.followed_log import FollowedLog
from kfs.read.follower import at_start
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from tests.compactions import Compacted
from tests.logs import START, look_every_time, records, set_log_start
from tests.read.live import LivePartition, Steps, followed, rename_away
from tests.read.some_transactions import Data, abort, commit

COMMITTED = IsolationLevel.READ_COMMITTED
Follow = Callable[..., Steps]


@pytest.fixture(autouse=True)
def _no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Return a function that follows log directories until the test ends."""
    opened: Callable[..., AbstractContextManager[Steps]] = contextmanager(followed)
    with ExitStack() as stack:
        yield lambda *roots, **options: stack.enter_context(opened(*roots, **options))


@pytest.fixture
def live(tmp_path: Path) -> LivePartition:
    live = LivePartition(tmp_path / "data")
    live.append(10)
    return live


@pytest.fixture
def root(live: LivePartition) -> Path:
    return live.directory.parent


def test_it_begins_at_the_end(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root)
    assert steps.offsets() == []
    live.append(3)
    assert steps.offsets() == [10, 11, 12]
    assert steps.offsets() == []
    live.append(7)
    assert steps.offsets() == list(range(13, 20))
    assert steps.events == []


def test_it_goes_on_in_new_segments(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    live.roll()
    assert steps.offsets() == []
    live.append(5)
    live.roll()
    live.append(5)
    live.roll()
    assert steps.offsets() == list(range(10, 20))
    live.append(1)
    assert steps.offsets() == [20]
    assert steps.events == []


def test_a_batch_that_is_being_written_comes_when_it_is_whole(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root)
    assert steps.offsets() == []
    data = encode_batch(records(10, 14))
    with live.active.open("ab") as file:
        for at in range(0, len(data), 37):
            assert steps.offsets() == []
            file.write(data[at : at + 37])
            file.flush()
    assert steps.offsets() == [10, 11, 12, 13, 14]
    assert steps.events == []


def test_a_batch_whose_bytes_come_later_than_its_size(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root)
    data = encode_batch(records(10, 14))
    size = live.active.stat().st_size
    assert steps.offsets() == []
    with live.active.open("r+b") as file:
        file.truncate(size + len(data))  # the size is known before the bytes are, as on NFS
        assert steps.offsets() == []
        file.seek(size)
        file.write(data[:70])
        file.flush()
        assert steps.offsets() == []
        file.write(data[70:] + encode_batch(records(15, 15)))
        file.flush()
        assert steps.offsets() == [10, 11, 12, 13, 14, 15]


def test_offsets_that_retention_takes_first_are_told(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root)
    live.roll()
    assert steps.offsets() == []
    live.append(5)
    live.roll()
    live.append(2)
    live.delete_first_segment()
    live.delete_first_segment()
    assert steps.offsets() == [15, 16]
    assert steps.events == ["t-0: offsets 10 to 14 were deleted before they were read"]
    live.append(1)
    assert steps.offsets() == [17]
    assert steps.events == []


def test_offsets_that_were_read_may_go(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    live.roll()
    live.delete_first_segment()
    live.append(1)
    assert steps.offsets() == [10]
    assert steps.events == []


def test_deleted_records_are_told(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root)
    assert steps.offsets() == []
    live.append(5)
    set_log_start(root, "t", 0, 12)
    assert steps.offsets() == [12, 13, 14]
    assert steps.events == ["t-0: offsets 10 to 11 were deleted before they were read"]


def test_compaction_repeats_nothing(tmp_path: Path, follow: Follow) -> None:
    compacted = Compacted(tmp_path)
    steps = follow(tmp_path, begin=at_start)
    assert steps.offsets() == list(range(60))
    compacted.compact([0, 10, 20], [3, 17, 29])
    assert steps.offsets() == []
    compacted.compact([30, 40], [31])
    with (compacted.directory / f"{50:020d}.log").open("ab") as file:
        file.write(encode_batch(records(60, 61)))
    assert steps.offsets() == [60, 61]
    assert steps.events == []


def test_what_another_leader_wrote_follows_a_cut(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    live.cut(5)
    assert steps.offsets() == []
    assert steps.events == [
        "t-0: the log was truncated: it ends at 5, and was read up to 10: going on at 10, or where records of another "
        "leader epoch begin"
    ]
    assert steps.offsets() == []
    assert steps.events == []  # it is said once
    live.append(2)
    assert steps.offsets() == [5, 6]
    (event,) = steps.events
    assert re.search(r"epoch 0, and .* has epoch 1 .*; going on at offset 5$", event)
    live.append(10)
    assert steps.offsets() == list(range(7, 17))
    assert steps.events == []


def test_a_cut_that_nobody_saw(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    live.cut(5)
    live.append(20)
    assert steps.offsets() == list(range(5, 25))
    assert steps.events[0].endswith("going on at offset 5")


def test_the_same_records_once_more_are_not_read_again(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    live.cut(5)
    live.epoch = 0
    assert steps.offsets() == []
    live.append(5)
    assert steps.offsets() == []
    live.append(3)
    assert steps.offsets() == [10, 11, 12]


@pytest.mark.parametrize("number", [2, None])
def test_a_topic_made_anew_begins_at_its_start(live: LivePartition, follow: Follow, number: int | None) -> None:
    root = live.directory.parent
    if number is None:  # as before Kafka 2.8
        (live.directory / "partition.metadata").unlink()
    steps = follow(root)
    assert steps.offsets() == []
    live.remove()
    again = LivePartition(root, number=number)
    again.append(15)
    assert steps.offsets() == list(range(15))
    assert steps.events == ["t-0: the topic was deleted and re-created: going on at its start, offset 0"]
    again.append(1)
    assert steps.offsets() == [15]
    assert steps.events == []


def test_a_topic_made_anew_after_it_was_gone(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    live.remove()
    LivePartition(root, "other-0")  # a log directory with nothing in it would be lost
    assert steps.offsets() == []
    assert steps.events == ["t-0 is gone"]
    LivePartition(root, number=2).append(3)
    assert steps.offsets() == [0, 1, 2]
    assert "re-created" in steps.events[0]


def test_a_partition_that_moves_to_another_disk_is_read_once(
    live: LivePartition, tmp_path: Path, follow: Follow
) -> None:
    other = tmp_path / "other"
    LivePartition(other, "s-0", number=7)
    root = live.directory.parent
    LivePartition(root, "r-0", number=8)
    steps = follow(root, other, begin=at_start)
    assert steps.go_on() == {"t-0": list(range(10))}
    away = live.directory.rename(root / f"t-0.{'0' * 32}-delete")
    assert steps.go_on() == {}
    assert steps.events == ["t-0 is gone"]
    shutil.copytree(away, other / "t-0")
    with (other / "t-0" / live.active.name).open("ab") as file:
        file.write(encode_batch(records(10, 10), partition_leader_epoch=0))
    assert steps.go_on() == {"t-0": [10]}
    assert steps.events == []


def test_new_partitions_are_read_from_their_start(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root)
    assert steps.go_on() == {}
    other = LivePartition(root, "t-1")
    other.append(2)
    LivePartition(root, "new-0").append(1)
    live.append(1)
    assert steps.go_on() == {"new-0": [0], "t-0": [10], "t-1": [0, 1]}
    other.append(1)
    assert steps.go_on() == {"t-1": [2]}


def test_a_log_directory_that_is_away_for_a_moment(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    assert steps.offsets() == list(range(10))
    away = rename_away(root)
    assert steps.offsets() == []
    assert all("waiting for it" in event for event in steps.events)
    assert steps.events
    assert steps.offsets() == []
    assert steps.events == []
    away.rename(root)
    live.append(2)
    assert steps.offsets() == [10, 11]
    assert steps.events == ["the log directories are back"]


def test_the_copy_that_reaches_further_is_followed(live: LivePartition, tmp_path: Path, follow: Follow) -> None:
    other = tmp_path / "other"
    copy = LivePartition(other)
    copy.append(7)
    root = live.directory.parent
    LivePartition(root, "r-0", number=8)
    steps = follow(root, other, begin=at_start)
    assert steps.go_on() == {"t-0": list(range(10))}
    copy.append(5)
    assert steps.go_on() == {"t-0": [10, 11]}
    away = rename_away(other)
    live.append(4)
    assert steps.go_on() == {"t-0": [12, 13]}
    away.rename(other)
    copy.append(8)
    assert steps.go_on() == {"t-0": list(range(14, 20))}


def test_records_of_a_transaction_come_with_its_marker(live: LivePartition, root: Path, follow: Follow) -> None:
    committed, every = follow(root, isolation=COMMITTED), follow(root)
    assert (committed.offsets(), every.offsets()) == ([], [])
    live.change(Data(1, 3), Data(None, 2))
    assert (committed.offsets(), every.offsets()) == ([], [10, 11, 12, 13, 14])
    live.change(Data(2, 2))
    live.roll()
    live.change(commit(1))
    assert (committed.offsets(), every.offsets()) == ([10, 11, 12, 13, 14], [15, 16])
    live.change(abort(2), Data(None, 1))
    assert (committed.offsets(), every.offsets()) == ([19], [19])


def test_damage_is_told_and_skipped_or_ends_it(live: LivePartition, root: Path, follow: Follow) -> None:
    skipping, failing = follow(root, on_damage=DamagePolicy.SKIP), follow(root)
    assert (skipping.offsets(), failing.offsets()) == ([], [])
    bad = bytearray(encode_batch(records(10, 14)))
    bad[70] ^= 1
    with live.active.open("ab") as file:
        file.write(encode_batch(records(10, 10)))
        file.write(b"".join([bytes(bad[:7]), b"\x0b", bytes(bad[8:])]))
        file.write(encode_batch(records(16, 17)))
    assert skipping.offsets() == [10, 16, 17]
    assert any("CRC" in event for event in skipping.events)
    assert skipping.offsets() == []
    assert skipping.events == []
    with pytest.raises(CorruptData, match="CRC"):
        failing.offsets()


def test_damage_at_the_end_counts_once_it_is_not_being_written(live: LivePartition, root: Path, follow: Follow) -> None:
    skipping, failing = follow(root, on_damage=DamagePolicy.SKIP), follow(root)
    assert (skipping.offsets(), failing.offsets()) == ([], [])
    bad = bytearray(encode_batch(records(10, 14)))
    bad[70] ^= 1
    with live.active.open("ab") as file:
        file.write(bad)
    assert (skipping.offsets(), failing.offsets()) == ([], [])
    os.utime(live.active, ns=(START * 1_000_000, START * 1_000_000))
    assert skipping.offsets() == []
    with pytest.raises(CorruptData, match="CRC"):
        failing.offsets()


def test_the_last_ones_first(live: LivePartition, root: Path, follow: Follow) -> None:
    def with_last(followed: FollowedLog, log: Log) -> Iterator[object]:
        return followed.begin_with_last(log, 3)

    steps = follow(root, begin=with_last)
    assert steps.offsets() == [7, 8, 9]
    live.append(1)
    assert steps.offsets() == [10]


@pytest.mark.parametrize(("offset", "event"), [(7, None), (12, "t-0: offset 12 is above the log's end 10: waiting")])
def test_it_begins_at_a_position(live: LivePartition, offset: int, event: str | None, follow: Follow) -> None:
    def at_offset(followed: FollowedLog, log: Log) -> Iterator[object]:
        return followed.begin_at(log, offset)

    steps = follow(live.directory.parent, begin=at_offset)
    assert steps.offsets() == list(range(offset, 10))
    assert [each.startswith(event or "?") for each in steps.events] == [True] * (event is not None), steps.events
    live.append(5)
    assert steps.offsets() == list(range(max(offset, 10), 15))
    assert steps.events == []


def test_a_selection_goes_on(live: LivePartition, root: Path, follow: Follow) -> None:
    since = Selection(since=START + 8000)
    some = Selection(start=8, end=14, value_pattern=re.compile(rb"[02468]$"))
    of_time, of_offsets, first = (
        follow(root, begin=at_start, selection=since),
        follow(root, begin=at_start, selection=some),
        follow(root, begin=at_start, selection=Selection(start=9), first=3),
    )
    assert (of_time.offsets(), of_offsets.offsets(), first.offsets()) == ([8, 9], [8], [9])
    assert [each.follower.is_done for each in (of_offsets, first)] == [False, False]
    live.append(5)
    assert (of_time.offsets(), of_offsets.offsets(), first.offsets()) == ([10, 11, 12, 13, 14], [10, 12], [10, 11])
    assert [each.follower.is_done for each in (of_offsets, first, of_time)] == [True, True, False]


def test_every_record_of_a_log_that_rolls_and_loses_segments(live: LivePartition, root: Path, follow: Follow) -> None:
    steps = follow(root, begin=at_start)
    seen = steps.offsets()
    for number in range(30):
        live.append(1 + number % 7, batch=2)
        if number % 3 == 0:
            live.roll()
        if number % 4 == 0:
            seen += steps.offsets()
            assert steps.events == []
            live.delete_first_segment()
    seen += steps.offsets()
    assert seen == list(range(live.end))
    assert not partial(steps.go_on)()
