"""The entities of a cluster in the metadata; none of them contains a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kfs.format.uuid import Uuid

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """A partition (``PartitionRegistration.java``); ``directories`` are in the order of ``replicas``."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]

    @property
    def is_offline(self) -> bool:
        """Whether it has no leader."""
        return self.leader == NO_LEADER

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer replicas are in sync than required, excluding those that a reassignment adds."""
        wanted = len(self.replicas) - len(self.adding_replicas)
        return len(self.isr) < (wanted if self.adding_replicas or self.removing_replicas else len(self.replicas))


@dataclass(slots=True)
class TopicImage:
    """A topic and its partitions by number."""

    name: str
    id: Uuid
    partitions: dict[int, PartitionRegistration] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener; ``security_protocol`` is a number of ``SecurityProtocol``."""

    name: str
    host: str
    port: int
    security_protocol: int


#: The version range of each feature that a node supports, by feature name.
SupportedFeatures = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's registration; ``cordoned_log_dirs`` is None if the broker has never reported them."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: SupportedFeatures
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    log_dirs: tuple[Uuid, ...]
    cordoned_log_dirs: tuple[Uuid, ...] | None


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller's registration."""

    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: SupportedFeatures


@dataclass(frozen=True, slots=True)
class Acl:
    """An access control entry; the numbers are those of Kafka's enums of the same names."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token; times are in milliseconds. Its HMAC is never in the log."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """The start of the next block of producer ids, and the broker that took the last block."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


#: A config's value; None if it is sensitive.
ConfigValue = str | None
#: The resource type (a number of ``ConfigResource.Type``) and the name, which is empty for brokers' defaults.
ConfigResource = tuple[int, str]
#: The entity of a quota: types and names, sorted by type; a name of None is the default.
QuotaEntity = tuple[tuple[str, str | None], ...]
