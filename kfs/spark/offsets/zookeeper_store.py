"""Positions in ZooKeeper, where Kafka's consumers kept them before 0.9.

The node ``/consumers/<group>/offsets/<topic>/<partition>`` holds a position as decimal text, as tools and consumers of
that time read and write it. Our own node ``/consumers/<group>/kfs`` has the fence, and the batch whose files aren't all
in place. One transaction with a version check of each node changes all of them or none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from kfs.errors import CorruptStore, OffsetStoreError, StoreUnreachable
from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets.document import decode_document, encode_document
from kfs.spark.offsets.progress import Progress, check_position
from kfs.spark.offsets.store import DEFAULT_PATIENCE, Stored, Unreadable, WritableStore

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_SESSION_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 10.0
_FIRST_ANSWER_SECONDS: Final = 2.0
#: The limit of a request is 1,048,575 bytes (``jute.maxbuffer``).
_MOST_BYTES: Final = 1_000_000
_BYTES_AN_OPERATION: Final = 40
_TORN_READS: Final = 20
_OFFSET: Final = re.compile(rb"[0-9]{1,19}\Z")
#: The value of consumers that had consumed nothing yet (``PartitionTopicInfo.InvalidOffset``).
_NO_OFFSET: Final = b"-1"
_GROUP: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")
#: For kazoo's lines about lost connections: the caller gets an error.
_KAZOO_LOG: Final = logging.getLogger("kfs.kazoo")
_KAZOO_LOG.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of an ensemble (``host:port,host:port``), the prefix of all paths in it, and a login.

    Nodes made with a login are writable with it only and readable by all, as Kafka makes its own
    (``zookeeper.set.acl``).
    """

    hosts: str
    chroot: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The URL without secrets."""
        return f"zookeeper://{self.hosts}{self.chroot}"


@dataclass(frozen=True, slots=True)
class _Versions:
    """The versions of a group's nodes when read; None for a missing node."""

    state: int | None
    positions: Mapping[TopicPartition, int]
    strays: tuple[str, ...] = ()  # other than partitions


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The content and the version of each partition's node, and other nodes beside them."""

    positions: dict[TopicPartition, tuple[bytes, int]]
    strays: dict[str, Unreadable]


