"""The options of mount.kfs are those of kfs mount; what mount(8) adds is understood."""

from __future__ import annotations

import subprocess
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from kfs.cli.mount import mount
from kfs.cli.mount_kfs import request_of
from tests.system.kafka_mount import KFS

MOUNT_KFS = Path(KFS).with_name("mount.kfs")


def arguments(options: str, *flags: str) -> list[str]:
    """Return the arguments of kfs mount for ``-o options``."""
    *chosen, source, point = request_of(["/data", "/mnt/k", *flags, "-o", options]).arguments
    assert (source, point) == ("/data", "/mnt/k")
    assert chosen.pop() == "--"
    return chosen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ro,allow_other,topic=orders*", ["--allow-other", "--topic=orders*"]),
        ("topic=a,topic=b,allow-other", ["--topic=a", "--topic=b", "--allow-other"]),
        ("no_index,cache_bytes=1G,on-damage=skip", ["--no-index", "--cache-bytes=1G", "--on-damage=skip"]),
        ('log_file="/var/log/kfs, all.log",views', ["--log-file=/var/log/kfs, all.log", "--views"]),
        ("topic=a_b=c", ["--topic=a_b=c"]),
        ("defaults,rw,nosuid,nodev,noexec,noatime,relatime,sync", []),
        ("nofail,_netdev,user,user=kafka,noauto,comment=x=y,x-systemd.automount,X-mount.mkdir=755,users", []),
        ("", []),
        (",,views,", ["--views"]),
    ],
)
def test_options_are_translated(options: str, expected: list[str]) -> None:
    assert arguments(options) == expected


def test_every_option_of_a_mount_is_known() -> None:
    """But those that are about this process: mount(8) waits for the mount, not for its end."""
    for option in mount.params:
        if not isinstance(option, click.Option) or option.name in ("foreground", "help"):
            continue
        for name in (*option.opts, *option.secondary_opts):
            if name.startswith("--"):
                given = name[2:].replace("-", "_")
                assert arguments(given if option.is_flag else f"{given}=x") == [name if option.is_flag else f"{name}=x"]


def test_more_log_dirs_are_named_by_also() -> None:
    found = request_of(["/disk1", "/mnt/k", "-o", "also=/disk2,ro,also=/disk 3,views"]).arguments
    assert found == ["--views", "--", "/disk1", "/disk2", "/disk 3", "/mnt/k"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["/data"], "mount.kfs LOG_DIR MOUNTPOINT"),
        (["/data", "/a", "/b"], "mount.kfs LOG_DIR MOUNTPOINT"),
        (["/data", "/a", "-x"], "option -x not recognized"),
        (["/data", "/a", "-o", "topics=a"], "option 'topics=a': there is no such option"),
        (["/data", "/a", "-o", "foreground"], "there is no such option"),
        (["/data", "/a", "-o", "help"], "there is no such option"),
        (["/data", "/a", "-o", "views=yes"], "option 'views=yes': takes no value"),
        (["/data", "/a", "-o", "topic"], "a value is missing: topic=..."),
        (["/data", "/a", "-o", "also="], "a value is missing: also=..."),
        (["/data", "/a", "-o", "isolation=none"], "'none' is not one of"),
        (["/data", "/a", "-o", "remount,ro"], "unmount it and mount it anew"),
        (["/data", "/a", "-N", "7"], "nsenter"),
        (["/data", "/data/in", "-o", "ro"], "/data/in lies in /data"),
    ],
)
def test_wrong_usage_is_exit_code_one(given: list[str], message: str) -> None:
    done = subprocess.run([MOUNT_KFS, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("kfs: ")


def test_a_sloppy_mount_passes_over_what_is_unknown() -> None:
    assert arguments("context=x,views", "-s") == ["--views"]


def test_a_fake_mount_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    given = ["/nowhere", str(tmp_path), "-fv", "-o", "topic=orders*"]
    done = subprocess.run([MOUNT_KFS, *given], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"kfs mount '--topic=orders*' -- /nowhere {tmp_path}\n"


def test_mount_finds_it_under_its_name() -> None:
    (script,) = entry_points(group="console_scripts", name="mount.kfs")
    assert script.value == "kfs.cli.mount_kfs:main"
