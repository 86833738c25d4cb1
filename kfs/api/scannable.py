"""Scans into Arrow, which logs, topics and open data have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from kfs.log.log import Log
from kfs.log.problem import DamagePolicy, Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.render.timestamps import Moment

if TYPE_CHECKING:
    from kfs.scan import Scan
    from kfs.scan.dataset import ScanDataset

Isolation = IsolationLevel | Literal["read_uncommitted", "read_committed"]
Damage = DamagePolicy | Literal["fail", "skip"]
#: The first offset, and the offset after the last; None means no bound.
Bounds = tuple[int | None, int | None]


class Scannable:
    """Something whose records can be scanned; ``isolation`` and ``on_damage`` are the defaults of :func:`kfs.open`."""

    def __init__(self, isolation: IsolationLevel, on_damage: DamagePolicy) -> None:
        self.isolation: Final = isolation
        self.on_damage: Final = on_damage

    @abstractmethod
    def _logs(self) -> Iterable[Log]:
        """Return the current logs in order."""

    def scan(
        self,
        *,
        columns: Iterable[str] | None = None,
        include_headers: bool = False,
        offsets: Bounds | Mapping[int, Bounds] | Mapping[tuple[str, int], Bounds] | None = None,
        times: tuple[Moment | None, Moment | None] | None = None,
        keys: Iterable[bytes | str] | None = None,
        isolation: Isolation | None = None,
        on_damage: Damage | None = None,
        on_problem: Callable[[Problem], None] | None = None,
        batch_size: int | None = None,
        jobs: int | None = None,
    ) -> Scan:
        """Return the records as a stream of Arrow record batches, which DuckDB, Polars and pandas accept directly.

        Reading starts only when the stream is consumed. This needs pyarrow.

        Args:
            columns: the columns to return, in order; by default those of Spark's Kafka source. Others aren't decoded.
            include_headers: also return the headers.
            offsets: the first offset and the offset after the last, either may be None; or a mapping of partitions, or
                of pairs of topic and partition, to such pairs. Partitions that aren't in it are scanned whole.
            times: the first time and the time after the last, either may be None.
            keys: return only records with one of these keys.
            isolation: defaults to that of :func:`kfs.open`.
            on_damage: defaults to that of :func:`kfs.open`.
            on_problem: called with each problem that ``on_damage="skip"`` skips.
            batch_size: the maximum number of rows per batch.
            jobs: the number of decoding processes; by default one per core. With 1, this process decodes.

        Raises:
            ValueError: an argument is invalid.

        >>> table = data["orders"].scan(columns=["partition", "offset", "value"]).to_table()
        >>> table.num_rows, table.column_names
        (2100, ['partition', 'offset', 'value'])
        """
        from kfs.scan import Scan
        from kfs.scan.request import DEFAULT_BATCH_ROWS

        return Scan(
            self._logs,
            columns=columns,
            include_headers=include_headers,
            offsets=offsets,
            times=times,
            keys=keys,
            isolation=isolation or self.isolation,
            on_damage=on_damage or self.on_damage,
            on_problem=on_problem,
            batch_size=DEFAULT_BATCH_ROWS if batch_size is None else batch_size,
            jobs=jobs,
        )

    def dataset(
        self,
        *,
        isolation: Isolation | None = None,
        on_damage: Damage | None = None,
        on_problem: Callable[[Problem], None] | None = None,
        jobs: int | None = None,
    ) -> ScanDataset:
        """Return the records as a pyarrow dataset: DuckDB and Polars push a query's columns and filters down to it.

        It has all columns that :meth:`scan` supports; the arguments are those of :meth:`scan`. Nothing is read before a
        query.

        Raises:
            ValueError: an argument is invalid.

        >>> import duckdb
        >>> orders = data["orders"].dataset()
        >>> duckdb.sql('select count(*) from orders where partition = 1 and "offset" < 100').fetchall()
        [(100,)]
        """
        from kfs.render.arrow_columns import Column
        from kfs.scan.dataset import ScanDataset

        # DuckDB counts rows by the first column, so that must be one that batch headers provide.
        first = Column.PARTITION
        columns = [first.label, *(column.label for column in Column if column is not first)]
        scan = self.scan(columns=columns, isolation=isolation, on_damage=on_damage, on_problem=on_problem, jobs=jobs)
        return ScanDataset(scan)
