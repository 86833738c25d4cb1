"""Output in files counts every record once: killed at every step, taken over at every step, raced for."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from kfs.errors import Fenced, KfsError, OutputLost, PositionMoved
from kfs.spark.offsets import ConsumedRange, StagedFile, StagedOutput, Staging, WritableStore, open_writable_store
from tests.servers.stores import STORES
from tests.spark.offsets.export_job import EVERY_RECORD_ONCE, FENCED, GROUP, LOGS, export, exported
from tests.spark.offsets.steps import watched

ORDERS = ConsumedRange("orders", 0, 3, 10)
_KILLED = -signal.SIGKILL
_ROOT = Path(__file__).parents[3]


def start_job(url: str, dataset: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.offsets.export_job", url, str(dataset), *options]
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE)


def run_job(url: str, dataset: Path, *options: str) -> int:
    job = start_job(url, dataset, *options)
    _, errors = job.communicate(timeout=120)
    assert job.returncode in (0, _KILLED, FENCED), errors.decode()
    return job.returncode


def check_complete(url: str, dataset: Path) -> None:
    """Every record is there once, nothing is left over, and the positions say so."""
    assert exported(dataset) == EVERY_RECORD_ONCE
    staging = dataset.parent / f"{dataset.name}.staging"
    assert [path for path in staging.rglob("*") if path.is_file()] == []
    with open_writable_store(url) as store:
        progress = store.load(GROUP)
    assert progress.positions == {partition: there.end for partition, there in LOGS.items()}
    assert (progress.batch, progress.writer) == (None, None)


def check_killed_at(url: str, dataset: Path, step: int) -> bool:
    """Kill a job at a step, and have the next one finish; return whether there was such a step."""
    status = run_job(url, dataset, "--kill-at", str(step))
    seen = exported(dataset)
    assert seen <= EVERY_RECORD_ONCE
    if status == _KILLED:
        assert run_job(url, dataset) == 0
        assert seen <= exported(dataset)  # nothing that could be read was taken back
    check_complete(url, dataset)
    return status == _KILLED


@pytest.mark.long
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.timeout(3000)
def test_a_job_killed_at_any_step_is_completed_by_the_next(
    kind: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    step = 1
    while check_killed_at(url_of(kind), tmp_path / f"dataset{step}", step):
        step += 1
    assert step > 60


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_job_killed_again_and_again_gets_there(
    kind: str, seed: int, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    chance = random.Random(f"{kind}{seed}")
    url, dataset = url_of(kind), tmp_path / "dataset"
    killed = 0
    while run_job(url, dataset, "--kill-at", str(chance.randrange(1, 60))) == _KILLED:
        killed += 1
        assert exported(dataset) <= EVERY_RECORD_ONCE
    assert killed >= 1
    check_complete(url, dataset)


@pytest.mark.parametrize("kind", STORES)
def test_jobs_that_race_for_a_group_write_everything_once(
    kind: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    url, dataset = url_of(kind), tmp_path / "dataset"
    statuses = []
    for attempt in range(2):
        jobs = [start_job(url, dataset, "--dawdle", str(attempt * 10 + number)) for number in range(3)]
        for job in jobs:
            _, errors = job.communicate(timeout=120)
            assert job.returncode in (0, FENCED), errors.decode()
            statuses.append(job.returncode)
    assert FENCED in statuses
    assert run_job(url, dataset) == 0
    check_complete(url, dataset)


def test_a_job_that_was_taken_over_at_any_step_changes_nothing_any_more(tmp_path: Path) -> None:
    """One job is held at a step; another does all the work; then the first goes on."""
    step, fenced = 1, 0
    while True:
        url, dataset = f"sqlite://{tmp_path}/{step}.db", tmp_path / f"dataset{step}"
        was_held, error = _taken_over_at(step, url, dataset)
        check_complete(url, dataset)
        if not was_held:
            break
        assert error is None or isinstance(error, Fenced), error
        fenced += isinstance(error, Fenced)
        step += 1
    assert step > 60
    assert fenced > 40


def _taken_over_at(step: int, url: str, dataset: Path) -> tuple[bool, BaseException | None]:
    held, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []
    count = 0

    def at_step(_name: str) -> None:
        nonlocal count
        if threading.current_thread() is job:
            count += 1
            if count == step:
                held.set()
                assert go_on.wait(60)

    def run() -> None:
        try:
            with open_writable_store(url) as store, watched(store, at_step):
                export(store, str(dataset))
        except BaseException as error:
            errors.append(error)
        finally:
            held.set()

    job = threading.Thread(target=run)
    job.start()
    assert held.wait(60)
    was_held = job.is_alive() and count == step
    if was_held:
        with open_writable_store(url) as another:
            export(another, str(dataset))
    go_on.set()
    job.join(60)
    return was_held, errors[0] if errors else None


@pytest.fixture
def output(store: WritableStore, tmp_path: Path) -> StagedOutput:
    """An output of each kind of store."""
    return StagedOutput(store, GROUP, str(tmp_path / "dataset"))


@pytest.fixture
def local(tmp_path: Path, open_one: Callable[[str], WritableStore]) -> WritableStore:
    """A store whose kind doesn't matter."""
    return open_one(f"sqlite://{tmp_path}/progress.db")


