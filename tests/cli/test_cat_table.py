"""``kfs cat --format arrow|parquet`` and ``--output``: the records of the lines, whole files or none."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from kfs.cat import table_file
from kfs.cat.output import TableFormat
from kfs.cat.table_file import TableWriter
from kfs.format.codecs import Codec
from kfs.format.record import TimestampType
from kfs.render.record_line import parse_line
from tests.cli.running import leave_early, printed, refused
from tests.cli.test_command_line import on_a_terminal
from tests.system.kafka_mount import KFS, kfs
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition, message

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "timestampMillis"]


def table_of(path: Path | io.BytesIO, table_format: str) -> pa.Table:
    if table_format == "parquet":
        return parquet.ParquetFile(path, page_checksum_verification=True).read()
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def rows_of_lines(lines: bytes) -> list[dict[str, Any]]:
    """The rows that the records of some lines are."""
    rows = []
    for line in lines.splitlines():
        topic, partition, record = parse_line(line)
        headers = [{"key": key.decode(), "value": value} for key, value in record.headers]
        rows.append(
            {
                "key": record.key,
                "value": record.value,
                "topic": topic,
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp * 1000,
                "timestampType": {
                    TimestampType.NO_TIMESTAMP: -1,
                    TimestampType.CREATE_TIME: 0,
                    TimestampType.LOG_APPEND_TIME: 1,
                }[record.timestamp_type],
                "headers": headers or None,
                "timestampMillis": record.timestamp,
            }
        )
    return rows


def rows_of_table(table: pa.Table) -> list[dict[str, Any]]:
    assert table.column_names == COLUMNS
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    at = COLUMNS.index("timestamp")
    rows: list[dict[str, Any]] = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    return rows


@pytest.mark.parametrize("table_format", ["arrow", "parquet"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("orders", "photos"),
        ("orders", "-j", "1"),
        ("orders/1", "returns"),
        ("returns",),
        ("orders", "--offsets", "10:20"),
        ("orders", "--first", "4"),
        ("orders", "--last", "3"),
        ("orders", "--key", "order-15"),
        ("orders/0", "--grep", '"item":1[23],.*café'),
        ("orders/0", "--header", "trace=c"),
    ],
)
def test_a_table_has_the_records_of_the_lines(
    arguments: tuple[str, ...], table_format: str, shop: Shop, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    assert printed("cat", shop.root, *arguments, "--format", table_format, "-o", path) == b""
    expected = rows_of_lines(kfs("cat", shop.root, *arguments).stdout)
    assert rows_of_table(table_of(path, table_format)) == expected
    assert bool(expected) == (arguments != ("returns",))
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("name", ["f_mixed", "b_txn", "c_clean"])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_of_recorded_logs_too(name: str, isolation: str, corpus: Callable[[str], Path], tmp_path: Path) -> None:
    data = corpus(name) / "data"
    topics = sorted({path.name.rpartition("-")[0] for path in data.iterdir() if path.is_dir()})
    options = (*topics, "--isolation", isolation)
    expected = rows_of_lines(printed("cat", data, *options))
    for table_format in TableFormat:
        printed("cat", data, *options, "--format", table_format, "-o", tmp_path / table_format)
        table = table_of(tmp_path / table_format, table_format)
        assert rows_of_table(table) == expected
        assert table.schema.metadata[b"kfs.isolation"] == isolation.encode()


def test_times_of_a_table(shop: Shop, tmp_path: Path) -> None:
    times = [record.timestamp for record in shop.orders.records.values()]
    since, before = str(times[12]), str(times[31])
    printed("cat", shop.root, "orders/0", "--since", since, "--before", before, "-f", "parquet", "-o", tmp_path / "t")
    assert table_of(tmp_path / "t", "parquet")["timestampMillis"].to_pylist() == times[12:31]


def test_into_a_pipe_it_is_a_stream_or_parquet(shop: Shop) -> None:
    expected = rows_of_lines(printed("cat", shop.root, "orders"))
    stream = printed("cat", shop.root, "orders", "--format", "arrow")
    assert rows_of_table(pa.ipc.open_stream(stream).read_all()) == expected
    whole = printed("cat", shop.root, "orders", "--format", "parquet", "--output", "-")
    assert rows_of_table(table_of(io.BytesIO(whole), "parquet")) == expected


def test_what_is_no_ordinary_file_is_written_to_as_it_is(shop: Shop, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command: list[str | Path] = [KFS, "cat", shop.root, "orders", "-f", "arrow", "-o", tmp_path / "pipe"]
    with subprocess.Popen(command) as process:
        rows = pa.ipc.open_stream((tmp_path / "pipe").read_bytes()).read_all().num_rows
        assert process.wait(30) == 0
    assert rows == printed("cat", shop.root, "orders").count(b"\n")
    assert (tmp_path / "pipe").is_fifo()


def test_how_parquet_is_laid_out(shop: Shop, tmp_path: Path) -> None:
    printed("cat", shop.root, "orders", "--format", "parquet", "-o", tmp_path / "p")
    metadata = parquet.ParquetFile(tmp_path / "p").metadata
    assert metadata.num_row_groups == 1
    group = metadata.row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    dictionaries = {name for name, column in columns.items() if "RLE_DICTIONARY" in column.encodings}
    assert dictionaries == columns.keys() - {"offset", "timestamp", "timestampMillis"}
    assert columns["offset"].statistics.min == 0


def test_row_groups_and_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "_ROW_GROUP_ROWS", 100)
    batch = pa.record_batch({"offset": pa.array(range(40)), "value": pa.array([b"x" * 100] * 40)})

    def rows_of_groups(count: int) -> list[int]:
        out = io.BytesIO()
        with TableWriter(batch.schema, TableFormat.PARQUET, out, is_file=True, metadata={}) as writer:
            for _ in range(count):
                writer.write(batch)
        metadata = parquet.ParquetFile(out).metadata
        return [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]

    assert rows_of_groups(5) == [80, 80, 40]
    assert rows_of_groups(0) == []
    monkeypatch.setattr(table_file, "_ROW_GROUP_BYTES", batch.get_total_buffer_size())
    assert rows_of_groups(3) == [40, 40, 40]


# --- whole or not at all --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "value", "arrow", "parquet"])
def test_a_file_is_replaced_when_all_is_written_and_not_before(form: str, shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to("out")
    assert refused("cat", shop.root, "orders", "nothing", "-f", form, "-o", path) == "kfs: no topic 'nothing'\n"
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["link", "out"]
    assert printed("cat", shop.root, "orders", "-f", form, "-o", tmp_path / "link") == b""
    assert (tmp_path / "link").is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    if form in ("json", "value"):
        assert path.read_bytes() == printed("cat", shop.root, "orders", "-f", form)
    else:
        assert table_of(path, form).num_rows == printed("cat", shop.root, "orders").count(b"\n")


def test_a_new_file_has_the_mode_of_new_files(shop: Shop, tmp_path: Path) -> None:
    command = f"umask 027; {KFS} cat {shop.root} orders/0/offset/3.json -o {tmp_path}/out"
    subprocess.run(command, shell=True, check=True)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "out").read_bytes() == shop.orders.line(3)


@pytest.mark.parametrize("form", ["json", "arrow", "parquet"])
def test_what_is_read_is_never_written_to(form: str, shop: Shop) -> None:
    for name in ("new.out", "orders-0/new.out"):
        assert "lies in" in refused("cat", shop.root, "orders", "-f", form, "-o", shop.root / name)
        assert not (shop.root / name).exists()


@pytest.mark.parametrize("form", ["json", "arrow", "parquet"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_is_said_and_nothing_else(form: str, jobs: str, shop: Shop, tmp_path: Path) -> None:
    options = ("orders", "-j", jobs, "-f", form)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([KFS, "cat", shop.root, *options], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"kfs: can't write: No space left on device\n")
    said = "kfs: can't write /dev/full: No space left on device\n"
    assert refused("cat", shop.root, *options, "-o", "/dev/full") == said
    nowhere = tmp_path / "nowhere" / "out"
    assert refused("cat", shop.root, *options, "-o", nowhere).endswith("out: No such file or directory\n")


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_reader_that_has_enough_is_left_quietly(form: str, tmp_path: Path) -> None:
    partition = ToyPartition(tmp_path, "large")
    for number in range(40):
        partition.append([message(number, os.urandom(300_000))])
    leave_early("cat", tmp_path, "large", "-f", form, "-j", "1")


@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_damage_is_said_the_rest_is_written_and_the_exit_code_tells(form: str, jobs: str, tmp_path: Path) -> None:
    partition = ToyPartition(tmp_path / "data", "torn")
    for number in range(6):
        if number == 2:
            position = partition.active.stat().st_size
        partition.append([message(offset) for offset in range(number * 10, number * 10 + 10)], Codec.LZ4)
    data = bytearray(partition.active.read_bytes())
    data[position + 70] ^= 0xFF
    partition.active.write_bytes(data)
    done = kfs("cat", partition.directory, "torn", "-j", jobs, "-f", form, "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, b"")
    said = done.stderr.decode().splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"kfs: {partition.active}: position {position}: record batch with stored CRC ")
    offsets = table_of(tmp_path / "out", form)["offset"].to_pylist()
    assert offsets == [offset for offset in range(60) if not 20 <= offset < 30]
    undamaged = kfs("cat", partition.directory, "torn", "--offsets", "30:40", "-f", form, "-o", tmp_path / "out")
    assert undamaged.returncode == 0
    assert table_of(tmp_path / "out", form)["offset"].to_pylist() == list(range(30, 40))


# --- wrong usage ----------------------------------------------------------------------------------------------------


def test_what_is_no_topic_is_no_table(shop: Shop, tmp_path: Path) -> None:
    done = kfs("cat", shop.root, "orders", "orders/0/first.json", "-f", "parquet", "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"not for orders/0/first.json" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_terminal_gets_no_table(shop: Shop) -> None:
    sent = on_a_terminal("cat", shop.root, "orders", "--format", "arrow")
    assert b"can't be written to a terminal" in sent
    assert b"ARROW1" not in sent


def test_on_a_terminal_a_bar_shows_how_far_it_is(shop: Shop, tmp_path: Path) -> None:
    sent = on_a_terminal("cat", shop.root, "orders", "photos", "-f", "parquet", "-o", tmp_path / "out")
    assert b"writing" in sent
    size = sum(path.stat().st_size for path in shop.root.glob("[op]*/*.log"))
    assert json.dumps(f"{size // 1000}").strip('"').encode() in sent.replace(b".", b"")


@pytest.mark.parametrize("form", ["json", "arrow", "parquet"])
def test_without_pyarrow_it_says_what_to_install(form: str, shop: Shop, tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from kfs.cli.main import main; main()"
    command: list[str | Path] = [
        sys.executable,
        "-c",
        code,
        "cat",
        shop.root,
        "orders",
        "-f",
        form,
        "-o",
        tmp_path / "out",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if form == "json":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert (done.returncode, done.stderr) == (1, "kfs: Arrow and Parquet need pyarrow: pip install 'kfs[arrow]'\n")
        assert not (tmp_path / "out").exists()
