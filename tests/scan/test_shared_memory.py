"""Memory that processes share doesn't grow with the number of scans; a table's is free when the table is dropped."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest

from kfs.errors import WorkerDied
from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.read.workers import pool
from kfs.scan import Scan
from tests.eager_workers import processes_of
from tests.logs import START, batch, write_partition
from tests.scan.scanning import opened
from tests.thoroughness import examples

pytestmark = [
    pytest.mark.usefixtures("own_pool", "eager_processes"),
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="processes share memory by memfd_create"),
]
#: Each batch of the log is a piece of its own, and sent as one: more for each process than it lends.
_BATCHES = 48
_RECORDS_IN_BATCH = 50
MAPPED = pytest.mark.skipif(
    find_spec("kfs.read.workers.compiled_memory") is None, reason="without compiled code what is shared is copied"
)
RECORDS = _BATCHES * _RECORDS_IN_BATCH
#: Enough that what one in two scans leaves is more than what workers have at rest.
_SCANS = examples(12, 30)
#: Scans that end their processes leave nothing in these, so that the first that leaves something here is noticed: there
#: is no need for many, each of which starts processes.
_SCANS_OF_NEW_PROCESSES = 6
_FEW = 5
#: Regions that a process may have while it rests: three that are free, one that it would fill next, and one that was
#: still looked at when it began to rest.
_MOST_AT_REST = 5
_MEMORY = "/memfd:kfs-worker"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of two kilobytes that don't compress."""
    directory = tmp_path_factory.mktemp("shared")
    content = [Record(offset, START + offset, None, os.urandom(2048)) for offset in range(RECORDS)]
    parts = [
        batch(content[start : start + _RECORDS_IN_BATCH], codec=Codec.LZ4)
        for start in range(0, RECORDS, _RECORDS_IN_BATCH)
    ]
    half = len(parts) // 2
    write_partition(directory / "t-0", {0: parts[:half], half * _RECORDS_IN_BATCH: parts[half:]})
    return directory


def scan_of(root: Path, **options: Any) -> Scan:
    return Scan(opened(root).logs, **{"jobs": 2, "columns": ["offset", "value"], **options})


# --- what there is of shared memory ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shared:
    """Maps and descriptors of shared memory in this process and in its workers, and the bytes that these have of it."""

    maps_here: int
    maps: int
    descriptors: int
    resident: int

    @classmethod
    def now(cls) -> Self:
        workers = [member.pid for member in processes_of((*pool.POOL._idle, *pool.POOL._busy))]
        processes = [os.getpid(), *workers]
        return cls(
            _maps(os.getpid()), sum(map(_maps, processes)), sum(map(_descriptors, processes)), sum(map(_bytes, workers))
        )


def _maps(pid: int) -> int:
    return sum(_MEMORY in line for line in _lines(f"/proc/{pid}/maps"))


def _descriptors(pid: int) -> int:
    found = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            found += os.readlink(entry.path).startswith(_MEMORY)
    return found


def _bytes(pid: int) -> int:
    [line] = [line for line in _lines(f"/proc/{pid}/status") if line.startswith("RssShmem:")]
    return int(line.split()[1]) * 1024


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def until(is_so: Callable[[Shared], bool]) -> Shared:
    """Return what there is as soon as that is so: a process is told that it may rest, and nobody waits for it."""
    gc.collect()
    deadline = time.monotonic() + 20
    while not is_so(now := Shared.now()):
        assert time.monotonic() < deadline, now
        time.sleep(0.01)
    return now


def at_rest(now: Shared) -> bool:
    """Whether this process has nothing, and its workers no more than they keep for the next scan."""
    workers = len(pool.POOL._idle)
    return not pool.POOL._busy and now.maps_here == 0 and max(now.maps, now.descriptors) <= workers * _MOST_AT_REST


# --- scans ----------------------------------------------------------------------------------------------------------


def a_table(root: Path) -> None:
    assert scan_of(root).to_table().num_rows == RECORDS


def batches(root: Path) -> None:
    assert sum(one.num_rows for one in scan_of(root)) == RECORDS


def batches_in_handfuls(root: Path) -> None:
    held = []
    for one in scan_of(root):
        held.append(one)
        if len(held) == 25:
            held.clear()