def test_what_is_committed_is_in_its_place(output: StagedOutput, tmp_path: Path) -> None:
    output.commit([ORDERS], [output.staging.write("a/b.jsonl", [b"1\n", b"2\n"]), output.staging.write("c", [])])
    assert (tmp_path / "dataset/a/b.jsonl").read_bytes() == b"1\n2\n"
    assert (tmp_path / "dataset/c").read_bytes() == b""
    assert output.progress.positions == {ORDERS.topic_partition: 10}
    assert output.progress.batch is None


def test_a_batch_without_records_moves_the_positions(output: StagedOutput) -> None:
    output.commit([ORDERS], [])
    assert output.store.load(GROUP).positions == {ORDERS.topic_partition: 10}


def test_what_was_not_committed_is_removed(output: StagedOutput, tmp_path: Path) -> None:
    output.staging.write("a", [b"x"])
    output.close()
    assert not list((tmp_path / "dataset.staging").rglob("*-a"))
    assert list((tmp_path / "dataset").iterdir()) == []


def test_another_process_may_write_the_files(local: WritableStore, tmp_path: Path) -> None:
    output = StagedOutput(local, GROUP, str(tmp_path / "dataset"))
    staging: Staging = pickle.loads(pickle.dumps(output.staging))
    path = staging.path("sub/x.parquet")
    Path(path).write_bytes(b"parquet")
    output.commit([ORDERS], [staging.keep(path, "sub/x.parquet")])
    assert (tmp_path / "dataset/sub/x.parquet").read_bytes() == b"parquet"


def test_files_and_names_are_on_the_disk_before_the_store_is_told(local: WritableStore, tmp_path: Path) -> None:
    output = StagedOutput(local, GROUP, str(tmp_path / "dataset"))
    events: list[str] = []
    fsync, rename, write = os.fsync, os.rename, local._write

    def note_fsync(fd: int) -> None:
        events.append(f"fsync {os.path.relpath(os.readlink(f'/proc/self/fd/{fd}'), tmp_path)}")
        fsync(fd)

    def note_rename(source: str, target: str) -> None:
        events.append("rename")
        rename(source, target)

    def note_write(*change: object) -> bool:
        events.append("store")
        return write(*change)  # type: ignore[arg-type]

    with (
        patch.object(os, "fsync", note_fsync),
        patch.object(os, "rename", note_rename),
        patch.object(local, "_write", note_write),
    ):
        staged = output.staging.write("sub/a", [b"x"])
        output.commit([ORDERS], [staged])
    staged_path = f"dataset.staging/{GROUP}/{staged.staged}"
    assert events == [
        f"fsync {staged_path}",
        f"fsync {os.path.dirname(staged_path)}",
        "store",
        "fsync dataset",  # the new directory's name
        "rename",
        "fsync dataset/sub",
        "store",
    ]


