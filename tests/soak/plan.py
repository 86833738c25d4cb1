"""The topics of a run, and how its broker is configured: everything that changes files happens within seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SEGMENT_BYTES: Final = 16 * 1024

BROKER: Final[dict[str, object]] = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": 500,
    "log.initial.task.delay.ms": 500,
    "log.segment.delete.delay.ms": 1000,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    "log.flush.offset.checkpoint.interval.ms": 1000,
    "log.flush.start.offset.checkpoint.interval.ms": 1000,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and what is done to it."""

    name: str
    partitions: int
    retention_ms: int
    #: Seconds between bursts into one of its partitions, on average; how many records, how many bytes each.
    pause: float
    burst: int
    padding: int
    codec: str | None = None
    cleanup: str = "delete"
    keys: int = 0

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner works on it."""
        return "compact" in self.cleanup

    def configuration(self) -> dict[str, str]:
        """Return the configuration of the topic."""
        return {
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "retention.ms": str(self.retention_ms),
            "file.delete.delay.ms": "1000",
            "cleanup.policy": self.cleanup,
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "1000",
            "index.interval.bytes": "2048",
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What the producers and the administrator of a run do."""

    plain: tuple[Topic, ...] = (
        Topic("expiring", 2, 6_000, 0.25, 12, 600),
        Topic("lasting", 1, 40_000, 0.4, 40, 250, "gzip"),
        Topic("compacted", 2, -1, 0.4, 20, 300, None, "compact", 60),
        Topic("both", 1, 15_000, 0.5, 15, 400, "lz4", "compact,delete", 40),
        Topic("trimmed", 1, -1, 0.4, 15, 400, "zstd"),
        Topic("wide", 1, 12_000, 0.2, 10, 700),
    )
    again: Topic = field(default_factory=lambda: Topic("again", 2, 8_000, 0.15, 15, 500))
    ledger: Topic = field(default_factory=lambda: Topic("ledger", 2, 15_000, 0.3, 12, 500))
    #: So many partitions that not all of their files can be open at a time.
    many: Topic = field(default_factory=lambda: Topic("many", 200, 90_000, 0.12, 5, 3500))
    most_wide: int = 12
    grow_seconds: float = 7.0
    trim_seconds: float = 3.0
    #: The shortest and longest life of a generation of ``again``.
    again_seconds: tuple[float, float] = (4.0, 14.0)


#: Soon filled.
SHORT: Final = Plan(many=Topic("many", 60, 60_000, 0.3, 5, 3500))
