"""A Spark session for a command: configured for exports, with its output in a file and readable errors."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kfs.errors import UnusableSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*]"
#: Set by spark-submit for the Python that it starts: the JVM exists already.
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
_WORKERS_PYTHON: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")
#: None of these changes the exported data.
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: The lines of Spark's log to report if it doesn't start: errors, and the reason of the JVM's exit.
_WHY: Final = re.compile(r" ERROR |^Error|^Exception|^java\.|UnsupportedClassVersionError")
#: For a local master: nothing listens on other interfaces.
_LOCAL: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@contextmanager
def started_session(master: str | None, conf: Mapping[str, str], log: str) -> Iterator[SparkSession]:
    """Start a session and stop it in the end; Spark's output goes to the file ``log``.

    Under ``spark-submit`` it is the existing session, which prints as configured.

    Raises:
        UnusableSession: PySpark or Java is missing, or Spark doesn't start.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnusableSession(f"kfs export needs PySpark ({error}): pip install 'kfs[spark]'") from None
    is_submitted = _GATEWAY in os.environ
    builder = SparkSession.builder.appName("kfs export")
    settings = dict(conf)
    if master is not None or not is_submitted:
        builder = builder.master(master or DEFAULT_MASTER)
    if not is_submitted:
        _check_java()
        settings = {**_DEFAULTS, **(_LOCAL if (master or DEFAULT_MASTER).startswith("local") else {}), **settings}
    if not any(name in settings for name in _WORKERS_PYTHON):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        if is_submitted:
            session = builder.getOrCreate()
        else:
            with _output_into(log):
                session = builder.getOrCreate()
    except Exception as error:
        raise UnusableSession(f"Spark doesn't start: {_reason(error, log)}") from error
    logging.getLogger("py4j").addHandler(logging.NullHandler())  # it raises what it logs
    try:
        yield session
    finally:
        with suppress(Py4JError, ConnectionError):  # its JVM is gone, which was reported already
            session.stop()


def _check_java() -> None:
    """Raise :class:`UnusableSession` if there is no Java; PySpark's own message is about a gateway."""
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which(os.path.join(home, "bin", "java")) is None:
        raise UnusableSession(f"Spark needs Java 17 or later, and JAVA_HOME={home} has no bin/java")
    if not home and shutil.which("java") is None:
        raise UnusableSession("Spark needs Java 17 or later, and none was found: install a JRE, or set JAVA_HOME")


@contextmanager
def _output_into(path: str) -> Iterator[None]:
    """Redirect standard output and error of child processes started in the block to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)
        os.close(log)


def _reason(error: Exception, log: str) -> str:
    """Return the reason of a failed start: from Spark's log, else from PySpark's exception."""
    with open(log, encoding="utf-8", errors="replace") as file:
        said = [line.strip() for line in file if _WHY.search(line)]
    if said:
        return said[0].rpartition(" ERROR ")[2]
    lines = [line.strip(" \t:") for line in str(error).strip().splitlines()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)
