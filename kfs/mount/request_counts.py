"""Counts of the kernel's requests, by operation: how many, how long they took, how they failed."""

from __future__ import annotations

import errno
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from time import monotonic_ns
from typing import Final, NamedTuple

from kfs.metrics import Counts, Distribution, Metric, MetricType, Sample, by_label, counter

#: The upper bounds of the classes in which durations are counted, in nanoseconds: 10 microseconds to 10 seconds.
BOUNDS_NS: Final = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
CLASSES: Final = len(BOUNDS_NS) + 1
_NANOSECONDS: Final = 1_000_000_000
#: Errors of reads that are counted from 0, so that the first one shows as an increase.
_WATCHED_ERRORS: Final = (errno.EIO, errno.ESTALE)

#: An opcode, or the name of a libfuse callback.
Operation = int | str


class Answered(NamedTuple):
    """Requests of one operation that were answered: how many in each class of durations, and their sum."""

    operation: Operation
    classes: tuple[int, ...]
    nanoseconds: int

    @property
    def number(self) -> int:
        """How many they are."""
        return sum(self.classes)


class RequestCounts:
    """The requests that were answered; shared by threads.

    The compiled class of this interface takes a tenth of the time, so that counting is lost in what a request takes.
    """

    def __init__(self) -> None:
        #: Errors by operation and errno.
        self.errors: Counts[tuple[Operation, int]] = Counts()
        #: Bytes of files that readers got.
        self.read_bytes = 0
        self._classes: dict[Operation, list[int]] = {}
        self._nanoseconds: dict[Operation, int] = {}
        self._lock = threading.Lock()

    def add(self, operation: Operation, begun: int, error: int = 0, read_bytes: int = 0) -> None:
        """Count a request that is answered now and came at ``begun``, in nanoseconds of the monotonic clock.

        ``error`` is the errno that it got, 0 for none.
        """
        nanoseconds = monotonic_ns() - begun
        with self._lock:
            classes = self._classes.get(operation)
            if classes is None:
                classes = self._classes[operation] = [0] * CLASSES
                self._nanoseconds[operation] = 0
            classes[bisect_left(BOUNDS_NS, nanoseconds)] += 1
            self._nanoseconds[operation] += nanoseconds
            self.read_bytes += read_bytes
        if error:
            self.errors.add((operation, error))

    def add_read(self, read_bytes: int) -> None:
        """Count bytes of files that a reader got by a request that :meth:`add` counts without them."""
        with self._lock:
            self.read_bytes += read_bytes

    def answered(self) -> list[Answered]:
        """Return what was answered, by operation."""
        with self._lock:
            return [Answered(each, tuple(row), self._nanoseconds[each]) for each, row in self._classes.items()]


def request_metrics(counted: Iterable[RequestCounts], name_of: Callable[[Operation], str] = str) -> list[Metric]:
    """Return the metrics of all requests together; ``name_of`` returns the name of an operation."""
    counted = tuple(counted)
    total: dict[str, Answered] = {}
    errors: dict[tuple[str, int], int] = {("read", number): 0 for number in _WATCHED_ERRORS}
    for counts in counted:
        for each in counts.answered():
            name = name_of(each.operation)
            known = total.get(name, Answered(name, (0,) * CLASSES, 0))
            classes = tuple(map(sum, zip(known.classes, each.classes, strict=True)))
            total[name] = Answered(name, classes, known.nanoseconds + each.nanoseconds)
        for (operation, code), number in counts.errors.items():
            key = name_of(operation), code
            errors[key] = errors.get(key, 0) + number
    bounds = [bound / _NANOSECONDS for bound in BOUNDS_NS]
    durations = [
        Sample(Distribution(bounds, each.classes, each.nanoseconds / _NANOSECONDS), {"operation": name})
        for name, each in sorted(total.items())
    ]
    failed = [
        Sample(number, {"operation": name, "errno": errno.errorcode.get(code, str(code))})
        for (name, code), number in sorted(errors.items())
    ]
    return [
        by_label(
            MetricType.COUNTER,
            "kfs_requests_total",
            "Requests of the kernel.",
            "operation",
            ((name, each.number) for name, each in sorted(total.items())),
        ),
        Metric(
            "kfs_request_duration_seconds",
            MetricType.HISTOGRAM,
            "Time from a request's arrival to its answer.",
            durations,
        ),
        Metric("kfs_request_errors_total", MetricType.COUNTER, "Requests answered with an error.", failed),
        counter("kfs_read_bytes_total", "Bytes of files given to readers.", sum(each.read_bytes for each in counted)),
    ]


def mount_info(front: str) -> Metric:
    """Return which front serves the mount."""
    return Metric("kfs_mount_info", MetricType.GAUGE, "1; what serves the mount.", [Sample(1, {"front": front})])
