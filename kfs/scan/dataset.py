"""A scan as a pyarrow dataset, which receives the columns and filter of each query from an engine."""

from __future__ import annotations

from typing import Any, Final

import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kfs.log.problem import Problem
from kfs.render.arrow_columns import Column
from kfs.scan.condition import Condition, Projection, columns_used
from kfs.scan.scan import Scan

#: pyarrow reports this as a missing file if it scans the dataset by itself.
_NOT_A_FILE: Final = "kfs reads this dataset by its scanner() and to_table()"


class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a scan, for engines that push predicates down: DuckDB, ``polars.scan_pyarrow_dataset``, pyarrow.

    A query makes only its own columns, and decodes no batch if the headers suffice, as for ``count(*)``. It reads only
    the topics, partitions, offsets and, from 1970 on, times for which its filter can be true. Then pyarrow applies the
    filter itself.

    ``scanner`` and the methods based on it (``to_table``, ``to_batches``, ``head``, ``take``, ``count_rows``,
    ``filter``) work as in any dataset. Methods that pyarrow implements below its Python classes (``join``, ``sort_by``,
    a union) raise FileNotFoundError; they need a table.
    """

    def __init__(self, scan: Scan, condition: ds.Expression | None = None) -> None:
        form = ds.IpcFileFormat()
        super().__init__([form.make_fragment(_NOT_A_FILE, LocalFileSystem())], scan.schema, form)
        self._scan = scan
        self._condition = condition

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems skipped so far; see :attr:`Scan.problems <kfs.scan.scan.Scan.problems>`."""
        return self._scan.problems

    def filter(self, expression: ds.Expression) -> ScanDataset:
        """Return a dataset of the rows for which ``expression`` is true."""
        return ScanDataset(self._scan, self._and(expression))

    def scanner(
        self,
        columns: Projection | None = None,
        filter: ds.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> ds.Scanner:
        """Return a scanner for one iteration; ``options`` are those of :meth:`pyarrow.dataset.Dataset.scanner`."""
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
        """Return the number of rows for which ``filter`` is true."""
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
        """Return a scan with all columns and rows that a query uses."""
        names = self.schema.names
        if columns is not None:
            # Any column can serve to count rows: take one that needs no decoding.
            names = columns_used(self.schema, columns, expression) or [Column.PARTITION.label]
        if expression is None:
            return self._scan.narrowed(names)
        condition = Condition(self.schema, expression)
        return self._scan.narrowed(names, condition.selection(), condition.logs_of)
