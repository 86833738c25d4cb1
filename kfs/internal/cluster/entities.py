"""What a cluster consists of, as the metadata has it. No secret is a part of any of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kfs.format.uuid import Uuid

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """A partition (``PartitionRegistration.java``); ``directories`` are those of ``replicas``, in their order."""

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
        """Whether fewer replicas are in sync than there are to be, those that a reassignment adds not counted."""
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
    """A listener; ``security_protocol`` is ``SecurityProtocol``'s number."""

    name: str
    host: str
    port: int
    security_protocol: int


#: The range of each feature that a node supports, by the feature's name.
SupportedFeatures = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's registration; ``cordoned_log_dirs`` is None where it has never said which are."""

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
    """An access control entry; the numbers are those of Kafka's enumerations of the same names."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token; times in milliseconds. Its HMAC is never in the log."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """The next block of producer ids begins at ``next_producer_id``; who took the last one."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


#: A config's value; None where it is sensitive.
ConfigValue = str | None
#: A kind of resource, ``ConfigResource.Type``'s number, and the name; brokers' defaults have an empty one.
ConfigResource = tuple[int, str]
#: What a quota is for: kinds and names, the name None for the default, in the order of the kinds.
QuotaEntity = tuple[tuple[str, str | None], ...]
