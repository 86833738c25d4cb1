"""Metadata logs and snapshots made to order, and histories of a cluster drawn at random."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kfs.format.control_record import (
    ControlRecord,
    SnapshotFooter,
    SnapshotHeader,
    encode_control_record,
)
from kfs.format.layout import CONTROL_MASK
from kfs.format.record import Record
from kfs.format.uuid import Uuid
from kfs.format.varint import encode_unsigned_varint
from kfs.format.writer import encode_batch
from kfs.internal.schema import Value
from kfs.internal.topics import CLUSTER_METADATA_KINDS
from tests.internal.encoding import encode
from tests.logs import START, resealed

DIRECTORY: Final = "__cluster_metadata-0"
_KINDS: Final = {kind.name.removesuffix("_RECORD").lower(): kind for kind in CLUSTER_METADATA_KINDS.values()}
_ATTRIBUTES: Final = slice(21, 23)

Values = Sequence[bytes]


def uuid(number: int) -> Uuid:
    """Return an id; above those that are reserved."""
    return Uuid((1000 + number).to_bytes(16, "big"))


def value(record: str, version: int | None = None, /, **fields: Value) -> bytes:
    """Return the value of a record; fields that aren't given have their defaults."""
    kind = _KINDS[record]
    version = kind.schema.versions.last if version is None else version
    frame = b"".join(map(encode_unsigned_varint, (1, kind.id, version)))
    return frame + encode(kind.schema, version, {**kind.schema.defaults, **fields})


def topic(name: str, number: int) -> bytes:
    return value("topic", name=name, topicId=uuid(number))


def partition(number: int, topic_number: int, replicas: tuple[int, ...] = (1,), **fields: Value) -> bytes:
    defaults: dict[str, Value] = {"isr": replicas, "leader": replicas[0], "leaderEpoch": 0, "partitionEpoch": 0}
    defaults |= {"replicas": replicas, "directories": tuple(uuid(100 + replica) for replica in replicas)}
    return value("partition", partitionId=number, topicId=uuid(topic_number), **{**defaults, **fields})


def config(resource_type: int, resource: str, name: str, text: str | None) -> bytes:
    return value("config", resourceType=resource_type, resourceName=resource, name=name, value=text)


def control_batch(offset: int, *records: ControlRecord, leader_epoch: int = 1) -> bytes:
    """Encode control records as a batch."""
    encoded = [encode_control_record(record) for record in records]
    content = [Record(offset + at, START + offset + at, *pair) for at, pair in enumerate(encoded)]
    data = encode_batch(content, partition_leader_epoch=leader_epoch)
    (attributes,) = struct.unpack(">h", data[_ATTRIBUTES])
    return resealed(data, attributes=attributes | CONTROL_MASK)


def batch(offset: int, values: Iterable[bytes | None], leader_epoch: int = 1) -> bytes:
    """Encode records as a batch."""
    content = [Record(offset + at, START + offset + at, None, one) for at, one in enumerate(values)]
    return encode_batch(content, partition_leader_epoch=leader_epoch)


def log_bytes(batches: Iterable[Values], offset: int = 0) -> bytes:
    """Encode batches one after another."""
    data = b""
    for values in batches:
        data += batch(offset, values)
        offset += len(values)
    return data


def write_log(root: Path, batches: Iterable[Values], offset: int = 0) -> Path:
    """Write a segment of a metadata log, and return the log's directory."""
    return write_segment(root, log_bytes(batches, offset), offset)


def write_segment(root: Path, data: bytes, offset: int = 0) -> Path:
    directory = root / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{offset:020d}.log").write_bytes(data)
    return directory


def snapshot_bytes(values: Values, timestamp: int = START) -> bytes:
    """Encode a snapshot."""
    data = control_batch(0, SnapshotHeader(timestamp))
    if values:
        data += batch(1, values)
    return data + control_batch(1 + len(values), SnapshotFooter())


