"""Checks of a session before kfs runs in it, and helpers for reporting errors and log messages to it."""

from __future__ import annotations

import importlib.util
import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kfs.errors import KfsError, UnusableSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("kfs.spark")
_SECONDS: Final = 60
_FILTER_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def check_workers(spark: SparkSession) -> None:
    """Raise :class:`UnusableSession` if the Python that Spark starts for its workers here lacks something.

    Workers on other machines report that themselves, when a task runs there.
    """
    check_pyspark()
    if importlib.util.find_spec("pyarrow") is None:
        raise UnusableSession(f"pyarrow is missing from {sys.prefix}: pip install 'kfs[spark]'")
    context = getattr(spark, "_sc", None)  # Spark Connect has none: its workers are the server's affair
    if context is not None:
        check_python(context.pythonExec)


def check_pyspark() -> None:
    """Raise :class:`UnusableSession` if PySpark has no Python data sources, which came with 4.0."""
    import pyspark

    if importlib.util.find_spec("pyspark.sql.datasource") is None:
        raise UnusableSession(
            f"kfs needs PySpark 4.0 or later, and PySpark {pyspark.__version__} is in {sys.prefix}: "
            "pip install 'kfs[spark]'"
        )


def check_python(python: str) -> None:
    """Raise :class:`UnusableSession` if a Python doesn't exist, lacks kfs or pyarrow, or has another version."""
    path = shutil.which(python)
    advice = f"set PYSPARK_PYTHON={sys.executable} before the session starts"
    if path is None:
        raise UnusableSession(f"Spark's workers run {python}, which isn't there: {advice}")
    if path == shutil.which(sys.executable):
        return
    program = "import sys, kfs.spark, pyarrow; print('%d.%d' % sys.version_info[:2])"
    run = subprocess.run([path, "-c", program], capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    if run.returncode:
        reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        raise UnusableSession(f"Spark's workers run {path}, which can't run kfs ({reason}): {advice}")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if run.stdout.strip() != own:
        raise UnusableSession(f"Spark's workers run {path}, Python {run.stdout.strip()}, the driver {own}: {advice}")


def own_version() -> str:
    """Return the version of kfs in this process."""
    from kfs import __version__

    return __version__


def check_version(driver: str) -> None:
    """Raise :class:`UnusableSession` if this process has another version of kfs than the driver."""
    if driver != own_version():
        raise UnusableSession(
            f"the driver has kfs {driver}, this executor kfs {own_version()}: install the same one on both"
        )


def is_asked_for_filters() -> bool:
    """Return whether Spark started this process for filter pushdown, which it does if the session allows it.

    Nothing else here shows what the session allows.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _FILTER_WORKER in sys.modules or getattr(main, "name", None) == _FILTER_WORKER


def as_one_sentence(error: KfsError) -> KfsError:
    """Return the error without its traceback, which Spark would show above it."""
    return error.with_traceback(None)


def show_log() -> None:
    """Send log messages to the worker's standard error, which Spark keeps or shows."""
    if not _LOG.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("kfs: %(message)s"))
        _LOG.addHandler(handler)


def say_what_is_ignored(options: Sequence[str], only_for_streams: Sequence[str] = ()) -> None:
    """Log the names of options without effect, and of those that only streams use."""
    if options:
        _LOG.warning("options that change nothing: %s", ", ".join(options))
    for name in only_for_streams:
        _LOG.warning("option %s is ignored in batch queries", name)
