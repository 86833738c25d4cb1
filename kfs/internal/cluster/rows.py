"""The state of a cluster as JSON objects, for ``.kfs/cluster/`` and ``kfs cluster --json``.

Names are camelCase, ids are in Kafka's text form, and times are in milliseconds, followed by the same time as text.
Unknown values are null. There are no secrets.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from kfs.errors import CorruptData
from kfs.format.partition_metadata import parse_partition_metadata
from kfs.format.uuid import Uuid
from kfs.internal.cluster.cluster import Cluster
from kfs.internal.cluster.entity_rows import (
    BROKER_FIELDS,
    PARTITION_FIELDS,
    Row,
    broker_row,
    controller_row,
    directory_topic_summary,
    metadata_version_row,
    partition_rows,
    producer_ids_row,
    time_fields,
    topic_summary,
    voter_row,
)
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.metadata_log import MetadataLog, MetadataState
from kfs.internal.cluster.names import (
    ACL_OPERATIONS,
    ACL_PATTERNS,
    ACL_PERMISSIONS,
    ACL_RESOURCES,
    CONFIG_RESOURCES,
    SCRAM_MECHANISMS,
    ZK_MIGRATION_STATES,
    name_of,
)
from kfs.internal.cluster.replay import MOST_SKIPPED, Replay
from kfs.internal.message_json import Json
from kfs.log.directory_name import CLUSTER_METADATA, DirectoryKind
from kfs.log.partition_directory import PARTITION_METADATA, PartitionDirectory
from kfs.storage.side_file import read_side_file

FROM_METADATA: Final = "metadata log"
FROM_BOOTSTRAP: Final = "bootstrap.checkpoint and directories"
FROM_DIRECTORIES: Final = "directories"


class ClusterRows:
    """The JSON objects of a cluster, created on demand."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def _image(self) -> MetadataImage:
        """The image, or an empty one without a metadata log."""
        state = self._state()
        return MetadataImage() if state is None else state.image

    def _state(self) -> MetadataState | None:
        """The state of the metadata log, but not a state from ``bootstrap.checkpoint`` alone."""
        state = self.cluster.state()
        return None if state is None or state.is_bootstrap else state

    # -- the cluster

    def summary(self) -> Row:
        """Return an object about the cluster as a whole, and about the source of that information."""
        log, state = self.cluster.metadata_log(), self._state()
        bootstrap = self._bootstrap() if state is None else None
        features = state.image.features if state else bootstrap.image.features if bootstrap else {}
        return {
            "clusterId": self.cluster.cluster_id(),
            "source": FROM_METADATA if state else FROM_BOOTSTRAP if bootstrap else FROM_DIRECTORIES,
            "metadataVersion": metadata_version_row(features),
            "features": {name: features[name] for name in sorted(features)},
            "counts": self._counts(state),
            "quorum": self._quorum(log, state.replay if state else None),
            "controllers": [controller_row(one) for _, one in sorted(self._image().controllers.items())],
            "zkMigrationState": name_of(ZK_MIGRATION_STATES, state.image.zk_migration_state) if state else None,
            "producerIds": producer_ids_row(state.image if state else None),
            "metadata": self._metadata(log, state),
            "logDirs": self._log_dirs(),
            "problems": self.problem_reasons(),
        }

    def _bootstrap(self) -> Replay | None:
        state = self.cluster.state()
        return state.replay if state is not None else self.cluster.bootstrap()

    def _counts(self, state: MetadataState | None) -> Row:
        if state is None:
            topics = self._directory_topics()
            return {
                **dict.fromkeys(("brokers", "fencedBrokers", "underReplicatedPartitions", "offlinePartitions")),
                "topics": len(topics),
                "partitions": sum(len(partitions) for _, partitions in topics.values()),
            }
        image = state.image
        partitions = [one for topic in image.topics.values() for one in topic.partitions.values()]
        return {
            "brokers": len(image.brokers),
            "fencedBrokers": sum(broker.fenced for broker in image.brokers.values()),
            "underReplicatedPartitions": sum(one.is_under_replicated for one in partitions),
            "offlinePartitions": sum(one.is_offline for one in partitions),
            "topics": len(image.topics),
            "partitions": len(partitions),
        }

    @staticmethod
    def _quorum(log: MetadataLog | None, replay: Replay | None) -> Row | None:
        """The leader and voters, from ``quorum-state`` or the log's leader change records; the higher epoch counts."""
        if log is None:
            return None
        stored = log.quorum_state()
        elections = [(stored.leader_epoch, stored.leader_id)] if stored else []
        if replay is not None and replay.leader_epoch is not None and replay.leader_id is not None:
            elections.append((replay.leader_epoch, replay.leader_id))
        epoch, leader = max(elections, default=(None, None))
        voters = replay.voters if replay else None
        ids = (replay.voter_ids if replay else None) or (stored.voters if stored else None)
        return {
            "leaderId": None if leader == -1 else leader,
            "leaderEpoch": epoch,
            "votedId": stored.voted_id if stored and stored.voted_id != -1 else None,
            "kraftVersion": replay.kraft_version if replay else None,
            "voters": [voter_row(voter) for voter in voters]
            if voters is not None
            else None
            if ids is None
            else [{"id": voter, "directoryId": None, "endpoints": None} for voter in ids],
        }

    @staticmethod
    def _metadata(log: MetadataLog | None, state: MetadataState | None) -> Row | None:
        """The progress of reading the metadata log, and its source."""
        if log is None:
            return None
        replay = state.replay if state else Replay()
        transaction = replay.transaction
        whole = [one.end_offset for one in log.snapshots() if one.suffix != ".part"]
        return {
            "directory": log.directory.path,
            "endOffset": replay.end_offset,
            "leaderEpoch": replay.epoch,
            **time_fields("timestamp", replay.timestamp),
            "snapshot": os.path.basename(state.snapshot.path) if state and state.snapshot else None,
            "committedAtLeast": max(whole, default=None),
            "isPartial": state.is_partial if state else False,
            "stoppedAt": state.stopped if state else None,
            "openTransaction": None
            if transaction is None
            else {"offset": transaction.offset, "name": transaction.name, "records": len(transaction.records)},
            "skippedRecords": replay.skipped_count,
            "unknownTaggedFields": replay.unknown_tags,
        }

    def _log_dirs(self) -> list[Row]:
        ours = self.cluster.cluster_id()
        return [
            {
                "path": log_dir.path,
                "clusterId": meta.cluster_id if meta else None,
                "nodeId": meta.node_id if meta else None,
                "directoryId": str(meta.directory_id) if meta and meta.directory_id else None,
                "otherCluster": bool(meta and meta.cluster_id and meta.cluster_id != ours),
            }
            for log_dir, meta in self.cluster.properties()
        ]

    # -- topics

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        state = self._state()
        return sorted(state.image.topic_ids if state else self._directory_topics())

    def topic(self, name: str) -> Row | None:
        """Return a topic with its partitions and configs, or None if there is none with that name."""
        state = self._state()
        if state is None:
            known = self._directory_topics().get(name)
            return None if known is None else self._directory_topic(name, *known)
        topic = state.image.topic(name)
        return None if topic is None else {**topic_summary(topic, state.image), "partitions": partition_rows(topic)}

    def topics(self) -> Iterator[Row]:
        """Yield one object per topic, with the number and the health of its partitions."""
        state = self._state()
        if state is not None:
            for name in self.topic_names():
                topic = state.image.topic(name)
                if topic is not None:
                    yield topic_summary(topic, state.image)
            return
        for name, (topic_id, partitions) in sorted(self._directory_topics().items()):
            yield directory_topic_summary(name, topic_id, len(partitions))

    def _directory_topics(self) -> dict[str, tuple[Uuid | None, list[int]]]:
        """The topics, with ids and partitions, that are known from the directories."""
        topics: dict[str, tuple[Uuid | None, list[int]]] = {}
        data_dir = self.cluster.data_dir
        for name in data_dir.topics():
            if name != CLUSTER_METADATA:
                partitions = data_dir.partitions(name)
                found = (data_dir.log(name, partition) for partition in partitions)
                metadata = next(filter(None, (log.partition_metadata() for log in found if log)), None)
                topics[name] = (metadata.topic_id if metadata else None), partitions
        return topics

    def _directory_topic(self, name: str, topic_id: Uuid | None, partitions: Sequence[int]) -> Row:
        rows: list[Row] = []
        for partition in partitions:
            log = self.cluster.data_dir.log(name, partition)
            epochs = log.leader_epochs() if log else ()
            row: Row = dict.fromkeys(PARTITION_FIELDS)
            rows.append(row | {"partition": partition, "leaderEpoch": epochs[-1].leader_epoch if epochs else None})
        return {**directory_topic_summary(name, topic_id, len(partitions)), "partitions": rows}

    # -- lists

    def brokers(self) -> Iterator[Row]:
        """Yield one object per broker; without metadata, the content of ``meta.properties``."""
        if self._state() is not None:
            yield from (broker_row(broker) for _, broker in sorted(self._image().brokers.items()))
            return
        directories = defaultdict(list)
        for _, meta in self.cluster.properties():
            if meta and meta.node_id is not None:
                directories[meta.node_id].append(meta.directory_id)
        for node_id, ids in sorted(directories.items()):
            row: Row = dict.fromkeys(BROKER_FIELDS)
            yield row | {"id": node_id, "logDirs": [str(one) for one in ids if one]}

    def configs(self) -> Iterator[Row]:
        """Yield one object per config; a sensitive one is marked and has no value."""
        for (kind, name), values in sorted(self._image().configs.items()):
            for config, value in sorted(values.items()):
                yield {
                    "resourceType": name_of(CONFIG_RESOURCES, kind),
                    "resourceName": name,
                    "name": config,
                    "value": value,
                    "sensitive": value is None,
                }

    def quotas(self) -> Iterator[Row]:
        """Yield one object per quota; an entity with name null is the default of its type."""
        for entity, limits in sorted(self._image().quotas.items(), key=lambda pair: str(pair[0])):
            for key, value in sorted(limits.items()):
                shown: Json = value if math.isfinite(value) else str(value)
                yield {"entity": dict(entity), "key": key, "value": shown}

    def acls(self) -> Iterator[Row]:
        """Yield one object per access control entry."""
        rows: list[Row] = [
            {
                "principal": acl.principal,
                "host": acl.host,
                "permission": name_of(ACL_PERMISSIONS, acl.permission_type),
                "operation": name_of(ACL_OPERATIONS, acl.operation),
                "resourceType": name_of(ACL_RESOURCES, acl.resource_type),
                "resourceName": acl.resource_name,
                "patternType": name_of(ACL_PATTERNS, acl.pattern_type),
                "id": str(acl_id),
            }
            for acl_id, acl in self._image().acls.items()
        ]
        yield from sorted(rows, key=lambda row: [str(value) for value in row.values()])

    def users(self) -> Iterator[Row]:
        """Yield one object per SCRAM credential, with user and iterations, but without secrets."""
        for (user, mechanism), iterations in sorted(self._image().scram_users.items()):
            yield {"user": user, "mechanism": name_of(SCRAM_MECHANISMS, mechanism), "iterations": iterations}

    def tokens(self) -> Iterator[Row]:
        """Yield one object per delegation token; its secret is in no file."""
        for _, token in sorted(self._image().tokens.items()):
            yield {
                "tokenId": token.token_id,
                "owner": token.owner,
                "requester": token.requester,
                "renewers": token.renewers,
                **time_fields("issueTimestamp", token.issue_timestamp),
                **time_fields("expirationTimestamp", token.expiration_timestamp),
                **time_fields("maxTimestamp", token.max_timestamp),
            }

    def snapshots(self) -> Iterator[Row]:
        """Yield one object per snapshot of the metadata log; each is read to check that it is complete."""
        log = self.cluster.metadata_log()
        if log is None:
            return
        state = log.state()
        for snapshot in log.snapshots():
            fault = log.snapshot_fault(snapshot)
            yield {
                "file": snapshot.path,
                "endOffset": snapshot.end_offset,
                "leaderEpoch": snapshot.epoch,
                "isWhole": fault is None,
                "reason": fault,
                "isUsed": state.snapshot is not None and state.snapshot.path == snapshot.path,
            }

    def problems(self) -> Iterator[Row]:
        """Yield the problems of the metadata's files, and the records that weren't applied."""
        log, state = self.cluster.metadata_log(), self._state()
        for problem in log.problems if log is not None else ():
            yield {"file": problem.file, "position": problem.position, "offset": None, "reason": problem.reason}
        if state is None:
            return
        for skipped in state.replay.skipped:
            yield {"file": skipped.file, "position": None, "offset": skipped.offset, "reason": skipped.reason}
        if state.replay.skipped_count > MOST_SKIPPED:
            reason = f"and {state.replay.skipped_count - MOST_SKIPPED} more records that weren't applied"
            yield {"file": None, "position": None, "offset": None, "reason": reason}

    def problem_reasons(self) -> list[str]:
        """Return the reasons why the metadata is incomplete, in words."""
        reasons = [f"{log_dir.path}: of another cluster, {other}" for log_dir, other in self.cluster.foreign()]
        state = self.cluster.state()
        if self.lacks_metadata:
            reasons.append("no metadata log here: brokers, replicas, leaders, configs, users aren't known")
        if state is None:
            return reasons
        if state.stopped:
            reasons.append(f"not read to its end: {state.stopped}")
        if state.is_partial:
            reasons.append("the beginning of the metadata log is gone, and there is no snapshot of it")
        if state.replay.transaction is not None:
            transaction = state.replay.transaction
            reasons.append(f"{len(transaction.records)} records from offset {transaction.offset} on aren't committed")
        if state.replay.skipped_count:
            reasons.append(f"{state.replay.skipped_count} records weren't applied")
        return reasons

    @property
    def lacks_metadata(self) -> bool:
        """Whether no metadata log is here, so that only the directories provide information."""
        state = self.cluster.state()
        return state is None or state.is_bootstrap

    @property
    def is_cut_short(self) -> bool:
        """Whether a part of the metadata log wasn't read or applied."""
        state = self.cluster.state()
        return state is not None and bool(state.stopped or state.is_partial or state.replay.skipped_count)

    # -- directories

    def directories(self) -> Iterator[Row]:
        """Yield one object per partition directory, with the topic of its id, and its status in the metadata."""
        state = self._state()
        nodes = {log_dir.path: meta.node_id if meta else None for log_dir, meta in self.cluster.properties()}
        foreign = {log_dir.path for log_dir, _ in self.cluster.foreign()}
        for directory in sorted(self.cluster.data_dir.directories(), key=lambda one: one.path):
            if directory.name.topic == CLUSTER_METADATA:
                continue
            log_dir = directory.log_dir.path if directory.log_dir else None
            topic_id = _topic_id(directory)
            image = None if state is None or log_dir in foreign else state.image
            yield {
                "path": directory.path,
                "topic": directory.name.topic,
                "partition": directory.name.partition,
                "kind": directory.name.kind.value,
                "topicId": None if topic_id is None else str(topic_id),
                "topicOfId": None if topic_id is None else self.cluster.topic_name(topic_id),
                "status": _status(directory, topic_id, image, nodes.get(log_dir or "")),
            }


def _topic_id(directory: PartitionDirectory) -> Uuid | None:
    try:
        metadata = read_side_file(os.path.join(directory.path, PARTITION_METADATA), parse_partition_metadata)
    except CorruptData:  # the partition reports this problem
        return None
    return None if metadata is None else metadata.topic_id


def _status(
    directory: PartitionDirectory, topic_id: Uuid | None, image: MetadataImage | None, node_id: int | None
) -> str | None:
    """Return the status of a directory in the metadata, as a starting broker determines it; None without metadata."""
    name = directory.name
    if name.kind is DirectoryKind.DELETE:
        return "deleted"
    if image is None:
        return None
    topic = image.topics.get(topic_id) if topic_id is not None else image.topic(name.topic)
    if topic is None:
        return "older topic" if name.topic in image.topic_ids else "no such topic"
    if topic.name != name.topic:
        return "other topic"
    partition = topic.partitions.get(name.partition)
    if partition is None:
        return "no such partition"
    if node_id is not None and node_id not in partition.replicas:
        return "not assigned"
    if topic_id is None:
        return "no topic id"
    return "assigned"
