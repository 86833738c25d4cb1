"""An export as its command runs it, beside a log that grows: watched from outside, stopped to be looked at, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq

from kfs.broker_log.log_config import LogConfig
from kfs.broker_log.log_segment import LogSegment
from kfs.errors import StoreUnreachable
from kfs.format.record import Record
from kfs.spark.offsets import WritableStore
from tests.logs import START, batch
from tests.servers.kept_classes import small_session

GROUP = "lake"
TOPIC = "t"
_ROOT = Path(__file__).parents[3]
_DAY = 86_400_000  # milliseconds
#: Days that the records of each batch lie on: as many files, to be killed between.
DAYS = 8
RECORDS = 2 * DAYS
_RECORDS_IN_SEGMENT = 20 * RECORDS
_MOST_AHEAD = 100 * RECORDS
_SECONDS = 120
#: The command, as arguments of Python.
KFS = ("-m", "kfs")
#: What a record is in a dataset and in the log: partition, offset, value.
Row = tuple[int, int, bytes]


class GrowingLog:
    """Partitions that batches are appended to, as a broker does, not too far ahead of a dataset, until told to stop."""

    def __init__(self, root: Path, dataset: Path) -> None:
        self.root = root
        self._dataset = dataset
        self.expected: list[Row] = []
        self._segments: dict[int, LogSegment] = {}
        self._ends: dict[int, int] = {}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._grow)
        for partition in (0, 1):
            self.add(partition)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Append no more."""
        self._over.set()
        self._thread.join()

    def _grow(self) -> None:
        while not self._over.wait(0.3):
            with self._lock:
                partitions = list(self._ends)
            if sum(self._ends.values()) - sum(_reached(self._dataset).values()) > _MOST_AHEAD:
                continue
            for partition in partitions:
                self.append(partition)

    def add(self, partition: int) -> None:
        """Begin another partition."""
        (self.root / f"{TOPIC}-{partition}").mkdir(parents=True)
        with self._lock:
            self._ends[partition] = 0
        self.append(partition)

    def append(self, partition: int) -> None:
        """Append a batch, in a new segment where the last one has enough."""
        with self._lock:
            first = self._ends[partition]
            if first % _RECORDS_IN_SEGMENT == 0:
                directory = str(self.root / f"{TOPIC}-{partition}")
                self._segments[partition] = LogSegment.create(directory, first, LogConfig(index_interval_bytes=256))
            rows = [(partition, at, b"%d:%d" % (partition, at)) for at in range(first, first + RECORDS)]
            content = [Record(at, START + at % DAYS * _DAY, None, value) for _, at, value in rows]
            self._segments[partition].append(batch(content).data)
            self._segments[partition].park()
            self._ends[partition] += RECORDS
            self.expected += rows


def rows_in(dataset: Path) -> Counter[Row]:
    """Return how often each record is in a dataset; while it is written to, in the files that had their names."""
    found: Counter[Row] = Counter()
    for path in dataset.rglob("*.parquet"):
        table = pq.ParquetFile(path).read(["partition", "offset", "value"])
        found.update(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))
    return found


@dataclass(frozen=True, slots=True)
class Look:
    """Where an export is: files staged, those of the saved batch, and how many of these have their names."""

    staged: int
    of_batch: int
    renamed: int


