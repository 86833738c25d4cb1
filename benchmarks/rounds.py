"""Contenders that take turns, round after round."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce


@dataclass(frozen=True, slots=True)
class Sample:
    """One run over ``records`` records: wall time, and the CPU time of every process that took part."""

    records: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Million records a second."""
        return self.records / self.seconds / 1e6

    @property
    def cpu_rate(self) -> float:
        """Million records a second of CPU time."""
        return self.records / max(self.cpu_seconds, 1e-9) / 1e6

    def or_better(self, other: Sample) -> Sample:
        """Return the lesser of each time, of two runs of the same."""
        if self.records != other.records:
            raise RuntimeError(f"different numbers of records: {self}, {other}")
        return Sample(self.records, min(self.seconds, other.seconds), min(self.cpu_seconds, other.cpu_seconds))


Run = Callable[[], Sample]


def timed(work: Callable[[], int]) -> Sample:
    """Run ``work``, which returns how many records it saw, in this process."""
    cpu, started = time.process_time(), time.perf_counter()
    records = work()
    return Sample(records, time.perf_counter() - started, time.process_time() - cpu)


def timed_process(
    command: Sequence[str],
    records: int,
    environment: Mapping[str, str] | None = None,
    *,
    accepted: Container[int] = (0,),
) -> Sample:
    """Run a command to its end, its output thrown away; raise :class:`RuntimeError` unless its status is ``accepted``.

    The CPU time is that of its children too. What it complains of while it succeeds doesn't count: Kafka's tool takes
    a segment that begins above offset 0 for a gap.
    """
    before, started = os.times(), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as process:
        _, errors = process.communicate()
    seconds, after = time.perf_counter() - started, os.times()
    if process.returncode not in accepted:
        raise RuntimeError(f"{command}: status {process.returncode}: {errors.decode(errors='replace')[-2000:]}")
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Sample(records, seconds, used)


def in_turn(contenders: Mapping[str, Run], rounds: int) -> dict[str, list[Sample]]:
    """Let each run in turn, ``rounds`` times; return the samples of each.

    Raises:
        RuntimeError: they don't agree on how many records there are.
    """
    found: dict[str, list[Sample]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            found[name].append(run())
    if len({sample.records for samples in found.values() for sample in samples}) > 1:
        raise RuntimeError(f"different numbers of records: {found}")
    return found


def best(contenders: Mapping[str, Run], rounds: int) -> Iterator[tuple[str, Sample]]:
    """Let each run in turn, ``rounds`` times; yield the least wall time and the least CPU time of each.

    Raises:
        RuntimeError: as :func:`in_turn`.
    """
    for name, samples in in_turn(contenders, rounds).items():
        yield name, reduce(Sample.or_better, samples)


@contextmanager
def on_cpus(cpus: Sequence[int]) -> Iterator[None]:
    """Run this process, and those it starts, on some CPUs only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
