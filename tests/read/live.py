"""A log directory that changes as a broker changes it, and what a follower reads of it, step by step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.unified_log import UnifiedLog
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.format.uuid import Uuid
from kfs.format.writer import encode_batch
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
from kfs.read.followed_log import Event, Following
from kfs.read.follower import Begin, Follower, at_end
from kfs.read.selection import Selection
from tests.logs import START, records
from tests.read.some_transactions import Event as Change
from tests.read.some_transactions import encoded, placed


class LivePartition:
    """A partition that a leader appends to; without an ``id``, as brokers before 2.8 write it."""

    def __init__(self, root: Path, name: str = "t-0", *, number: int | None = 1, first_offset: int = 0) -> None:
        root.mkdir(exist_ok=True)
        (root / "meta.properties").touch()
        self.directory = root / name
        self.epoch = 0
        topic_id = None if number is None else Uuid(bytes([number] * 16))
        config = LogConfig(segment_ms=MAX_INT64, index_interval_bytes=100)
        self.log = UnifiedLog.create(
            str(self.directory), config, first_offset=first_offset, topic_id=topic_id, clock=lambda: START
        )

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    @property
    def active(self) -> Path:
        return Path(self.log.segments.last.path(".log"))

    def append(self, count: int, *, batch: int = 5) -> None:
        """Append so many records."""
        while count > 0:
            content = records(self.end, self.end + min(count, batch) - 1)
            self.log.append(encode_batch(content, partition_leader_epoch=self.epoch))
            count -= batch
        self.log.flush()

    def change(self, *changes: Change) -> None:
        """Append batches and markers of transactions."""
        for one in placed(changes, self.end):
            self.log.append(encoded(one))
        self.log.flush()

    def roll(self) -> None:
        self.log.roll()

    def cut(self, offset: int) -> None:
        """Truncate as a follower does whose leader's log is another from there on; the next epoch begins."""
        self.log.truncate_to(offset)
        self.log.flush()
        self.epoch += 1

    def delete_first_segment(self) -> None:
        """Delete the oldest segment as retention does at last."""
        first = self.log.segments.first
        self.log.segments.remove(first)
        first.delete()
        self.log.epochs.truncate_from_start(self.log.segments.first.base_offset)
        self.log.flush()

    def remove(self) -> None:
        """Remove the directory: the end of a deleted topic, once the broker has waited."""
        self.log.close()
        gone = self.directory.with_name(f"{self.directory.name}.{'0' * 32}-delete")
        self.directory.rename(gone)
        shutil.rmtree(gone)


@dataclass(slots=True)
class Steps:
    """What a follower has read so far, and not been asked for yet."""

    follower: Follower
    events: list[str] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    #: By partition, the offsets of records that were read, in the order in which they came.
    read: dict[str, list[int]] = field(default_factory=dict)

    def go_on(self) -> dict[str, list[int]]:
        """Read what there is now; return the offsets by partition. What else happened is in ``events``."""
        found: dict[str, list[int]] = {}
        self.events.clear()
        self.values.clear()
        for item in self.follower.read_on():
            if isinstance(item, Event):
                self.events.append(item.text)
                continue
            self.events += [problem.reason for problem in item.selected.problems]
            if item.selected.records is not None and item.selected.indexes:
                columns = item.selected.records.columns
                offsets = [columns.offsets[index] for index in item.selected.indexes]
                self.values += [columns.value(index) for index in item.selected.indexes]
                found.setdefault(str(item.log.topic_partition), []).extend(offsets)
        return found

    def offsets(self) -> list[int]:
        """Read what there is now of the only partition."""
        return [offset for offsets in self.go_on().values() for offset in offsets]


def followed(
    *roots: Path, begin: Begin = at_end, selection: Selection | None = None, **options: Any
) -> Iterator[Steps]:
    """Yield what follows all partitions of log directories."""
    data_dir = DataDir([str(root) for root in roots], Storage())

    def partitions() -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in data_dir.topics() for number in data_dir.partitions(topic)]

    follower = Follower(data_dir, partitions, Following(selection or Selection(), **options), begin)
    try:
        yield Steps(follower)
    finally:
        follower.close()
        data_dir.close()


def rename_away(path: Path) -> Path:
    """Give a log directory another name, as if its disk were unmounted."""
    away = path.with_name(f"{path.name} (away)")
    os.rename(path, away)
    return away
