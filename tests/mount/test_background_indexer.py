"""The process beside the one that serves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kfs.mount import background_indexer
from kfs.mount.background_indexer import indexing_in_background


def marks(path: Path) -> list[str]:
    """Return a command that says that it runs, and goes on."""
    return [sys.executable, "-c", f"import os, time; open({str(path)!r}, 'w').write(str(os.getpid())); time.sleep(600)"]


def pid_in(path: Path) -> int:
    until = time.monotonic() + 20
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(path.read_text())


def test_it_runs_until_the_other_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_indexer, "_DELAY_SECONDS", 0.0)
    with indexing_in_background(marks(tmp_path / "pid")):
        pid = pid_in(tmp_path / "pid")
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
    assert not Path(f"/proc/{pid}").exists()


def test_what_is_over_at_once_has_none(tmp_path: Path) -> None:
    before = time.monotonic()
    with indexing_in_background(marks(tmp_path / "pid")):
        pass
    assert time.monotonic() - before < 2
    time.sleep(0.2)
    assert not (tmp_path / "pid").exists()


def test_one_that_cannot_be_started_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_indexer, "_DELAY_SECONDS", 0.0)
    with indexing_in_background([str(tmp_path / "missing")]):
        time.sleep(0.1)
