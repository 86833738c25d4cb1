"""A scan as a dataset of pyarrow, to which engines hand the columns and the filter of each query."""

from __future__ import annotations

from typing import Any, Final

import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kfs.log.problem import Problem
from kfs.render.arrow_columns import Column
from kfs.scan.condition import Condition, Projection, columns_used
from kfs.scan.scan import Scan

#: What pyarrow says is missing where it scans the dataset itself.
_NOT_A_FILE: Final = "kfs reads this dataset by its scanner() and to_table()"


class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a scan, for engines that push predicates down: DuckDB, ``polars.scan_pyarrow_dataset``, pyarrow.

    A query makes only its columns, and decodes no batch if headers tell them, as for ``count(*)``. It reads only the
    topics and partitions, the range of offsets, and, from 1970 on, the range of times that its filter can be true for;
    pyarrow then applies the filter itself.

    ``scanner`` and what rests on it (``to_table``, ``to_batches``, ``head``, ``take``, ``count_rows``, ``filter``) are
    as for any dataset. What pyarrow does below its Python classes (``join``, ``sort_by``, a union) raises
    FileNotFoundError: it needs a table.
    """

    def __init__(self, scan: Scan, condition: ds.Expression | None = None) -> None:
        form = ds.IpcFileFormat()
        super().__init__([form.make_fragment(_NOT_A_FILE, LocalFileSystem())], scan.schema, form)
        self._scan = scan
        self._condition = condition

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was left out so far; see :attr:`Scan.problems <kfs.scan.scan.Scan.problems>`."""
        return self._scan.problems

    def filter(self, expression: ds.Expression) -> ScanDataset:
        """Return the dataset of those rows for which ``expression`` is true."""
        return ScanDataset(self._scan, self._and(expression))

    def scanner(
        self,
        columns: Projection | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> ds.Scanner:
        """Return a scanner of one iteration; ``options`` are those of :meth:`pyarrow.dataset.Dataset.scanner`."""
        condition = self._and(filter)
        scan = self._scanned(columns, condition)
        return ds.Scanner.from_batches(
            scan.to_reader(),
            columns=self.schema.names if columns is None else columns,
            filter=condition,
            **options,
        )

    def count_rows(
        self,
        filter: ds.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> int:
        """Return for how many rows ``filter`` is true."""
        condition = self._and(filter)
        if condition is None:
            return self._scan.count_rows()
        batches = self.scanner([Column.PARTITION.label], condition, **options).to_batches()
        return sum(batch.num_rows for batch in batches)

    def __reduce__(self) -> str:
        raise TypeError("a dataset of kfs can't be pickled: open the logs where it is read")

    def _and(self, expression: ds.Expression | None) -> ds.Expression | None:
        if self._condition is None or expression is None:
            return expression if self._condition is None else self._condition
        return self._condition & expression

    def _scanned(self, columns: Projection | None, expression: ds.Expression | None) -> Scan:
        """Return the scan that has all that a query uses."""
        names = self.schema.names
        if columns is not None:
            # Rows can be counted by any column: by one for which nothing is decoded.
            names = columns_used(self.schema, columns, expression) or [Column.PARTITION.label]
        if expression is None:
            return self._scan.narrowed(names)
        condition = Condition(self.schema, expression)
        return self._scan.narrowed(names, condition.selection(), condition.logs_of)
