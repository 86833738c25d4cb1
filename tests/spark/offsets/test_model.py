"""Every store does the same as a model of a few lines, whatever is asked of it in whatever order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kfs.errors import Fenced, OffsetStoreError, PositionMoved
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets import ConsumedRange, Fence, StagedFile, WritableStore, WriterName, open_writable_store
from tests.servers.stores import STORES

GROUPS = ("one", "two")
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["orders", "returns"]), st.integers(0, 1))
OFFSETS = st.integers(0, 6)
FILES = (StagedFile("s/f", "f"),)
_numbers = itertools.count()


@dataclass
class Group:
    """What a store has to have of a group."""

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    epoch: int = 0
    holder: int | None = None
    ranges: tuple[ConsumedRange, ...] | None = None

    def saved(self, ranges: list[ConsumedRange]) -> dict[TopicPartition, int] | None:
        """Return the positions after a batch; None: it doesn't begin at them."""
        positions = dict(self.positions)
        for each in sorted(ranges, key=lambda each: (each.topic, each.partition, each.from_offset)):
            if positions.setdefault(each.topic_partition, each.from_offset) != each.from_offset:
                return None
            positions[each.topic_partition] = each.until_offset
        return positions


class Stores(RuleBasedStateMachine):
    """The three stores, side by side; ``writers`` are all that ever acquired a group, with a fence of each store."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__()
        self.urls = urls
        self.stack = ExitStack()
        self.stores = [self.stack.enter_context(open_writable_store(url, patience=10)) for url in urls]
        number = next(_numbers)
        self.names = {group: f"{group}-{number}" for group in GROUPS}
        self.groups = {group: Group() for group in GROUPS}
        self.writers: list[tuple[str, list[Fence]]] = []

    def teardown(self) -> None:
        self.stack.close()

    @contextmanager
    def all_refuse(
        self, error: type[Exception] | None
    ) -> Iterator[Callable[[Callable[[WritableStore, int], object]], None]]:
        def ask(question: Callable[[WritableStore, int], object]) -> None:
            for number, store in enumerate(self.stores):
                if error is None:
                    question(store, number)
                else:
                    with pytest.raises(error) as raised:
                        question(store, number)
                    assert raised.type is error

        yield ask

    @rule(group=st.sampled_from(GROUPS))
    def acquire(self, group: str) -> None:
        writer = WriterName("elsewhere", 1, len(self.writers), f"writer {len(self.writers)}")
        fences = [store.acquire(self.names[group], writer)[0] for store in self.stores]
        model = self.groups[group]
        model.epoch += 1
        model.holder = len(self.writers)
        self.writers.append((group, fences))

    @rule(data=st.data(), with_files=st.booleans())
    def save(self, data: st.DataObject, with_files: bool) -> None:
        if not self.writers:
            return
        writer = data.draw(st.integers(0, len(self.writers) - 1))
        group, fences = self.writers[writer]
        model = self.groups[group]
        ranges = []
        for partition in data.draw(st.lists(PARTITIONS, max_size=3)):
            start = data.draw(st.one_of(st.just(model.positions.get(partition, 0)), OFFSETS))
            end = data.draw(st.integers(start, start + 3))
            ranges.append(ConsumedRange(partition.topic, partition.partition, start, end))
        moved = model.saved(ranges)
        error: type[Exception] | None = None
        if model.holder != writer:
            error = Fenced
        elif model.ranges is not None:
            error = OffsetStoreError
        elif moved is None:
            error = PositionMoved
        with self.all_refuse(error) as ask:
            ask(lambda store, number: store.save(fences[number], ranges, FILES if with_files else ()))
        if error is None and moved is not None:
            model.positions = moved
            in_order = sorted(ranges, key=lambda each: (each.topic, each.partition, each.from_offset))
            model.ranges = tuple(in_order) if with_files else None

    @rule(data=st.data(), release=st.booleans())
    def finish_or_release(self, data: st.DataObject, release: bool) -> None:
        if not self.writers:
            return
        writer = data.draw(st.integers(0, len(self.writers) - 1))
        group, fences = self.writers[writer]
        model = self.groups[group]
        has_it = model.holder == writer
        with self.all_refuse(None if has_it or release else Fenced) as ask:
            ask(lambda store, number: (store.release if release else store.finish)(fences[number]))
        if has_it and release:
            model.holder = None
        elif has_it:
            model.ranges = None

    @rule(
        group=st.sampled_from(GROUPS), positions=st.dictionaries(PARTITIONS, OFFSETS, max_size=3), force=st.booleans()
    )
    def set_positions(self, group: str, positions: dict[TopicPartition, int], force: bool) -> None:
        model = self.groups[group]
        is_refused = model.holder is not None and not force
        with self.all_refuse(OffsetStoreError if is_refused else None) as ask:
            ask(lambda store, _: store.set_positions(self.names[group], positions, force=force))
        if not is_refused:
            model.positions |= positions
            model.epoch += 1
            model.holder = None

    @rule()
    def open_anew(self) -> None:
        self.stack.close()
        self.stores = [self.stack.enter_context(open_writable_store(url, patience=10)) for url in self.urls]

    @invariant()
    def all_have_what_the_model_has(self) -> None:
        for store in self.stores:
            for group, model in self.groups.items():
                found = store.load(self.names[group])
                assert found.positions == model.positions
                assert found.epoch == model.epoch
                assert (None if found.writer is None else found.writer.since) == model.holder
                assert (None if found.batch is None else found.batch.ranges) == model.ranges


def test_all_stores_do_what_the_model_does(url_of: Callable[[str], str]) -> None:
    urls = [url_of(kind) for kind in STORES]
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        lambda: Stores(urls),  # type: ignore[arg-type]  # it is only called
        settings=settings(max_examples=20, stateful_step_count=20, suppress_health_check=checks),
    )
