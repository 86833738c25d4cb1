"""Configuration of log writing, with Kafka's names and defaults (``LogConfig.java``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kfs.broker_log.index_builder import INDEX_INTERVAL_BYTES, MAX_INDEX_BYTES
from kfs.log.producer_state import PRODUCER_ID_EXPIRATION_MS

#: Returns the time in milliseconds since 1970.
Clock = Callable[[], int]

SEGMENT_BYTES: Final = 1024 * 1024 * 1024
SEGMENT_MS: Final = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic settings that affect the content of a log's files, and ``producer.id.expiration.ms``."""

    segment_bytes: int = SEGMENT_BYTES
    segment_ms: int = SEGMENT_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    segment_index_bytes: int = MAX_INDEX_BYTES
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
