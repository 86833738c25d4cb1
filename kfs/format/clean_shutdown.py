"""``.kafka_cleanshutdown`` (``CleanShutdownFileHandler.java``): its presence says that the broker stopped cleanly.

Older brokers leave it empty; since KIP-966 it is ``{"version":0,"brokerEpoch":14}``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.layout import MAX_INT64

CLEAN_SHUTDOWN_VERSION: Final = 0
MAX_CLEAN_SHUTDOWN_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """A clean stop, and the epoch that the broker was registered with: -1 with ZooKeeper, None where not said."""

    broker_epoch: int | None = None


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """Return what the marker says. Kafka takes one that it can't parse for an empty one; here that is an error."""
    if len(data) > MAX_CLEAN_SHUTDOWN_BYTES:
        raise LimitExceeded(f"a marker of {len(data)} bytes, the limit is {MAX_CLEAN_SHUTDOWN_BYTES}")
    if not data:
        return CleanShutdown()
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CorruptData(f"JSON of type {type(content).__name__}, expected an object")
    epoch = content.get("brokerEpoch")
    if epoch is not None and not (type(epoch) is int and -1 <= epoch <= MAX_INT64):
        raise CorruptData("the brokerEpoch is not an int64")
    return CleanShutdown(epoch)


def encode_clean_shutdown(marker: CleanShutdown) -> bytes:
    """Write the marker, empty where it has no epoch."""
    if marker.broker_epoch is None:
        return b""
    return b'{"version":%d,"brokerEpoch":%d}' % (CLEAN_SHUTDOWN_VERSION, marker.broker_epoch)
