"""Records as Arrow, many at once: what :meth:`kfs.open(...).scan() <kfs.api>`, ``kfs cat`` and Spark are built on.

::

    from kfs.scan import Scan

    scan = Scan(
        logs,                        # Iterable[Log], or a function that returns one whenever the scan begins anew
        columns=None,                # names in order; None: those of Spark's Kafka source
        include_headers=False,       # with columns=None: headers, too
        offsets=None,                # (start, end), either may be None; or a mapping of partition or (topic, partition)
        times=None,                  # (since, before): milliseconds, datetime, ISO text or None
        keys=None,                   # only records with one of these keys: bytes or text
        isolation="read_uncommitted",
        on_damage="fail",            # or "skip"
        on_problem=None,             # told of each problem that is skipped
        batch_size=16384,            # rows in a batch, at most
        jobs=None,                   # processes; None: one a core, 1: all in this one
    )
    scan.schema; scan.to_reader(); scan.to_table(); scan.problems; iter(scan); scan.__arrow_c_stream__()

:class:`kfs.scan.scan.Scan` says more. pyarrow is imported when the first schema or batch is made, not before.
"""

from kfs.scan.scan import Scan

__all__ = ["Scan"]
