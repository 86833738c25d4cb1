"""The findings of a verification, their kinds and their severities."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How bad a finding is. ``INFO`` means that nothing is wrong."""

    ERROR = "error"  # records are lost or answers wrong, or a broker refuses to start
    WARNING = "warning"  # a broker repairs it, or works around it
    INFO = "info"


class FindingKind(StrEnum):
    """The kinds of findings. The names are stable; ``severity`` is the kind's default, which a check may override."""

    severity: Severity

    def __new__(cls, name: str, severity: Severity) -> FindingKind:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.severity = severity
        return kind

    # .log, and .checkpoint files of KRaft, which are made of batches too
    BATCH_HEADER = "batch-header", Severity.ERROR
    BATCH_CRC = "batch-crc", Severity.ERROR
    BATCH_TRUNCATED = "batch-truncated", Severity.ERROR
    BATCH_RECORDS = "batch-records", Severity.ERROR
    BATCH_TIMESTAMP = "batch-timestamp", Severity.WARNING
    BATCH_TOO_LARGE = "batch-too-large", Severity.WARNING
    CONTROL_RECORD = "control-record", Severity.ERROR
    OFFSETS_REPEATED = "offsets-repeated", Severity.ERROR
    OFFSETS_MISPLACED = "offsets-misplaced", Severity.ERROR
    OFFSET_GAP = "offset-gap", Severity.WARNING
    TORN_TAIL = "torn-tail", Severity.WARNING
    ZERO_TAIL = "zero-tail", Severity.INFO
    BATCH_EPOCH = "batch-epoch", Severity.WARNING
    TRANSACTION_STATE = "transaction-state", Severity.WARNING
    BELOW_LOG_START = "below-log-start", Severity.INFO
    REMOTE_OFFSETS = "remote-offsets", Severity.INFO
    KRAFT_SNAPSHOT = "kraft-snapshot", Severity.ERROR
    READ_ERROR = "read-error", Severity.ERROR
    # .index
    INDEX_MISSING = "index-missing", Severity.WARNING
    INDEX_SIZE = "index-size", Severity.WARNING
    INDEX_ZEROS = "index-zeros", Severity.WARNING
    INDEX_ORDER = "index-order", Severity.WARNING
    INDEX_POSITION = "index-position", Severity.WARNING
    INDEX_OFFSET = "index-offset", Severity.WARNING
    INDEX_PAST_END = "index-past-end", Severity.WARNING
    INDEX_SHORT = "index-short", Severity.WARNING
    INDEX_ORPHAN = "index-orphan", Severity.WARNING
    # .timeindex
    TIMEINDEX_MISSING = "timeindex-missing", Severity.WARNING
    TIMEINDEX_SIZE = "timeindex-size", Severity.WARNING
    TIMEINDEX_ZEROS = "timeindex-zeros", Severity.WARNING
    TIMEINDEX_ORDER = "timeindex-order", Severity.WARNING
    TIMEINDEX_TIMESTAMP = "timeindex-timestamp", Severity.WARNING
    TIMEINDEX_PAST_END = "timeindex-past-end", Severity.WARNING
    TIMEINDEX_SHORT = "timeindex-short", Severity.WARNING
    # .txnindex
    TXNINDEX_MISSING = "txnindex-missing", Severity.ERROR
    TXNINDEX_FORMAT = "txnindex-format", Severity.ERROR
    TXNINDEX_ENTRY_MISSING = "txnindex-entry-missing", Severity.ERROR
    TXNINDEX_ENTRY_WRONG = "txnindex-entry-wrong", Severity.ERROR
    # .snapshot
    SNAPSHOT_MISSING = "snapshot-missing", Severity.WARNING
    SNAPSHOT_FORMAT = "snapshot-format", Severity.WARNING
    SNAPSHOT_MISPLACED = "snapshot-misplaced", Severity.WARNING
    SNAPSHOT_CONTRADICTION = "snapshot-contradiction", Severity.WARNING
    # leader-epoch-checkpoint, partition.metadata
    EPOCHS_MISSING = "epochs-missing", Severity.WARNING
    EPOCHS_FORMAT = "epochs-format", Severity.ERROR
    EPOCHS_ORDER = "epochs-order", Severity.WARNING
    EPOCHS_PAST_END = "epochs-past-end", Severity.WARNING
    EPOCHS_CONTRADICTION = "epochs-contradiction", Severity.WARNING
    PARTITION_METADATA_MISSING = "partition-metadata-missing", Severity.WARNING
    PARTITION_METADATA_FORMAT = "partition-metadata-format", Severity.ERROR
    TOPIC_ID_MISMATCH = "topic-id-mismatch", Severity.ERROR
    # leftover and foreign files
    SWAP_FILE = "swap-file", Severity.WARNING
    CLEANED_FILE = "cleaned-file", Severity.WARNING
    DELETED_FILE = "deleted-file", Severity.INFO
    TEMPORARY_FILE = "temporary-file", Severity.INFO
    STRAY_FILE = "stray-file", Severity.INFO
    # the log directory
    CHECKPOINT_FORMAT = "checkpoint-format", Severity.ERROR
    CHECKPOINT_PAST_END = "checkpoint-past-end", Severity.WARNING
    CHECKPOINT_UNKNOWN_PARTITION = "checkpoint-unknown-partition", Severity.INFO
    META_PROPERTIES_MISSING = "meta-properties-missing", Severity.INFO
    META_PROPERTIES_FORMAT = "meta-properties-format", Severity.ERROR
    DIRECTORY_ID_REPEATED = "directory-id-repeated", Severity.ERROR
    CLEAN_SHUTDOWN_FORMAT = "clean-shutdown-format", Severity.INFO
    DIRECTORY_NAME = "directory-name", Severity.ERROR
    PARTITION_TWICE = "partition-twice", Severity.ERROR
    DELETED_DIRECTORY = "deleted-directory", Severity.INFO
    STRAY_DIRECTORY = "stray-directory", Severity.INFO
    FUTURE_DIRECTORY = "future-directory", Severity.INFO


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem or remark about ``file``.

    ``bytes`` is a half-open range of byte positions. ``offsets`` holds the first and the last offset concerned. Either
    is None where it doesn't apply. ``more`` is nonzero in a summary: it counts the findings of this kind in this file
    that aren't listed.
    """

    kind: FindingKind
    severity: Severity
    file: str
    sentence: str
    bytes: tuple[int, int] | None = None
    offsets: tuple[int, int] | None = None
    more: int = 0

    @property
    def is_complaint(self) -> bool:
        """Whether the severity is worse than ``INFO``."""
        return self.severity is not Severity.INFO

    @property
    def sort_key(self) -> tuple[str, int, str]:
        """The key to sort findings by: file, then position."""
        return self.file, self.bytes[0] if self.bytes else -1, self.kind.value


#: The findings kept per kind and file; hostile input can cause one every few bytes.
MOST_OF_A_KIND: Final = 1000


class Findings:
    """Collects findings; keeps at most :data:`MOST_OF_A_KIND` per kind and file, and counts the rest."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, FindingKind]] = Counter()

    def add(
        self,
        kind: FindingKind,
        file: str,
        sentence: str,
        *,
        bytes: tuple[int, int] | None = None,  # noqa: A002  as in Finding
        offsets: tuple[int, int] | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Add a finding; ``severity`` overrides the kind's own."""
        self.take(Finding(kind, severity or kind.severity, file, sentence, bytes, offsets))

    def take(self, finding: Finding) -> None:
        """Add an existing finding."""
        key = (finding.file, finding.kind)
        self._counts[key] += finding.more or 1
        if self._counts[key] <= MOST_OF_A_KIND:
            self._found.append(finding)

    def all(self) -> list[Finding]:
        """Return the findings by file and position, followed by the counts of those left out."""
        more = [
            Finding(kind, kind.severity, file, f"and {more} more of these", more=more)
            for (file, kind), count in self._counts.items()
            if (more := count - MOST_OF_A_KIND) > 0
        ]
        return sorted(self._found, key=lambda finding: finding.sort_key) + more
