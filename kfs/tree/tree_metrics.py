"""The metrics of a tree: what it and the layers below count, and what the front that serves it does.

Gathering them takes no longer with more topics or partitions: everything is counted where it happens.
"""

from __future__ import annotations

from typing import Any

import kfs
from kfs.log.offset_cache import OffsetCache
from kfs.metrics import Metric, MetricType, Sample, by_label, counter, gauge
from kfs.storage.descriptors import BUDGET
from kfs.storage.process import process_status
from kfs.tree.context import TreeContext


def tree_metrics(context: TreeContext) -> list[Metric]:
    """Return all metrics, those of the front included."""
    found = [*_about(context), *_source(context), *_caches(context), *_log(context), *_process(context)]
    return found + (list(context.served.metrics()) if context.served is not None else [])


def common_labels(context: TreeContext) -> dict[str, str]:
    """Return the labels that tell this mount's metrics from another's."""
    return {} if context.served is None else {"mountpoint": context.served.mountpoint}


def _about(context: TreeContext) -> list[Metric]:
    build = {"version": kfs.__version__, "implementation": context.data_dir.storage.decoder.name}
    return [
        Metric("kfs_build_info", MetricType.GAUGE, "1; the version of kfs.", [Sample(1, build)]),
        gauge("kfs_start_time_seconds", "When the source was opened, in seconds since 1970.", context.started),
    ]


def _source(context: TreeContext) -> list[Metric]:
    topics, partitions = context.data_dir.known_numbers()
    look = context.last_look
    return [
        gauge("kfs_topics", "Topics, as last listed.", topics),
        gauge("kfs_partitions", "Partitions, as last listed.", partitions),
        gauge("kfs_watched_partitions", "Partitions that were shown and are watched for changes.", look.partitions),
        gauge("kfs_unlisted_partitions", "Watched partitions whose directory can't be listed.", look.unlisted),
        gauge(
            "kfs_partitions_in_doubt", "Partitions of whose change the kernel isn't told yet.", context.pending.count()
        ),
        gauge(
            "kfs_source_look_timestamp_seconds",
            "When the last complete look at what may have changed began: what is shown is no older.",
            look.begun,
        ),
        gauge("kfs_source_look_duration_seconds", "How long that look took, with pauses.", look.seconds),
    ]


def _caches(context: TreeContext) -> list[Metric]:
    storage, text = context.data_dir.storage, context.text
    caches: dict[str, tuple[int, int, int, int]] = {
        "decoded": _numbers(storage.cache),
        "rendered": _numbers(context.rendered),
        "lines": text.numbers(),
    }

    def metric(type_: MetricType, name: str, what: str, index: int) -> Metric:
        return by_label(type_, name, what, "cache", ((cache, numbers[index]) for cache, numbers in caches.items()))

    return [
        metric(MetricType.GAUGE, "kfs_cache_bytes", "Bytes in a cache.", 0),
        metric(MetricType.GAUGE, "kfs_cache_limit_bytes", "The most bytes in a cache.", 1),
        metric(MetricType.COUNTER, "kfs_cache_hits_total", "What was looked for in a cache and found.", 2),
        metric(MetricType.COUNTER, "kfs_cache_misses_total", "What was looked for in a cache and not found.", 3),
    ]


def _numbers(cache: OffsetCache[Any]) -> tuple[int, int, int, int]:
    return cache.nbytes, cache.capacity, cache.hits, cache.misses


def _log(context: TreeContext) -> list[Metric]:
    storage = context.data_dir.storage
    return [
        counter("kfs_decoded_batches_total", "Record batches decoded.", storage.decoded.batches),
        counter(
            "kfs_decoded_bytes_total", "Bytes of the record batches decoded, as in the log.", storage.decoded.nbytes
        ),
        by_label(
            MetricType.COUNTER,
            "kfs_problems_total",
            "Problems found that affect what is read.",
            "kind",
            ((str(kind), number) for kind, number in storage.problems.items()),
        ),
        by_label(
            MetricType.COUNTER,
            "kfs_log_changes_total",
            "Changes of segments and partitions that were noticed.",
            "change",
            ((change.value, number) for change, number in storage.changes.items()),
        ),
    ]


def _process(context: TreeContext) -> list[Metric]:
    status = process_status()
    held = [("file", len(BUDGET.held)), ("map", len(BUDGET.mapped))]
    known = {
        "kfs_process_resident_memory_bytes": ("Memory resident now.", status.resident_bytes),
        "kfs_process_resident_memory_max_bytes": ("The most memory ever resident.", status.most_resident_bytes),
        "kfs_process_threads": ("Threads.", status.threads),
        "kfs_process_open_fds": ("Open file descriptors of the process.", status.open_files),
    }
    return [
        by_label(MetricType.GAUGE, "kfs_descriptors", "Descriptors held for files of the source.", "kind", held),
        gauge("kfs_descriptors_limit", "The most descriptors to hold.", BUDGET.most),
        counter("kfs_process_cpu_seconds_total", "CPU time of the process.", status.cpu_seconds),
        *(gauge(name, text, value) for name, (text, value) in known.items() if value is not None),
    ]
