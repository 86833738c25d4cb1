"""Tasks done by Spark, without their records going through its JVM."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from kfs.errors import KfsError, UnusableSession
from kfs.spark.exporting.tasks import TaskDone
from kfs.spark.planning import Task
from kfs.spark.session import check_workers

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

#: How often, in seconds, the progress of a job is checked.
_LOOK: Final = 0.2
#: The last line of a Python worker's traceback; of our own exceptions only the sentence matters.
_RAISED: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<sentence>.+)$", re.MULTILINE)
#: The exception of the JVM, in Py4J's message about it.
_THROWN: Final = re.compile(r"^: ((?:\w+\.)+\w+: .+)$", re.MULTILINE)
_OURS: Final = "kfs.errors."
Doing = Callable[[Task], TaskDone]
Advance = Callable[[int], None]


class Jobs(Protocol):
    """Runs tasks."""

    #: How many tasks run at once.
    cores: int

    def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
        """Run tasks, and report the finished bytes of log to ``advance``; return their results."""
        ...


class SparkJobs:
    """Runs each batch as a job of a Spark session, and each task as one of Spark's."""

    def __init__(self, spark: SparkSession) -> None:
        """Check the session.

        Raises:
            UnusableSession: it is unsuitable, or its workers lack something.
        """
        if getattr(spark, "_sc", None) is None:
            raise UnusableSession("an export needs a session of its own driver: Spark Connect has none")
        check_workers(spark)
        self._context = spark.sparkContext
        self.cores = max(self._context.defaultParallelism, 1)

    def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
        """See :meth:`Jobs.run`.

        Raises:
            KfsError: a task failed for good; the message is that of the task.
        """
        done_bytes = self._context.accumulator(0)
        group = f"kfs-export-{id(done_bytes):x}"

        def job() -> list[TaskDone]:
            self._context.setJobGroup(group, f"kfs export: {len(tasks)} tasks", interruptOnCancel=True)
            of_tasks = self._context.parallelize(tasks, len(tasks))
            results: list[TaskDone] = of_tasks.map(_Counted(doing, done_bytes)).collect()
            return results

        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(job)
            try:
                return self._wait(running, done_bytes, advance)
            except BaseException:
                with suppress(Exception):  # such as when the JVM is gone
                    self._context.cancelJobGroup(group)
                raise

    @staticmethod
    def _wait(running: Future[list[TaskDone]], done_bytes: Accumulator[int], advance: Advance) -> list[TaskDone]:
        told = 0
        while True:
            try:
                results = running.result(_LOOK)
            except NotYet:
                done = int(done_bytes.value)
                advance(done - told)
                told = done
            except Exception as error:
                raise reason_of(error) from error
            else:
                advance(int(done_bytes.value) - told)
                return results


class _Counted:
    """Runs a task, and counts its bytes in the driver's accumulator."""

    def __init__(self, doing: Doing, done_bytes: Accumulator[int]) -> None:
        self._doing = doing
        self._done_bytes = done_bytes

    def __call__(self, task: Task) -> TaskDone:
        done = self._doing(task)
        self._done_bytes.add(task.size)
        return done


def is_jvm_gone(error: Exception) -> bool:
    """Return whether an error means that the session's JVM doesn't answer."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError)


def reason_of(error: Exception) -> KfsError:
    """Return the cause of a job's failure as one sentence, without Spark's text around it."""
    if is_jvm_gone(error):
        return UnusableSession("Spark's JVM died: it was killed, or ran out of memory")
    text = str(error)
    raised = [match for match in _RAISED.finditer(text) if "Error" in match["kind"] or match["kind"].startswith(_OURS)]
    for match in raised:
        if match["kind"].startswith(_OURS):
            return KfsError(match["sentence"])
    for match in raised:
        if "PYTHON_VERSION_MISMATCH" in match["sentence"] or "PYTHON_VERSION_MISMATCH" in match["kind"]:
            return UnusableSession(match["sentence"])
        if match["kind"].endswith("ModuleNotFoundError"):
            return UnusableSession(
                f"an executor lacks what the driver has: {match['sentence']}: install kfs[spark] there"
            )
    lines = [match[0] for match in raised] or _THROWN.findall(text) or text.strip().splitlines()
    return UnusableSession(f"Spark's job failed: {lines[0] if lines else type(error).__name__}")