def test_a_record_is_not_written_again_when_positions_go_back(local: WritableStore, tmp_path: Path) -> None:
    with StagedOutput(local, GROUP, str(tmp_path / "dataset")) as output:
        output.commit([ORDERS], [output.staging.write("a", [b"first"])])
    local.set_positions(GROUP, {ORDERS.topic_partition: 3})
    with (
        StagedOutput(local, GROUP, str(tmp_path / "dataset")) as output,
        pytest.raises(KfsError, match="dataset/a: already exists, so these offsets were written before"),
    ):
        output.commit([ORDERS], [output.staging.write("a", [b"again"])])
    assert (tmp_path / "dataset/a").read_bytes() == b"first"


def test_a_batch_that_does_not_begin_at_the_positions_leaves_no_file(output: StagedOutput, tmp_path: Path) -> None:
    output.commit([ORDERS], [])
    with pytest.raises(PositionMoved):
        output.commit([ORDERS], [output.staging.write("a", [b"x"])])
    assert list((tmp_path / "dataset").iterdir()) == []


def test_the_directory_of_a_writer_that_was_taken_over_is_gone(local: WritableStore, tmp_path: Path) -> None:
    first = StagedOutput(local, GROUP, str(tmp_path / "dataset"))
    kept = first.staging.write("a", [b"x"])
    second = StagedOutput(local, GROUP, str(tmp_path / "dataset"))
    with pytest.raises(Fenced, match="is gone"):
        first.staging.write("a", [b"x"])
    with pytest.raises(Fenced, match="is gone"):
        first.commit([ORDERS], [kept])
    first.close()
    second.commit([ORDERS], [second.staging.write("a", [b"y"])])
    assert (tmp_path / "dataset/a").read_bytes() == b"y"


def test_groups_stage_apart(local: WritableStore, tmp_path: Path) -> None:
    one = StagedOutput(local, "a/..", str(tmp_path / "dataset"))
    staged = one.staging.write("a", [b"x"])
    StagedOutput(local, "..", str(tmp_path / "dataset"))
    one.commit([ORDERS], [staged])
    assert {path.name for path in tmp_path.iterdir()} == {
        "dataset",
        "dataset.staging",
        "progress.db",
        "progress.db-shm",
        "progress.db-wal",
    }


def test_output_that_is_gone_is_said_to_be(local: WritableStore, tmp_path: Path) -> None:
    fence, _ = local.acquire(GROUP)
    local.save(fence, [ORDERS], [StagedFile("0000000001-x/a", "a")])
    with pytest.raises(OutputLost, match=r"neither there nor staged in .* started with another directory"):
        StagedOutput(local, GROUP, str(tmp_path / "dataset"))
    assert local.load(GROUP).batch is not None


def test_files_of_one_name_are_refused(output: StagedOutput) -> None:
    with pytest.raises(KfsError, match="two files of one name"):
        output.commit([ORDERS], [output.staging.write("a", [b"1"]), output.staging.write("a", [b"2"])])


def test_a_staging_directory_on_another_filesystem_is_refused(local: WritableStore, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other filesystem")
    staging = other / f"kfs-test-{os.getpid()}"
    try:
        with pytest.raises(KfsError, match="lies on another filesystem"):
            StagedOutput(local, GROUP, str(tmp_path / "dataset"), str(staging))
    finally:
        subprocess.run(["rm", "-r", staging], check=True)
    assert local.load(GROUP).is_empty


def test_a_dataset_that_is_a_file_is_refused(local: WritableStore, tmp_path: Path) -> None:
    (tmp_path / "dataset").write_text("x")
    with pytest.raises(KfsError, match="dataset: "):
        StagedOutput(local, GROUP, str(tmp_path / "dataset"))