def a_query(root: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("events", scan_of(root))
        [row] = connection.execute("select count(*), sum(octet_length(value)) from events").fetchall()
    assert row == (RECORDS, RECORDS * 2048)


def a_query_for_a_table(root: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("events", scan_of(root))
        connection.execute("create table kept as select * from events")
        assert connection.execute("select count(distinct value) from kept").fetchall() == [(RECORDS,)]


def half_of_it(root: Path) -> None:
    found = iter(scan_of(root))
    held = [next(found) for _ in range(_BATCHES // 2)]
    assert sum(one.num_rows for one in held) == RECORDS // 2
    found.close()


def half_of_it_by_a_reader(root: Path) -> None:
    reader = scan_of(root).to_reader()
    held = [reader.read_next_batch() for _ in range(_BATCHES // 2)]
    assert len(held) == _BATCHES // 2


def processes_killed(root: Path) -> list[pa.RecordBatch]:
    """Kill them halfway; return what was had until then."""
    found = iter(scan_of(root))
    held = [next(found) for _ in range(_BATCHES // 2)]
    for member in processes_of(pool.POOL._busy):
        os.kill(member.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        held.extend(found)
    return held


def processes_killed_in_their_sleep(root: Path) -> None:
    table = scan_of(root).to_table()
    for member in pool.POOL._idle:
        os.kill(member.pid, signal.SIGKILL)
        while member.is_alive:
            time.sleep(0.001)
    assert scan_of(root).to_table() == table


def a_table_beside_batches(root: Path) -> None:
    found = iter(scan_of(root))
    first = next(found)
    a_table(root)
    assert sum(one.num_rows for one in found) + first.num_rows == RECORDS


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scan", "times"),
    [
        (a_table, _SCANS),
        (batches, _SCANS),
        (batches_in_handfuls, _SCANS),
        (a_query, _SCANS),
        (half_of_it, _SCANS_OF_NEW_PROCESSES),
        (processes_killed, _SCANS_OF_NEW_PROCESSES),
        pytest.param(half_of_it, _SCANS, marks=pytest.mark.long),
        pytest.param(processes_killed, _SCANS, marks=pytest.mark.long),
        pytest.param(a_query_for_a_table, _SCANS, marks=pytest.mark.long),
        pytest.param(half_of_it_by_a_reader, _SCANS, marks=pytest.mark.long),
        pytest.param(processes_killed_in_their_sleep, _SCANS, marks=pytest.mark.long),
        pytest.param(a_table_beside_batches, _SCANS, marks=pytest.mark.long),
    ],
)
def test_many_scans_leave_no_more_than_a_few(root: Path, scan: Callable[[Path], None], times: int) -> None:
    most = 0
    for number in range(times):
        scan(root)
        now = until(at_rest)
        if number < _FEW:
            most = max(most, now.resident)
        # A region of this log has a piece of it, and a rest of what was longer before.
        assert now.resident <= most + _MOST_AT_REST * 2 * 1024 * 1024


@MAPPED
def test_a_table_that_is_kept_is_as_it_was_and_free_when_it_is_dropped(root: Path) -> None:
    expected = scan_of(root, jobs=1).to_table()
    table = scan_of(root).to_table()
    for _ in range(3):
        a_table(root)
        batches_in_handfuls(root)
    assert table == expected
    assert until(lambda now: now.descriptors <= 2 * _MOST_AT_REST).maps_here > 0
    del table
    gc.collect()
    assert Shared.now().maps_here == 0  # at once, without another scan
    until(at_rest)


@MAPPED
def test_a_slice_keeps_what_it_shows_and_no_more(root: Path) -> None:
    expected = scan_of(root, jobs=1).to_table()
    table = scan_of(root).to_table()
    there = Shared.now().maps_here
    middle = RECORDS // 2
    slices = [table.slice(middle, 1), table.column("value").slice(7, 2)]
    del table
    gc.collect()
    assert 0 < Shared.now().maps_here <= 4 < there
    for _ in range(3):
        a_table(root)
    pool.POOL.end()
    assert slices == [expected.slice(middle, 1), expected.column("value").slice(7, 2)]
    slices.clear()
    until(at_rest)


def test_a_table_outlives_processes_that_are_killed(root: Path) -> None:
    expected = scan_of(root, jobs=1).to_table()
    held = processes_killed(root)
    a_table(root)
    table = pa.Table.from_batches(held)
    assert table == expected.slice(0, table.num_rows)
    del table, held
    until(at_rest)


# --- processes of their own -----------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
from kfs.read import plan
from kfs.scan.job import ScanJob
from kfs.read.workers.team import Team
from kfs.scan import Scan
from kfs.log.data_dir import DataDir
from kfs.log.storage import Storage
ScanJob.worth_sharing = ScanJob.worth_processes = plan.SPLIT_BYTES = 1
ScanJob.together_bytes = 0
start = Team._start_processes
def start_and_wait(team):
    start(team)
    while not all(member.is_ready for member in team._members.values()):
        team._listen(iter(()))
Team._start_processes = start_and_wait
def scan():
    return Scan(DataDir([sys.argv[1]], Storage()).logs, jobs=2, columns=["offset", "value"])
"""


def ran(script: str, root: Path) -> str:
    script = textwrap.dedent(SCRIPT) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", script, str(root)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_fork_sees_what_was_there_whatever_its_parent_reads_on(root: Path) -> None:
    said = ran(
        """
        batches = iter(scan())
        held = [next(batches) for _ in range(20)]
        expected = [batch.to_pylist() for batch in held]
        is_over, say = os.pipe()
        fork = os.fork()
        if not fork:
            os.read(is_over, 1)
            same = [batch.to_pylist() for batch in held] == expected
            os._exit(0 if same else 3)
        del held
        rows = sum(batch.num_rows for batch in batches)
        os.write(say, b"x")
        print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), rows)
        """,
        root,
    )
    assert said.split() == ["0", str(RECORDS - 20 * _RECORDS_IN_BATCH)]


def test_a_table_may_be_there_to_the_end_of_the_interpreter(root: Path) -> None:
    said = ran(
        """
        import atexit
        table = scan().to_table()
        batches = iter(scan())
        held = [next(batches), next(batches)]
        atexit.register(lambda: print(sum(len(value) for value in table.column("value").to_pylist())))
        print(held[0] == table.to_batches()[0])
        """,
        root,
    )
    assert said.split() == ["True", str(RECORDS * 2048)]
