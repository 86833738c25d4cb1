"""A copy for which there is no space isn't begun."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from kfs.errors import KfsError
from tests.logs import dense, joined, log_name, write_partition
from tests.recover.salvaging import partition, salvage

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_partition(tmp_path / "data" / "t-0", {0: dense(0, 99), 100: dense(100, 199)})
    return tmp_path / "data"


def leave_free(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))


def test_it_is_refused_where_too_little_is_free(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(path.stat().st_size for path in source.glob("*/*.log"))
    leave_free(needed - 1, monkeypatch)
    monkeypatch.setattr("kfs.recover.free_space.can_share_blocks", lambda file, directory: False)
    with pytest.raises(KfsError, match=f"out: the copy needs {needed:,} bytes, and {needed - 1:,} are free there"):
        salvage(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    leave_free(needed, monkeypatch)
    assert partition(salvage(source, tmp_path / "out")).log_end_offset == 200


def test_shared_blocks_take_no_space(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_free(0, monkeypatch)
    monkeypatch.setattr("kfs.recover.free_space.can_share_blocks", lambda file, directory: True)
    assert partition(salvage(source, tmp_path / "out")).log_end_offset == 200


def test_holes_take_no_space(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preallocated = source / "t-0" / log_name(100)
    os.truncate(preallocated, 1 << 30)
    used = sum(path.stat().st_blocks * 512 for path in source.glob("*/*.log"))
    assert used < 1 << 20
    monkeypatch.setattr("kfs.recover.free_space.can_share_blocks", lambda file, directory: False)
    leave_free(used, monkeypatch)
    report = partition(salvage(source, tmp_path / "out"))
    assert report.log_end_offset == 200
    assert (tmp_path / "out" / "t-0" / log_name(100)).read_bytes() == joined(dense(100, 199))
