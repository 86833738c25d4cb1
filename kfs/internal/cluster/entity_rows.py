"""Topics, partitions, brokers, controllers and voters as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from kfs.format.control_record import Voter
from kfs.format.uuid import Uuid
from kfs.internal.cluster.entities import (
    Broker,
    Controller,
    Endpoint,
    PartitionRegistration,
    SupportedFeatures,
    TopicImage,
)
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.names import (
    LEADER_RECOVERY_STATES,
    METADATA_VERSION,
    RESERVED_DIRECTORIES,
    SECURITY_PROTOCOLS,
    TOPIC_RESOURCE,
    metadata_version_name,
    name_of,
)
from kfs.internal.message_json import Json
from kfs.render.timestamps import iso_time

#: A JSON object.
Row: TypeAlias = dict[str, Json]

#: The fields of a partition.
PARTITION_FIELDS: Final = (
    *("partition", "leader", "replicas", "isr", "eligibleLeaderReplicas", "lastKnownElr"),
    *("addingReplicas", "removingReplicas", "leaderEpoch", "partitionEpoch", "leaderRecoveryState", "directories"),
    *("underReplicated", "offline"),
)
#: The fields of a broker.
BROKER_FIELDS: Final = (
    *("id", "fenced", "inControlledShutdown", "rack", "endpoints", "brokerEpoch", "incarnationId", "logDirs"),
    *("cordonedLogDirs", "isMigratingZkBroker", "features"),
)


def partition_rows(topic: TopicImage) -> list[Row]:
    """Return one object per partition."""
    return [_partition_row(number, partition) for number, partition in sorted(topic.partitions.items())]


def _partition_row(number: int, partition: PartitionRegistration) -> Row:
    values: tuple[Json, ...] = (
        number,
        None if partition.is_offline else partition.leader,
        partition.replicas,
        partition.isr,
        partition.eligible_leader_replicas,
        partition.last_known_elr,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.leader_epoch,
        partition.partition_epoch,
        name_of(LEADER_RECOVERY_STATES, partition.leader_recovery_state),
        [RESERVED_DIRECTORIES.get(one, str(one)) for one in partition.directories],
        partition.is_under_replicated,
        partition.is_offline,
    )
    return dict(zip(PARTITION_FIELDS, values, strict=True))


def topic_summary(topic: TopicImage, image: MetadataImage) -> Row:
    """Return an object about a topic as a whole."""
    partitions = topic.partitions.values()
    configs = image.configs.get((TOPIC_RESOURCE, topic.name), {})
    return {
        "topic": topic.name,
        "id": str(topic.id),
        "partitionCount": len(topic.partitions),
        "replicationFactor": max((len(one.replicas) - len(one.adding_replicas) for one in partitions), default=None),
        "underReplicatedPartitions": sum(one.is_under_replicated for one in partitions),
        "offlinePartitions": sum(one.is_offline for one in partitions),
        "configs": dict(sorted(configs.items())),
    }


def directory_topic_summary(name: str, topic_id: Uuid | None, partitions: int) -> Row:
    """Return the same object for a topic that is known only from directories."""
    return {
        "topic": name,
        "id": None if topic_id is None else str(topic_id),
        "partitionCount": partitions,
        **dict.fromkeys(("replicationFactor", "underReplicatedPartitions", "offlinePartitions", "configs")),
    }


def broker_row(broker: Broker) -> Row:
    """Return a broker's registration."""
    values: tuple[Json, ...] = (
        broker.id,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.rack,
        _endpoint_rows(broker.endpoints),
        broker.epoch,
        str(broker.incarnation_id),
        [str(one) for one in broker.log_dirs],
        None if broker.cordoned_log_dirs is None else [str(one) for one in broker.cordoned_log_dirs],
        broker.is_migrating_zk_broker,
        _feature_ranges(broker.features),
    )
    return dict(zip(BROKER_FIELDS, values, strict=True))


def controller_row(controller: Controller) -> Row:
    """Return a controller's registration."""
    return {
        "id": controller.id,
        "endpoints": _endpoint_rows(controller.endpoints),
        "incarnationId": str(controller.incarnation_id),
        "zkMigrationReady": controller.zk_migration_ready,
        "features": _feature_ranges(controller.features),
    }


def _endpoint_rows(endpoints: Sequence[Endpoint]) -> list[Row]:
    return [
        {
            "listener": one.name,
            "host": one.host,
            "port": one.port,
            "securityProtocol": name_of(SECURITY_PROTOCOLS, one.security_protocol),
        }
        for one in endpoints
    ]


def _feature_ranges(features: SupportedFeatures) -> Row:
    return {name: {"min": low, "max": high} for name, (low, high) in sorted(features.items())}


def voter_row(voter: Voter) -> Row:
    """Return a voter of the quorum."""
    endpoints: list[Json] = [{"listener": one.name, "host": one.host, "port": one.port} for one in voter.endpoints]
    return {"id": voter.voter_id, "directoryId": str(voter.voter_directory_id), "endpoints": endpoints}


def metadata_version_row(features: dict[str, int]) -> Row | None:
    """Return the level of ``metadata.version`` and its name."""
    level = features.get(METADATA_VERSION)
    return None if level is None else {"level": level, "name": metadata_version_name(level)}


def producer_ids_row(image: MetadataImage | None) -> Row | None:
    """Return the start of the next block of producer ids, and the owner of the last block."""
    if image is None or image.producer_ids is None:
        return None
    ids = image.producer_ids
    return {"nextProducerId": ids.next_producer_id, "brokerId": ids.broker_id, "brokerEpoch": ids.broker_epoch}


def time_fields(name: str, timestamp: int) -> Row:
    """Return a time in milliseconds, and the same time as text under the name without ``stamp``."""
    return {name: timestamp, name.removesuffix("stamp"): iso_time(timestamp)}
