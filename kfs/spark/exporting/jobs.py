"""Tasks done by Spark, without any of their records going through its JVM."""

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

#: How often, in seconds, it is looked how far a job is.
_LOOK: Final = 0.2
#: What a Python worker raised, as the last line of its traceback; of ours the sentence is all there is to say.
_RAISED: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<sentence>.+)$", re.MULTILINE)
#: What the JVM threw, where Py4J says only that it did.
_THROWN: Final = re.compile(r"^: ((?:\w+\.)+\w+: .+)$", re.MULTILINE)
_OURS: Final = "kfs.errors."
Doing = Callable[[Task], TaskDone]
Advance = Callable[[int], None]


class Jobs(Protocol):
    """Who does tasks."""

    #: How many it does at once.
    cores: int

    def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
        """Do tasks, and tell ``advance`` of the bytes of log that are done; return what each came to."""
        ...


class SparkJobs:
    """Each batch is a job of a Spark session, and each task one of Spark's."""

    def __init__(self, spark: SparkSession) -> None:
        """Look whether the session can do it.

        Raises:
            UnusableSession: it can't, or its workers have not what they need.
        """
        if getattr(spark, "_sc", None) is None:
            raise UnusableSession("an export needs a session of its own driver: Spark Connect has none")
        check_workers(spark)
        self._context = spark.sparkContext
        self.cores = max(self._context.defaultParallelism, 1)

    def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
        """See :meth:`Jobs.run`.

        Raises:
            KfsError: a task failed, for good; the message is that of the task.
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
                with suppress(Exception):  # as where the JVM has gone
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
    """Does a task, and counts its bytes where the driver can see them."""

    def __init__(self, doing: Doing, done_bytes: Accumulator[int]) -> None:
        self._doing = doing
        self._done_bytes = done_bytes

    def __call__(self, task: Task) -> TaskDone:
        done = self._doing(task)
        self._done_bytes.add(task.size)
        return done


def is_jvm_gone(error: Exception) -> bool:
    """Whether an error says that nothing answers on the other side of the session."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, Py4JNetworkError | ConnectionError)


def reason_of(error: Exception) -> KfsError:
    """Return why a job failed as one sentence, whatever Spark puts around it."""
    if is_jvm_gone(error):
        return UnusableSession("Spark's JVM has gone in the middle: it was killed, or had not enough memory")
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