class ZooKeeperStore(WritableStore):
    """An ensemble, or one server (3.4 or later)."""

    def __init__(self, address: ZooKeeperAddress, patience: float = DEFAULT_PATIENCE) -> None:
        super().__init__(address.name, patience)
        self.address = address
        self._consumers = f"{address.chroot}/consumers"
        self._kazoo: KazooClient | None = None

    def groups(self) -> list[str]:
        """See :meth:`OffsetStore.groups`."""
        return self._patiently(self._groups)

    def _groups(self) -> list[str]:
        with self._errors():
            groups = self._children(self._consumers)
            return sorted(group for group in groups if {"offsets", "kfs"} & set(self._children(self._path(group))))

    def close(self) -> None:
        """See :meth:`OffsetStore.close`."""
        with self._lock:
            if self._kazoo is not None:
                self._kazoo.stop()
                self._kazoo.close()
                self._kazoo = None

    def _check_group(self, group: str) -> None:
        super()._check_group(group)
        if not _GROUP.match(group) or group in (".", ".."):
            raise OffsetStoreError(f"{self.name}: {group!r}: a group in ZooKeeper is of letters, digits, '.', '_', '-'")

    # -- reading

    def _read(self, group: str) -> Stored:
        with self._errors():
            # The answering server may lag behind the one that last accepted a change.
            self._answer(self._client().sync_async(self._consumers))
            for _ in range(_TORN_READS):
                state = self._get(self._path(group, "kfs"))
                found = self._nodes_of_positions(group)
                if self._get(self._path(group, "kfs")) == state:
                    return self._stored(group, state, found)
        raise StoreUnreachable(f"{self.name}: group {group} changes faster than it can be read")

    def _stored(self, group: str, state: tuple[bytes, int] | None, nodes: _Nodes) -> Stored:
        positions = {}
        unreadable = [*nodes.strays.values()]
        for partition, (content, _) in nodes.positions.items():
            if content.strip() == _NO_OFFSET:
                continue
            try:
                positions[partition] = self._position(group, partition, content)
            except CorruptStore as error:
                unreadable.append(Unreadable(error, partition))
        found = {partition: version for partition, (_, version) in nodes.positions.items()}
        versions = _Versions(None if state is None else state[1], found, tuple(nodes.strays))
        if state is None:
            note = "nodes of an old consumer, or of another program" if positions else ""
            return Stored(Progress(positions, note=note), versions, tuple(unreadable))
        place = f"{self.name}: node {self._path(group, 'kfs')}"
        stored = Stored.of(lambda: decode_document(state[0], place, positions), versions)
        # An unparsable state doesn't affect the positions.
        progress = replace(stored.progress, positions=positions)
        return replace(stored, progress=progress, unreadable=(*stored.unreadable, *unreadable))

    def _position(self, group: str, partition: TopicPartition, content: bytes) -> int:
        place = f"{self.name}: node {self._position_path(group, partition)}"
        if not _OFFSET.match(content.strip()):
            raise CorruptStore(place, f"an offset as decimal text was expected, and {content[:40]!r} is there")
        try:
            check_position(partition, int(content))
        except ValueError as error:
            raise CorruptStore(place, str(error)) from None
        return int(content)

    def _nodes_of_positions(self, group: str) -> _Nodes:
        from kazoo.exceptions import NoNodeError

        offsets = self._path(group, "offsets")
        # Sent all at once, not one after the other.
        asked = {}
        found = _Nodes({}, {})
        for topic in self._children(offsets):
            for number in self._children(f"{offsets}/{topic}"):
                try:
                    partition = self._partition(offsets, topic, number)
                except CorruptStore as error:
                    found.strays[f"{offsets}/{topic}/{number}"] = Unreadable(error)
                    continue
                asked[partition] = self._client().get_async(self._position_path(group, partition))
        for partition, answer in asked.items():
            try:
                content, status = self._answer(answer)
            except NoNodeError:  # deleted since it was listed
                continue
            found.positions[partition] = content, status.version
        return found

    def _partition(self, offsets: str, topic: str, number: str) -> TopicPartition:
        place = f"{self.name}: node {offsets}/{topic}/{number}"
        if not (number.isascii() and number.isdecimal() and len(number) <= 10 and str(int(number)) == number):
            raise CorruptStore(place, "its name is not a partition number")
        partition = TopicPartition(topic, int(number))
        try:
            check_position(partition, 0)
        except ValueError as error:
            raise CorruptStore(place, str(error)) from None
        return partition

    def _get(self, path: str) -> tuple[bytes, int] | None:
        from kazoo.exceptions import NoNodeError

        try:
            content, status = self._answer(self._client().get_async(path))
        except NoNodeError:
            return None
        return content, status.version

    def _children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return list(self._answer(self._client().get_children_async(path)))
        except NoNodeError:
            return []

    # -- writing

    def _write(self, group: str, stored: Stored, progress: Progress) -> bool:
        from kazoo import exceptions

        versions = stored.version
        assert isinstance(versions, _Versions)
        changed = {
            partition: str(position).encode()
            for partition, position in progress.positions.items()
            if stored.progress.positions.get(partition) != position
        }
        with self._errors():
            client = self._client()
            for parent in {self._path(group)} | {
                f"{self._path(group, 'offsets')}/{partition.topic}" for partition in changed
            }:
                self._answer(client.ensure_path_async(parent))
            nodes = {self._path(group, "kfs"): (encode_document(progress, with_positions=False), versions.state)}
            for partition, content in changed.items():
                nodes[self._position_path(group, partition)] = content, versions.positions.get(partition)
            self._check_size(nodes)
            transaction = client.transaction()
            for path in versions.strays:  # only a replacement of unparsable data gets here with any
                transaction.delete(path)
            for path, (content, version) in nodes.items():
                if version is None:
                    transaction.create(path, content)
                else:
                    transaction.set_data(path, content, version)
            failures = [each for each in self._answer(transaction.commit_async()) if isinstance(each, Exception)]
        moved = (exceptions.BadVersionError, exceptions.NodeExistsError, exceptions.NoNodeError)
        if any(isinstance(each, moved) for each in failures):
            return False
        with self._errors():
            for failure in failures:
                if not isinstance(failure, exceptions.RolledBackError | exceptions.RuntimeInconsistency):
                    raise failure
        return not failures

    def _check_size(self, nodes: Mapping[str, tuple[bytes, int | None]]) -> None:
        size = sum(len(path) + len(content) + _BYTES_AN_OPERATION for path, (content, _) in nodes.items())
        if size > _MOST_BYTES:
            raise OffsetStoreError(
                f"{self.name}: a batch whose partitions and files take {size:,} bytes; ZooKeeper takes up to "
                f"{_MOST_BYTES:,} at once: make batches smaller"
            )

    def _path(self, group: str, *below: str) -> str:
        return "/".join((self._consumers, group, *below))

    def _position_path(self, group: str, partition: TopicPartition) -> str:
        return self._path(group, "offsets", partition.topic, str(partition.partition))

    # -- the connection

    def _client(self) -> KazooClient:
        if self._kazoo is None:
            self._kazoo = _connected(self.address, min(max(self.patience, _FIRST_ANSWER_SECONDS), _SESSION_SECONDS))
        return self._kazoo

    def _answer(self, asked: Any) -> Any:
        return asked.get(timeout=_ANSWER_SECONDS)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from kazoo import exceptions
        from kazoo.handlers.threading import KazooTimeoutError

        lost = (exceptions.ConnectionLoss, exceptions.ConnectionClosedError, exceptions.SessionExpiredError)
        try:
            yield
        except (*lost, exceptions.OperationTimeoutError, KazooTimeoutError) as error:
            raise StoreUnreachable(f"{self.name}: no answer: {error or type(error).__name__}") from error
        except (exceptions.NoAuthError, exceptions.AuthFailedError) as error:
            raise OffsetStoreError(f"{self.name}: access denied: {type(error).__name__}") from None
        except exceptions.KazooException as error:
            raise OffsetStoreError(f"{self.name}: {type(error).__name__} {error}") from error


def _connected(address: ZooKeeperAddress, seconds: float) -> KazooClient:
    try:
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError
        from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE
    except ImportError:
        raise OffsetStoreError(f"{address.name}: kazoo is missing: pip install 'kfs[zookeeper]'") from None
    login = acl = None
    if address.username is not None:
        login = [("digest", f"{address.username}:{address.password or ''}")]
        acl = [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
    client = KazooClient(address.hosts, _SESSION_SECONDS, auth_data=login, default_acl=acl, logger=_KAZOO_LOG)
    try:
        client.start(seconds)
    except KazooTimeoutError as error:
        client.close()
        raise StoreUnreachable(f"{address.name}: no answer: {error}") from None
    return client