def write_snapshot(directory: Path, end_offset: int, values: Values, epoch: int = 1, suffix: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{end_offset:020d}-{epoch:010d}.checkpoint{suffix}"
    path.write_bytes(snapshot_bytes(values))
    return path


# --- histories ------------------------------------------------------------------------------------------------------


class History:
    """What a cluster's controller might have written, of few of everything, so that things meet again."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.topics: dict[int, set[int]] = {}
        self.names: dict[int, str] = {}
        self.brokers: dict[int, int] = {}
        self.acls: set[int] = set()
        self.made = 0

    def batches(self, count: int) -> list[list[bytes]]:
        """Draw batches; some are transactions, of which some are aborted."""
        result: list[list[bytes]] = []
        for _ in range(count):
            if self.source.random() < 0.15:
                result += self._transaction()
            else:
                result.append(self._records())
        return result

    def _records(self) -> list[bytes]:
        return [self._record() for _ in range(self.source.randint(1, 5))]

    def _transaction(self) -> list[list[bytes]]:
        begin = [value("begin_transaction", name=self.source.choice((None, "bootstrap")))]
        if self.source.random() < 0.5:
            return [begin, self._records(), self._records(), [value("end_transaction")]]
        before = (
            dict(self.names),
            {one: set(each) for one, each in self.topics.items()},
            dict(self.brokers),
            set(self.acls),
        )
        content = [begin, self._records(), self._records(), [value("abort_transaction", reason="because")]]
        self.names, self.topics, self.brokers, self.acls = before
        return content

    def _record(self) -> bytes:
        while True:
            made = self.source.choice(_MAKERS)(self)
            if made is not None:
                return made

    def _number(self) -> int:
        self.made += 1
        return self.made

    def _some(self, least: int = 0) -> tuple[int, ...]:
        return tuple(self.source.sample((1, 2, 3), self.source.randint(least, 3)))

    def topic(self) -> bytes | None:
        name = self.source.choice(("a", "b", "orders", "x" * 249))
        if name in self.names.values():
            return None
        number = self._number()
        self.topics[number], self.names[number] = set(), name
        return topic(name, number)

    def remove_topic(self) -> bytes | None:
        if not self.topics or self.source.random() < 0.7:
            return None
        number = self.source.choice(sorted(self.topics))
        del self.topics[number], self.names[number]
        return value("remove_topic", topicId=uuid(number))

    def partition(self) -> bytes | None:
        if not self.topics:
            return None
        number, version = self.source.choice(sorted(self.topics)), self.source.randint(0, 2)
        one = self.source.randint(0, 3)
        self.topics[number].add(one)
        replicas = self._some(1)
        fields: dict[str, Value] = {
            "isr": self._some(),
            "leader": self.source.choice((-1, *replicas)),
            "leaderRecoveryState": self.source.choice((0, 1)),
            "leaderEpoch": self.source.randint(0, 9),
            "partitionEpoch": self.source.randint(0, 9),
            "addingReplicas": self.source.choice(((), (3,))),
            "removingReplicas": self.source.choice(((), (2,))),
        }
        directories = tuple(uuid(100 + replica) for replica in replicas)
        return value(
            "partition",
            version,
            partitionId=one,
            topicId=uuid(number),
            replicas=replicas,
            directories=self.source.choice(((), directories)) if version else (),
            eligibleLeaderReplicas=self._optional() if version == 2 else None,
            lastKnownElr=self._optional() if version == 2 else None,
            **fields,
        )

    def _optional(self) -> tuple[int, ...] | None:
        return self.source.choice((None, self._some()))

    def partition_change(self) -> bytes | None:
        there = [(number, one) for number, partitions in sorted(self.topics.items()) for one in sorted(partitions)]
        if not there:
            return None
        number, one = self.source.choice(there)
        version = self.source.randint(0, 2)
        replicas = self.source.choice((None, self._some(1)))
        directories = None
        if version and replicas is not None:
            directories = tuple(uuid(100 + replica) for replica in replicas)
        elif replicas is not None:
            return None  # without directories a controller changes no replicas
        return value(
            "partition_change",
            version,
            partitionId=one,
            topicId=uuid(number),
            isr=self._optional(),
            leader=self.source.choice((-2, -2, -1, 1, 2, 3)),
            replicas=replicas,
            addingReplicas=self._optional(),
            removingReplicas=self._optional(),
            leaderRecoveryState=self.source.choice((-1, 0, 1)),
            directories=directories,
            eligibleLeaderReplicas=self._optional() if version == 2 else None,
            lastKnownElr=self._optional() if version == 2 else None,
        )

    def clear_elr(self) -> bytes:
        return value("clear_elr", topicName=self.source.choice(["", *self.names.values()]))

    def register_broker(self) -> bytes:
        broker, version = self.source.randint(1, 3), self.source.randint(0, 4)
        epoch = self._number()
        self.brokers[broker] = epoch
        endpoint: Value = {"name": "PLAIN", "host": "host", "port": 40000, "securityProtocol": 3}
        feature: Value = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}
        return value(
            "register_broker",
            version,
            brokerId=broker,
            incarnationId=uuid(self._number()),
            brokerEpoch=epoch,
            endPoints=(endpoint,),
            features=(feature,),
            rack=self.source.choice((None, "r1")),
            fenced=self.source.random() < 0.5,
            inControlledShutdown=version >= 1 and self.source.random() < 0.5,
            logDirs=(uuid(200),) if version >= 3 and self.source.random() < 0.5 else (),
            cordonedLogDirs=(uuid(200),) if version >= 4 and self.source.random() < 0.3 else None,
        )

    def broker_change(self) -> bytes | None:
        if not self.brokers:
            return None
        broker = self.source.choice(sorted(self.brokers))
        epoch = self.brokers[broker]
        which, version = self.source.randint(0, 3), self.source.randint(0, 3)
        if which == 0:
            return value("fence_broker", id=broker, epoch=epoch)
        if which == 1:
            return value("unfence_broker", id=broker, epoch=epoch)
        return value(
            "broker_registration_change",
            version,
            brokerId=broker,
            brokerEpoch=epoch,
            fenced=self.source.choice((-1, 0, 1)),
            inControlledShutdown=self.source.choice((0, 1)) if version >= 1 else 0,
            logDirs=self.source.choice(((), (uuid(201), uuid(202)))) if version >= 2 else (),
            cordonedLogDirs=self.source.choice((None, (), (uuid(201),))) if version >= 3 else None,
        )

    def unregister_broker(self) -> bytes | None:
        if not self.brokers or self.source.random() < 0.7:
            return None
        broker = self.source.choice(sorted(self.brokers))
        return value("unregister_broker", brokerId=broker, brokerEpoch=self.brokers.pop(broker))

    def register_controller(self) -> bytes:
        return value("register_controller", controllerId=self.source.randint(1, 3), incarnationId=uuid(self._number()))

    def config(self) -> bytes:
        resource_type = self.source.choice((2, 4, 16, 32))
        text = self.source.choice((None, "1", "2", ""))
        names = [*self.names.values(), "g"] if resource_type != 4 else ["", "1"]
        return config(resource_type, self.source.choice(names), self.source.choice(("retention.ms", "x.y")), text)

    def feature(self) -> bytes:
        if self.source.random() < 0.3:
            return value("feature_level", name="metadata.version", featureLevel=30)
        return value("feature_level", name=self.source.choice("fg"), featureLevel=self.source.randint(0, 2))

    def quota(self) -> bytes:
        user: Value = {"entityType": "user", "entityName": self.source.choice((None, "u"))}
        client: Value = {"entityType": "client-id", "entityName": "c"}
        return value(
            "client_quota",
            entity=self.source.choice(((user,), (user, client), (client, user))),
            key=self.source.choice(("producer_byte_rate", "consumer_byte_rate")),
            value=self.source.choice((1.5, 1e9)),
            remove=self.source.random() < 0.4,
        )

    def user(self) -> bytes:
        name, mechanism = self.source.choice("uvw"), self.source.choice((1, 2))
        if self.source.random() < 0.4:
            return value("remove_user_scram_credential", name=name, mechanism=mechanism)
        secrets = {part: self.source.randbytes(16) for part in ("salt", "storedKey", "serverKey")}
        iterations = self.source.randint(4096, 9000)
        return value("user_scram_credential", name=name, mechanism=mechanism, iterations=iterations, **secrets)

    def token(self) -> bytes:
        token_id = self.source.choice(("t1", "t2"))
        if self.source.random() < 0.4:
            return value("remove_delegation_token", tokenId=token_id)
        return value(
            "delegation_token",
            owner="User:o",
            requester="User:r",
            renewers=self.source.choice(((), ("User:x", "User:y"))),
            issueTimestamp=START,
            maxTimestamp=START + 9,
            expirationTimestamp=START + self.source.randint(1, 9),
            tokenId=token_id,
        )

    def acl(self) -> bytes | None:
        if self.acls and self.source.random() < 0.4:
            number = self.source.choice(sorted(self.acls))
            self.acls.remove(number)
            return value("remove_access_control_entry", id=uuid(number))
        number = self._number()
        self.acls.add(number)
        return value(
            "access_control_entry",
            id=uuid(number),
            resourceType=self.source.randint(2, 6),
            resourceName="r",
            patternType=self.source.choice((3, 4)),
            principal=f"User:{number}",
            host="*",
            operation=self.source.randint(2, 14),
            permissionType=self.source.choice((2, 3)),
        )

    def others(self) -> bytes:
        return self.source.choice(
            (
                value("no_op"),
                value("zk_migration_state", zkMigrationState=self.source.choice((0, 3))),
                value("producer_ids", brokerId=1, brokerEpoch=5, nextProducerId=self.source.randint(0, 9) * 1000),
            )
        )


_MAKERS: Final = (
    *(History.topic, History.remove_topic, History.partition, History.partition, History.partition_change),
    *(History.partition_change, History.partition_change, History.clear_elr, History.register_broker),
    *(History.broker_change, History.unregister_broker, History.register_controller, History.config, History.feature),
    *(History.quota, History.user, History.token, History.acl, History.others),
)
