"""The progress of a group (an application, a job), as the stores keep it."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT64
from kfs.log.directory_name import is_legal_topic
from kfs.log.identity import Identity

_MAX_PARTITION: Final = 2**31 - 1
_LONGEST_GROUP: Final = 1000


@dataclass(frozen=True, slots=True)
class ConsumedRange:
    """The offsets of a partition from ``from_offset`` up to, not including, ``until_offset``.

    Raises:
        ValueError: Kafka has no such topic, partition or offsets.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __post_init__(self) -> None:
        check_position(self.topic_partition, self.from_offset)
        check_position(self.topic_partition, self.until_offset)
        if self.from_offset > self.until_offset:
            raise ValueError(f"{self}: the range ends before it begins")

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offsets {self.from_offset} to {self.until_offset}"


def check_position(partition: TopicPartition, offset: int) -> None:
    """Raise ValueError unless Kafka could have such a partition, and such an offset in it."""
    if not is_legal_topic(partition.topic):
        raise ValueError(f"{partition.topic[:250]!r} is not a topic name")
    if not 0 <= partition.partition <= _MAX_PARTITION:
        raise ValueError(f"{partition.partition} is not a partition number")
    if not 0 <= offset <= MAX_INT64:
        raise ValueError(f"{partition}: {offset} is not an offset")


def check_group(group: str) -> None:
    """Raise ValueError if a store can't keep a group of that name."""
    if not 0 < len(group) <= _LONGEST_GROUP or not group.isprintable():
        raise ValueError(f"{group[:50]!r} is not a group name: 1 to {_LONGEST_GROUP} printable characters")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of the output: its path below the staging directory, and its final path in the dataset.

    Both are relative paths with ``/``.

    Raises:
        ValueError: one of them would lie elsewhere.
    """

    staged: str
    final: str

    def __post_init__(self) -> None:
        for path in (self.staged, self.final):
            if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
                raise ValueError(f"{path[:250]!r} is not a path below the dataset")


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """The batch saved last, while some of its files may not have their final names yet."""

    ranges: tuple[ConsumedRange, ...]
    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class WriterName:
    """The writer of a group: ``token`` is unique, ``since`` is in milliseconds, the rest is for people."""

    host: str
    pid: int
    since: int
    token: str

    @classmethod
    def of_this_process(cls) -> Self:
        """Return a new name."""
        return cls(socket.gethostname(), os.getpid(), time.time_ns() // 1_000_000, uuid.uuid4().hex)

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended: it was a process of this host that no longer exists."""
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return False


@dataclass(frozen=True, slots=True)
class Progress:
    """The stored state of a group.

    ``identities`` are those of the positions' logs, if known; a position without one is used as it is. ``epoch`` grows
    each time a writer acquires the group, or positions are set by hand. ``change`` is unique to each change, so that
    its writer recognises it. ``note`` describes the origin of positions that this package didn't write.
    """

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch: int = 0
    writer: WriterName | None = None
    batch: PendingBatch | None = None
    change: str = ""
    note: str = field(default="", compare=False)
    identities: Mapping[TopicPartition, Identity] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored at all."""
        return not self.positions and not self.change


@dataclass(frozen=True, slots=True)
class Fence:
    """A writer's proof that it acquired a group: its changes are accepted until another writer acquires the group."""

    group: str
    epoch: int
    token: str
