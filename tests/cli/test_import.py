"""``kfs import`` from the command line: inputs, outputs, bad lines, and what is left when it is killed."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import printed, refused
from tests.corpus import compare, take_manifest
from tests.imports.some_lines import some_lines
from tests.logs import dense, log_name, positions, write_partition
from tests.system.kafka_mount import KFS, kfs


def with_input(data: bytes, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([KFS, "import", *arguments], input=data, capture_output=True, check=False)


def topic_id_of(partition: Path) -> str:
    return (partition / "partition.metadata").read_text().split("topic_id: ")[1]


def test_what_cat_prints_is_imported_and_printed_again(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(some_lines(10, "a"))
    (tmp_path / "b.jsonl").write_bytes(some_lines(3, "b", 1, start=5) + some_lines(5, "a", start=10))
    told = printed("import", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "made").decode().splitlines()
    assert told[0].startswith(f"{tmp_path / 'made' / 'a-0'}: 15 records, offsets 0 to 14, topic id ")
    assert told[1].startswith(f"{tmp_path / 'made' / 'b-1'}: 3 records, offsets 5 to 7, topic id ")
    assert told[2] == "2 partitions, 18 records"
    assert printed("cat", tmp_path / "made", "a", "b") == some_lines(15, "a") + some_lines(3, "b", 1, start=5)


@pytest.mark.parametrize("table_format", ["arrow", "parquet"])
def test_a_table_that_cat_makes_is_imported_and_printed_again(
    table_format: str, tmp_path: Path, corpus: Callable[[str], Path]
) -> None:
    source = corpus("f_mixed") / "data"
    topics = sorted({path.name.rpartition("-")[0] for path in source.iterdir() if path.is_dir()})
    table = tmp_path / "table.of.any.name"
    assert printed("cat", source, *topics, "--format", table_format, "-o", table) == b""
    told = printed("import", table, "-o", tmp_path / "made").decode().splitlines()
    expected = printed("cat", source, *topics)
    assert told[-1].endswith(f" {len(expected.splitlines())} records")
    kept = [topic for topic in topics if (tmp_path / "made" / f"{topic}-0").exists()]
    assert printed("cat", tmp_path / "made", *kept) == expected


def test_tables_from_standard_input(tmp_path: Path) -> None:
    assert with_input(some_lines(10), "-o", tmp_path / "data").returncode == 0
    stream = printed("cat", tmp_path / "data", "t", "--format", "arrow")
    done = with_input(stream, "-o", tmp_path / "made")
    assert (done.returncode, done.stderr) == (0, b"")
    assert printed("cat", tmp_path / "made", "t") == some_lines(10)
    done = with_input(stream[:-8], "-o", tmp_path / "cut")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"standard input: after row 10: can't be read as an Arrow stream: " in done.stderr
    parquet = printed("cat", tmp_path / "data", "t", "--format", "parquet")
    done = with_input(parquet, "-o", tmp_path / "cut")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"standard input: is Parquet, whose end must be read first: name the file" in done.stderr
    (tmp_path / "table").write_bytes(parquet)
    with open(tmp_path / "table", "rb") as file:
        subprocess.run([KFS, "import", "-o", tmp_path / "redirected"], stdin=file, check=True)
    assert printed("cat", tmp_path / "redirected", "t") == some_lines(10)


def test_rows_that_are_none_can_be_left_out(tmp_path: Path) -> None:
    assert with_input(some_lines(10), "-o", tmp_path / "data").returncode == 0
    printed("cat", tmp_path / "data", "t", "--format", "parquet", "-o", tmp_path / "table")
    twice = (tmp_path / "table", tmp_path / "table", "-o", tmp_path / "made")
    refusal = refused("import", *twice)
    assert refusal == f"kfs: {tmp_path / 'table'}: row 1: offset 0 after offset 9 of t-0\n"
    done = kfs("import", *twice, "--on-bad-line", "skip")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[0] == refusal.strip()
    assert printed("cat", tmp_path / "made", "t") == some_lines(10)


def test_without_pyarrow_it_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pyarrow'] = None; from kfs.cli.main import main; main()"
    command: list[str | Path] = [sys.executable, "-c", code, "import", "-o", tmp_path / "made"]
    done = subprocess.run(command, input=b"PAR1", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (1, b"kfs: Arrow and Parquet need pyarrow: pip install 'kfs[arrow]'\n")
    assert subprocess.run(command, input=some_lines(2), capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = with_input(some_lines(10), *arguments, "--output", tmp_path / "made", "--codec", "zstd")
    assert (done.returncode, done.stderr) == (0, b"")
    assert printed("cat", tmp_path / "made", "t") == some_lines(10)


def test_new_offsets(tmp_path: Path) -> None:
    lines = some_lines(3, start=7) + some_lines(3)
    assert with_input(lines, "-o", tmp_path / "made", "--new-offsets").returncode == 0
    values = printed("cat", tmp_path / "made", "t", "-f", "value").split()
    assert values[1::2] == [b"7", b"8", b"9", b"0", b"1", b"2"]
    assert printed("cat", tmp_path / "made", "t", "--offsets", "0:2").count(b"\n") == 2


def test_a_log_directory_is_exported_and_imported_at_once_without_what_was_aborted(
    tmp_path: Path, corpus: Callable[[str], Path]
) -> None:
    source = corpus("b_txn") / "data"
    told = printed("import", source, "-o", tmp_path / "made", "--codec", "lz4").decode().splitlines()
    assert told[-1] == "exported with --isolation read_committed: no aborted or open transactions"
    for topic in ("payments", "ledger"):
        committed = printed("cat", source, topic, "--isolation", "read_committed")
        assert printed("cat", tmp_path / "made", topic) == committed
        assert committed != printed("cat", source, topic)
    told = printed("import", source, "-o", tmp_path / "all", "--isolation", "read_uncommitted").decode().splitlines()
    assert told[-1] == "exported with --isolation read_uncommitted: aborted ones too"
    assert printed("cat", tmp_path / "all", "payments") == printed("cat", source, "payments")


def test_what_cannot_be_read_of_a_log_directory_is_named_and_the_rest_imported(tmp_path: Path) -> None:
    content = dense(0, 99)
    path = write_partition(tmp_path / "data" / "t-0", {0: content}) / log_name(0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = kfs("import", tmp_path / "data", "-o", tmp_path / "made")
    assert done.returncode == 1
    assert f"{path}: position {positions(content)[-1]}".encode() in done.stderr
    assert printed("cat", tmp_path / "made", "t").count(b"\n") == 95


def test_a_log_directory_is_not_imported_into_itself(tmp_path: Path) -> None:
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 9)})
    assert "lies in" in refused("import", tmp_path / "data", "-o", tmp_path / "data")


#: Prints the most memory that the process has had since it is this program, in kilobytes.
_MEASURED = """
import sys
from kfs.cli.main import main
main(["import", *sys.argv[1:]], standalone_mode=False)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("form", ["json", "arrow", "parquet"])
def test_memory_does_not_grow_with_the_lines(form: str, tmp_path: Path) -> None:
    def most_kilobytes(count: int) -> int:
        path = tmp_path / f"{count}.{form}"
        assert with_input(some_lines(count), "-o", tmp_path / f"{count}-source").returncode == 0
        printed("cat", tmp_path / f"{count}-source", "t", "--format", form, "-o", path)
        command: list[str | Path] = [sys.executable, "-c", _MEASURED, path, "-o", tmp_path / str(count)]
        return int(subprocess.run(command, capture_output=True, check=True).stdout.split()[-1])

    few = most_kilobytes(5_000)
    assert most_kilobytes(50_000) < few + (4_000 if form == "json" else 16_000)  # not even a hundred bytes a line


