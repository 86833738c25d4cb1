"""Kafka's names of the numbers in its metadata records: those of 4.3, and those dropped since 3.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kfs.format.uuid import ZERO_UUID, Uuid

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"

#: ``MetadataVersion.java``, which begins with 3.3-IV3 since 4.0; the lower ones are from 3.9.
_METADATA_VERSIONS: Final = (
    *("3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1"),
    *("3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0"),
    *("3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
    "4.4-IV0",
)
#: ``ConfigResource.Type``.
CONFIG_RESOURCES: Final[Mapping[int, str]] = {
    2: "TOPIC",
    4: "BROKER",
    8: "BROKER_LOGGER",
    16: "CLIENT_METRICS",
    32: "GROUP",
}
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
#: ``ScramMechanism.java`` of the admin client.
SCRAM_MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
#: ``SecurityProtocol.java``.
SECURITY_PROTOCOLS: Final[Mapping[int, str]] = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
#: ``ResourceType.java``.
ACL_RESOURCES: Final[Mapping[int, str]] = dict(
    enumerate(("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"))
)
#: ``PatternType.java``.
ACL_PATTERNS: Final[Mapping[int, str]] = dict(enumerate(("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")))
#: ``AclOperation.java``.
ACL_OPERATIONS: Final[Mapping[int, str]] = dict(
    enumerate(
        (
            *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
            *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"),
            "TWO_PHASE_COMMIT",
        )
    )
)
#: ``AclPermissionType.java``.
ACL_PERMISSIONS: Final[Mapping[int, str]] = dict(enumerate(("UNKNOWN", "ANY", "DENY", "ALLOW")))
#: ``ZkMigrationState.java``.
ZK_MIGRATION_STATES: Final[Mapping[int, str]] = {0: "NONE", 1: "MIGRATION", 2: "PRE_MIGRATION", 3: "POST_MIGRATION"}
#: ``LeaderRecoveryState.java``.
LEADER_RECOVERY_STATES: Final[Mapping[int, str]] = {0: "RECOVERED", 1: "RECOVERING"}
#: ``DirectoryId.java``: reserved ids.
RESERVED_DIRECTORIES: Final[Mapping[Uuid, str]] = {
    ZERO_UUID: "MIGRATING",
    Uuid(bytes(15) + b"\x01"): "UNASSIGNED",
    Uuid(bytes(15) + b"\x02"): "LOST",
}
#: Record types of brokers before 3.3 that later ones don't have (``metadata/src/main/resources``).
REMOVED_RECORD_TYPES: Final[Mapping[int, str]] = {
    6: "ACCESS_CONTROL_RECORD",
    13: "FAILED_REPLICAS_RECORD",
    16: "REMOVE_FEATURE_LEVEL_RECORD",
}


def metadata_version_name(level: int) -> str | None:
    """Return Kafka's name of a level of ``metadata.version``, such as ``4.3-IV0``; None if it is unknown."""
    return _METADATA_VERSIONS[level - 1] if 1 <= level <= len(_METADATA_VERSIONS) else None


def name_of(names: Mapping[int, str], number: int) -> str:
    """Return the name of a number, or ``UNKNOWN(7)`` if it has none."""
    return names.get(number, f"UNKNOWN({number})")
