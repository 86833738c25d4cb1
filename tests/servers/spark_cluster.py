"""A standalone Spark cluster on this machine: a master and workers, started by the ``spark-class`` of PySpark."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.ports import free_ports
from tests.requirements import need_java, need_pyspark
from tests.servers.kept_classes import small_session, spark_options

_WORKERS: Final = 2
_SECONDS_TO_START: Final = 90
_SECONDS_TO_STOP: Final = 20
#: The name of the variable by which all that belongs to a cluster is known: whoever starts a process hands it on.
_MARK: Final = "KFS_TEST_CLUSTER"
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


def small_executors() -> dict[str, str]:
    """Return the settings of a driver for small executors."""
    return small_session() | {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": spark_options()}


class SparkCluster:
    """A master and two workers of one core each, from :meth:`start` to :meth:`stop`."""

    def __init__(self, directory: Path) -> None:
        need_java()
        need_pyspark()
        self.directory = directory
        self._mark = uuid.uuid4().hex
        self._port = free_ports(1)[0]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """The URL of the master."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start it, and wait until the workers are known to the master."""
        try:
            arguments = ["--host", "127.0.0.1", "--webui-port", "0"]
            self._run("master", "deploy.master.Master", *arguments, "--port", str(self._port))
            self._wait_for("master", "I have been elected leader")
            for number in range(_WORKERS):
                name = f"worker-{number}"
                of_worker = ["--cores", "1", "--memory", "768m", "--work-dir", str(self.directory / name)]
                self._run(name, "deploy.worker.Worker", *arguments, *of_worker, self.master)
            for number in range(_WORKERS):
                self._wait_for(f"worker-{number}", "Successfully registered with master")
        except BaseException:
            self.stop()
            raise
        return self

    def _run(self, name: str, main_class: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        settings = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": spark_options(),
            _MARK: self._mark,
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.{main_class}", *arguments]
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **settings}
            )
        self._processes.append(process)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _wait_for(self, name: str, words: str) -> None:
        until = time.monotonic() + _SECONDS_TO_START
        while words not in (text := self._log(name).read_text(errors="replace")):
            assert all(process.poll() is None for process in self._processes), f"{name} did not start:\n{text[-4000:]}"
            assert time.monotonic() < until, f"{name} is not up yet:\n{text[-4000:]}"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it, and whatever it has started and is left."""
        for process in reversed(self._processes):  # a worker stops its executors
            process.terminate()
        until = time.monotonic() + _SECONDS_TO_STOP
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(until - time.monotonic(), 0))
        for left in self._own():
            _kill(left)
        for process in self._processes:
            process.wait()

    def kill_executor(self) -> int:
        """Kill one executor as the loss of its machine would; return its process."""
        executors = self.executors()
        assert executors, "there is no executor to be killed"
        _kill(executors[0])
        return executors[0]

    def executors(self) -> list[int]:
        """Return the processes of the executors, the oldest first."""
        return sorted(process for process in self._own() if _EXECUTOR in _read(process, "cmdline"))

    def _own(self) -> Iterator[int]:
        mark = f"{_MARK}={self._mark}".encode()
        for entry in os.listdir("/proc"):
            if entry.isdigit() and mark in _read(int(entry), "environ"):
                yield int(entry)


def _read(process: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
