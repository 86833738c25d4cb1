"""One record by its offset, through the log."""

from __future__ import annotations

import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable

from benchmarks.events import EventLog
from kfs.log.data_dir import DataDir
from kfs.log.log import Log
from kfs.log.storage import Storage


def microseconds_a_record(log: EventLog, reads: int) -> tuple[float, float]:
    """Return the median time to get a record with nothing decoded, and the same with its batch in the cache."""
    storage = Storage()
    data_dir = DataDir([str(log.directory.parent)], storage)
    found = data_dir.log(log.topic, 0)
    assert found is not None
    source = random.Random(log.records)
    cold, cached = [], []
    for offset in source.sample(range(log.records), reads):
        storage.cache.clear()
        cold.append(_microseconds(found, offset))
        cached.append(min(_microseconds(found, offset) for _ in range(3)))
    data_dir.close()
    return statistics.median(cold), statistics.median(cached)


def _microseconds(log: Log, offset: int, clock: Callable[[], int] = time.perf_counter_ns) -> float:
    started = clock()
    block = log.find(offset)
    assert block is not None
    record = block.columns.record(bisect_left(block.columns.offsets, offset))
    taken = clock() - started
    assert record.offset == offset
    return taken / 1000
