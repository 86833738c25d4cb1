"""``.kfs/``: about the mount and the broker whose files these are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import kfs
from kfs.errors import NotFound
from kfs.log.log import Log
from kfs.log.log_dir import CHECKPOINTS, CLEAN_SHUTDOWN
from kfs.log.offset_range import OffsetRange
from kfs.storage.status import PathKind, is_there, kind_at
from kfs.tree.context import NOBODY, TreeContext, source_of, status_of
from kfs.tree.files import FixedDirectory, GeneratedFile, Maker
from kfs.tree.meta_dir import json_lines, problem_lines
from kfs.tree.names import ABOUT, topic_name, tree_name
from kfs.tree.partition_dir import partition_directory
from kfs.tree.partition_views import PartitionViews

README = """\
This directory is about the mount itself. It is read-only, as everything here is.

In every <topic>/<partition>/ these are listed:

  offset/<offset>.json        one record, one line of JSON
  segment/<base>.jsonl        every record of a segment, one line each
  first.json  last.json       links to the first and the last record
  meta/                       log.json, segments, batches, leader epochs, producers,
                              aborted transactions, transactions.json, problems

With --isolation read_committed no view of a partition has records of aborted transactions,
or any at or above the last stable offset (meta/log.json has it); stats.json says the level.

These resolve by name though ls doesn't show them (mount with --views to list them):

  value/<offset>  key/<offset>     the raw bytes of a record's value or key; none where null
  records.jsonl                    every record of the partition
  time/<YYYY-MM-DD>/<HH>/          links to the records of that hour (UTC); time/none/ for the rest
  at/<ISO time>.json               link to the first record at or after that time
  raw/<name>                       Kafka's own files

Here, in .kfs/:

  stats.json                  how it was mounted, and its metrics as JSON
  metrics                     the same metrics for Prometheus
  log-dirs.jsonl              the LOG_DIRs and their meta.properties
  problems.jsonl              what is wrong with the LOG_DIRs themselves
  checkpoints/<n>/            the checkpoint files of LOG_DIR number n, as JSON
  cluster/                    what the cluster's metadata log says: cluster.json, brokers, topics,
                              topics/<topic>.json, configs, users, ACLs, quotas, whose
                              directories these are, snapshots; no secrets
  deleted/<topic>/<partition>/                records below the log start offset (DeleteRecords)
  deleted/<topic>/<partition>.deleted/        deleted segments that are still on the disk: each whole in segment/;
                                              elsewhere, the one with the highest base offset has an offset
  deleted/<topic>/<partition>.<id>-delete/    partitions of deleted topics
  deleted/<topic>/<partition>.<id>-stray/     partitions of an older topic of that name
  replicas/<topic>/<partition>...             copies of a partition that are not the one served
  groups/<group>.json         a consumer group: state, members, committed offsets, lag
  groups/<group>/<topic>/<partition>.json        one of its offsets
  groups/<group>/<topic>/<partition>.next.json   link to the record that it reads next
  groups/problems.jsonl       partitions of __consumer_offsets that are not here, damage in the others,
                              and records that can't be read
  transactions/<transactional id>.json        its state, from __transaction_state
  transactions/problems.jsonl                 the same for __transaction_state
