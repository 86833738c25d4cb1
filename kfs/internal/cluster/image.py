"""The state of a cluster, built record by record (``MetadataImage``, ``MetadataDelta`` and related classes).

It never contains secrets: the salt and keys of SCRAM credentials are dropped, and so are values of sensitive configs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kfs.errors import CorruptData
from kfs.format.uuid import ZERO_UUID, Uuid
from kfs.internal.cluster.entities import (
    Acl,
    Broker,
    ConfigResource,
    ConfigValue,
    Controller,
    DelegationToken,
    Endpoint,
    PartitionRegistration,
    ProducerIds,
    QuotaEntity,
    SupportedFeatures,
    TopicImage,
)
from kfs.internal.cluster.names import METADATA_VERSION, TOPIC_RESOURCE
from kfs.internal.cluster.sensitive import is_sensitive
from kfs.internal.metadata import MetadataRecord
from kfs.internal.schema import Fields, Value

_NO_LEADER_CHANGE: Final = -2
_NO_CHANGE: Final = -1
_FENCE: Final = 1
_UNFENCE: Final = -1


@dataclass(slots=True)
class MetadataImage:
    """The complete metadata at one offset.

    ``features`` are the finalized levels by name, including ``metadata.version``. ``removed_topics`` are the names of
    removed topics, by id.
    """

    features: dict[str, int] = field(default_factory=dict)
    zk_migration_state: int = 0
    topics: dict[Uuid, TopicImage] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    removed_topics: dict[Uuid, str] = field(default_factory=dict)
    brokers: dict[int, Broker] = field(default_factory=dict)
    controllers: dict[int, Controller] = field(default_factory=dict)
    configs: dict[ConfigResource, dict[str, ConfigValue]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    acls: dict[Uuid, Acl] = field(default_factory=dict)
    #: Iterations by user and mechanism (``ScramMechanism``'s number).
    scram_users: dict[tuple[str, int], int] = field(default_factory=dict)
    tokens: dict[str, DelegationToken] = field(default_factory=dict)
    producer_ids: ProducerIds | None = None

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic with a name, or None if there is none."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)

    def copy(self) -> MetadataImage:
        """Return a copy that can be changed while this image is read."""
        return MetadataImage(
            dict(self.features),
            self.zk_migration_state,
            {
                topic_id: TopicImage(topic.name, topic.id, dict(topic.partitions))
                for topic_id, topic in self.topics.items()
            },
            dict(self.topic_ids),
            dict(self.removed_topics),
            dict(self.brokers),
            dict(self.controllers),
            {resource: dict(values) for resource, values in self.configs.items()},
            {entity: dict(limits) for entity, limits in self.quotas.items()},
            dict(self.acls),
            dict(self.scram_users),
            dict(self.tokens),
            self.producer_ids,
        )

    def replay(self, record: MetadataRecord) -> None:
        """Apply a record to the image.

        Raises:
            CorruptData: it can't be applied, for example a change of a nonexistent partition; the image is unchanged.
        """
        _REPLAY[record.kind.name](self, record.message.fields)

    # -- topics

    def _topic_record(self, fields: Fields) -> None:
        name, topic_id = _text(fields["name"]), _uuid(fields["topicId"])
        self.topics[topic_id] = TopicImage(name, topic_id)
        self.topic_ids[name] = topic_id
        self.removed_topics.pop(topic_id, None)

    def _topic_of(self, fields: Fields) -> TopicImage:
        topic_id = _uuid(fields["topicId"])
        topic = self.topics.get(topic_id)
        if topic is None:
            raise CorruptData(f"no topic has the id {topic_id}")
        return topic

    def _partition_record(self, fields: Fields) -> None:
        topic = self._topic_of(fields)
        replicas = _numbers(fields["replicas"])
        topic.partitions[_number(fields["partitionId"])] = PartitionRegistration(
            replicas,
            _directories(_uuids(fields["directories"]), replicas),
            _numbers(fields["isr"]),
            _numbers(fields["removingReplicas"]),
            _numbers(fields["addingReplicas"]),
            _number(fields["leader"]),
            _number(fields["leaderRecoveryState"]),
            _number(fields["leaderEpoch"]),
            _number(fields["partitionEpoch"]),
            _numbers(fields["eligibleLeaderReplicas"] or ()),
            _numbers(fields["lastKnownElr"] or ()),
        )

    def _partition_change_record(self, fields: Fields) -> None:
        topic = self._topic_of(fields)
        number = _number(fields["partitionId"])
        partition = topic.partitions.get(number)
        if partition is None:
            raise CorruptData(f"{topic.name} has no partition {number}")
        topic.partitions[number] = _changed(partition, fields)

    def _remove_topic_record(self, fields: Fields) -> None:
        topic = self._topic_of(fields)
        del self.topics[topic.id]
        if self.topic_ids.get(topic.name) == topic.id:
            del self.topic_ids[topic.name]
        self.removed_topics[topic.id] = topic.name
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)

    def _clear_elr_record(self, fields: Fields) -> None:
        name = _text(fields["topicName"])
        topic = self.topic(name)
        if name and topic is None:
            raise CorruptData(f"there is no topic {name}")
        for one in self.topics.values() if topic is None else (topic,):
            for number, partition in one.partitions.items():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    one.partitions[number] = replace(
                        partition,
                        partition_epoch=partition.partition_epoch + 1,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                    )

    # -- brokers and controllers

    def _register_broker_record(self, fields: Fields) -> None:
        cordoned = fields["cordonedLogDirs"]
        broker = Broker(
            _number(fields["brokerId"]),
            _number(fields["brokerEpoch"]),
            _uuid(fields["incarnationId"]),
            _endpoints(fields["endPoints"]),
            _features(fields["features"]),
            _text_or_none(fields["rack"]),
            bool(fields["fenced"]),
            bool(fields["inControlledShutdown"]),
            bool(fields["isMigratingZkBroker"]),
            _uuids(fields["logDirs"]),
            None if cordoned is None else _uuids(cordoned),
        )
        self.brokers[broker.id] = broker

    def _unregister_broker_record(self, fields: Fields) -> None:
        if self.brokers.pop(_number(fields["brokerId"]), None) is None:
            raise CorruptData(f"broker {_number(fields['brokerId'])} isn't registered")

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise CorruptData(f"broker {broker_id} isn't registered")
        if broker.epoch != epoch:
            raise CorruptData(f"broker {broker_id} has the epoch {broker.epoch}, not {epoch}")
        return broker

    def _fence_broker_record(self, fields: Fields) -> None:
        broker = self._broker(_number(fields["id"]), _number(fields["epoch"]))
        self.brokers[broker.id] = replace(broker, fenced=True)

    def _unfence_broker_record(self, fields: Fields) -> None:
        broker = self._broker(_number(fields["id"]), _number(fields["epoch"]))
        self.brokers[broker.id] = replace(broker, fenced=False)

    def _broker_registration_change_record(self, fields: Fields) -> None:
        broker = self._broker(_number(fields["brokerId"]), _number(fields["brokerEpoch"]))
        fenced = {_FENCE: True, _UNFENCE: False}.get(_number(fields["fenced"]), broker.fenced)
        cordoned = fields["cordonedLogDirs"]
        self.brokers[broker.id] = replace(
            broker,
            fenced=fenced,
            in_controlled_shutdown=fields["inControlledShutdown"] == 1 or broker.in_controlled_shutdown,
            log_dirs=_uuids(fields["logDirs"]) or broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else _uuids(cordoned),
        )

    def _register_controller_record(self, fields: Fields) -> None:
        controller = Controller(
            _number(fields["controllerId"]),
            _uuid(fields["incarnationId"]),
            bool(fields["zkMigrationReady"]),
            _endpoints(fields["endPoints"]),
            _features(fields["features"]),
        )
        self.controllers[controller.id] = controller

    # -- configs, features, quotas

    def _config_record(self, fields: Fields) -> None:
        resource = _number(fields["resourceType"]), _text(fields["resourceName"])
        name, value = _text(fields["name"]), _text_or_none(fields["value"])
        configs = self.configs.setdefault(resource, {})
        if value is None:
            configs.pop(name, None)
        else:
            configs[name] = None if is_sensitive(resource[0], name) else value
        if not configs:
            del self.configs[resource]

    def _feature_level_record(self, fields: Fields) -> None:
        name, level = _text(fields["name"]), _number(fields["featureLevel"])
        if level or name == METADATA_VERSION:
            self.features[name] = level
        else:
            self.features.pop(name, None)

    def _zk_migration_state_record(self, fields: Fields) -> None:
        self.zk_migration_state = _number(fields["zkMigrationState"])

    def _client_quota_record(self, fields: Fields) -> None:
        entity = _entity(fields["entity"])
        limits = self.quotas.setdefault(entity, {})
        if fields["remove"]:
            limits.pop(_text(fields["key"]), None)
        else:
            value = fields["value"]
            assert isinstance(value, float)
            limits[_text(fields["key"])] = value
        if not limits:
            del self.quotas[entity]

    def _producer_ids_record(self, fields: Fields) -> None:
        self.producer_ids = ProducerIds(
            _number(fields["brokerId"]), _number(fields["brokerEpoch"]), _number(fields["nextProducerId"])
        )

    # -- security

    def _access_control_entry_record(self, fields: Fields) -> None:
        self.acls[_uuid(fields["id"])] = Acl(
            _number(fields["resourceType"]),
            _text(fields["resourceName"]),
            _number(fields["patternType"]),
            _text(fields["principal"]),
            _text(fields["host"]),
            _number(fields["operation"]),
            _number(fields["permissionType"]),
        )

    def _remove_access_control_entry_record(self, fields: Fields) -> None:
        if self.acls.pop(_uuid(fields["id"]), None) is None:
            raise CorruptData(f"no access control entry has the id {_uuid(fields['id'])}")

    def _user_scram_credential_record(self, fields: Fields) -> None:
        self.scram_users[_text(fields["name"]), _number(fields["mechanism"])] = _number(fields["iterations"])

    def _remove_user_scram_credential_record(self, fields: Fields) -> None:
        self.scram_users.pop((_text(fields["name"]), _number(fields["mechanism"])), None)

    def _delegation_token_record(self, fields: Fields) -> None:
        renewers = fields["renewers"]
        assert isinstance(renewers, tuple)
        token = DelegationToken(
            _text(fields["tokenId"]),
            _text(fields["owner"]),
            _text(fields["requester"]),
            tuple(_text(renewer) for renewer in renewers),
            _number(fields["issueTimestamp"]),
            _number(fields["maxTimestamp"]),
            _number(fields["expirationTimestamp"]),
        )
        self.tokens[token.token_id] = token

    def _remove_delegation_token_record(self, fields: Fields) -> None:
        self.tokens.pop(_text(fields["tokenId"]), None)

    def _nothing(self, fields: Fields) -> None:
        """Ignore a record that has no information about the cluster."""


_REPLAY: Final[Mapping[str, Callable[[MetadataImage, Fields], None]]] = {
    "REGISTER_BROKER_RECORD": MetadataImage._register_broker_record,
    "UNREGISTER_BROKER_RECORD": MetadataImage._unregister_broker_record,
    "TOPIC_RECORD": MetadataImage._topic_record,
    "PARTITION_RECORD": MetadataImage._partition_record,
    "CONFIG_RECORD": MetadataImage._config_record,
    "PARTITION_CHANGE_RECORD": MetadataImage._partition_change_record,
    "FENCE_BROKER_RECORD": MetadataImage._fence_broker_record,
    "UNFENCE_BROKER_RECORD": MetadataImage._unfence_broker_record,
    "REMOVE_TOPIC_RECORD": MetadataImage._remove_topic_record,
    "DELEGATION_TOKEN_RECORD": MetadataImage._delegation_token_record,
    "USER_SCRAM_CREDENTIAL_RECORD": MetadataImage._user_scram_credential_record,
    "FEATURE_LEVEL_RECORD": MetadataImage._feature_level_record,
    "CLIENT_QUOTA_RECORD": MetadataImage._client_quota_record,
    "PRODUCER_IDS_RECORD": MetadataImage._producer_ids_record,
    "BROKER_REGISTRATION_CHANGE_RECORD": MetadataImage._broker_registration_change_record,
    "ACCESS_CONTROL_ENTRY_RECORD": MetadataImage._access_control_entry_record,
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": MetadataImage._remove_access_control_entry_record,
    "NO_OP_RECORD": MetadataImage._nothing,
    "ZK_MIGRATION_STATE_RECORD": MetadataImage._zk_migration_state_record,
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": MetadataImage._remove_user_scram_credential_record,
    "REMOVE_DELEGATION_TOKEN_RECORD": MetadataImage._remove_delegation_token_record,
    "REGISTER_CONTROLLER_RECORD": MetadataImage._register_controller_record,
    "CLEAR_ELR_RECORD": MetadataImage._clear_elr_record,
}


def _changed(partition: PartitionRegistration, fields: Fields) -> PartitionRegistration:
    """Return a partition after a change (``PartitionRegistration.merge``): null and -1 mean unchanged."""

    def numbers(name: str, now: tuple[int, ...]) -> tuple[int, ...]:
        return now if fields[name] is None else _numbers(fields[name])

    replicas = numbers("replicas", partition.replicas)
    directories = partition.directories if fields["directories"] is None else _uuids(fields["directories"])
    leader, recovery = _number(fields["leader"]), _number(fields["leaderRecoveryState"])
    stays = leader == _NO_LEADER_CHANGE
    return PartitionRegistration(
        replicas,
        _directories(directories, replicas),
        numbers("isr", partition.isr),
        numbers("removingReplicas", partition.removing_replicas),
        numbers("addingReplicas", partition.adding_replicas),
        partition.leader if stays else leader,
        partition.leader_recovery_state if recovery == _NO_CHANGE else recovery,
        partition.leader_epoch if stays else partition.leader_epoch + 1,
        partition.partition_epoch + 1,
        numbers("eligibleLeaderReplicas", partition.eligible_leader_replicas),
        numbers("lastKnownElr", partition.last_known_elr),
    )


def _directories(directories: tuple[Uuid, ...], replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
    """Return the directories of replicas, or ``DirectoryId.MIGRATING`` for each if there are none."""
    if directories and len(directories) != len(replicas):
        raise CorruptData(f"{len(directories)} directories for {len(replicas)} replicas")
    return directories or (ZERO_UUID,) * len(replicas)


def _entity(value: Value) -> QuotaEntity:
    pairs = [(_text(each["entityType"]), _text_or_none(each["entityName"])) for each in _structs(value)]
    return tuple(sorted(pairs, key=lambda pair: (pair[0], pair[1] is not None, pair[1] or "")))


def _endpoints(value: Value) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(_text(each["name"]), _text(each["host"]), _number(each["port"]), _number(each["securityProtocol"]))
        for each in _structs(value)
    )


def _features(value: Value) -> SupportedFeatures:
    return {
        _text(each["name"]): (_number(each["minSupportedVersion"]), _number(each["maxSupportedVersion"]))
        for each in _structs(value)
    }


# -- casts for the type checker; the schema guarantees the types


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _text(value: Value) -> str:
    assert isinstance(value, str)
    return value


def _text_or_none(value: Value) -> str | None:
    return None if value is None else _text(value)


def _uuid(value: Value) -> Uuid:
    assert isinstance(value, Uuid)
    return value


def _numbers(value: Value) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return value  # type: ignore[return-value]


def _uuids(value: Value) -> tuple[Uuid, ...]:
    assert isinstance(value, tuple)
    return value  # type: ignore[return-value]


def _structs(value: Value) -> tuple[Fields, ...]:
    assert isinstance(value, tuple)
    return value  # type: ignore[return-value]
