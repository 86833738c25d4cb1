"""Storage of a job's progress: one interface; SQLite, Redis, ZooKeeper, and, read-only, the groups of a log directory.

Nothing here needs Spark. :func:`open_store` opens a store by its URL, :class:`StagedOutput` ties it to output in files.
"""

from kfs.format.checkpoint import TopicPartition
from kfs.spark.offsets.progress import ConsumedRange, Fence, PendingBatch, Progress, StagedFile, WriterName
from kfs.spark.offsets.staged_output import StagedOutput, Staging, range_file_name
from kfs.spark.offsets.starting import OffsetReset, parse_offset_reset, starting_positions
from kfs.spark.offsets.store import OffsetStore, WritableStore
from kfs.spark.offsets.store_url import open_store, open_writable_store

__all__ = [
    "ConsumedRange",
    "Fence",
    "OffsetReset",
    "OffsetStore",
    "PendingBatch",
    "Progress",
    "StagedFile",
    "StagedOutput",
    "Staging",
    "TopicPartition",
    "WritableStore",
    "WriterName",
    "open_store",
    "open_writable_store",
    "parse_offset_reset",
    "range_file_name",
    "starting_positions",
]
