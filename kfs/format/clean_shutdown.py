"""``.kafka_cleanshutdown`` (``CleanShutdownFileHandler.java``): its presence marks a clean shutdown of the broker.

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
    """A clean shutdown, with the broker epoch: -1 with ZooKeeper, None if the file has none."""

    broker_epoch: int | None = None


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """Parse the marker. Kafka treats an invalid one as empty; this function raises :class:`CorruptData`."""
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
    """Encode the marker; it is empty without an epoch."""
    if marker.broker_epoch is None:
        return b""
    return b'{"version":%d,"brokerEpoch":%d}' % (CLEAN_SHUTDOWN_VERSION, marker.broker_epoch)
