"""A range of bytes of one segment as Arrow's record batches, in this process: what a task of a larger job reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kfs.log.log import Log
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import Problem
from kfs.read.plan import WantedOffsets, Work
from kfs.render.arrow_gather import Gathered
from kfs.scan.gathering import Gatherer
from kfs.scan.request import Request

if TYPE_CHECKING:
    import pyarrow as pa


def read_range(
    log: Log,
    base_offset: int,
    position: int,
    end: int | None,
    request: Request,
    *,
    offsets: OffsetRange | None = None,
    seen: int | None = None,
    on_problem: Callable[[Problem], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the segment of ``base_offset`` from ``position`` up to ``end``, which are batch boundaries.

    ``end`` None is the end of the log. ``seen`` is the highest offset before ``position``, where that is known, so that
    a batch which repeats earlier offsets is found out. ``offsets`` bounds the offsets, in place of the selection's own
    bounds. A log is opened by :meth:`~kfs.read.log_source.LogSource.open`, or a :class:`~kfs.log.data_dir.DataDir` has
    it.

    Raises:
        CorruptData: what can't be read, unless ``on_problem`` is there to be told of it; then it is left out.
    """
    from kfs.render.arrow_batches import record_batch, schema_of

    schema = schema_of(request.columns)
    asked = offsets or OffsetRange(request.selection.start, request.selection.end)
    wanted = WantedOffsets(asked.start, asked.end, asked.end)
    work = Work(log.topic, log.partition, base_offset, position, end, seen)
    for portion in Gatherer(request).gather(log, work, wanted):
        if isinstance(portion, Gathered):
            yield record_batch(schema, request.columns, portion)
        elif on_problem is None:
            raise portion.error()
        else:
            on_problem(portion)
