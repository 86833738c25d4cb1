"""What every store promises, held against each of them on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfs.errors import Fenced, OffsetStoreError, PositionMoved
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.format.uuid import Uuid
from kfs.log.identity import UNKNOWN, Identity
from kfs.spark.offsets import ConsumedRange, StagedFile, WritableStore, WriterName

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("orders", 1)
A = Uuid(b"A" * 16)
IN_EPOCH_3 = Identity(A, 3)
FILES = (StagedFile("a/x", "orders/x"), StagedFile("a/y", "y"))


def test_nothing_is_stored_of_a_group_that_nobody_knows(store: WritableStore) -> None:
    progress = store.load("nobody")
    assert progress.is_empty
    assert (progress.epoch, progress.positions, progress.writer, progress.batch) == (0, {}, None, None)


def test_what_is_saved_is_there_for_who_comes_next(
    url: str, store: WritableStore, open_one: Callable[[str], WritableStore]
) -> None:
    fence, before = store.acquire("export")
    assert before.positions == {}
    store.save(fence, [ConsumedRange("orders", 0, 5, 10), ConsumedRange("orders", 1, 0, 0)])
    store.save(fence, [ConsumedRange("orders", 0, 10, MAX_INT64)], FILES)
    found = open_one(url).load("export")
    assert found.positions == {ORDERS: MAX_INT64, OTHERS: 0}
    assert found.batch is not None
    assert found.batch.files == FILES
    assert found.batch.ranges == (ConsumedRange("orders", 0, 10, MAX_INT64),)
    assert found.writer is not None
    assert found.writer.token == fence.token


def test_positions_are_kept_with_the_logs_that_they_are_of(
    url: str, store: WritableStore, open_one: Callable[[str], WritableStore]
) -> None:
    fence, _ = store.acquire("export")
    ranges = [ConsumedRange("orders", 0, 5, 10), ConsumedRange("orders", 1, 0, 0)]
    store.save(fence, ranges, identities={ORDERS: IN_EPOCH_3, OTHERS: Identity(A), TopicPartition("x", 0): IN_EPOCH_3})
    assert open_one(url).load("export").identities == {ORDERS: IN_EPOCH_3, OTHERS: Identity(A)}
    store.save(fence, [ConsumedRange("orders", 1, 0, 4)], identities={OTHERS: Identity(None, 0)})
    assert open_one(url).load("export").identities == {ORDERS: IN_EPOCH_3, OTHERS: Identity(None, 0)}
    store.save(fence, [ConsumedRange("orders", 0, 10, 20)])  # by a job that says nothing of logs
    assert open_one(url).load("export").identities == {OTHERS: Identity(None, 0)}


def test_a_position_that_is_set_by_hand_stays_one_of_its_topic(store: WritableStore) -> None:
    store.set_positions("export", {ORDERS: 10, OTHERS: 20}, identities={ORDERS: IN_EPOCH_3, OTHERS: IN_EPOCH_3})
    assert store.load("export").identities == {ORDERS: IN_EPOCH_3, OTHERS: IN_EPOCH_3}
    store.set_positions("export", {ORDERS: 5})
    assert store.load("export").identities == {ORDERS: Identity(A), OTHERS: IN_EPOCH_3}
    store.set_positions("export", {ORDERS: 5, OTHERS: 5}, identities={ORDERS: UNKNOWN})
    assert store.load("export").identities == {OTHERS: Identity(A)}


def test_groups_are_listed(store: WritableStore) -> None:
    for group in ("b", "a"):
        store.acquire(group)
    assert store.groups() == ["a", "b"]


def test_a_batch_is_finished_before_the_next_is_saved(store: WritableStore) -> None:
    fence, _ = store.acquire("export")
    store.save(fence, [ConsumedRange("orders", 0, 0, 10)], FILES)
    with pytest.raises(OffsetStoreError, match="isn't finished"):
        store.save(fence, [ConsumedRange("orders", 0, 10, 20)])
    assert store.finish(fence).batch is None
    assert store.finish(fence).batch is None
    store.save(fence, [ConsumedRange("orders", 0, 10, 20)])
    assert store.load("export").positions == {ORDERS: 20}


def test_ranges_of_one_partition_are_joined_whatever_their_order(store: WritableStore) -> None:
    fence, _ = store.acquire("export")
    store.save(fence, [ConsumedRange("orders", 0, 10, 15), ConsumedRange("orders", 0, 3, 10)])
    assert store.load("export").positions == {ORDERS: 15}


@pytest.mark.parametrize("start", [0, 9, 11])
def test_a_range_that_does_not_begin_at_the_position_changes_nothing(store: WritableStore, start: int) -> None:
    fence, _ = store.acquire("export")
    store.save(fence, [ConsumedRange("orders", 0, 0, 10)])
    with pytest.raises(PositionMoved, match=f"stands at offset 10, and the range to be saved is {start} to 30"):
        store.save(fence, [ConsumedRange("orders", 1, 0, 7), ConsumedRange("orders", 0, start, 30)], FILES)
    found = store.load("export")
    assert found.positions == {ORDERS: 10}
    assert found.batch is None


def test_who_takes_a_group_fences_who_had_it(
    url: str, store: WritableStore, open_one: Callable[[str], WritableStore]
) -> None:
    first, _ = store.acquire("export")
    store.save(first, [ConsumedRange("orders", 0, 0, 10)], FILES)
    second, progress = open_one(url).acquire("export", WriterName("elsewhere", 77, 0, "b"))
    assert second.epoch > first.epoch
    assert progress.batch is not None
    with pytest.raises(Fenced, match="process 77 on elsewhere took it over"):
        store.save(first, [ConsumedRange("orders", 0, 10, 20)])
    with pytest.raises(Fenced, match="process 77 on elsewhere took it over"):
        store.finish(first)
    store.release(first)
    found = store.load("export")
    assert found.positions == {ORDERS: 10}
    assert found.batch == progress.batch
    assert found.writer == WriterName("elsewhere", 77, 0, "b")


def test_a_released_group_is_fenced_too(store: WritableStore) -> None:
    fence, _ = store.acquire("export")
    store.release(fence)
    with pytest.raises(Fenced, match="its writer was fenced"):
        store.save(fence, [ConsumedRange("orders", 0, 0, 10)])


def test_positions_set_by_hand_fence_the_writer(store: WritableStore) -> None:
    fence, _ = store.acquire("export")
    store.save(fence, [ConsumedRange("orders", 0, 0, 10)], FILES)
    with pytest.raises(OffsetStoreError, match=r"has it since .* and may be running"):
        store.set_positions("export", {ORDERS: 3})
    assert store.load("export").positions == {ORDERS: 10}
    store.set_positions("export", {ORDERS: 3, OTHERS: 4}, force=True)
    with pytest.raises(Fenced):
        store.finish(fence)
    found = store.load("export")
    assert found.positions == {ORDERS: 3, OTHERS: 4}
    assert found.batch is not None  # its files are output, whatever the positions are now


def test_positions_can_be_set_when_the_writer_has_ended(store: WritableStore) -> None:
    here = WriterName.of_this_process()
    store.acquire("export", WriterName(here.host, 2**22 + 1, here.since, here.token))
    store.set_positions("export", {ORDERS: 3})
    assert store.load("export").positions == {ORDERS: 3}


def test_groups_do_not_touch_each_other(store: WritableStore) -> None:
    one, _ = store.acquire("one")
    two, _ = store.acquire("two")
    store.save(one, [ConsumedRange("orders", 0, 0, 10)])
    store.save(two, [ConsumedRange("orders", 0, 0, 20)])
    assert store.load("one").positions == {ORDERS: 10}
    assert store.load("two").positions == {ORDERS: 20}


def test_a_batch_of_many_partitions_is_saved_at_once(store: WritableStore) -> None:
    ranges = [ConsumedRange(f"topic{number % 7}", number, 0, number) for number in range(1500)]
    fence, _ = store.acquire("export")
    store.save(fence, ranges)
    assert store.load("export").positions == {each.topic_partition: each.until_offset for each in ranges}


def test_a_batch_too_large_to_be_read_again_is_refused(store: WritableStore) -> None:
    fence, _ = store.acquire("export")
    files = [StagedFile(f"{number}/{'s' * 2000}", f"{number}/{'f' * 2000}") for number in range(4500)]
    with pytest.raises(OffsetStoreError, match="bytes"):
        store.save(fence, [ConsumedRange("orders", 0, 0, 10)], files)
    assert store.load("export").positions == {}


@pytest.mark.parametrize("group", ["", "a\nb", "x" * 1001])
def test_a_group_needs_a_name(store: WritableStore, group: str) -> None:
    with pytest.raises(OffsetStoreError, match="is not a group name"):
        store.acquire(group)


@pytest.mark.parametrize("group", ["group with spaces / ünïcode 🙂", "{group}", "*[?]"])
def test_groups_may_have_any_printable_name(
    group: str, url_of: Callable[[str], str], open_one: Callable[[str], WritableStore]
) -> None:
    for kind in ("sqlite", "redis"):
        store = open_one(url_of(kind))
        store.set_positions(group, {ORDERS: 3})
        assert store.groups() == [group]
        assert store.load(group).positions == {ORDERS: 3}


@pytest.mark.parametrize(
    ("topic", "partition", "start", "end"),
    [
        ("", 0, 0, 1),
        ("a/b", 0, 0, 1),
        ("..", 0, 0, 1),
        ("t", -1, 0, 1),
        ("t", 0, 2, 1),
        ("t", 0, -1, 1),
        ("t", 0, 0, 2**63),
    ],
)
def test_ranges_that_kafka_cannot_have_are_none(topic: str, partition: int, start: int, end: int) -> None:
    with pytest.raises(ValueError):
        ConsumedRange(topic, partition, start, end)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a\0b"])
def test_files_lie_in_the_dataset(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path below the dataset"):
        StagedFile("x", path)
