"""What people use a filesystem for: pandas, DuckDB and pyarrow read the lines of records through ``kfs://``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfs.fsspec import KafkaFileSystem
from tests.logs import dense, write_partition

RECORDS = 30 + 13


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with 30 records of ``t-0`` in two segments, and 13 of ``t-1``."""
    write_partition(tmp_path / "t-0", {0: dense(0, 19), 20: dense(20, 29)})
    write_partition(tmp_path / "t-1", {0: dense(0, 12)})
    return tmp_path


def test_pandas_reads_lines_by_url(root: Path) -> None:
    pandas = pytest.importorskip("pandas")
    by_url = pandas.read_json(f"kfs://t/0/records.jsonl::file://{root}", lines=True, dtype=False)
    by_option = pandas.read_json(
        "kfs://t/0/records.jsonl", lines=True, dtype=False, storage_options={"log_dirs": str(root)}
    )
    for frame in (by_url, by_option):
        assert list(frame["offset"]) == list(range(30))
        assert list(frame["value"]) == [f"value {offset}" for offset in range(30)]


def test_pandas_reads_them_in_chunks(root: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with pandas.read_json(f"kfs://t/0/records.jsonl::file://{root}", lines=True, chunksize=7) as chunks:
        assert [len(chunk) for chunk in chunks] == [7, 7, 7, 7, 2]


def test_duckdb_reads_every_file_that_matches(root: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register_filesystem(KafkaFileSystem(root, skip_instance_cache=True))
        sql = """select partition, count(*), min("offset"), max(value) from read_json('kfs://t/*/segment/*.jsonl')
                 group by partition order by partition"""
        assert connection.sql(sql).fetchall() == [(0, 30, 0, "value 9"), (1, 13, 0, "value 9")]
        sql = "select count(*) from read_json('kfs://t/0/records.jsonl')"
        assert connection.sql(sql).fetchall() == [(30,)]


def test_pyarrow_takes_it_for_one_of_its_own(root: Path) -> None:
    filesystem = pytest.importorskip("pyarrow.fs")
    arrow_json = pytest.importorskip("pyarrow.json")
    shown = filesystem.PyFileSystem(filesystem.FSSpecHandler(KafkaFileSystem(root, skip_instance_cache=True)))
    listed = shown.get_file_info(filesystem.FileSelector("t", recursive=True))
    paths = [info.path for info in listed if info.path.endswith(".jsonl") and "/segment/" in info.path]
    assert sum(arrow_json.read_json(shown.open_input_stream(path)).num_rows for path in paths) == RECORDS
    with shown.open_input_file("t/0/offset/7.json") as file:
        assert json.loads(file.read())["offset"] == 7
        assert file.size() == shown.get_file_info("t/0/offset/7.json").size
    assert shown.get_file_info("t/9").type == filesystem.FileType.NotFound
    with pytest.raises(OSError, match="Read-only"):
        shown.create_dir("t/9")
