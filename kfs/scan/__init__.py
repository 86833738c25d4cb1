"""Scans records into Arrow: the basis of :meth:`kfs.open(...).scan() <kfs.api>`, ``kfs cat`` and the Spark source.

::

    from kfs.scan import Scan

    scan = Scan(
        logs,                        # Iterable[Log], or a function that returns one at the start of each iteration
        columns=None,                # names in order; None: those of Spark's Kafka source
        include_headers=False,       # with columns=None: also the headers
        offsets=None,                # (start, end), either may be None; or a mapping of partition or (topic, partition)
        times=None,                  # (since, before): milliseconds, datetime, ISO text or None
        keys=None,                   # only records with one of these keys: bytes or text
        isolation="read_uncommitted",
        on_damage="fail",            # or "skip"
        on_problem=None,             # called with each problem that is skipped
        batch_size=16384,            # maximum number of rows in a batch
        jobs=None,                   # processes; None: one per core, 1: only this one
    )
    scan.schema; scan.to_reader(); scan.to_table(); scan.problems; iter(scan); scan.__arrow_c_stream__()

See :class:`kfs.scan.scan.Scan` for details. pyarrow is imported only when the first schema or batch is made.
"""

from kfs.scan.scan import Scan

__all__ = ["Scan"]
