"""The stream reader of the data source: micro-batches over log directories that grow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kfs.errors import KfsError, UnusableSession
from kfs.spark.following import FollowedLogs
from kfs.spark.offset_limits import moves
from kfs.spark.options import StreamOptions
from kfs.spark.planning import plan
from kfs.spark.session import as_one_sentence, say_what_is_ignored, show_log
from kfs.spark.stream_offsets import Json, Offsets, Positions, as_json, from_json, limited, new_offsets
from kfs.spark.task_reader import TaskReader

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_ADMISSION_CONTROL = True
except ImportError:  # before PySpark 4.2
    HAS_ADMISSION_CONTROL = False
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

#: Any number of offsets, in Java's terms.
_ANY: int = 2**63 - 1


class KfsStreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds the logs' ends and plans ranges between two points (``KafkaMicroBatchStream.scala``).

    One lives in the driver as long as a query runs, others read in tasks.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        super().__init__(options.read, schema)
        if not HAS_ADMISSION_CONTROL and (options.rates.least or options.rates.most):
            raise UnusableSession("maxOffsetsPerTrigger and minOffsetsPerTrigger need PySpark 4.2 or later")
        self._options = options
        self._logs = FollowedLogs(options)
        self._is_available_now = False
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_trigger = 0.0
        self._initial: Positions | None = None
        self._has_begun = False

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return the start of a query that has no checkpoint yet."""
        show_log()
        say_what_is_ignored(self._options.ignored)
        try:
            offsets = self._logs.initial()
            self._initial = Positions(offsets, self._logs.identities(offsets))
        except KfsError as error:
            raise as_one_sentence(error) from None
        return as_json(offsets, self._initial.identities)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that Spark passes to :meth:`latestOffset`, unless the trigger is for everything available.

        PySpark has no limit with both a minimum and a maximum: the options are applied there.
        """
        rates = self._options.rates
        return ReadAllAvailable() if rates.least is None and rates.most is None else ReadMaxRows(rates.most or _ANY)

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> Json:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; ``start`` if there should be none."""
        show_log()
        try:
            self._latest = self._current_end()
            if start is None or limit is None:
                return as_json(self._latest, self._logs.identities(self._latest))
            begin = from_json(start)
            end = None if self._is_first(begin) else self._next(begin, limit)
            if end is None:
                return as_json(begin.offsets, begin.identities)
            return as_json(end, self._logs.identities(end, begin))
        except KfsError as error:
            raise as_one_sentence(error) from None

    def _current_end(self) -> Offsets:
        if not self._is_available_now:
            return self._logs.latest()
        if self._target is None:
            self._target = self._logs.latest()
        return self._target

    def _is_first(self, start: Positions) -> bool:
        """Return whether this micro-batch exists only for Spark to write down the start of the stream.

        When Spark repeats the first micro-batch, it asks for the start again, which may have moved.
        """
        is_first = self._is_first_again(start)
        self._has_begun = True
        return is_first

    def _next(self, begin: Positions, limit: ReadLimit) -> Offsets | None:
        """Return the next end, None if it is too early."""
        assert self._latest is not None
        if isinstance(limit, ReadAllAvailable):
            return self._latest
        others = self._logs.of_other_logs(begin)  # where nothing is read yet
        start = {each: offset for each, offset in begin.offsets.items() if each not in others}
        if self._is_too_early(start, self._latest):
            return None
        most = min(limit.max_rows if isinstance(limit, ReadMaxRows) else _ANY, self._options.rates.most or _ANY)
        if most == _ANY:
            return self._latest
        return limited(most, start, self._latest, self._logs.earliest(self._latest.keys() - start.keys()))

    def _is_too_early(self, start: Offsets, latest: Offsets) -> bool:
        """Return whether to wait for more; with Trigger.AvailableNow nothing more would ever come."""
        rates, now = self._options.rates, time.monotonic()
        if rates.least is None or self._is_available_now:
            return False
        has_waited = self._last_trigger == 0 or now - self._last_trigger >= rates.longest_delay
        if not has_waited and new_offsets(start, latest) < rates.least:
            return True
        self._last_trigger = now
        return False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Go no further than the ends at the first micro-batch."""
        self._is_available_now = True

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return the last known ends of the logs, for Spark's progress report."""
        return None if self._latest is None else as_json(self._latest)

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        show_log()
        try:
            begin, stop = from_json(start), from_json(end)
            if begin == stop or self._is_first_again(begin):
                return []
            return [InputPartition(task) for task in plan(self._logs.between(begin, stop), self._options.split)]
        except KfsError as error:
            raise as_one_sentence(error) from None

    def _is_first_again(self, start: Positions) -> bool:
        """Return whether the first micro-batch is repeated after a crash: it was empty, see :meth:`_is_first`."""
        return moves(self._options.starting) and start == self._initial and not self._has_begun

    def stop(self) -> None:
        """Release resources."""
        self._logs.close()


class RefusedStreamReader(DataSourceStreamReader):
    """The reader of an invalid query: raises the reason at the first call."""

    def __init__(self, error: KfsError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error."""
        raise self._error

    def partitions(self, start: Any, end: Any) -> NoReturn:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error."""
        raise self._error