@pytest.mark.parametrize("lines", [b"", b"{}\n{}\n"])
def test_where_there_is_no_record_nothing_is_made(lines: bytes, tmp_path: Path) -> None:
    done = with_input(lines, "-o", tmp_path / "new" / "made", "--on-bad-line", "skip")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.splitlines()[-1] == b"kfs: no records to import"
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_rows_is_no_record_either(tmp_path: Path) -> None:
    write_partition(tmp_path / "source" / "t-0", {0: dense(0, 9)})
    printed("cat", tmp_path / "source", "t", "--offsets", "90:", "--format", "parquet", "-o", tmp_path / "t.parquet")
    reason = refused("import", tmp_path / "t.parquet", "-o", tmp_path / "made")
    assert reason == "kfs: no records to import\n"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "arguments",
    [("LINES",), ("missing",), ("made",), ("--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", "LINES", "OTHERS")],
)
def test_a_refused_import_leaves_nothing_behind(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(some_lines(3) + b"5\n")
    (tmp_path / "others").write_bytes(some_lines(3, topic="u"))
    names = {"LINES": tmp_path / "lines", "OTHERS": tmp_path / "others", "made": tmp_path / "here"}
    (tmp_path / "here").mkdir()
    (tmp_path / "kept").mkdir()
    printed("import", tmp_path / "others", "-o", tmp_path / "kept")
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    outputs = ("-o", tmp_path / "here", "-o", tmp_path / "kept", "-o", tmp_path / "new" / "below")
    refused("import", *(names.get(each, each) for each in arguments), *outputs)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


# --- bad lines ------------------------------------------------------------------------------------------------------


BAD = some_lines(2) + b"{}\n" + some_lines(2, start=1) + b"\n" + some_lines(1, start=3)


def test_the_first_bad_line_stops_it_and_nothing_is_made(tmp_path: Path) -> None:
    done = with_input(BAD, "-o", tmp_path / "made")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"kfs: standard input: line 3: field offset is missing, expected an integer\n"
    assert not (tmp_path / "made").exists()


def test_bad_lines_are_left_out_counted_and_told_by_the_exit_code(tmp_path: Path) -> None:
    done = with_input(BAD, "-o", tmp_path / "made", "--on-bad-line", "skip")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == b"1 partitions, 4 records"
    said = done.stderr.decode().splitlines()
    assert [line.split(": ")[2] for line in said[:-1]] == ["line 3", "line 4", "line 6"]
    assert "offset 1 after offset 1 of t-0" in said[1]
    assert said[-1] == "kfs: 3 bad lines were left out"
    assert printed("cat", tmp_path / "made", "t") == some_lines(4)


def test_only_the_first_bad_lines_are_named(tmp_path: Path) -> None:
    done = with_input(b"{}\n" * 1000 + some_lines(1) + b"{}\n", "-o", tmp_path / "made", "--on-bad-line", "skip")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 22
    assert done.stderr.splitlines()[-1] == b"kfs: 1001 bad lines were left out"


def test_what_a_format_cannot_hold_names_the_line(tmp_path: Path) -> None:
    lines = some_lines(1) + some_lines(1, start=1).replace(b"[]", b'[{"key":"h","value":null}]')
    done = with_input(lines, "-o", tmp_path / "made", "--format", "v1")
    assert done.returncode == 1
    assert done.stderr == b"kfs: standard input: line 2: message format v1 has no headers, but the record has\n"


def test_a_hostile_line_does_not_drive_the_terminal(tmp_path: Path) -> None:
    line = some_lines(1).replace(b'"t"', b'"\\u001b[31m"')
    done = with_input(line, "-o", tmp_path / "made")
    assert done.returncode == 1
    assert b"\x1b" not in done.stderr


# --- where it goes --------------------------------------------------------------------------------------------------


def test_partitions_that_are_there_are_never_touched(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert with_input(some_lines(5, "old"), "-o", made).returncode == 0
    before = take_manifest(made / "old-0")
    done = with_input(some_lines(5, "new") + some_lines(5, "old", start=5), "-o", made)
    assert done.returncode == 1
    expected = f"line 6: {made}/old-0: the partition already exists, and existing ones are never touched"
    assert done.stderr.decode() == f"kfs: standard input: {expected}\n"
    assert sorted(path.name for path in made.iterdir() if path.is_dir()) == ["old-0"]
    assert with_input(some_lines(5, "new") + some_lines(5, "old", 1), "-o", made).returncode == 0
    assert compare(before, take_manifest(made / "old-0")) == []
    assert printed("cat", made, "old", "new") == some_lines(5, "old") + some_lines(5, "old", 1) + some_lines(5, "new")


def test_a_topic_has_one_id(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert with_input(some_lines(1, "a") + some_lines(1, "a", 1) + some_lines(1, "b"), "-o", made).returncode == 0
    assert topic_id_of(made / "a-0") == topic_id_of(made / "a-1") != topic_id_of(made / "b-0")
    assert with_input(some_lines(1, "a", 2), "-o", made).returncode == 0
    assert topic_id_of(made / "a-2") == topic_id_of(made / "a-0")
    given = "vPeOCWypqUOSepEvx0cbog"
    assert with_input(some_lines(1, "c"), "-o", made, "--topic-id", given).returncode == 0
    assert topic_id_of(made / "c-0") == given
    for lines in (some_lines(1, "a", 3), some_lines(1, "d") + some_lines(1, "e")):
        done = with_input(lines, "-o", made, "--topic-id", given)
        assert done.returncode == 1
        assert given in done.stderr.decode()


def test_of_several_directories_the_one_with_the_fewest_partitions_gets_the_next(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert with_input(some_lines(1, "a") + some_lines(1, "a", 1), "-o", one).returncode == 0
    lines = b"".join(some_lines(1, "b", partition) for partition in range(4))
    assert with_input(lines, "-o", one, "-o", other, "-o", one).returncode == 0
    assert sorted(path.name for path in one.glob("b-*")) == ["b-2"]
    assert sorted(path.name for path in other.glob("b-*")) == ["b-0", "b-1", "b-3"]
    done = with_input(some_lines(1, "a", 1), "-o", other, "-o", one)
    assert b"already exists" in done.stderr


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    done = with_input(some_lines(1), "-o", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (1, f"kfs: {tmp_path}: neither empty nor a log directory\n")


def test_a_directory_that_a_broker_has_open_is_refused(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("wb") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = with_input(some_lines(1), "-o", tmp_path)
    assert (done.returncode, done.stderr.decode()) == (
        1,
        f"kfs: {tmp_path}: a broker has it open: stop the broker first\n",
    )


def test_a_checkpoint_that_cannot_be_read_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert with_input(some_lines(1, "a"), "-o", made).returncode == 0
    (made / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    done = with_input(some_lines(1, "b"), "-o", made)
    assert done.returncode == 1
    assert b"recovery-point-offset-checkpoint" in done.stderr
    assert sorted(path.name for path in made.iterdir() if path.is_dir()) == ["a-0"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--format", "v3"),
        ("--format", "v1", "--codec", "zstd"),
        ("--codec", "lzma"),
        ("--topic-id", "short"),
        ("--topic-id", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("--segment-bytes", "5G"),
        ("--segment-bytes", "10"),
        ("--batch-records", "0"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    output = ("-o", str(tmp_path / "made")) if arguments else ()
    done = with_input(some_lines(1), *arguments, *output)
    assert (done.returncode, done.stdout) == (2, b"")
    assert not (tmp_path / "made").exists()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    said = refused("import", tmp_path / "nothing.jsonl", "-o", tmp_path / "made")
    assert said == f"kfs: {tmp_path / 'nothing.jsonl'}: No such file or directory\n"


def test_when_it_is_killed_nothing_looks_complete(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with subprocess.Popen([KFS, "import", "-o", made, "--batch-records", "1"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(some_lines(100, "t", partition) for partition in range(5)))
        process.stdin.flush()
        until = time.monotonic() + 30
        while len(list(made.glob("t-4.*"))) < 1 and time.monotonic() < until:
            time.sleep(0.02)
        process.kill()
    names = [path.name for path in made.iterdir() if path.is_dir()]
    assert len(names) == 5
    assert all(name.endswith("-delete") for name in names)
    assert not list(made.glob("*checkpoint"))
    assert kfs("ls", made).stdout == b""
    assert with_input(some_lines(7), "-o", made).returncode == 0
    assert printed("cat", made, "t") == some_lines(7)
