"""A command that is run in a fork is what it is as a Python of its own."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.system.kafka_mount import KFS, kfs
from tests.system.shop import Shop


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("ls", "{shop}"),
        ("cat", "{shop}", "orders/0"),
        ("cat", "{shop}", "orders", "--format", "arrow"),
        ("cat", "{shop}", "nothing"),
        ("verify", "{shop}"),
        ("ls", "--help"),
        ("nothing",),
        (),
    ],
)
def test_it_prints_the_same_and_ends_the_same(words: tuple[str, ...], shop: Shop) -> None:
    arguments = [word.replace("{shop}", str(shop.root)) for word in words]
    own = subprocess.run([KFS, *arguments], capture_output=True, check=False)
    done = kfs(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (own.returncode, own.stdout, own.stderr)


def test_it_has_the_directory_and_the_environment_of_the_test(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.root)
    assert kfs("ls", ".").stdout == kfs("ls", shop.root).stdout != b""
    monkeypatch.setenv("COLUMNS", "50")
    narrow = kfs("stat", "--help").stdout.decode()
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, narrow.splitlines())) <= 50 < max(map(len, kfs("stat", "--help").stdout.decode().splitlines()))


def test_several_run_at_once(shop: Shop, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(kfs, "cat", shop.root, "orders/0", "-o", pipe)
        assert kfs("--version").returncode == 0
        with pipe.open("rb") as written:
            assert written.read() == kfs("cat", shop.root, "orders/0").stdout
        assert waiting.result().returncode == 0


def test_one_that_takes_too_long_is_killed(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.system.kafka_mount._SECONDS", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(subprocess.TimeoutExpired):
        kfs("cat", shop.root, "orders/0", "-o", tmp_path / "pipe")
