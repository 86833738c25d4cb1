"""What kfs counts while it runs: counters that threads share, and the description of a metric.

Each layer counts its own work; only a tree's ``.kfs/`` shows it. Names follow the conventions of Prometheus: a prefix
(``kfs_``), a base unit (``_seconds``, ``_bytes``), and ``_total`` for what only grows.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)


class MetricType(StrEnum):
    """The types of Prometheus that kfs uses."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Distribution(NamedTuple):
    """How often values occurred: ``counts`` has one more than ``bounds``, which are ascending and inclusive."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class Sample(NamedTuple):
    """One value of a metric; ``labels`` tell the samples of a metric apart. A Distribution is for histograms only."""

    value: float | Distribution
    labels: Mapping[str, str] = {}


class Metric(NamedTuple):
    """A metric at this moment; ``text`` says in one line what it measures."""

    name: str
    type: MetricType
    text: str
    samples: Sequence[Sample]


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter without labels."""
    return Metric(name, MetricType.COUNTER, text, [Sample(value)])


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return Metric(name, MetricType.GAUGE, text, [Sample(value)])


def by_label(type_: MetricType, name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """Return a metric with a sample for each value of one label."""
    return Metric(name, type_, text, [Sample(value, {label: each}) for each, value in values])


class Counts(Generic[Key]):
    """Numbers that only grow, by key; shared by threads."""

    __slots__ = ("_lock", "_numbers")

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        """The ``keys`` count from 0; others appear when they are first counted."""
        self._numbers: dict[Key, int] = dict.fromkeys(keys, 0)
        self._lock = threading.Lock()

    def add(self, key: Key, number: int = 1) -> None:
        """Count ``number`` more."""
        with self._lock:
            self._numbers[key] = self._numbers.get(key, 0) + number

    def __getitem__(self, key: Key) -> int:
        return self._numbers.get(key, 0)

    def items(self) -> list[tuple[Key, int]]:
        """Return all keys with their numbers."""
        with self._lock:
            return list(self._numbers.items())
