"""A broker of our own, doing as it is told to one partition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.log_loader import LoadParameters
from kfs.broker_log.log_manager import write_checkpoints, write_clean_shutdown
from kfs.broker_log.unified_log import UnifiedLog
from kfs.format.checkpoint import TopicPartition
from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, CommitMarker, encode_control_record
from kfs.format.record import Record, TimestampType
from kfs.format.uuid import parse_uuid
from kfs.format.writer import encode_batch
from tests.logs import START

TOPIC_ID = parse_uuid(b"N3kFb8wTQeGQxM1vzZmC0w")


@dataclass(frozen=True, slots=True)
class Produce:
    """A batch: of which producer (0: none), with how many records, in a transaction or not."""

    producer: int
    records: int
    codec: Codec
    is_append_time: bool
    back: int


@dataclass(frozen=True, slots=True)
class End:
    """A marker for a producer's transaction; ``bump`` raises the epoch first, as when a producer is fenced."""

    producer: int
    is_commit: bool
    bump: bool


@dataclass(frozen=True, slots=True)
class Lead:
    """A new leader epoch."""


@dataclass(frozen=True, slots=True)
class Roll:
    """A new segment."""


@dataclass(frozen=True, slots=True)
class Reopen:
    """The broker is stopped and started; where that wasn't clean, it recovers the log."""

    is_clean: bool


Step = Produce | End | Lead | Roll | Reopen
#: Of producers the first two never use transactions, the others always do.
some_steps = st.one_of(
    st.builds(
        Produce,
        st.integers(0, 5),
        st.integers(1, 4),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
        st.booleans(),
        st.integers(0, 5),
    ),
    st.builds(End, st.integers(3, 5), st.booleans(), st.booleans()),
    st.builds(Lead),
    st.builds(Roll),
    st.builds(Reopen, st.booleans()),
)


class Broker:
    """Does the steps to a partition of its own."""

    def __init__(self, root: Path, config: LogConfig, first_offset: int) -> None:
        root.mkdir()
        self.root = root
        self.config = config
        self.now = START
        path = str(root / "t-0")
        self.log = UnifiedLog.create(path, config, first_offset=first_offset, topic_id=TOPIC_ID, clock=self._clock)
        self.leader_epoch = 0
        self.log.assign_epoch(0)
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}

    def _clock(self) -> int:
        return self.now

    def do(self, step: Step) -> None:
        self.now += 1000
        match step:
            case Produce():
                self._produce(step)
            case End():
                self._end(step)
            case Lead():
                self.leader_epoch += 1
                self.log.assign_epoch(self.leader_epoch)
            case Roll():
                self.log.roll()
            case Reopen():
                self.log.flush()
                self.log.close()
                known = LoadParameters(
                    had_clean_shutdown=step.is_clean,
                    recovery_point=self.log.recovery_point,
                    log_start_offset=self.log.log_start_offset,
                )
                self.log = UnifiedLog.open(self.log.directory, self.config, known, clock=self._clock)

    def stop(self) -> None:
        self.log.flush()
        self.log.close()
        write_checkpoints(str(self.root), {TopicPartition("t", 0): self.log})
        write_clean_shutdown(str(self.root))

    def _produce(self, step: Produce) -> None:
        base = self.log.log_end_offset
        content = [
            Record(base + at, self.now - step.back * 1000 + at, b"k", b"v" * (20 * step.records))
            for at in range(step.records)
        ]
        kind = TimestampType.LOG_APPEND_TIME if step.is_append_time else TimestampType.CREATE_TIME
        sequence = self.sequences.get(step.producer, 0)
        self.sequences[step.producer] = sequence + step.records
        has_producer = step.producer > 0
        data = encode_batch(
            content,
            codec=step.codec,
            timestamp_type=kind,
            append_time=self.now if step.is_append_time else None,
            producer_id=step.producer if has_producer else -1,
            producer_epoch=self.epochs.get(step.producer, 0) if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            transactional=step.producer >= 3,
        )
        self.log.append_as_leader(data, self.leader_epoch)

    def _end(self, step: End) -> None:
        if step.bump:
            self.epochs[step.producer] = self.epochs.get(step.producer, 0) + 1
            self.sequences[step.producer] = 0
        marker = CommitMarker(1) if step.is_commit else AbortMarker(1)
        key, value = encode_control_record(marker)
        data = encode_batch(
            [Record(self.log.log_end_offset, self.now, key, value)],
            producer_id=step.producer,
            producer_epoch=self.epochs.get(step.producer, 0),
            transactional=True,
            control=True,
        )
        self.log.append_as_leader(data, self.leader_epoch)
