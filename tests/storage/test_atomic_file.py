"""A file that is replaced as a whole is the old one until the new one is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kfs.storage.atomic_file import sync_filesystem, write_atomically


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    for content in (b"one", b"another, longer", b""):
        write_atomically(str(tmp_path / "file"), content)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": content}


def test_the_name_is_given_after_the_content_is_on_the_disk_and_then_brought_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(fd: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def watched_replace(source: str, target: str) -> None:
        calls.append(("replace", target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    path = tmp_path / "file"
    write_atomically(str(path), b"content")
    assert calls == [("fsync", f"{path}.tmp"), ("replace", str(path)), ("fsync", str(tmp_path))]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(str(tmp_path / "file"), b"old")

    def fail(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_filesystem_is_brought_to_the_disk_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    sync_filesystem(str(tmp_path))
    with pytest.raises(OSError, match="No such file"):
        sync_filesystem(str(tmp_path / "none"))
