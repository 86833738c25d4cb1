"""An export without Spark: each record is in the dataset once, however it is cut, done twice, or goes on."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("pyarrow")

from pyarrow import parquet

from kfs.errors import CorruptData, DataLoss, Fenced, InvalidOption, KfsError, NotFound, UnusableSession
from kfs.format.checkpoint import TopicPartition
from kfs.log.problem import DamagePolicy
from kfs.read.isolation_level import IsolationLevel
from kfs.spark.exporting import files
from kfs.spark.exporting.export import Export, opened_export
from kfs.spark.exporting.jobs import Advance, Doing
from kfs.spark.exporting.options import ExportOptions, parse_starting
from kfs.spark.exporting.sinks import ParquetSink
from kfs.spark.exporting.tasks import ParquetWriting, TaskDone
from kfs.spark.offsets import Staging, open_writable_store
from kfs.spark.options import ReadOptions
from kfs.spark.planning import Task
from tests.corpus import corpus_names
from tests.logs import batch, dense, log_name, positions, record, set_log_start, write_partition
from tests.recorded_damage import DAMAGED, CorpusPath
from tests.scan.scanning import expected_rows
from tests.spark.export.exports import HereJobs, date_of, dated, export, exported, files_of, options_for
from tests.spark.offsets.steps import watched

_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
BATCHES = dense(0, 99)
SKIP = ReadOptions(on_damage=DamagePolicy.SKIP)
ACCEPT_LOSS = ReadOptions(fail_on_data_loss=False)


@pytest.fixture
def data(tmp_path: Path, eager: None) -> Path:
    """A topic of one partition: 200 records, a second apart, in batches of five, in segments from 0 and 100 on."""
    write_partition(tmp_path / "data" / "t-0", {0: BATCHES, 100: dense(100, 199)})
    return tmp_path / "data"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return tmp_path / "dataset"


def offsets_in(dataset: Path) -> list[int]:
    return [row["offset"] for row in exported(dataset)]


def append(data: Path, first: int, last: int) -> None:
    with (data / "t-0" / log_name(100)).open("ab") as log:
        log.writelines(one.data for one in dense(first, last))


def damage(data: Path, number: int) -> int:
    """Break the checksum of a batch of the first segment; return its position."""
    position = positions(BATCHES)[number]
    path = data / "t-0" / log_name(0)
    content = bytearray(path.read_bytes())
    content[position + 70] ^= 1
    path.write_bytes(content)
    return position


# --- the records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "records", "size"),
    [
        pytest.param(1, None, None, marks=pytest.mark.long, id="whole"),
        pytest.param(3, 997, None, marks=pytest.mark.long, id="offsets"),
        pytest.param(2, None, 40_000, id="bytes"),
    ],
)
@pytest.mark.parametrize("name", [name for name in corpus_names() if name != DAMAGED])
def test_every_corpus_is_exported_as_kafka_itself_reads_it(
    name: str, cores: int, records: int | None, size: int | None, corpus: CorpusPath, tmp_path: Path
) -> None:
    expected = expected_rows(corpus(name))
    dataset = tmp_path / "dataset"
    with patch("kfs.spark.exporting.batches._SMALLEST_TASK", 1 if cores > 1 else 1 << 20):
        totals = export(
            options_for(
                corpus(name) / "data", dataset, topics=("*", *_internal_in(expected)), records=records, size=size
            ),
            HereJobs(cores, times=cores),
        )
    rows = dated(dataset)
    assert [{name: row[name] for name in row if name != "date"} for row in rows] == expected
    assert [row["date"] for row in rows] == [date_of(row["timestamp"]) for row in expected]
    assert totals.records == len(expected)
    assert totals.files == len(files_of(dataset))


def _internal_in(rows: list[dict[str, object]]) -> tuple[str, ...]:
    return tuple({str(row["topic"]) for row in rows} & set(_INTERNAL))


@pytest.mark.parametrize("name", ["b_txn", "b39_txn"])
@pytest.mark.parametrize("records", [None, 100])
def test_a_committed_export_is_what_a_consumer_got(
    name: str, records: int | None, corpus: CorpusPath, tmp_path: Path
) -> None:
    read = ReadOptions(isolation=IsolationLevel.READ_COMMITTED)
    export(options_for(corpus(name) / "data", tmp_path / "dataset", records=records, read=read))
    found = exported(tmp_path / "dataset")
    for partition, ranges in json.loads((corpus(name) / "consumed.json").read_text())["read_committed"].items():
        expected = [offset for first, last in ranges for offset in range(first, last + 1)]
        assert [row["offset"] for row in found if f"{row['topic']}-{row['partition']}" == partition] == expected


def test_kafkas_own_topics_are_exported_where_they_are_named(corpus: CorpusPath, tmp_path: Path) -> None:
    data = corpus("d_groups") / "data"
    export(options_for(data, tmp_path / "all"))
    export(options_for(data, tmp_path / "starred", topics=("*",)))
    export(options_for(data, tmp_path / "named", topics=("__consumer_offsets",)))
    assert {row["topic"] for row in exported(tmp_path / "named")} == {"__consumer_offsets"}
    for name in ("all", "starred"):
        assert not {row["topic"] for row in exported(tmp_path / name)} & set(_INTERNAL)


# --- the files -------------------------------------------------------------------------------------------------------


def test_files_are_named_by_the_offsets_that_they_have(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset, records=150))
    assert files_of(dataset) == [
        "topic=t/date=2023-11-14/0-00000000000000000000-00000000000000000150.parquet",
        "topic=t/date=2023-11-14/0-00000000000000000150-00000000000000000200.parquet",
    ]


@pytest.mark.parametrize(("days", "most_files"), [(3, 3), (40, 1000)])
def test_timestamps_may_jump_from_day_to_day(days: int, most_files: int, tmp_path: Path, dataset: Path) -> None:
    day = 86_400_000
    content = [
        batch([record(at, timestamp=(at * 7 % days) * day + at) for at in range(first, first + 25)])
        for first in range(0, 1000, 25)
    ]
    write_partition(tmp_path / "data" / "t-0", {0: content})
    open_files: list[int] = []
    created = files._created

    def watched_created(path: str, root: str) -> object:
        open_files.append(sum(".staged" in os.readlink(f"/proc/self/fd/{fd}") for fd in _open_fds()))
        return created(path, root)

    with patch.object(files, "_created", watched_created):
        export(options_for(tmp_path / "data", dataset))
    rows = dated(dataset)
    assert [row["offset"] for row in rows] == list(range(1000))
    assert [row["date"] for row in rows] == [date_of(row["timestamp"]) for row in rows]
    assert len({row["date"] for row in rows}) == days
    assert days <= len(files_of(dataset)) <= most_files
    assert max(open_files) < 16


def _open_fds() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def test_memory_for_many_open_files_is_bounded(tmp_path: Path, dataset: Path) -> None:
    content = [
        batch([record(at, timestamp=at % 10 * 86_400_000) for at in range(first, first + 1000)])
        for first in range(0, 40_000, 1000)
    ]
    write_partition(tmp_path / "data" / "t-0", {0: content})
    with patch.object(files, "_MOST_WAITING_BYTES", 100_000):
        export(options_for(tmp_path / "data", dataset))
    assert offsets_in(dataset) == list(range(40_000))
    groups = [parquet.ParquetFile(path).metadata.num_row_groups for path in dataset.rglob("*.parquet")]
    assert len(groups) == 10
    assert sum(groups) > 10


def test_what_has_no_date_is_where_hive_keeps_nulls(tmp_path: Path, dataset: Path) -> None:
    times = [-1, 0, -2, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1]
    write_partition(
        tmp_path / "data" / "t-0", {0: [batch([record(at, timestamp=time)]) for at, time in enumerate(times)]}
    )
    export(options_for(tmp_path / "data", dataset))
    dates = [row["date"] for row in dated(dataset)]
    assert dates == [None, "1970-01-01", "1969-12-31", "0001-01-01", None, "9999-12-31", None, None]


@pytest.mark.parametrize("topic", ["_hidden", ".hidden", "-", "a.b_c", "007", "null", "x" * 249])
def test_topics_of_any_name_that_kafka_has(topic: str, tmp_path: Path, dataset: Path) -> None:
    write_partition(tmp_path / "data" / f"{topic}-0"[:255], {0: dense(0, 9)})
    export(options_for(tmp_path / "data", dataset))
    assert {(row["topic"], row["offset"]) for row in exported(dataset)} == {(topic, at) for at in range(10)}


def test_what_no_broker_would_call_a_topic_is_left_out_and_named(
    data: Path, dataset: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a b", "topic=x", "new\nline", "..%2f"):
        write_partition(data / f"{name}-0", {0: dense(0, 9)})
    export(options_for(data, dataset))
    assert {row["topic"] for row in exported(dataset)} == {"t"}
    assert "'topic=x' is not a topic name; left out" in caplog.text


def test_compression_is_chosen(data: Path, tmp_path: Path) -> None:
    for codec, written in ((None, "ZSTD"), ("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("none", "UNCOMPRESSED")):
        export(options_for(data, tmp_path / str(codec), compression=codec))
        (path,) = (tmp_path / str(codec)).rglob("*.parquet")
        assert parquet.ParquetFile(path).metadata.row_group(0).column(0).compression == written


# --- going on --------------------------------------------------------------------------------------------------------


def test_an_export_goes_on_where_the_last_one_stopped(data: Path, dataset: Path) -> None:
    assert export(options_for(data, dataset)).records == 200
    assert export(options_for(data, dataset)).batches == 0
    append(data, 200, 204)
    write_partition(data / "t-1", {0: dense(0, 9)})
    assert export(options_for(data, dataset)).records == 15
    assert [(row["partition"], row["offset"]) for row in exported(dataset)] == [
        *((0, at) for at in range(205)),
        *((1, at) for at in range(10)),
    ]


def test_it_ends_where_the_logs_ended_when_it_looked(data: Path, dataset: Path) -> None:
    def grow(_export: Export) -> None:
        append(data, 200, 204)

    assert export(options_for(data, dataset), at_batch=grow).records == 200


def test_positions_are_kept_where_readers_do_not_look(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    assert sorted(path.name for path in dataset.iterdir()) == ["_kfs", "topic=t"]
    with open_writable_store(f"sqlite://{dataset}/_kfs/progress.db") as store:
        progress = store.load("export")
    assert progress.positions == {TopicPartition("t", 0): 200}
    assert (progress.batch, progress.writer) == (None, None)
    assert [path for path in (dataset / "_kfs" / "staging").rglob("*") if path.is_file()] == []


def test_positions_can_be_kept_elsewhere_under_a_name(data: Path, dataset: Path, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/positions.db"
    with pytest.raises(InvalidOption, match="needs the name of a group"):
        options_for(data, dataset, store=url)
    export(options_for(data, dataset, store=url, group="lake"))
    with open_writable_store(url) as store:
        assert store.load("lake").positions == {TopicPartition("t", 0): 200}
    assert not (dataset / "_kfs" / "progress.db").exists()


@pytest.mark.parametrize(
    ("text", "first"), [("earliest", 0), ("latest", 200), ("2023-11-14T22:15:00Z", 100), ("2030-01-01", 200)]
)
def test_where_it_starts_is_decided_once(text: str, first: int, data: Path, dataset: Path) -> None:
    options = options_for(data, dataset, starting=parse_starting(text))
    export(options)
    assert offsets_in(dataset) == list(range(first, 200))
    append(data, 200, 204)
    write_partition(data / "t-1", {0: dense(0, 9)})  # a partition that is added later begins where it begins
    export(options)
    assert [(row["partition"], row["offset"]) for row in exported(dataset)] == [
        *((0, at) for at in range(first, 205)),
        *((1, at) for at in range(10)),
    ]


def test_it_starts_where_a_group_stopped(corpus: CorpusPath, tmp_path: Path) -> None:
    data = corpus("d_groups") / "data"
    committed = json.loads((corpus("d_groups") / "groups.json").read_text())["classic-grp"]["offsets"]
    export(options_for(data, tmp_path / "dataset", topics=("payments",), starting=parse_starting("group:classic-grp")))
    first: dict[str, int] = {}
    for row in exported(tmp_path / "dataset"):
        first.setdefault(f"payments-{row['partition']}", row["offset"])
    assert first["payments-2"] == committed["payments-2"]["offset"] == 74
    with pytest.raises(NotFound, match="no group 'nobody'"):
        export(options_for(data, tmp_path / "none", starting=parse_starting("group:nobody")))


@pytest.mark.parametrize("text", ["", "soon", "group", "2020-13-01"])
def test_a_start_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_starting(text)


def test_a_topic_that_is_not_there_is_named(data: Path, dataset: Path) -> None:
    with pytest.raises(NotFound, match=r"no topic 'orders\*' in .*; the topics there: t"):
        export(options_for(data, dataset, topics=("t", "orders*")))
    assert exported(dataset) == []


def test_an_object_store_is_refused(data: Path) -> None:
    with pytest.raises(InvalidOption, match="an object store can't rename"):
        ExportOptions((str(data),), "s3://bucket/dataset")


# --- what is wrong with the logs -------------------------------------------------------------------------------------


def test_a_corrupt_batch_ends_it_and_what_came_before_stays(data: Path, dataset: Path) -> None:
    position = damage(data, 7)
    with pytest.raises(CorruptData, match=rf"{data}/t-0/{log_name(0)}: position {position}: .*CRC"):
        export(options_for(data, dataset, records=20))
    assert offsets_in(dataset) == list(range(20))
    assert [path for path in (dataset / "_kfs" / "staging").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("records", [None, 7])
def test_a_corrupt_batch_is_skipped_and_told(records: int | None, data: Path, dataset: Path) -> None:
    position = damage(data, 7)
    totals = export(options_for(data, dataset, records=records, read=SKIP))
    assert offsets_in(dataset) == [at for at in range(200) if not 35 <= at < 40]
    assert {(problem.file, problem.position) for problem in totals.skipped} == {(f"{data}/t-0/{log_name(0)}", position)}
    assert export(options_for(data, dataset, read=SKIP)).skipped == []


def test_every_damage_that_was_recorded_is_skipped_and_nothing_else(corpus: CorpusPath, tmp_path: Path) -> None:
    data = corpus(DAMAGED) / "data"
    whole = export(options_for(data, tmp_path / "whole", read=SKIP))
    in_parts = export(options_for(data, tmp_path / "parts", records=500, read=SKIP))
    assert exported(tmp_path / "parts") == exported(tmp_path / "whole")
    assert whole.records == in_parts.records > 1000
    assert whole.skipped


def test_offsets_that_come_next_and_are_gone_are_data_loss(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset, records=20), at_batch=_stop_at(3))
    assert offsets_in(dataset) == list(range(60))
    set_log_start(data, "t", 0, 80)
    with pytest.raises(DataLoss, match=r"offsets 60 to 199 of t-0 are to be read, and the log has 80 to 199"):
        export(options_for(data, dataset))
    export(options_for(data, dataset, read=ACCEPT_LOSS))
    assert offsets_in(dataset) == [*range(60), *range(80, 200)]


def _stop_at(number: int) -> Callable[[Export], None]:
    """Return what makes an export stop with its nth batch undone."""
    seen = []

    def stop(exporting: Export) -> None:
        seen.append(exporting)
        if len(seen) > number:
            exporting.next_batch = lambda end: None  # type: ignore[method-assign]
            exporting.do = lambda batch: None  # type: ignore[method-assign, assignment, misc]

    return stop


def test_a_log_that_was_made_anew_is_data_loss(data: Path, dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    export(options_for(data, dataset))
    shutil.rmtree(data / "t-0")
    write_partition(data / "t-0", {0: dense(0, 9)})
    with pytest.raises(DataLoss, match="the log of t-0 ended at 200 and ends at 10 now"):
        export(options_for(data, dataset))
    with caplog.at_level(logging.WARNING):
        assert export(options_for(data, dataset, read=ACCEPT_LOSS)).batches == 0
    assert "ends at 10 now" in caplog.text


def test_partitions_that_are_gone_are_named(data: Path, dataset: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_partition(data / "t-1", {0: dense(0, 9)})
    export(options_for(data, dataset))
    shutil.rmtree(data / "t-1")
    append(data, 200, 204)
    assert export(options_for(data, dataset)).records == 5
    assert "partitions t-1 have positions, but are not in the log directories" in caplog.text


# --- what is wrong with the dataset ----------------------------------------------------------------------------------


def test_offsets_that_are_in_the_dataset_are_not_written_again(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    with open_writable_store(f"sqlite://{dataset}/_kfs/progress.db") as store:
        store.set_positions("export", {TopicPartition("t", 0): 150})
    with pytest.raises(KfsError, match=r"0-0+-0+200.parquet: has offsets of 150 to 199, which were about to be"):
        export(options_for(data, dataset))
    assert offsets_in(dataset) == list(range(200))
    append(data, 200, 204)  # and so the next batch would have another name
    with pytest.raises(KfsError, match="has offsets of 150 to 204"):
        export(options_for(data, dataset))


def test_a_dataset_that_was_removed_begins_anew(data: Path, dataset: Path) -> None:
    export(options_for(data, dataset))
    shutil.rmtree(dataset)
    export(options_for(data, dataset))
    assert offsets_in(dataset) == list(range(200))


def test_an_executor_that_does_not_see_the_dataset_says_so(data: Path, dataset: Path) -> None:
    class Elsewhere(HereJobs):
        def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
            assert isinstance(doing, ParquetWriting)
            there = ParquetWriting(Staging("/nowhere/at/all", "1"), ReadOptions(), "zstd")
            return super().run(tasks, there, advance)

    with pytest.raises(UnusableSession, match=r"/nowhere/at/all is not there on .*: every executor has to see"):
        export(options_for(data, dataset), Elsewhere())


# --- steps -----------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """The process ends here."""


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.long)])
def test_an_export_that_fails_at_any_step_is_completed_by_the_next(stride: int, data: Path, tmp_path: Path) -> None:
    step = stride
    while _fails_at(step, data, tmp_path / f"{step}"):
        step += stride
    assert step > 25


def _fails_at(number: int, data: Path, dataset: Path) -> bool:
    """Let an export fail before a step, and go on; return whether there was such a step."""
    url = f"sqlite://{dataset}.db"
    options = options_for(data, dataset, records=120, store=url, group="g")
    count = 0

    def at_step(_name: str) -> None:
        nonlocal count
        count += 1
        if count >= number:
            raise Stopped

    with open_writable_store(url) as store:
        try:
            with watched(store, at_step), patch("kfs.spark.exporting.export.open_writable_store", lambda _url: store):
                export(options)
        except Stopped:
            pass
    seen = offsets_in(dataset) if dataset.exists() else []
    assert seen == list(range(len(seen)))
    export(options)
    assert offsets_in(dataset) == list(range(200))
    assert [path for path in (dataset / "_kfs" / "staging").rglob("*") if path.is_file()] == []
    return count >= number


@pytest.mark.parametrize("batches_before", [0, 1, 2])
def test_a_second_export_takes_over_and_the_first_writes_nothing_any_more(
    batches_before: int, data: Path, dataset: Path
) -> None:
    options = options_for(data, dataset, records=80)
    seen: list[Export] = []

    def taken_over(exporting: Export) -> None:
        if len(seen) == batches_before:
            seen.append(exporting)
            export(options)
        seen.append(exporting)

    with pytest.raises(Fenced, match=r"took it over|another export took over the group"):
        export(options, at_batch=taken_over)
    assert offsets_in(dataset) == list(range(200))


def test_a_task_that_is_done_twice_counts_once(data: Path, dataset: Path) -> None:
    totals = export(options_for(data, dataset, records=80), HereJobs(times=3))
    assert (totals.records, totals.files) == (200, 3)
    assert offsets_in(dataset) == list(range(200))


def test_what_tasks_left_that_were_done_twice_is_removed_after_each_batch(data: Path, dataset: Path) -> None:
    jobs = HereJobs(times=3)
    options = options_for(data, dataset, records=80)
    with opened_export(options, ParquetSink(jobs, options), 2) as exporting:
        end = exporting.look()
        while (planned := exporting.next_batch(end)) is not None:
            exporting.do(planned)
            assert [path for path in (dataset / "_kfs" / "staging").rglob("*") if path.is_file()] == []


def test_an_export_that_was_taken_over_when_its_files_were_there_says_so(data: Path, dataset: Path) -> None:
    class TakenOver(HereJobs):
        def run(self, tasks: Sequence[Task], doing: Doing, advance: Advance) -> list[TaskDone]:
            done = super().run(tasks, doing, advance)
            export(options)
            return done

    options = options_for(data, dataset)
    with pytest.raises(Fenced, match="must stop"):
        export(options, TakenOver())
    assert offsets_in(dataset) == list(range(200))
