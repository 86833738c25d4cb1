"""The consumer groups of log directories, from ``__consumer_offsets``: to start where a group stopped.

Read-only. Commits in transactions that never ended don't count, as for a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kfs.errors import CorruptStore, NotFound, UnusableSource
from kfs.format.checkpoint import TopicPartition
from kfs.format.uuid import parse_uuid
from kfs.internal.broker_state import BrokerState
from kfs.internal.groups import OFFSETS_TOPIC, GroupPartition
from kfs.log.data_dir import DataDir
from kfs.log.identity import Identity
from kfs.log.storage import Storage
from kfs.spark.offsets.progress import Progress, check_position
from kfs.spark.offsets.store import OffsetStore, Unreadable

_LOG = logging.getLogger("kfs")
_NAMED: Final = 5


class GroupStore(OffsetStore):
    """The groups of ``log_dirs``; with ``only``, that group, whichever is requested."""

    def __init__(self, log_dirs: Sequence[str], only: str | None = None) -> None:
        """Open the log directories.

        Raises:
            UnusableSource: one is unusable, or none of them has a partition of ``__consumer_offsets``.
        """
        super().__init__(f"group:{only}" if only is not None else f"kafka:{','.join(log_dirs)}")
        self.only = only
        self._data_dir = DataDir(log_dirs, Storage())
        self._groups = BrokerState(self._data_dir).groups
        if not self._data_dir.partitions(OFFSETS_TOPIC):
            raise UnusableSource(f"{', '.join(log_dirs)}: no partition of {OFFSETS_TOPIC}, where groups are kept")

    def groups(self) -> list[str]:
        """See :meth:`OffsetStore.groups`."""
        return [self.only] if self.only is not None else list(self._groups.names())

    def load(self, group: str = "") -> Progress:
        """See :meth:`OffsetStore.load`.

        Raises:
            NotFound: there is no such group.
        """
        progress, unreadable = self.inspect(group)
        if unreadable:
            raise unreadable[0].error
        return progress

    def inspect(self, group: str = "") -> tuple[Progress, tuple[Unreadable, ...]]:
        """See :meth:`OffsetStore.inspect`; raises :class:`NotFound`, too."""
        name = self.only if self.only is not None else group
        found = self._groups.group(name)
        if found is None:
            names = self._groups.names()
            there = ", ".join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")
            why = self._groups.why_not_found(name)
            reason = f"no group {name!r}" + (f" ({why})" if why is not None else "")
            raise NotFound(f"{', '.join(self._data_dir.paths)}: {reason}; there are: {there or 'none'}")
        positions, identities = {}, {}
        unreadable = []
        for partition in found.partitions:
            where = TopicPartition(partition.topic, partition.partition)
            try:
                offset = self._offset(name, partition)
            except CorruptStore as error:
                unreadable.append(Unreadable(error, where))
                continue
            if offset is not None:
                positions[where] = offset
                identity = _identity(partition)
                if identity.is_known:
                    identities[where] = identity
        note = "committed to the broker whose log directories these are"
        return Progress(positions, note=note, identities=identities), tuple(unreadable)

    def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        self._data_dir.close()

    def _offset(self, group: str, partition: GroupPartition) -> int | None:
        where = TopicPartition(partition.topic, partition.partition)
        place = f"{', '.join(self._data_dir.paths)}: group {group!r}"
        committed = partition.committed
        if committed is not None and committed.problem is not None:
            raise CorruptStore(place, f"the committed offset of {where} can't be read: {committed.problem}")
        if partition.offset is None:
            return None
        try:
            check_position(where, partition.offset)
        except ValueError as error:
            raise CorruptStore(place, str(error)) from None
        log = self._data_dir.log(where.topic, where.partition)
        metadata = log.partition_metadata() if log is not None else None
        if partition.topic_id is not None and metadata is not None and partition.topic_id != str(metadata.topic_id):
            _LOG.warning("%s: the committed offset of %s is for another topic of that name; left out", place, where)
            return None
        return partition.offset


def _identity(partition: GroupPartition) -> Identity:
    """Return the identity of the topic of a commit.

    Without the leader epoch: a consumer that was set to a log's end, or to a time, may commit another one than that of
    the record before its position.
    """
    return Identity(None if partition.topic_id is None else parse_uuid(partition.topic_id.encode()))
