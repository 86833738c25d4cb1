"""Metrics of real mounts, on each front: they count the kernel's requests, and how those failed."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.logs import dense, write_partition
from tests.mount.conftest import EACH_FRONT
from tests.mount.toy_mount import eventually
from tests.system.conftest import MountKafka
from tests.system.kafka_mount import KafkaMount, content

#: Longer than generated content is kept.
_A_WHILE = 0.6


class Metrics:
    """What ``.kfs/metrics`` says at a moment."""

    def __init__(self, mounted: KafkaMount) -> None:
        time.sleep(_A_WHILE)
        path = mounted.path(".kfs/metrics")
        self.text = path.read_text()
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }
        self._point = str(mounted.point)

    def __call__(self, name: str, **labels: str) -> float:
        """Return a value; that of no sample is 0."""
        return self._values.get((name, frozenset({"mountpoint": self._point, **labels}.items())), 0)

    def sum(self, name: str) -> float:
        """Return the sum of all samples of a metric."""
        return sum(value for (each, _), value in self._values.items() if each == name)


@pytest.mark.parametrize("front", EACH_FRONT)
def test_each_front_counts_requests_bytes_and_errors(damaged: Path, front: str, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(damaged, front=front)
    before = Metrics(mounted)
    assert before("kfs_mount_info", front=front) == 1
    assert before("kfs_request_errors_total", operation="read", errno="EIO") == 0
    lines = mounted.path("t/0/segment/50.jsonl").read_bytes()
    assert len(lines) > 1000
    os.listdir(mounted.path("t/0/offset"))
    assert content(mounted.path("t/0/offset/49.json")) == errno.EIO
    assert content(mounted.path("t/0/no")) == errno.ENOENT
    after = Metrics(mounted)
    assert after("kfs_read_bytes_total") - before("kfs_read_bytes_total") >= len(lines) + len(before.text)
    requests = {each: after("kfs_requests_total", operation=each) for each in ("read", "readdir", "readdirplus")}
    assert requests["read"] > before("kfs_requests_total", operation="read")
    assert requests["readdir"] + requests["readdirplus"] > 0
    assert after.sum("kfs_requests_total") == after.sum("kfs_request_duration_seconds_count")
    assert after("kfs_request_duration_seconds_sum", operation="read") > 0
    failed = sum(
        after("kfs_request_errors_total", operation=each, errno="EIO") for each in ("read", "lookup", "getattr", "open")
    )
    assert failed >= 1
    missing = sum(after("kfs_request_errors_total", operation=each, errno="ENOENT") for each in ("lookup", "getattr"))
    assert missing >= 1
    assert after("kfs_problems_total", kind="batch-crc") == 1


@pytest.mark.parametrize("front", EACH_FRONT)
def test_what_is_read_is_as_long_as_stat_says(damaged: Path, front: str, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(damaged, front=front)
    for name in ("metrics", "stats.json"):
        with mounted.path(f".kfs/{name}").open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if front == "kernel":  # libfuse's serve one content of a path at a time
                time.sleep(_A_WHILE)
            data = file.read()
        assert len(data) == size
        assert data.endswith(b"\n")
    assert json.loads(data)["mountpoint"] == str(mounted.point)


def test_the_node_exporters_way_of_reading_it(damaged: Path, mount_kafka: MountKafka, tmp_path: Path) -> None:
    mounted = mount_kafka(damaged)
    collected = tmp_path / "kfs.prom"
    collected.symlink_to(mounted.path(".kfs/metrics"))
    text = collected.read_text()
    assert text.endswith("\n")
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.timestamp is None
            assert sample.labels["mountpoint"] == str(mounted.point)


def test_requests_that_the_reply_cache_answers_are_among_those_of_the_kernel(
    damaged: Path, mount_kafka: MountKafka
) -> None:
    mounted = mount_kafka(damaged, front="kernel")
    for offset in range(45):
        mounted.path(f"t/0/offset/{offset}.json").read_bytes()
    read = Metrics(mounted)
    for operation in ("lookup", "read"):
        cached = read("kfs_requests_cached_total", operation=operation)
        assert 0 < cached <= read("kfs_requests_total", operation=operation)
        assert read("kfs_requests_total", operation=operation) >= 45
    directories = read("kfs_requests_total", operation="lookup") - read("kfs_requests_cached_total", operation="lookup")
    assert directories > 3  # t, 0, offset, .kfs are looked up in the tree


def test_what_the_kernel_has_to_forget_is_counted(damaged: Path, mount_kafka: MountKafka) -> None:
    mounted = mount_kafka(damaged, front="kernel")
    mounted.path("t/0/offset/3.json").read_bytes()
    assert Metrics(mounted)("kfs_kernel_invalidations_total", kind="name") == 0
    (damaged / "t-0").rename(damaged / f"t-0.{'c' * 32}-delete")
    write_partition(damaged / "t-0", {0: dense(0, 4)})
    assert eventually(lambda: Metrics(mounted)("kfs_kernel_invalidations_total", kind="name") > 0)
    assert eventually(lambda: content(mounted.path("t/0/offset/7.json")) == errno.ENOENT)
    assert Metrics(mounted)("kfs_log_changes_total", change="recreated") == 1


def test_files_that_are_read_as_listed_are_stored_ahead(tmp_path: Path, mount_kafka: MountKafka) -> None:
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 1999), 2000: dense(2000, 2004)})
    mounted = mount_kafka(tmp_path / "data", front="kernel")
    directory = mounted.path("t/0/offset")
    names = os.listdir(directory)
    for _ in os.scandir(directory):
        pass
    size = sum(len((directory / name).read_bytes()) for name in names[:1000])
    read = Metrics(mounted)
    files, stored = read("kfs_prefetched_files_total"), read("kfs_prefetched_bytes_total")
    assert files > 100
    assert stored / files == pytest.approx(size / 1000, rel=0.1)
