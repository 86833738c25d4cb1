"""``kfs dump`` as a command."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import leave_early, printed
from tests.logs import batch, joined, positions, records, write_log
from tests.system.kafka_mount import KFS, kfs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "t-0", 0, batch(records(0, 4)).data)


def test_paths_and_files_are_dumped_in_their_order(log: Path, tmp_path: Path) -> None:
    other = write_log(tmp_path / "t-1", 7, batch(records(7, 8)).data)
    lines = printed("dump", "--print-data-log", "--files", f"{log},{other}", log.parent).decode().splitlines()
    dumped = [line for line in lines if line.startswith("Dumping ")]
    assert dumped == [f"Dumping {log}", f"Dumping {other}", f"Dumping {log}"]
    assert lines.count("| offset: 8 CreateTime: 1600000008000 keySize: 3 valueSize: 7 sequence: -1 headerKeys: []") == 0
    assert sum(line.startswith("| offset: ") and line.endswith(" payload: value 8") for line in lines) == 1


def test_every_option_of_kafkas_tool_is_taken(log: Path) -> None:
    out = printed(
        *("dump", "--deep-iteration", "--print-data-log", "--skip-record-metadata", "--index-sanity-check"),
        *("--verify-index-only", "--max-bytes", "2147483647", "--max-message-size", "5242880"),
        *("--key-decoder-class", "org.apache.kafka.tools.api.StringDecoder", "--value-decoder-class", "hex"),
        *("--files", log),
    )
    assert out.decode().splitlines()[-1] == f"| key: key payload: {b'value 4'.hex()}"


@pytest.mark.parametrize(
    "decoder", ["offsets", "transaction-log", "cluster-metadata", "remote-log-metadata", "share-group-state"]
)
def test_a_decoder_implies_printing(decoder: str, log: Path) -> None:
    lines = printed("dump", f"--{decoder}-decoder", log).decode().splitlines()
    assert "skipping." in lines[-1]  # these are none of its records


def test_json_is_an_object_a_line(log: Path) -> None:
    lines = [json.loads(line) for line in printed("dump", "--format", "json", "--print-data-log", log).splitlines()]
    assert [line["type"] for line in lines] == ["file", "log", "batch", *["record"] * 5]
    assert lines[-1]["value"] == "value 4"


def test_the_dialect_is_chosen(log: Path) -> None:
    assert b"\nStarting offset: 0\n" in printed("dump", "--dialect", "2.x", log)
    assert b" compressType: NONE " in printed("dump", "--dialect", "2.8", "--deep-iteration", log)


def test_damage_is_named_the_rest_printed_and_the_exit_code_is_1(tmp_path: Path) -> None:
    content = [batch(records(0, 4)), batch(records(5, 9)), batch(records(10, 14))]
    data = bytearray(joined(content))
    data[positions(content)[1] + 70] ^= 0xFF
    bad, good = write_log(tmp_path / "t-0", 0, bytes(data)), write_log(tmp_path / "t-1", 0, content[0].data)
    done = kfs("dump", "--deep-iteration", tmp_path / "nothing.log", bad, good)
    assert done.returncode == 1
    said = done.stderr.decode().splitlines()
    assert [line.startswith(f"kfs: {tmp_path}") for line in said] == [True, True]
    assert f"{bad}: position {positions(content)[1]}: " in said[1]
    assert done.stdout.count(b"isvalid: true") == 3
    assert done.stdout.count(b"isvalid: false") == 1


def test_a_wrong_index_is_listed_and_the_exit_code_is_1(log: Path) -> None:
    index = log.with_suffix(".index")
    index.write_bytes(b"\0\0\0\x04\0\0\0\x09")
    done = kfs("dump", index)
    assert done.returncode == 1
    assert b"no batch begins there" in done.stderr
    assert done.stdout.endswith(b"offset: 4 position: 9\n")


def test_holes_are_listed_and_no_fault(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", 3, joined([batch(records(3, 4)), batch(records(9, 9))]))
    done = kfs("dump", "--deep-iteration", os.path.relpath(log))
    assert done.returncode == 0
    path = os.path.join(os.getcwd(), os.path.relpath(log))
    assert done.stderr.decode() == f"Non-consecutive offsets in {path}\n  4 is followed by 9\n"


def test_unknown_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    done = kfs("dump", tmp_path / "notes")
    assert (done.returncode, done.stderr.decode()) == (0, f"Ignoring unknown file {tmp_path / 'notes'}\n")


@pytest.mark.parametrize("name", ["nothing", "nothing.log", "00000000000000000000.index"])
def test_a_path_with_nothing_there_is_named_and_the_rest_dumped(name: str, log: Path, tmp_path: Path) -> None:
    done = kfs("dump", tmp_path / name, log)
    assert (done.returncode, done.stderr.decode()) == (1, f"kfs: {tmp_path / name}: No such file or directory\n")
    assert done.stdout.startswith(f"Dumping {log}\n".encode())


def test_a_directory_with_nothing_to_dump_is_named(log: Path, tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    (tmp_path / "empty" / "notes").touch()
    done = kfs("dump", tmp_path / "empty", log)
    said = f"kfs: {tmp_path / 'empty'}: it has no file that can be dumped\n"
    assert (done.returncode, done.stderr.decode()) == (1, said)
    assert done.stdout.startswith(f"Dumping {log}\n".encode())
    assert kfs("dump", tmp_path).returncode == 0  # of a directory below others it is no fault


@pytest.mark.parametrize(
    "arguments", [[], ["--value-decoder-class", "com.example.Decoder", "x"], ["--dialect", "1", "x"]]
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = kfs("dump", *arguments)
    assert (done.returncode, done.stdout) == (2, b"")


def test_whoever_reads_may_leave_early(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", 0, joined([batch(records(at, at + 99)) for at in range(0, 20_000, 100)]))
    leave_early("dump", "--print-data-log", log)


def test_an_output_that_is_full_is_a_failure(log: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([KFS, "dump", log], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"kfs: can't write: No space left on device\n")


def test_every_option_is_in_the_documentation() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "DUMP.md").read_text()
    options = set(re.findall(r"^  (--[a-z-]+)", kfs("dump", "--help").stdout.decode(), re.MULTILINE))
    assert len(options) > 15
    assert [
        option for option in sorted(options) if f"{option}`" not in documented and f"{option} " not in documented
    ] == []
