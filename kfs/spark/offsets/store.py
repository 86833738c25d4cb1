"""The common part of all stores of positions.

A writable store keeps one :class:`~kfs.spark.offsets.progress.Progress` per group, and has two operations of its own:
read it, and replace it if it is unchanged (compare-and-set). Everything else is built on these here, so that all stores
behave alike:

- A writer *acquires* a group, which raises its epoch. This fences the previous writer: its changes are refused from
  then on. Clocks are not involved.
- A batch of ranges is *saved* at once, if each begins at its partition's position.
- If the connection is lost meanwhile, the outcome of the change is unknown. The store reads again: the change is there,
  by its unique id, or can still be made, or another writer was faster.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from kfs.errors import CorruptStore, Fenced, OffsetStoreError, PositionMoved, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.log.identity import Identity
from kfs.render.timestamps import iso_time
from kfs.spark.offsets.progress import (
    ConsumedRange,
    Fence,
    PendingBatch,
    Progress,
    StagedFile,
    WriterName,
    check_group,
    check_position,
)

#: How long, in seconds, a job waits for a server that restarts.
DEFAULT_PATIENCE: Final = 60.0
#: The password for a URL without one, so that none has to be on a command line.
PASSWORD_VARIABLE: Final = "KFS_STORE_PASSWORD"  # noqa: S105 (its name, not a password)
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 2.0
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored value of a group that can't be parsed, with its partition if it is a position."""

    error: CorruptStore
    partition: TopicPartition | None = None


class OffsetStore(ABC):
    """A place where the positions of groups are kept.

    A position is the next offset to read. ``name`` is the URL without secrets.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def groups(self) -> list[str]:
        """Return the groups that have stored data, sorted."""

    @abstractmethod
    def load(self, group: str) -> Progress:
        """Return the stored progress of a group; empty if there is none.

        Raises:
            StoreUnreachable: the store doesn't answer.
            CorruptStore: the stored data can't be parsed.
        """

    @abstractmethod
    def inspect(self, group: str) -> tuple[Progress, tuple[Unreadable, ...]]:
        """Return the progress as :meth:`load` does, without unparsable data, and that data separately.

        Raises:
            StoreUnreachable: the store doesn't answer.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections and files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Stored:
    """The progress read of a group, and the store's version of it for replacing it.

    ``progress`` lacks unparsable data, which is replaced only on explicit request.
    """

    progress: Progress
    version: object
    unreadable: tuple[Unreadable, ...] = ()

    @classmethod
    def of(cls, read: Callable[[], Progress], version: object) -> Self:
        """Return the progress that ``read`` returns, or its error as unreadable data."""
        try:
            return cls(read(), version)
        except CorruptStore as error:
            return cls(Progress(), version, (Unreadable(error),))


