"""The records of logs as a stream of Arrow record batches, for any engine that reads Arrow streams."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from kfs.cat.records import lacks_some
from kfs.format.layout import MAX_INT64
from kfs.log.log import Log
from kfs.log.problem import DamagePolicy, Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.log_source import LogsOfParent, LogTask, NotedProblem, SplitTask
from kfs.read.plan import splits_of
from kfs.read.selection import Selection
from kfs.read.wanted_offsets import WantedOffsets, remote_problem, wanted_offsets
from kfs.read.workers.cores import cores
from kfs.read.workers.run import run
from kfs.render.arrow_builder import ArrowBuffers
from kfs.render.arrow_columns import SPARK_COLUMNS, SPARK_COLUMNS_WITH_HEADERS, Column, columns_named
from kfs.render.timestamps import Moment, milliseconds_of
from kfs.scan.arrow_reader import ArrowReader
from kfs.scan.job import ScanJob
from kfs.scan.request import DEFAULT_BATCH_ROWS, Request

if TYPE_CHECKING:
    import pyarrow as pa

#: The maximum number of problems to remember; ``on_problem`` receives all.
_MOST_PROBLEMS: Final = 10_000

Bounds = tuple[int | None, int | None]
#: The first offset and the offset after the last; or a mapping of partition, or topic and partition, to such pairs.
Offsets = Bounds | Mapping[int, Bounds] | Mapping[tuple[str, int], Bounds]


class Scan:
    """The records of logs, in the order of the logs and their offsets; it can be iterated any number of times.

    Each iteration reads the logs again, and includes records appended since. A batch comes from one split of a segment,
    so it may have fewer rows than ``batch_size``, but never more. Several processes decode ahead, in order; the amount
    of decoded data, and so the memory, is bounded.

    ``columns`` are names (:class:`~kfs.render.arrow_columns.Column`). Timestamps are as in Spark's source: without a
    timestamp (-1) it is the last millisecond of 1969; one whose microseconds don't fit an int64 is null
    (``timestampMillis`` has it). A record without headers has null headers, as in Spark's source.

    If ``offsets`` is a mapping, partitions that aren't in it are read whole. ``times`` are as in ``kfs cat --since
    --before``: the second is exclusive. ``selection`` replaces offsets, times and keys. With ``first`` or ``last``,
    only that many records of each log are returned, and this process reads them.

    With ``on_damage="fail"``, data that can't be read raises :class:`~kfs.errors.CorruptData` with file and position.
    With ``"skip"``, it is left out; ``on_problem`` is called with the problem, and ``problems`` has each place once. In
    both cases, requested offsets that tiered storage has moved away are left out and reported in this way.

    It is an Arrow stream by the PyCapsule protocol: DuckDB, Polars, pandas and pyarrow accept it directly.

    Raises:
        ValueError: an argument is invalid.
        ModuleNotFoundError: pyarrow isn't installed; it is needed for the schema and for batches.
    """

    def __init__(
        self,
        logs: Iterable[Log] | Callable[[], Iterable[Log]],
        *,
        columns: Iterable[str] | None = None,
        include_headers: bool = False,
        offsets: Offsets | None = None,
        times: tuple[Moment | None, Moment | None] | None = None,
        keys: Iterable[bytes | str] | None = None,
        isolation: str = IsolationLevel.READ_UNCOMMITTED,
        on_damage: str = DamagePolicy.FAIL,
        on_problem: Callable[[Problem], None] | None = None,
        batch_size: int = DEFAULT_BATCH_ROWS,
        jobs: int | None = None,
        selection: Selection | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> None:
        if columns is not None and isinstance(columns, str):
            raise ValueError(f"columns {columns!r}, expected a sequence of names")
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs {jobs}, expected at least 1")
        listed = logs if callable(logs) else tuple(logs)
        self._logs: Callable[[], Iterable[Log]] = listed if callable(listed) else lambda: listed
        if columns is not None:
            wanted = columns_named([*columns, *(["headers"] if include_headers else [])])
        else:
            wanted = SPARK_COLUMNS_WITH_HEADERS if include_headers else SPARK_COLUMNS
        self._offsets = offsets
        self._request = Request(
            wanted,
            selection or _selection(offsets, times, keys),
            IsolationLevel(isolation),
            batch_size,
        )
        self._on_damage = DamagePolicy(on_damage)
        self._on_problem = on_problem
        self._jobs = jobs or cores()
        self._first, self._last = first, last
        self._problems: dict[tuple[str, int], Problem] = {}

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        from kfs.render.arrow_batches import schema_of

        return schema_of(self._request.columns)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems skipped so far, by all iterations; at most 10,000 places are remembered."""
        return tuple(self._problems.values())

    def __iter__(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches. Close or drop the iterator if you don't need all of them."""
        from kfs.render.arrow_batches import record_batch, schema_of

        columns = self._request.columns
        schema = schema_of(columns)
        for portion in self._portions():
            if isinstance(portion, ArrowBuffers):
                yield record_batch(schema, columns, portion)
            else:
                self._meet(portion)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader for one iteration."""
        from kfs.render.arrow_batches import reader_of

        return reader_of(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """Return all records as a table in memory."""
        from kfs.render.arrow_batches import table_of

        return table_of(self.schema, iter(self))

    def count_rows(self) -> int:
        """Return the number of records of an iteration, from batch headers where possible; no columns are made.

        Problems are handled as in an iteration, except that batches aren't decoded: see :mod:`kfs.read.by_header`.
        """
        counting = self.narrowed([Column.PARTITION.label])
        rows = 0
        for portion in counting._portions():
            if isinstance(portion, ArrowBuffers):
                rows += portion.rows
            else:
                self._meet(portion)
            del portion  # so that its memory can be reused
        return rows

    def narrowed(
        self,
        columns: Iterable[str],
        within: Selection | None = None,
        chosen: Callable[[Iterable[Log]], Iterable[Log]] = iter,
    ) -> Scan:
        """Return a scan of these columns that shares the problems of this one.

        ``within`` narrows the offsets and times of this scan. ``chosen`` filters its logs.
        """
        narrowed = copy(self)
        narrowed._request = replace(
            self._request,
            columns=columns_named(columns),
            selection=self._request.selection if within is None else self._request.selection.within(within),
        )
        narrowed._logs = lambda: chosen(self._logs())
        return narrowed

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule (Arrow PyCapsule protocol)."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return an iteration as a capsule (Arrow PyCapsule protocol), cast to ``requested_schema``."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _meet(self, problem: Problem) -> None:
        if self._on_damage is DamagePolicy.FAIL:
            raise problem.error()
        self._note(problem)

    def _note(self, problem: Problem | None) -> None:
        if problem is None:
            return
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.setdefault((problem.file, problem.position), problem)
        if self._on_problem is not None:
            self._on_problem(problem)

    def _portions(self) -> Iterator[ArrowBuffers | Problem]:
        if self._first is None and self._last is None:
            return self._all()
        reader = ArrowReader(self._request)
        return chain.from_iterable(self._some_of(reader, log, offsets) for log, offsets in self._wanted())

    def _all(self) -> Iterator[ArrowBuffers | Problem]:
        job, here = ScanJob(self._request), LogsOfParent()
        for item in run(job, self._tasks(here), self._jobs, here=job.open_on(here)):
            if isinstance(item, NotedProblem):
                here.note(item)
            else:
                yield item
            del item  # so that its memory can be reused

    def _some_of(self, reader: ArrowReader, log: Log, offsets: WantedOffsets) -> Iterator[ArrowBuffers | Problem]:
        found = 0
        for portion in reader.read_some(log, offsets, self._first, self._last):
            found += portion.rows if isinstance(portion, ArrowBuffers) else 0
            yield portion
        if lacks_some(found, self._first, self._last):
            self._note(remote_problem(log, self._selection_of(log)))

    def _wanted(self) -> Iterator[tuple[Log, WantedOffsets]]:
        for log in self._logs():
            selection = self._selection_of(log)
            if self._first is None and self._last is None:
                self._note(remote_problem(log, selection))
            yield log, wanted_offsets(log, selection, self._request.isolation)

    def _tasks(self, here: LogsOfParent) -> Iterator[LogTask]:
        for log, offsets in self._wanted():
            source = here.source_of(log)
            for split in splits_of(log, offsets):
                yield SplitTask(source, split.size, split.batches, split.offsets)

    def _selection_of(self, log: Log) -> Selection:
        if not isinstance(self._offsets, Mapping):
            return self._request.selection
        by_partition: Mapping[object, Bounds] = cast(Mapping[object, Bounds], self._offsets)
        bounds = by_partition.get((log.topic, log.partition), by_partition.get(log.partition))
        return self._request.selection if bounds is None else _bounded(self._request.selection, bounds)


def _selection(
    offsets: Offsets | None, times: tuple[Moment | None, Moment | None] | None, keys: Iterable[bytes | str] | None
) -> Selection:
    if isinstance(keys, (str, bytes)):
        raise ValueError(f"keys {keys!r}, expected a sequence")
    wanted = None if keys is None else frozenset(key.encode() if isinstance(key, str) else key for key in keys)
    since, before = (None if time is None else milliseconds_of(time) for time in times or (None, None))
    selection = Selection(since=since, before=before, keys=wanted)
    if offsets is None:
        return selection
    if not isinstance(offsets, Mapping):
        return _bounded(selection, offsets)
    for bounds in offsets.values():
        _bounded(selection, bounds)  # raises now, not during an iteration
    return selection


def _bounded(selection: Selection, bounds: Sequence[int | None]) -> Selection:
    try:
        start, end = bounds
    except (TypeError, ValueError):
        raise ValueError(f"offsets {bounds!r}, expected a pair (start, end)") from None
    for bound in (start, end):
        if bound is not None and type(bound) is not int:
            raise ValueError(f"offset {bound!r}, expected an integer or None")
    return selection.within(Selection(max(start or 0, 0), MAX_INT64 if end is None else end))
