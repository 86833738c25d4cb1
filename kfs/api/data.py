"""Log directories in Python: opening them, their topics, and the topics' partitions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kfs.api.partition_log import PartitionLog
from kfs.api.record import Record
from kfs.api.scannable import Damage, Isolation, Scannable
from kfs.errors import NotFound
from kfs.internal.broker_state import BrokerState
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import topic_filter
from kfs.log.log import Log
from kfs.log.problem import DamagePolicy, Problem
from kfs.log.storage import DEFAULT_CACHE_BYTES, DEFAULT_MAX_BATCH_BYTES, Storage
from kfs.read.isolation_level import IsolationLevel
from kfs.read.transactions import MAX_TRANSACTION_TIMEOUT_MS
from kfs.render.timestamps import Moment

if TYPE_CHECKING:
    from kfs.api.groups import Groups
    from kfs.api.transactions import Transaction, TransactionalIds
    from kfs.internal.cluster.rows import ClusterRows

DEFAULT_MAX_TRANSACTION_TIMEOUT: Final = timedelta(milliseconds=MAX_TRANSACTION_TIMEOUT_MS)


class Topic(Mapping[int, PartitionLog], Scannable):
    """A topic: a mapping of partition numbers to logs.

    >>> topic = data["orders"]
    >>> list(topic)
    [0, 1, 2]
    >>> topic[1]
    <kfs.PartitionLog orders-1>
    >>> sum(1 for record in topic.read())
    2100
    """

    def __init__(self, data: Data, name: str) -> None:
        super().__init__(data.isolation, data.on_damage)
        self.name: Final = name
        self._data = data

    def __repr__(self) -> str:
        return f"<kfs.Topic {self.name}: partitions {', '.join(map(str, self))}>"

    def __getitem__(self, partition: int) -> PartitionLog:
        """Return the log of a partition; raise :class:`~kfs.errors.NotFound` (a ``KeyError``) for an unknown one."""
        return self._data.log(self.name, partition)

    def __iter__(self) -> Iterator[int]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    def _logs(self) -> Iterator[Log]:
        logs = (self._data.source.log(self.name, partition) for partition in self.partitions)
        return (log for log in logs if log is not None)

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions in the log directories, sorted."""
        return tuple(self._data.source.partitions(self.name))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems found in its partitions so far."""
        return tuple(problem for log in self.values() for problem in log.problems)

    def read(
        self,
        *,
        since: Moment | None = None,
        before: Moment | None = None,
        isolation: Isolation | None = None,
        on_damage: Damage | None = None,
    ) -> Iterator[Record]:
        """Iterate over the records, one partition after another; see :meth:`PartitionLog.read`."""
        for log in self.values():
            yield from log.read(since=since, before=before, isolation=isolation, on_damage=on_damage)


class Data(Mapping[str, Topic], Scannable):
    """Open log directories: a mapping of names to topics. :func:`kfs.open` returns one, and ``with`` closes it.

    >>> data.topics[:3]
    ('clickstream', 'customer-profiles', 'empty')
    >>> data["orders"]
    <kfs.Topic orders: partitions 0, 1, 2>
    >>> "nothing of the kind" in data
    False

    Threads may share it. It can't be pickled, but a forked process can continue to use it.
    """

    def __init__(self, source: DataDir, isolation: IsolationLevel, on_damage: DamagePolicy) -> None:
        super().__init__(isolation, on_damage)
        self._source = source
        self._broker = BrokerState(source)  # which tells copies of a topic from an older topic of the same name
        self._is_closed = False
        self._known: dict[tuple[str, int], PartitionLog] = {}

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self)} topics"
        return f"<kfs.Data {', '.join(self._source.paths)}: {state}>"

    def __enter__(self) -> Data:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files. Closing again does nothing."""
        self._is_closed = True
        self._source.close()

    def check_open(self) -> None:
        """Raise ValueError if the log directories are closed."""
        if self._is_closed:
            raise ValueError("these log directories were closed")

    @property
    def source(self) -> DataDir:
        """The underlying :class:`~kfs.log.data_dir.DataDir`. Raises ValueError if it is closed."""
        self.check_open()
        return self._source

    @property
    def paths(self) -> tuple[str, ...]:
        """The log directories."""
        return tuple(self._source.paths)

    def _logs(self) -> Iterator[Log]:
        return self.source.logs()

    # -- topics

    def __getitem__(self, topic: str) -> Topic:
        """Return a topic; raise :class:`~kfs.errors.NotFound` (a ``KeyError``) if it is unknown."""
        if not self.source.partitions(topic):
            raise NotFound(f"no topic {topic!r}")
        return Topic(self, topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self.topics)

    def __len__(self) -> int:
        return len(self.topics)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the topics, sorted."""
        return tuple(self.source.topics())

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return a partition's log, always the same object; raise :class:`~kfs.errors.NotFound` if it is unknown."""
        if partition not in self.source.partitions(topic):
            raise NotFound(f"no partition {partition} of {topic!r}")
        return self._known.setdefault((topic, partition), PartitionLog(self, topic, partition))

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the logs of all partitions, by topic and partition."""
        for topic in self.values():
            yield from topic.values()

    # -- state that brokers keep in internal topics

    def groups(self) -> Groups:
        """Return the consumer groups by name: committed offsets, lag, members, state.

        Raises:
            UnusableSource: no partition of the internal topics that keep groups is among the open ones.
        """
        from kfs.api.groups import Groups

        self.check_open()
        self._broker.groups.check_here()
        return Groups(self, self._broker.groups)

    def transactions(
        self, *, ended: bool = False, max_timeout: timedelta = DEFAULT_MAX_TRANSACTION_TIMEOUT
    ) -> Iterator[Transaction]:
        """Yield the open transactions of all logs; with ``ended``, those that committed or aborted precede them.

        Open transactions are found near the end of each log. With ``ended``, all logs are read in full. A transaction
        without a batch for ``max_timeout`` may be hanging; the brokers' maximum is ``transaction.max.timeout.ms``.

        Raises:
            CorruptData: a segment was deleted or truncated meanwhile.

        >>> broker = kfs.open("broker")
        >>> [(each.topic, each.start_offset, each.transactional_id) for each in broker.transactions()]
        [('__consumer_offsets', 41, 'd-3'), ('ledger', 53, 'd-3')]
        """
        from kfs.api.transactions import transactions_of

        milliseconds = max_timeout // timedelta(milliseconds=1)
        return transactions_of(self.source.logs(), self._broker.transactional_ids, milliseconds, ended=ended)

    def transactional_ids(self) -> TransactionalIds:
        """Return the transactional ids by name, with what their coordinators know of them.

        Raises:
            UnusableSource: no partition of the internal topic that keeps them is among the open ones.
        """
        from kfs.api.transactions import TransactionalIds

        self.check_open()
        self._broker.transactional_ids.check_here()
        return TransactionalIds(self, self._broker.transactional_ids)

    def cluster(self) -> ClusterRows:
        """Return the cluster's state from KRaft's metadata log, or else as much as the directories show without it.

        Its methods yield the objects that ``kfs cluster --json`` prints. They contain no secrets.

        >>> broker = kfs.open("broker")
        >>> summary = broker.cluster().summary()
        >>> summary["clusterId"], summary["metadataVersion"]["name"]
        ('6BM68GbeMUX9XNMdOdqklQ', '4.3-IV0')
        """
        from kfs.internal.cluster.rows import ClusterRows

        self.check_open()
        return ClusterRows(self._broker.cluster)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems found so far: first of the log directories themselves, then of each partition."""
        of_logs = [problem for topic in self.values() for problem in topic.problems]
        return (*self.source.problems, *of_logs)