class WritableStore(OffsetStore):
    """A store that jobs save to. Thread-safe.

    ``patience`` is for how many seconds it retries a server that doesn't answer.
    """

    def __init__(self, name: str, patience: float = DEFAULT_PATIENCE) -> None:
        super().__init__(name)
        self.patience = patience
        self._lock = threading.RLock()

    # -- implemented by each store

    @abstractmethod
    def _read(self, group: str) -> Stored:
        """Return the stored state of a group."""

    @abstractmethod
    def _write(self, group: str, stored: Stored, progress: Progress) -> bool:
        """Replace the stored state durably if it is still ``stored``; return whether it was.

        This drops unparsable data.

        Raises:
            StoreUnreachable: it may have been replaced, or may yet be.
        """

    # -- common to all stores

    def load(self, group: str) -> Progress:
        """See :meth:`OffsetStore.load`."""
        progress, unreadable = self.inspect(group)
        if unreadable:
            raise unreadable[0].error
        return progress

    def inspect(self, group: str) -> tuple[Progress, tuple[Unreadable, ...]]:
        """See :meth:`OffsetStore.inspect`."""
        self._check_group(group)
        stored = self._patiently(lambda: self._read(group))
        return stored.progress, stored.unreadable

    def acquire(self, group: str, writer: WriterName | None = None) -> tuple[Fence, Progress]:
        """Take a group from its writer, if any; return the fence that proves this, and the stored progress.

        Raises:
            StoreUnreachable: the store doesn't answer.
            CorruptStore: the stored data can't be parsed; it is left as it is.
        """
        writer = writer or WriterName.of_this_process()
        progress = self._change(group, lambda found: replace(found, epoch=found.epoch + 1, writer=writer))
        return Fence(group, progress.epoch, writer.token), progress

    def save(
        self,
        fence: Fence,
        ranges: Iterable[ConsumedRange],
        files: Sequence[StagedFile] = (),
        identities: Mapping[TopicPartition, Identity] | None = None,
    ) -> Progress:
        """Move the positions over ``ranges``, and note the ``files`` with their records, atomically.

        ``identities`` are those of the new positions' logs (:func:`kfs.log.identity.identity_at`). Ranges of one
        partition have to be contiguous. A partition without a position takes that of its first range. With files,
        :meth:`finish` has to precede the next batch.

        Raises:
            Fenced: another writer has the group.
            PositionMoved: a range doesn't begin at its partition's position.
            StoreUnreachable: no answer; the next writer to acquire the group learns whether it was saved.
        """
        in_order = sorted(ranges, key=lambda each: (each.topic, each.partition, each.from_offset))
        batch = PendingBatch(tuple(in_order), tuple(files)) if files else None

        def saved(found: Progress) -> Progress:
            self._check_fence(found, fence)
            if found.batch is not None:
                raise OffsetStoreError(f"{self.name}: group {fence.group}: the batch before isn't finished")
            positions = self._moved(found.positions, in_order)
            moved = {each.topic_partition for each in in_order}
            kept = {each: identity for each, identity in found.identities.items() if each not in moved}
            given = {each: identity for each, identity in (identities or {}).items() if each in moved}
            return replace(found, positions=positions, batch=batch, identities={**kept, **given})

        return self._change(fence.group, saved)

    def check(self, fence: Fence) -> None:
        """Raise :class:`Fenced` if another writer has the group."""
        self._check_fence(self.load(fence.group), fence)

    def finish(self, fence: Fence) -> Progress:
        """Forget the files of the batch, once all have their final names; return the stored progress.

        Raises:
            Fenced: another writer has the group.
        """

        def finished(found: Progress) -> Progress | None:
            self._check_fence(found, fence)
            return None if found.batch is None else replace(found, batch=None)

        return self._change(fence.group, finished)

    def release(self, fence: Fence) -> Progress:
        """Release the group, unless another writer has it already."""

        def released(found: Progress) -> Progress | None:
            return replace(found, writer=None) if _has(found, fence) else None

        return self._change(fence.group, released)

    def set_positions(
        self,
        group: str,
        positions: Mapping[TopicPartition, int],
        *,
        force: bool = False,
        identities: Mapping[TopicPartition, Identity] | None = None,
    ) -> Progress:
        """Set positions by hand and keep the others. This fences the group's writer.

        ``identities`` are those of their logs. A position without one keeps the known topic id, but not the leader
        epoch.

        With ``force``, they replace unparsable data; they have to include each unparsable position, or a job would
        start over in its partition.

        Raises:
            OffsetStoreError: not forced, and a writer has the group that isn't known to have ended.
            CorruptStore: some stored data can't be parsed, and isn't replaced.
        """
        for partition, offset in positions.items():
            check_position(partition, offset)

        def set_by_hand(found: Progress) -> Progress:
            if not force:
                self.refuse_if_written(group, found)
            merged = {**found.positions, **positions}
            known = {**found.identities}
            for each in positions.keys() & known.keys():
                known[each] = Identity(known[each].topic_id)
            known.update(identities or {})
            kept = {each: identity for each, identity in known.items() if identity.is_known}
            return replace(found, positions=merged, epoch=found.epoch + 1, writer=None, identities=kept)

        return self._change(group, set_by_hand, positions.keys() if force else None)

    def refuse_if_written(self, group: str, progress: Progress) -> None:
        """Raise :class:`OffsetStoreError` if a writer has the group that isn't known to have ended."""
        writer = progress.writer
        if writer is not None and not writer.is_gone:
            raise OffsetStoreError(
                f"{self.name}: group {group}: process {writer.pid} on {writer.host} has it since "
                f"{iso_time(writer.since)} and may be running: stop it first, or go on with --force, which fences it"
            )

    def refuse_if_unreadable(
        self, unreadable: Sequence[Unreadable], replaced: Collection[TopicPartition] | None
    ) -> None:
        """Raise :class:`CorruptStore` unless the positions ``replaced`` may replace all ``unreadable`` data.

        With None nothing may be replaced.
        """
        for each in unreadable:
            if replaced is None:
                raise each.error
            if each.partition is not None and each.partition not in replaced:
                reason = f"{each.error.reason}: set the position of {each.partition}, too"
                raise CorruptStore(each.error.place, reason)

    def _check_group(self, group: str) -> None:
        try:
            check_group(group)
        except ValueError as error:
            raise OffsetStoreError(f"{self.name}: {error}") from None

    def _check_fence(self, found: Progress, fence: Fence) -> None:
        if _has(found, fence):
            return
        writer = found.writer
        why = "its writer was fenced" if writer is None else f"process {writer.pid} on {writer.host} took it over"
        epochs = f"epoch {found.epoch}, this writer's is {fence.epoch}"
        raise Fenced(f"{self.name}: group {fence.group}: {why} ({epochs}): this process must stop")

    def _moved(
        self, positions: Mapping[TopicPartition, int], ranges: Sequence[ConsumedRange]
    ) -> dict[TopicPartition, int]:
        moved = dict(positions)
        for each in ranges:
            position = moved.get(each.topic_partition, each.from_offset)
            if position != each.from_offset:
                raise PositionMoved(
                    f"{self.name}: {each.topic_partition} stands at offset {position}, and the range to be saved is "
                    f"{each.from_offset} to {each.until_offset}"
                )
            moved[each.topic_partition] = each.until_offset
        return moved

    def _change(
        self,
        group: str,
        change: Callable[[Progress], Progress | None],
        replaced: Collection[TopicPartition] | None = None,
    ) -> Progress:
        """Replace the stored progress by ``change`` of it, unless that is None; return what is then stored.

        Replaces unparsable data, too, if ``replaced`` is given and includes every unparsable position.
        """
        self._check_group(group)
        its_id = uuid.uuid4().hex

        def attempt() -> Progress | None:
            stored = self._read(group)
            self.refuse_if_unreadable(stored.unreadable, replaced)
            if stored.progress.change == its_id:  # already made when the connection was lost
                return stored.progress
            changed = change(stored.progress)
            if changed is None:
                return stored.progress
            changed = replace(changed, change=its_id)
            return changed if self._write(group, stored, changed) else None

        with self._lock:
            until = time.monotonic() + self.patience
            while True:
                done = self._patiently(attempt)
                if done is not None:
                    return done
                if time.monotonic() > until:
                    raise StoreUnreachable(f"{self.name}: group {group} keeps changing: other processes write to it")

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        until = time.monotonic() + self.patience
        pause = _FIRST_PAUSE_SECONDS
        with self._lock:
            while True:
                try:
                    return ask()
                except StoreUnreachable:
                    if time.monotonic() + pause > until:
                        raise
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def _has(progress: Progress, fence: Fence) -> bool:
    writer = progress.writer
    return writer is not None and writer.token == fence.token and progress.epoch == fence.epoch
