"""The report of a recovery: every loss, and every change without a loss."""

from __future__ import annotations

from dataclasses import dataclass, field

from kfs.recover.segment_plan import Stretch


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes of a file, and their offsets, that a broker no longer finds.

    ``start`` and ``end`` are byte positions in the original file, ``end`` exclusive. ``first_offset`` and
    ``last_offset``, both inclusive, are the offsets that the batches there have or claim; both are None if unknown.
    With ``set_aside`` the batches are intact but can't stay in place: the copy has them, outside the log.
    """

    file: str
    start: int
    end: int
    first_offset: int | None
    last_offset: int | None
    reason: str
    set_aside: bool = False

    def __str__(self) -> str:
        offsets = "offsets unknown"
        if self.first_offset is not None:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        fate = "SET ASIDE" if self.set_aside else "LOST"
        return f"{fate} {self.file}: bytes {self.start} to {self.end}, {offsets}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TakenRecords:
    """Records that a segment keeps, but not from their place in its ``.log``, which is ``file``.

    ``first_offset`` to ``last_offset``, both inclusive, come from the bytes ``start`` to ``end`` (exclusive) of
    ``source``.
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
    """Something that the recovery did to a file without losing records."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True, slots=True)
class SegmentAccount:
    """The fate of each byte of a ``.log``, in order."""

    file: str
    stretches: tuple[Stretch, ...]


@dataclass(slots=True)
class PartitionReport:
    """The result for one partition directory; ``log_end_offset`` is exclusive.

    ``segments`` is filled by modes that examine every byte. ``consequences`` are sentences on what the losses mean.
    ``left_out`` says why there is no copy: the partition can't be read, or a broker refuses to start on a copy.
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
    """The result for a log directory."""

    partitions: list[PartitionReport] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    @property
    def losses(self) -> list[Loss]:
        """All losses, by partition directory and file."""
        return [loss for partition in self.partitions for loss in partition.losses]

    @property
    def left_out(self) -> list[PartitionReport]:
        """The nonempty partitions without a copy."""
        return [partition for partition in self.partitions if partition.left_out is not None]
