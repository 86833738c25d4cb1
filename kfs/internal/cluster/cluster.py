"""A cluster as seen from several log directories: the choice of a metadata log, and topic ids."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import Final

from kfs.errors import CorruptData
from kfs.format.properties import MetaProperties
from kfs.format.uuid import Uuid
from kfs.internal.cluster.image import MetadataImage
from kfs.internal.cluster.metadata_log import MetadataLog, MetadataState, read_bootstrap
from kfs.internal.cluster.names import TOPIC_RESOURCE
from kfs.internal.cluster.replay import Replay
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import CLUSTER_METADATA, parse_directory_name
from kfs.log.log_dir import BOOTSTRAP_CHECKPOINT, META_PROPERTIES, LogDir
from kfs.log.partition_directory import PartitionDirectory
from kfs.log.problem import Problem
from kfs.log.remote_offsets import REMOTE_STORAGE_ENABLE
from kfs.storage.listing import list_names
from kfs.storage.status import PathKind, kind_at

_DIRECTORY: Final = f"{CLUSTER_METADATA}-0"
_LOOK_AGAIN_SECONDS: Final = 1.0


class Cluster:
    """The state of the cluster that log directories belong to; everything is read on demand.

    If there are metadata logs of several brokers, the one with the highest epoch is used, then one that is complete,
    then the one that can be read furthest. If there is none, :meth:`state` is None, and only the directories themselves
    provide information. That is so for brokers with ZooKeeper, and for brokers without a copy of the log.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self.data_dir = data_dir
        self._logs: dict[str, MetadataLog] = {}
        self._chosen: MetadataLog | None = None
        self._looked = -1.0
        self._looking = threading.Lock()

    # -- the metadata log

    def metadata_logs(self) -> list[MetadataLog]:
        """Return all copies of the metadata log, in the order of the log directories."""
        found = {os.path.join(log_dir.path, _DIRECTORY): log_dir for log_dir in self.data_dir.log_dirs}
        for path in self.data_dir.paths:
            if os.path.basename(path) == _DIRECTORY:
                found.setdefault(path, LogDir(os.path.dirname(path), self.data_dir.problems))
        for path, log_dir in found.items():
            if path not in self._logs and _is_directory(path):
                self._logs[path] = self._open(path, log_dir)
        return [log for path, log in self._logs.items() if _is_directory(path)]

    def _open(self, path: str, log_dir: LogDir) -> MetadataLog:
        name = parse_directory_name(_DIRECTORY)
        assert name is not None
        meta = log_dir.meta_properties()
        directory = PartitionDirectory(path, name, log_dir)
        cluster_id = meta.cluster_id if meta else None
        return MetadataLog(directory, self.data_dir.storage, cluster_id, partial(self._others_than, path))

    def _others_than(self, path: str) -> list[PartitionDirectory]:
        """Return the directories of the other copies of the same cluster's metadata log."""
        ours = self._logs[path].cluster_id
        return [log.directory for log in self.metadata_logs() if log.directory.path != path and log.cluster_id == ours]

    def metadata_log(self) -> MetadataLog | None:
        """Return the copy that is used, or None if there is none."""
        with self._looking:
            if self._looked < 0 or time.monotonic() - self._looked >= _LOOK_AGAIN_SECONDS:
                logs = self.metadata_logs()
                logs = [log for log in logs if log.log.can_be_listed] or logs[:1]
                self._chosen = max(logs, key=MetadataLog.standing) if len(logs) > 1 else next(iter(logs), None)
                self._tell_of_others(self._chosen)
                self._looked = time.monotonic()
            return self._chosen

    def state(self) -> MetadataState | None:
        """Return the state in the metadata log, or None if there is none or it is empty."""
        log = self.metadata_log()
        if log is None:
            return None
        state = log.state()
        return state if state.replay.end_offset or state.is_bootstrap or state.stopped else None

    def bootstrap(self) -> Replay | None:
        """Return the first ``bootstrap.checkpoint``, the only source of metadata if the metadata log is gone."""
        for log_dir in self.data_dir.log_dirs:
            path = os.path.join(log_dir.path, BOOTSTRAP_CHECKPOINT)
            found = read_bootstrap(path, self.data_dir.storage, self.data_dir.problems)
            if found is not None:
                return found
        return None

    # -- cluster ids of the directories

    def properties(self) -> list[tuple[LogDir, MetaProperties | None]]:
        """Return the log directories and their ``meta.properties``."""
        return [(log_dir, log_dir.meta_properties()) for log_dir in self.data_dir.log_dirs]

    def cluster_id(self) -> str | None:
        """Return the cluster id: that of the directory with the metadata log, else the first known one."""
        log = self.metadata_log()
        if log is not None and log.cluster_id is not None:
            return log.cluster_id
        return next((meta.cluster_id for _, meta in self.properties() if meta and meta.cluster_id), None)

    def foreign(self) -> list[tuple[LogDir, str]]:
        """Return the log directories of clusters other than :meth:`cluster_id`, with their cluster ids."""
        ours = self.cluster_id()
        return [
            (log_dir, meta.cluster_id)
            for log_dir, meta in self.properties()
            if meta and meta.cluster_id and meta.cluster_id != ours
        ]

    def _tell_of_others(self, chosen: MetadataLog | None) -> None:
        ids = [(log_dir, meta.cluster_id) for log_dir, meta in self.properties() if meta and meta.cluster_id]
        ours = chosen.cluster_id if chosen and chosen.cluster_id else next((one for _, one in ids), None)
        for log_dir, cluster_id in ids:
            if cluster_id != ours:
                path = os.path.join(log_dir.path, META_PROPERTIES)
                reason = (
                    f"of the cluster {cluster_id}, not of {ours}: the metadata says nothing about this log directory"
                )
                self.data_dir.problems.add(Problem(path, 0, 0, reason))

    # -- kfs.log.topic_ids.TopicIds

    def _image(self) -> MetadataImage | None:
        try:
            state = self.state()
        except CorruptData as error:
            self.data_dir.problems.add_error(error)
            return None
        return None if state is None or state.is_bootstrap else state.image

    def topic_id(self, topic: str, log_dir: LogDir | None) -> Uuid | None:
        """See :meth:`kfs.log.topic_ids.TopicIds.topic_id`."""
        image = self._image()
        return None if image is None or self._is_foreign(log_dir) else image.topic_ids.get(topic)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """See :meth:`kfs.log.topic_ids.TopicIds.topic_name`."""
        image = self._image()
        if image is not None:
            topic = image.topics.get(topic_id)
            name = topic.name if topic is not None else image.removed_topics.get(topic_id)
            if name is not None:
                return name
        return next((names[topic_id] for names in self._former_names() if topic_id in names), None)

    def is_tiered(self, topic: str, log_dir: LogDir | None) -> bool | None:
        """See :meth:`kfs.log.topic_ids.TopicIds.is_tiered`."""
        image = self._image()
        if image is None or self._is_foreign(log_dir) or image.topic(topic) is None:
            return None
        if image.configs.get((TOPIC_RESOURCE, topic), {}).get(REMOTE_STORAGE_ENABLE) == "true":
            return True
        state = self.state()
        return None if state is None or state.is_partial or state.stopped else False

    def partition_count(self, topic: str, log_dir: LogDir | None) -> int | None:
        """See :meth:`kfs.log.topic_ids.TopicIds.partition_count`."""
        image = self._image()
        found = None if image is None or self._is_foreign(log_dir) else image.topic(topic)
        return None if found is None else len(found.partitions)

    def _former_names(self) -> list[dict[Uuid, str]]:
        return [log.former_names() for log in self.metadata_logs()]

    def _is_foreign(self, log_dir: LogDir | None) -> bool:
        return log_dir is not None and any(other is log_dir for other, _ in self.foreign())


def _is_directory(path: str) -> bool:
    """Whether a directory exists, readable or not; errors of its parent are reported by code that lists it."""
    kind = kind_at(path)
    if kind is not PathKind.UNKNOWN:
        return kind is PathKind.DIRECTORY
    try:
        return os.path.basename(path) in list_names(os.path.dirname(path))
    except OSError:
        return False
