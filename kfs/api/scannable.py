"""What logs, topics and all of the data have in common: they are scanned into Arrow."""

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
#: Offsets from, up to and not including.
Bounds = tuple[int | None, int | None]


class Scannable:
    """Something whose records a scan gives; ``isolation`` and ``on_damage`` are those of :func:`kfs.open`."""

    def __init__(self, isolation: IsolationLevel, on_damage: DamagePolicy) -> None:
        self.isolation: Final = isolation
        self.on_damage: Final = on_damage

    @abstractmethod
    def _logs(self) -> Iterable[Log]:
        """Return the logs, in order, as they are now."""

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
        """Return the records as a stream of Arrow's record batches, which DuckDB, Polars and pandas take as it is.

        Nothing is read before it is asked for. It needs pyarrow.

        Args:
            columns: names, in this order; those of Spark's Kafka source where none are given. What isn't named isn't
                looked at.
            include_headers: the headers as well.
            offsets: from, up to and not including, each of which may be None; or such pairs by partition, or by topic
                and partition, all others whole.
            times: since, up to and not including, each of which may be None.
            keys: only records that have one of these keys.
            isolation: that of :func:`kfs.open` unless given.
            on_damage: likewise.
            on_problem: told of what is passed over with ``on_damage="skip"``.
            batch_size: rows that a batch has at most.
            jobs: processes to decode ahead; one a core unless given, and 1 does it in this one.

        Raises:
            ValueError: an argument that can't be.

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
        """Return the records as a dataset of pyarrow: DuckDB and Polars hand it the columns and filters of a query.

        It has all columns that :meth:`scan` knows. The arguments are those of :meth:`scan`. Nothing is read before a
        query.

        Raises:
            ValueError: an argument that can't be.

        >>> import duckdb
        >>> orders = data["orders"].dataset()
        >>> duckdb.sql('select count(*) from orders where partition = 1 and "offset" < 100').fetchall()
        [(100,)]
        """
        from kfs.render.arrow_columns import Column
        from kfs.scan.dataset import ScanDataset

        # DuckDB counts rows by the first column, which is one that headers tell.
        first = Column.PARTITION
        columns = [first.label, *(column.label for column in Column if column is not first)]
        scan = self.scan(columns=columns, isolation=isolation, on_damage=on_damage, on_problem=on_problem, jobs=jobs)
        return ScanDataset(scan)