def open(  # noqa: A001 - used as kfs.open
    *log_dirs: str | os.PathLike[str],
    topics: str | Sequence[str] = (),
    isolation: Isolation = IsolationLevel.READ_UNCOMMITTED,
    on_damage: Damage = DamagePolicy.FAIL,
    until_high_watermark: bool = False,
    until_now: bool = False,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> Data:
    """Open log directories, partition directories, or single ``.log`` files, as one. Nothing is ever written.

    Args:
        log_dirs: one or more paths. If several contain the same partition, the copy that a broker would prefer is
            read, and what it has lost comes from another copy with the same history.
        topics: a shell pattern or several; only matching topics are visible.
        isolation: ``"read_committed"`` hides records of aborted transactions, and all from the first open one on.
        on_damage: with ``"fail"``, a read that reaches unreadable bytes raises ``CorruptData``. With ``"skip"``, it
            continues after them. Both add to ``problems``, and log a warning to the logger ``kfs``.
        until_high_watermark: end at the high watermark checkpoint, as a consumer does, not at the end of the files.
        until_now: end where the logs end now, whatever is appended, and show no new partitions. What retention or
            compaction takes later raises ``CorruptData`` with errno ESTALE.
        max_batch_bytes: a batch larger than this, before or after decompression, counts as damage.
        cache_bytes: memory for decoded batches.

    Raises:
        UnusableSource: a path is missing, unreadable, or contains no Kafka files.

    >>> with kfs.open("data") as data:
    ...     data["launch_info"][0][368776].value
    b'4567890'
    """
    if not log_dirs:
        raise TypeError("kfs.open() takes at least one log directory")
    patterns = (topics,) if isinstance(topics, str) else tuple(topics)
    level, damage = IsolationLevel(isolation), DamagePolicy(on_damage)
    source = DataDir(
        [os.fspath(path) for path in log_dirs],
        Storage(max_batch_bytes=max_batch_bytes, cache_bytes=cache_bytes),
        until_high_watermark=until_high_watermark,
        topic_filter=topic_filter(patterns),
    )
    if until_now:
        source.freeze()
    return Data(source, level, damage)