"""


def about_directory(views: PartitionViews) -> FixedDirectory:
    """Return ``.kfs``."""
    context = views.context

    def generated(name: str, produce: Callable[[TreeContext], bytes]) -> GeneratedFile:
        return GeneratedFile(context, f"{ABOUT}/{name}", NOBODY, int(context.started * 1e9), partial(produce, context))

    listed: dict[str, Maker] = {
        "README": partial(generated, "README", lambda _: README.encode()),
        "stats.json": partial(generated, "stats.json", _stats),
        "metrics": partial(generated, "metrics", _metrics),
        "log-dirs.jsonl": partial(generated, "log-dirs.jsonl", _log_dirs),
        "problems.jsonl": partial(generated, "problems.jsonl", lambda c: problem_lines(c.data_dir.problems)),
        "checkpoints": partial(_checkpoints, context),
        "cluster": partial(_cluster, context),
        "deleted": partial(_deleted, views),
        "replicas": partial(_replicas, views),
        "groups": partial(_groups, context),
        "transactions": partial(_transactions, context),
    }
    return FixedDirectory(context, ABOUT, source_of(context), listed)


# The code for Kafka's internal topics and for metrics is imported on demand: few commands need it.


def _cluster(context: TreeContext) -> FixedDirectory:
    from kfs.tree.cluster_dir import cluster_directory

    return cluster_directory(context, context.broker.cluster)


def _groups(context: TreeContext) -> FixedDirectory:
    from kfs.tree.groups_dir import groups_directory

    return groups_directory(context, f"{ABOUT}/groups")


def _transactions(context: TreeContext) -> FixedDirectory:
    from kfs.tree.transactions_dir import transactions_directory

    return transactions_directory(context, f"{ABOUT}/transactions")


def _stats(context: TreeContext) -> bytes:
    from kfs.tree.metrics_text import json_fields
    from kfs.tree.tree_metrics import tree_metrics

    data_dir = context.data_dir
    fields: dict[str, Any] = {
        "version": kfs.__version__,
        "decoder": data_dir.storage.decoder.name,
        "mountpoint": None if context.served is None else context.served.mountpoint,
        "maxBatchBytes": data_dir.storage.max_batch_bytes,
        "onDamage": context.options.on_damage.value,
        "untilHighWatermark": data_dir.until_high_watermark,
        "untilNow": data_dir.is_frozen,
        "isolation": context.options.isolation.value,
        "metrics": json_fields(tree_metrics(context)),
    }
    return json.dumps(fields, indent=2).encode() + b"\n"


def _metrics(context: TreeContext) -> bytes:
    from kfs.tree.metrics_text import prometheus_text
    from kfs.tree.tree_metrics import common_labels, tree_metrics

    return prometheus_text(tree_metrics(context), common_labels(context)).encode()


def _log_dirs(context: TreeContext) -> bytes:
    def row(number: int, path: str) -> dict[str, Any]:
        meta = context.data_dir.log_dirs[number].meta_properties()
        marker = kind_at(os.path.join(path, CLEAN_SHUTDOWN))
        return {
            "number": number,
            "path": path,
            "clusterId": meta.cluster_id if meta else None,
            "nodeId": meta.node_id if meta else None,
            "directoryId": str(meta.directory_id) if meta and meta.directory_id else None,
            "cleanShutdown": None if marker is PathKind.UNKNOWN else marker is not PathKind.NOTHING,
        }

    return json_lines(row(number, log_dir.path) for number, log_dir in enumerate(context.data_dir.log_dirs))


def _checkpoints(context: TreeContext) -> FixedDirectory:
    path = f"{ABOUT}/checkpoints"
    names: dict[str, Maker] = {
        str(number): partial(_checkpoints_of, context, number) for number in range(len(context.data_dir.log_dirs))
    }
    return FixedDirectory(context, path, source_of(context), names)


def _checkpoints_of(context: TreeContext, number: int) -> FixedDirectory:
    path = f"{ABOUT}/checkpoints/{number}"
    log_dir = context.data_dir.log_dirs[number]

    def file(name: str) -> GeneratedFile:
        owner, mtime_ns = status_of(os.path.join(log_dir.path, name))
        return GeneratedFile(context, f"{path}/{name}.jsonl", owner, mtime_ns, partial(lines, name))

    def lines(name: str) -> bytes:
        offsets = sorted(log_dir.checkpoint(name).items(), key=lambda pair: (pair[0].topic, pair[0].partition))
        return json_lines(
            {"topic": where.topic, "partition": where.partition, "offset": offset} for where, offset in offsets
        )

    names: dict[str, Maker] = {
        f"{name}.jsonl": partial(file, name) for name in CHECKPOINTS if is_there(os.path.join(log_dir.path, name))
    }
    return FixedDirectory(context, path, log_dir.path, names)


#: Logs by their name in their topic's directory, each with the function that chooses the offsets to show.
_Copies = dict[str, tuple[Log, Callable[[Log], OffsetRange]]]


def _deleted(views: PartitionViews) -> FixedDirectory:
    """Return the directory of records below the log start offset, deleted segments and partitions of deleted topics."""
    context, data_dir = views.context, views.context.data_dir

    def copies_of(topic: str) -> _Copies:
        copies: _Copies = {}
        for log in filter(None, (data_dir.log(topic, partition) for partition in data_dir.partitions(topic))):
            copies |= {part.name: (part.log, part.choose) for part in data_dir.deleted_parts(log)}
        return copies | {name: (log, Log.visible) for name, log in data_dir.deleted(topic)}

    def topics() -> set[str]:
        return data_dir.deleted_topics().union(data_dir.topics())

    path = f"{ABOUT}/deleted"
    return FixedDirectory(context, path, source_of(context), _Topics(views, path, topics, copies_of))


def _replicas(views: PartitionViews) -> FixedDirectory:
    context = views.context

    def copies_of(topic: str) -> _Copies:
        return {name: (log, Log.visible) for name, log in context.data_dir.replicas(topic)}

    path = f"{ABOUT}/replicas"
    topics = _Topics(views, path, context.data_dir.topics, copies_of)
    return FixedDirectory(context, path, source_of(context), topics)


class _Topics(Mapping[str, Maker]):
    """The directories of the topics that have copies to show; a look-up searches for copies of that topic only."""

    def __init__(
        self,
        views: PartitionViews,
        path: str,
        topics: Callable[[], Iterable[str]],
        copies_of: Callable[[str], _Copies],
    ) -> None:
        self._views = views
        self._path = path
        self._topics = topics
        self._copies_of = copies_of

    def __getitem__(self, name: str) -> Maker:
        topic = topic_name(name)
        copies = self._copies_of(topic) if topic is not None else None
        if not copies:
            raise KeyError(name)
        return partial(_topic_directory, self._views, f"{self._path}/{name}", copies)

    def __iter__(self) -> Iterator[str]:
        return (tree_name(topic) for topic in sorted(self._topics()) if self._copies_of(topic))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _topic_directory(views: PartitionViews, path: str, copies: _Copies) -> FixedDirectory:
    def copy_directory(copy_path: str, log: Log, choose_range: Callable[[Log], OffsetRange]) -> FixedDirectory:
        if not log.segments:
            raise NotFound(f"{copy_path}: gone")
        view = partial(views.of, log, copy_path, choose_range)
        return partition_directory(views.context, copy_path, log.directory.path, view)

    names: dict[str, Maker] = {
        name: partial(copy_directory, f"{path}/{name}", log, choose_range)
        for name, (log, choose_range) in copies.items()
    }
    return FixedDirectory(views.context, path, source_of(views.context), names)
