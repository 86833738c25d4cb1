"""``.kfs/metrics`` and ``.kfs/stats.json``: Prometheus' own parser reads them, and each number is of what happened."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kfs.errors import CorruptData
from kfs.log.problem import DamagePolicy
from kfs.metrics import Distribution, Metric, MetricType, Sample, counter
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.metrics_text import json_fields, prometheus_text
from kfs.tree.options import TreeOptions
from tests.logs import content_of, dense, directory_at, log_name, look_every_time, names, open_tree, write_partition

Labels = Mapping[str, str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with a topic of two partitions; a segment has batches of five records."""
    data = tmp_path / "data"
    write_partition(data / "t-0", {0: dense(0, 19), 20: dense(20, 29)})
    write_partition(data / "t-1", {0: dense(0, 4)})
    return data


def values(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return all samples, as Prometheus' parser reads them."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def metrics(tree: KafkaTree) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    tree.context._latest.clear()  # what was generated a moment ago would be shown again
    return values(content_of(tree, ".kfs/metrics").decode())


def look(tree: KafkaTree) -> None:
    """Look at all that was shown."""
    last = tree.context.last_look
    while tree.context.last_look is last:
        tree.invalidations()


def value(tree: KafkaTree, name: str, **labels: str) -> float:
    return metrics(tree)[name, frozenset(labels.items())]


# --- the format


def test_the_parser_reads_what_is_hard_to_write() -> None:
    hard = 'a "quoted" \\ back\\nslash\nnew line, \u00e9\udcff'
    text = prometheus_text(
        [
            Metric("kfs_hard", MetricType.GAUGE, "With a \\ and\na line.", [Sample(1.5, {"name": hard})]),
            Metric(
                "kfs_seconds", MetricType.HISTOGRAM, "Text.", [Sample(Distribution((0.00001, 1.0), (3, 0, 2), 7.25))]
            ),
            counter("kfs_big_total", "Text.", 2**53 + 1),
        ],
        {"mountpoint": "/m"},
    )
    assert 'kfs_big_total{mountpoint="/m"} 9007199254740993\n' in text
    where = ("mountpoint", "/m")
    assert values(text) == {
        ("kfs_hard", frozenset([where, ("name", hard.replace("\udcff", "\\xff"))])): 1.5,
        ("kfs_seconds_bucket", frozenset([where, ("le", "1e-05")])): 3,
        ("kfs_seconds_bucket", frozenset([where, ("le", "1.0")])): 3,
        ("kfs_seconds_bucket", frozenset([where, ("le", "+Inf")])): 5,
        ("kfs_seconds_sum", frozenset([where])): 7.25,
        ("kfs_seconds_count", frozenset([where])): 5,
        ("kfs_big_total", frozenset([where])): 2**53 + 1,
    }


def test_names_follow_the_conventions(root: Path) -> None:
    for family in text_string_to_metric_families(content_of(open_tree(root), ".kfs/metrics").decode()):
        assert family.name.startswith("kfs_")
        names = {sample.name for sample in family.samples}
        if family.type == "counter":
            assert names <= {f"{family.name}_total"}
        else:
            assert not family.name.endswith("_total")
        assert not any(part in family.name for part in ("milli", "micro", "nano", "kilo", "mega"))


def test_the_json_has_the_same_numbers_under_the_same_names(root: Path) -> None:
    tree = open_tree(root)
    content_of(tree, "t/0/offset/3.json")
    shown = json.loads(content_of(tree, ".kfs/stats.json"))["metrics"]
    families: set[str] = set()
    for family in text_string_to_metric_families(content_of(tree, ".kfs/metrics").decode()):
        families |= {family.name, f"{family.name}_total"} & set(shown)
        if family.name.startswith(("kfs_process", "kfs_source_look", "kfs_descriptors")):  # of the process, live
            continue
        for sample in family.samples:
            rows = shown[sample.name]
            row = rows if not sample.labels else next(r for r in rows if sample.labels.items() <= r.items())["value"]
            assert row == sample.value
    assert families == set(shown)


def test_a_histogram_in_json_counts_as_prometheus_does() -> None:
    metric = Metric(
        "x_seconds", MetricType.HISTOGRAM, "", [Sample(Distribution((0.1, 1.0), (1, 2, 4), 9.5), {"a": "b"})]
    )
    assert json_fields([metric]) == {
        "x_seconds": [{"a": "b", "count": 7, "sum": 9.5, "buckets": {"0.1": 1, "1.0": 3, "Inf": 7}}]
    }


def test_the_size_is_that_of_what_is_read(root: Path) -> None:
    tree = open_tree(root)
    for name in ("metrics", "stats.json"):
        node = tree.resolve(f".kfs/{name}")
        for _ in range(3):
            size = node.attributes().size
            content_of(tree, "t/0/offset/3.json")
            tree.context._latest.clear()  # as if time had passed
            data = node.read(0, size + 1)  # type: ignore[attr-defined]
            assert len(data) == size
            assert data.endswith(b"\n")


def test_metrics_are_gathered_without_looking_at_partitions(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = open_tree(root)
    assert (value(tree, "kfs_topics"), value(tree, "kfs_partitions")) == (1, 2)
    look_every_time(monkeypatch)
    for method in ("topics", "partitions", "log", "logs", "copies"):
        monkeypatch.setattr(type(tree.data_dir), method, None)
    assert (value(tree, "kfs_topics"), value(tree, "kfs_partitions")) == (1, 2)


# --- what is counted


def test_decoded_batches_and_caches(root: Path) -> None:
    tree = open_tree(root)
    before = metrics(tree)
    for offset in (3, 3, 4):
        content_of(tree, f"t/0/offset/{offset}.json")
    after = metrics(tree)
    size = len(dense(0, 4)[0].data)

    def grown(name: str, **labels: str) -> float:
        key = name, frozenset(labels.items())
        return after[key] - before[key]

    assert grown("kfs_decoded_batches_total") == 1
    assert grown("kfs_decoded_bytes_total") == size
    assert grown("kfs_cache_misses_total", cache="rendered") == 1
    assert grown("kfs_cache_hits_total", cache="rendered") >= 2
    assert grown("kfs_cache_bytes", cache="rendered") == tree.context.rendered.nbytes > 0
    content_of(tree, "t/0/value/3")
    content_of(tree, "t/0/value/3")
    assert value(tree, "kfs_cache_hits_total", cache="decoded") > 0
    assert value(tree, "kfs_cache_misses_total", cache="decoded") > 0
    assert value(tree, "kfs_cache_bytes", cache="decoded") == tree.data_dir.storage.cache.nbytes > 0


def test_chunks_of_lines(root: Path) -> None:
    tree = open_tree(root)
    node = tree.resolve("t/0/segment/0.jsonl")
    node.attributes()
    decoded = value(tree, "kfs_decoded_batches_total")
    assert decoded == 4
    content_of(tree, "t/0/segment/0.jsonl")
    assert value(tree, "kfs_cache_misses_total", cache="lines") == 1


def test_damage_is_counted_once_by_kind(root: Path) -> None:
    path = root / "t-0" / log_name(0)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    tree = open_tree(root, options=TreeOptions(on_damage=DamagePolicy.FAIL))
    assert value(tree, "kfs_problems_total", kind="batch-crc") == 0
    for _ in range(3):
        with pytest.raises(CorruptData):
            content_of(tree, "t/0/offset/19.json")
    assert value(tree, "kfs_problems_total", kind="batch-crc") == 1
    (problem,) = [json.loads(line) for line in content_of(tree, "t/0/meta/problems.jsonl").splitlines()]
    assert problem["kind"] == "batch-crc"


def test_a_re_created_topic_and_a_roll(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    tree = open_tree(root)
    content_of(tree, "t/0/offset/3.json")
    write_partition(root / "t-0", {30: dense(30, 34)})
    look(tree)
    assert value(tree, "kfs_log_changes_total", change="rolled") == 1
    (root / "t-0").rename(root / f"t-0.{'b' * 32}-delete")
    write_partition(root / "t-0", {0: dense(0, 4)})
    look(tree)
    assert value(tree, "kfs_log_changes_total", change="recreated") == 1


def test_partitions_of_whose_change_the_kernel_is_not_told_yet(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfs.tree.pending_invalidations._APART_SECONDS", 0.0)
    tree = open_tree(root)
    pending = tree.context.pending
    pending.note_partition("t/0")
    pending.expect("t/0")
    pending.expect("t/1")
    assert value(tree, "kfs_partitions_in_doubt") == 2
    for partition in ("t/0", "t/1"):
        pending.note_expected(partition, ())
    for _ in range(3):
        assert value(tree, "kfs_partitions_in_doubt") == 2
        pending.take()
    assert value(tree, "kfs_partitions_in_doubt") == 0


def test_how_old_the_last_look_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    tree = open_tree(root)
    content_of(tree, "t/0/offset/3.json")
    look(tree)
    before = time.time()
    look(tree)
    assert before <= value(tree, "kfs_source_look_timestamp_seconds") <= time.time()
    assert value(tree, "kfs_source_look_duration_seconds") >= 0
    assert value(tree, "kfs_watched_partitions") == 1
    assert value(tree, "kfs_unlisted_partitions") == 0


def test_a_source_that_is_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    write_partition(root / "u-0", {0: dense(0, 4)})
    tree = open_tree(root / "t-0", root / "u-0")
    content_of(tree, "t/0/offset/3.json")
    for path in (root / "t-0").iterdir():
        path.unlink()
    (root / "t-0").rmdir()
    look(tree)
    look(tree)
    assert value(tree, "kfs_unlisted_partitions") == 1


def test_descriptors_and_the_process(root: Path) -> None:
    tree = open_tree(root)
    names(directory_at(tree, "t/0/offset"))
    content_of(tree, "t/0/offset/3.json")
    assert value(tree, "kfs_descriptors", kind="file") >= 1
    assert value(tree, "kfs_descriptors_limit") >= value(tree, "kfs_descriptors", kind="file")
    resident = value(tree, "kfs_process_resident_memory_bytes")
    assert 1024**2 < resident <= value(tree, "kfs_process_resident_memory_max_bytes")
    assert value(tree, "kfs_process_threads") >= 1
    assert value(tree, "kfs_process_open_fds") >= value(tree, "kfs_descriptors", kind="file")
    cpu = value(tree, "kfs_process_cpu_seconds_total")
    assert 0 < cpu <= time.process_time()


def test_what_serves_the_tree_adds_its_own(root: Path) -> None:
    tree = open_tree(root)
    tree.is_served("/mnt/k", lambda: [counter("kfs_requests_total", "Requests.", 7)])
    found = metrics(tree)
    assert found["kfs_requests_total", frozenset([("mountpoint", "/mnt/k")])] == 7
    assert all(("mountpoint", "/mnt/k") in labels for _, labels in found)
    assert json.loads(content_of(tree, ".kfs/stats.json"))["mountpoint"] == "/mnt/k"
