"""The Python API: ``kfs.open`` and the objects it returns. See ``docs/PYTHON.md``."""

from kfs.api.data import Data, Topic, open  # noqa: A004 - used as kfs.open
from kfs.api.partition_log import PartitionLog, SegmentFile
from kfs.api.record import Record
from kfs.log.problem import DamagePolicy

__all__ = ["DamagePolicy", "Data", "PartitionLog", "Record", "SegmentFile", "Topic", "open"]
