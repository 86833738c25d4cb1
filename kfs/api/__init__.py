"""Kafka's files in Python: ``kfs.open`` and what it gives. ``docs/PYTHON.md`` shows it."""

from kfs.api.data import Data, Topic, open  # noqa: A004 - it is read as kfs.open
from kfs.api.partition_log import PartitionLog, SegmentFile
from kfs.api.record import Record
from kfs.log.problem import DamagePolicy

__all__ = ["DamagePolicy", "Data", "PartitionLog", "Record", "SegmentFile", "Topic", "open"]
