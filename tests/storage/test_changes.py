"""Waiting for changes in directories: what ends a wait, and what is polled."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfs.storage import changes as module
from kfs.storage.changes import Changes

#: Far more than an event takes: a wait that lasts as long has missed it.
_LONG = 30.0


@pytest.fixture
def changes() -> Iterator[Changes]:
    changes = Changes(often=0.5, seldom=5.0)
    yield changes
    changes.close()


def directories_of(changes: Changes) -> set[str] | None:
    """Wait for a change; return the directories that it is in."""
    changed = changes.wait(_LONG)
    return None if changed is None else set(changed)


@pytest.mark.parametrize("change", ["write", "make", "rename", "remove"])
def test_a_change_ends_a_wait(changes: Changes, tmp_path: Path, change: str) -> None:
    watched, other = tmp_path / "watched", tmp_path / "other"
    watched.mkdir()
    other.mkdir()
    (watched / "log").touch()
    changes.watch([str(watched), str(other)])
    assert changes.poll_seconds == 5.0
    match change:
        case "write":
            with (watched / "log").open("ab") as file:
                file.write(b"x")
        case "make":
            (watched / "new").touch()
        case "rename":
            (watched / "log").rename(watched / "log.deleted")
        case "remove":
            (watched / "log").unlink()
    assert directories_of(changes) == {str(watched)}
    assert changes.wait(0) == {}


def test_a_change_during_a_wait_ends_it(changes: Changes, tmp_path: Path) -> None:
    changes.watch([str(tmp_path)])
    thread = threading.Timer(0.05, (tmp_path / "new").touch)
    thread.start()
    assert directories_of(changes) == {str(tmp_path)}
    thread.join()


def test_a_change_is_told_with_its_names(changes: Changes, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    changes.watch([str(tmp_path)])
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a longer name").touch()
    assert changes.wait(_LONG) == {str(tmp_path): {"a", "b", "a longer name"}}


def test_directories_are_added_one_by_one(changes: Changes, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for each in (one, two):
        each.mkdir()
        assert changes.add(str(each))
    changes.discard(str(one))
    assert (changes.is_told(str(one)), changes.is_told(str(two))) == (False, True)
    for each in (one, two):
        (each / "new").touch()
    assert changes.wait(_LONG) == {str(two): {"new"}}


def test_no_more_directories_are_watched_than_was_said(tmp_path: Path) -> None:
    changes = Changes(often=0.5, seldom=5.0, most=1)
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert changes.add(str(one))
    assert not changes.add(str(two))
    assert changes.poll_seconds == 0.5
    changes.discard(str(one))
    assert changes.add(str(two))
    assert changes.poll_seconds == 5.0
    changes.close()


def test_another_thread_ends_a_wait(changes: Changes, tmp_path: Path) -> None:
    changes.watch([str(tmp_path)])
    thread = threading.Timer(0.05, changes.wake)
    thread.start()
    began = time.monotonic()
    assert changes.wait(_LONG) == {}
    assert time.monotonic() - began < _LONG
    thread.join()


def test_what_is_no_longer_watched_ends_no_wait(changes: Changes, tmp_path: Path) -> None:
    changes.watch([str(tmp_path)])
    changes.watch([])
    (tmp_path / "new").touch()
    assert not changes.wait(0.01)


def test_a_directory_that_takes_the_place_of_another_is_watched(changes: Changes, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    changes.watch([str(watched)])
    watched.rmdir()
    assert directories_of(changes) == {str(watched)}
    watched.mkdir()
    changes.watch([str(watched)])
    (watched / "new").touch()
    assert directories_of(changes) == {str(watched)}


def test_a_directory_that_was_renamed_is_watched_by_its_name(changes: Changes, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    changes.watch([str(watched)])
    watched.rename(tmp_path / "gone")
    watched.mkdir()
    assert directories_of(changes) == {str(watched)}
    changes.watch([str(watched)])
    (watched / "new").touch()
    assert directories_of(changes) == {str(watched)}


def test_a_directory_that_is_not_there_is_polled(changes: Changes, tmp_path: Path) -> None:
    changes.watch([str(tmp_path), str(tmp_path / "none")])
    assert changes.poll_seconds == 0.5
    changes.watch([str(tmp_path)])
    assert changes.poll_seconds == 5.0


def test_a_system_without_watches_left_is_polled(
    changes: Changes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        def inotify_add_watch(self, *_: object) -> int:
            ctypes.set_errno(errno.ENOSPC)
            return -1

    monkeypatch.setattr(changes, "_libc", Full())
    changes.watch([str(tmp_path)])
    assert changes.poll_seconds == 0.5
    (tmp_path / "new").touch()
    assert changes.wait(0.01) == {}


def test_a_system_without_events_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Changes, "_opened", lambda _: -1)
    changes = Changes(often=0.5, seldom=5.0)
    changes.watch([str(tmp_path)])
    assert changes.poll_seconds == 0.5
    assert changes.wait(0.01) == {}
    changes.wake()
    assert changes.wait(_LONG) == {}
    changes.close()


def test_a_filesystem_that_others_write_to_is_polled_too(
    changes: Changes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_UNTOLD", {_type_of(tmp_path)})
    changes.watch([str(tmp_path)])
    assert changes.poll_seconds == 0.5
    (tmp_path / "new").touch()  # its events count all the same
    assert directories_of(changes) == {str(tmp_path)}


def _type_of(path: Path) -> int:
    """Return the type of a filesystem as stat(1) prints it."""
    with os.popen(f"stat --file-system --format %t '{path}'") as command:
        return int(command.read(), 16)


def test_lost_events_may_concern_every_directory(changes: Changes, tmp_path: Path) -> None:
    changes.watch([str(tmp_path)])
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    names = [tmp_path / "a", tmp_path / "b"]
    names[0].touch()
    for at in range(most // 2 + 2):  # each is two events
        names[at % 2].rename(names[1 - at % 2])
    assert changes.wait(_LONG) is None


def test_a_closed_pipe_ends_a_wait(changes: Changes) -> None:
    reader, writer = os.pipe()
    began = time.monotonic()
    assert changes.wait(0.01, writer) == {}
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        changes.wait(_LONG, writer)
    assert time.monotonic() - began < _LONG
    os.close(writer)