class RunningExport:
    """``kfs export --follow`` in a session of its own, with its JVM and its Python workers."""

    def __init__(
        self,
        data: Path,
        dataset: Path,
        url: str,
        store: WritableStore,
        log: Path,
        command: Sequence[str] = KFS,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.dataset = dataset
        self._store = store
        self.last_look: Look | None = None
        self._process = subprocess.Popen(
            [sys.executable, *command, "export", str(data), str(dataset), "--store", url, "--group", GROUP]
            + ["--master", "local[2,4]", "--follow", "--interval", "0.1", "--max-records", str(20 * RECORDS)]
            + ["--spark-log", str(log)]
            + [part for name, value in small_session().items() for part in ("--conf", f"{name}={value}")],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=descriptors,
        )

    # -- processes

    def pids(self, *words: str) -> list[int]:
        """Return the processes of its session whose command line has one of the words; all without any."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                    command = (entry / "cmdline").read_bytes().decode(errors="replace")
                except (OSError, ValueError):
                    continue
                if session == self._process.pid and (not words or any(word in command for word in words)):
                    found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """Kill all of it at once: a driver, its JVM, the Python workers, which are a process group of their own."""
        for pid in self.pids():
            _signal(pid, signal.SIGKILL)
        while self.pids():
            for pid in self.pids():  # begun meanwhile
                _signal(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.01)
        self._process.wait(_SECONDS)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def kill_driver(self) -> None:
        """Kill only the process that commits; its JVM finds out by itself, and what follows doesn't wait for that."""
        _signal(self._process.pid, signal.SIGKILL)
        self._process.wait(_SECONDS)

    def kill_workers(self) -> int:
        """Kill the Python workers, not the process that they are forked from; return how many."""
        daemons = self.pids("pyspark.daemon")
        workers = [pid for pid in daemons if _parent(pid) in daemons]
        for pid in workers:
            _signal(pid, signal.SIGKILL)
        return len(workers)

    def kill_jvm(self) -> None:
        """Kill the JVM."""
        for pid in self.pids("org.apache.spark.deploy.SparkSubmit"):
            _signal(pid, signal.SIGKILL)

    def wait(self) -> tuple[int, str]:
        """Wait until it ends by itself; return its status and what it said."""
        _, errors = self._process.communicate(timeout=_SECONDS)
        return self._process.returncode, errors.decode()

    @contextmanager
    def waited_for(self) -> Iterator[list[tuple[int, str]]]:
        """Wait until it ends by itself while something else is done; then there is what :meth:`wait` returns."""
        ended: list[tuple[int, str]] = []
        waiting = threading.Thread(target=lambda: ended.append(self.wait()))
        waiting.start()
        try:
            yield ended
        finally:
            waiting.join()

    def finish(self) -> tuple[int, str]:
        """Ask it to end; return its status and what it said."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    # -- what it does

    def look(self) -> Look:
        """Return where it is; raise :class:`StoreUnreachable` where the store doesn't answer at once."""
        staged = sum(1 for path in (self.dataset / "_kfs" / "staging").rglob("*.staged"))
        begun = self._store.load(GROUP).batch
        files = begun.files if begun is not None else ()
        self.last_look = Look(staged, len(files), sum((self.dataset / file.final).exists() for file in files))
        return self.last_look

    def until(self, there: Callable[[Look], bool]) -> Look:
        """Let it go on in small steps, and leave it stopped where it is as wanted."""
        until = time.monotonic() + _SECONDS
        while True:
            assert self._process.poll() is None, self.wait()
            assert time.monotonic() < until, f"it never came to it: {self.look()}"
            _signal(self._process.pid, signal.SIGSTOP)
            pause = 0.01
            try:
                found = self.look()
                if there(found):
                    return found
                pause = 0.001 if found.staged else 0.01
            except StoreUnreachable:  # it was stopped while it had it locked
                pass
            self.go_on()
            time.sleep(pause)

    def hold(self) -> None:
        """Stop the process that commits where it is, and return when it stands still."""
        _signal(self._process.pid, signal.SIGSTOP)
        while Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
            time.sleep(0.0001)

    def go_on(self) -> None:
        """Let it go on after :meth:`until` or :meth:`hold`."""
        _signal(self._process.pid, signal.SIGCONT)

    def until_exported(self, count: int) -> None:
        """Wait until so many records have files, about: they lie on several days."""
        until = time.monotonic() + _SECONDS
        while sum(_reached(self.dataset).values()) < count:
            assert self._process.poll() is None, self.wait()
            assert time.monotonic() < until, f"{_reached(self.dataset)} of {count} records"
            time.sleep(0.05)


def _reached(dataset: Path) -> dict[int, int]:
    """Return the offset after the last one of each partition, by the names of the files."""
    reached: dict[int, int] = {}
    for path in dataset.rglob("*.parquet"):
        partition, _, end = map(int, path.stem.split("-"))
        reached[partition] = max(reached.get(partition, 0), end)
    return reached


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
