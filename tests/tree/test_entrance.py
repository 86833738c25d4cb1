"""Who may enter the tree, by all directories on the way to a LOG_DIR."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kfs.tree.context import Owner
from kfs.tree.entrance import entrance

KAFKA = Owner(0o555, 1000, 2000)


@pytest.fixture(autouse=True)
def only_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is above pytest's directory is no part of a test."""
    dirname = os.path.dirname
    monkeypatch.setattr(os.path, "dirname", lambda path: path if Path(path) == tmp_path.resolve() else dirname(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize(
    ("uid", "gid", "mode", "expected"),
    [
        (0, 0, 0o755, 0o555),
        (0, 0, 0o700, 0o000),
        (1000, 2000, 0o700, 0o500),
        (1000, 2000, 0o750, 0o550),
        (0, 2000, 0o750, 0o550),
        (0, 2000, 0o710, 0o550),
        (1000, 1, 0o750, 0o500),
        (0, 0, 0o711, 0o555),
        (1000, 2000, 0o744, 0o500),
    ],
)
def test_who_is_stopped_above_stays_outside(uid: int, gid: int, mode: int, expected: int, tmp_path: Path) -> None:
    log_dir = tmp_path / "kafka" / "data"
    log_dir.mkdir(parents=True)
    for directory in (tmp_path, log_dir):
        directory.chmod(0o755)
    os.chown(tmp_path / "kafka", uid, gid)
    (tmp_path / "kafka").chmod(mode)
    (tmp_path / "link").symlink_to(log_dir)
    for path in (log_dir, tmp_path / "link"):
        assert oct(entrance(KAFKA, [str(path)]).permissions) == oct(expected)
    assert entrance(Owner(0o555, 0, 0), [str(log_dir)]).permissions & 0o500 == 0o500


def test_all_log_dirs_have_to_be_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name, mode in (("one", 0o755), ("two", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    one, two = (str(tmp_path / name) for name in ("one", "two"))
    assert entrance(KAFKA, [one]).permissions & 0o005
    assert not entrance(KAFKA, [one, two]).permissions & 0o005


def test_of_a_file_its_directory_counts(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "0.log").touch()
    (tmp_path / "0.log").chmod(0o644)
    assert entrance(KAFKA, [str(tmp_path / "0.log")]).permissions == 0o555
    assert entrance(KAFKA, [str(tmp_path / "gone.log")]).permissions == 0o555
