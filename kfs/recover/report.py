"""What a recovery says of itself: everything that was lost, and what was changed without a loss."""

from __future__ import annotations

from dataclasses import dataclass, field

from kfs.recover.segment_plan import Stretch


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes of a file, and the offsets in them, that a broker will not find any more.

    From ``start`` to ``end`` (bytes, not included) in the file as it was; ``first_offset`` to ``last_offset`` (both
    included) are those that batches there have or claim, both None where nothing there tells. Intact batches that can't
    stay where they are are ``set_aside``: not in the log, but in the copy.
    """

    file: str
    start: int
    end: int
    first_offset: int | None
    last_offset: int | None
    reason: str
    set_aside: bool = False

    def __str__(self) -> str:
        offsets = "no offset can be told"
        if self.first_offset is not None:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        fate = "SET ASIDE" if self.set_aside else "LOST"
        return f"{fate} {self.file}: bytes {self.start} to {self.end}, {offsets}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TakenRecords:
    """Records that are kept in a segment, and come from elsewhere than their place in its ``.log``, ``file``.

    ``first_offset`` to ``last_offset`` (both included) are the bytes ``start`` to ``end`` (not included) of ``source``.
    """

    file: str
    first_offset: int
    last_offset: int
    source: str
    start: int
    end: int

    def __str__(self) -> str:
        offsets = f"offsets {self.first_offset} to {self.last_offset} of {self.file}"
        return f"TAKEN {offsets} from {self.source}: bytes {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was done to a file by which no record is lost."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True, slots=True)
class SegmentAccount:
    """What became of each byte of a ``.log``, in order."""

    file: str
    stretches: tuple[Stretch, ...]


@dataclass(slots=True)
class PartitionReport:
    """What became of one partition directory; its log reaches from start to end offset, the latter not included.

    ``segments`` is there where each byte was looked at. ``consequences`` are sentences: what the losses mean.
    ``left_out`` is why there is no copy of it, where it couldn't be read or no broker would start on one.
    """

    directory: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    losses: list[Loss] = field(default_factory=list)
    taken: list[TakenRecords] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    segments: list[SegmentAccount] = field(default_factory=list)
    consequences: list[str] = field(default_factory=list)
    left_out: str | None = None


@dataclass(slots=True)
class RecoveryReport:
    """What became of a log directory."""

    partitions: list[PartitionReport] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    @property
    def losses(self) -> list[Loss]:
        """Everything that was lost, by partition directory and file."""
        return [loss for partition in self.partitions for loss in partition.losses]

    @property
    def left_out(self) -> list[PartitionReport]:
        """The partitions that there is no copy of, though they hold something."""
        return [partition for partition in self.partitions if partition.left_out is not None]
