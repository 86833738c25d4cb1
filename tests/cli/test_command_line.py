"""The command line itself: help, usage, version, completion, and output that leaves a terminal alone."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from kfs import __version__
from tests.system.kafka_mount import KFS, kfs
from tests.system.shop import Shop
from tests.system.toy_broker import ToyPartition

COMMANDS: Final = (
    *("mount", "umount", "ls", "cat", "stat"),
    *("dump", "verify", "diff", "recover", "groups", "txn", "cluster"),
    *("import", "export", "offsets", "index", "demo", "completion"),
)
#: Turns a terminal red, and is a legal part of a file name.
EVIL: Final = "\x1b[31m"


def help_of(*command: str) -> str:
    done = kfs(*command, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_the_help_names_every_command_and_the_exit_codes() -> None:
    text = help_of()
    listed = text[text.index("Commands:") :]
    assert re.findall(r"^  (\S+)", listed, re.MULTILINE) == sorted(COMMANDS)
    assert "Exit codes: 0 done, 1 failed" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(command: str) -> None:
    text = help_of(command)
    assert text.startswith(f"Usage: kfs {command} ")
    assert len(text.splitlines()[2].split()) >= 4
    for line in re.findall(r"^  -.*$", text, re.MULTILINE):
        assert "  " in line.strip() or len(line) > 30, f"no help for {line.strip()}"


def test_help_has_a_short_option() -> None:
    assert kfs("ls", "-h").stdout.decode() == help_of("ls")


@pytest.mark.parametrize("arguments", [(), ("nothing",), ("ls",), ("cat",), ("stat", "/"), ("umount",), ("ls", "--no")])
def test_wrong_usage_is_exit_code_two_and_says_what_is_expected(arguments: tuple[str, ...]) -> None:
    done = kfs(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Usage: kfs" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--until", "tomorrow"), ("--on-damage", "weep"), ("--max-batch-bytes", "1X"), ("--cache-bytes", "-1")],
)
def test_wrong_values_are_refused(shop: Shop, option: str, value: str) -> None:
    done = kfs("ls", option, value, shop.root)
    assert done.returncode == 2
    assert option in done.stderr.decode()


@pytest.mark.parametrize("size", ["1048576", "512K", "64MiB", "1g", "8 mb"])
def test_sizes_can_be_written_in_several_ways(shop: Shop, size: str) -> None:
    assert kfs("ls", "--cache-bytes", size, shop.root).stdout == b"orders\nphotos\nreturns\n"


def test_the_version_is_shown() -> None:
    done = kfs("--version")
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.fullmatch(rf"kfs {re.escape(__version__)} \(.*\)\n", done.stdout.decode())


def test_the_environment_chooses_the_implementation(shop: Shop) -> None:
    said = {name: kfs("--version", environment={"KFS_IMPLEMENTATION": name}) for name in ("python", "")}
    assert "(implementation: python, " in said["python"].stdout.decode()
    lines = {kfs("cat", shop.root, "orders", environment={"KFS_IMPLEMENTATION": name}).stdout for name in said}
    assert len(lines) == 1
    refused = kfs("cat", shop.root, "orders", environment={"KFS_IMPLEMENTATION": "rust"})
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert refused.stderr == b"kfs: KFS_IMPLEMENTATION is 'rust', expected python or compiled\n"


@pytest.mark.parametrize(
    ("exit_code", "arguments"),
    [
        (1, ("ls", "LOG_DIR")),
        (1, ("ls", "LOG_DIR", "/orders/0/offset")),
        (1, ("stat", "LOG_DIR", "/")),
        (1, ("cat", "LOG_DIR", "orders", "-j", "2")),
        (1, ("dump", "LOG_DIR")),
        (1, ("completion", "bash")),
        (1, ("--help",)),
        (1, ("--version",)),
        (1, ("ls", "--help")),
        # 1 is what these answer with.
        (2, ("verify", "LOG_DIR")),
        (2, ("verify", "--json", "-j", "2", "LOG_DIR")),
        (2, ("diff", "LOG_DIR", "LOG_DIR")),
    ],
)
def test_an_output_that_is_full_is_one_line_and_a_failure(
    exit_code: int, arguments: tuple[str, ...], shop: Shop
) -> None:
    command = [KFS, *(argument.replace("LOG_DIR", str(shop.root)) for argument in arguments)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (exit_code, b"kfs: can't write: No space left on device\n")


@pytest.mark.parametrize(("path", "exit_code"), [("LOG_DIR", 0), ("nowhere", 2)])
def test_where_standard_error_is_full_the_work_is_done(path: str, exit_code: int, shop: Shop) -> None:
    with open("/dev/full", "wb") as full:
        command = [KFS, "verify", path.replace("LOG_DIR", str(shop.root))]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.returncode == exit_code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_sourced(shell: str, tmp_path: Path) -> None:
    done = kfs("completion", shell)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"_KFS_COMPLETE" in done.stdout
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    script = tmp_path / "completion"
    script.write_bytes(done.stdout)
    checked = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    for words, wanted in (("kfs um", {"umount"}), ("kfs ls --on", {"--on-damage"}), ("kfs completion z", {"zsh"})):
        done = kfs(
            environment={"_KFS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        )
        assert {line.partition(",")[2] for line in done.stdout.decode().splitlines()} == wanted


def on_a_terminal(*arguments: str | Path) -> bytes:
    """Return everything that a command sends to its terminal."""
    terminal, other_end = pty.openpty()
    process = subprocess.Popen([KFS, *map(str, arguments)], stdin=other_end, stdout=other_end, stderr=other_end)
    os.close(other_end)
    sent = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # EIO: the last one who had the other end open has closed it
            break
        if not data:
            break
        sent += data
    os.close(terminal)
    process.wait(30)
    return sent


@pytest.fixture
def hostile(tmp_path: Path) -> ToyPartition:
    """A topic, a file and a record that would drive a terminal, and damage, of which messages speak."""
    log = ToyPartition(tmp_path / "root", f"to{EVIL}pic")
    log.append_messages(10)
    log.append_messages(10)
    data = bytearray(log.active.read_bytes())
    data[-5] ^= 0xFF
    log.active.write_bytes(data)
    (log.directory / f"no{EVIL}te").write_text("x")
    (tmp_path / "root/meta.properties").write_text("version=1\nnode.id=1\ncluster.id=toy\n")
    return log


def test_no_command_lets_a_name_drive_the_terminal(hostile: ToyPartition) -> None:
    root, topic = hostile.directory.parent, "to%1B%5B31mpic/0"
    runs = {
        ("ls", root): b"to%1B%5B31mpic",
        ("ls", root, f"{topic}/raw"): rb"no\x1b[31mte",
        ("ls", "-l", root, f"{topic}/raw"): rb"no\x1b[31mte",
        ("ls", root, f"{topic}/raw/no{EVIL}te"): rb"no\x1b[31mte",
        ("ls", "-l", root, f"{topic}/raw/no{EVIL}te"): rb"no\x1b[31mte",
        ("ls", root, EVIL): b"no topic",
        ("stat", root, f"{topic}/raw/no{EVIL}te"): rb"no\u001b[31mte",
        ("cat", root, f"{topic}/offset/3.json"): rb"to\u001b[31mpic",
        ("cat", root, f"{topic}/offset/12.json"): rb"to\x1b[31mpic",
        ("cat", root, f"{topic}/raw/no{EVIL}te/x"): b"not a directory",
        ("cat", root, f"{topic}/meta/problems.jsonl"): rb"to\u001b[31mpic",
        ("cat", f"/{EVIL}", "x"): b"No such file or directory",
        ("mount", root, f"/{EVIL}"): b"no such directory",
        ("umount", f"/{EVIL}"): b"not mounted",
    }
    for arguments, wanted in runs.items():
        sent = on_a_terminal(*arguments)
        assert wanted in sent, arguments
        assert b"\x1b" not in sent, arguments


def test_names_that_are_not_utf_8_are_shown_escaped(tmp_path: Path) -> None:
    log = ToyPartition(tmp_path, "plain")
    log.append_messages(3)
    (log.directory / os.fsdecode(b"\xff\xfe")).write_text("x")
    done = kfs("ls", log.directory, "plain/0/raw")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\udcff\udcfe" in done.stdout


def test_messages_are_the_same_in_a_plain_locale(shop: Shop) -> None:
    for environment in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = kfs("cat", shop.root, "orders/0/offset/3.json", environment=environment)
        assert (done.returncode, done.stdout, done.stderr) == (0, shop.orders.line(3), b"")


@pytest.mark.parametrize(
    "arguments", [("cat", "{}", "live/0/offset/3.json"), ("ls", "{}", "live/0/offset"), ("ls", "{}")]
)
def test_who_looks_at_records_pays_nothing_for_kafkas_own_topics(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ToyPartition(tmp_path / "root", "live").append_messages(10)
    words = ["kfs", *(word.format(tmp_path / "root") for word in arguments)]
    code = f"""
import atexit, sys
sys.argv = {words!r}
atexit.register(lambda: print(*(name for name in sys.modules if name.startswith("kfs.internal")), file=sys.stderr))
from kfs.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout
    assert done.stderr.decode().split() == ["kfs.internal", "kfs.internal.broker_state"]  # which imports the rest later
