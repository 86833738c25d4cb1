"""util-linux mounts and unmounts kfs: mount -t kfs, fstab, and what it says when something is wrong."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.test_mount_kfs import MOUNT_KFS
from tests.requirements import need_fuse
from tests.system.shop import Shop

pytestmark = [pytest.mark.fuse, pytest.mark.skipif(os.geteuid() != 0, reason="mount(8) is root's")]

#: What a script of this page begins with: a mount namespace in which mount.kfs is where mount(8) looks for it.
_PREPARE = """
set -u
ln -s {helper} {scratch}/sbin/mount.kfs
mount --bind {scratch}/sbin /sbin
cd {scratch}
trap 'umount --lazy point point2 2>/dev/null' EXIT
say() {{ echo "$*: $?"; }}
"""

Shell = Callable[[str], list[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Runs a script in a mount namespace of its own; returns the lines that it prints."""
    need_fuse("kernel")
    for name in ("sbin", "point", "point2"):
        (tmp_path / name).mkdir()
    prepare = _PREPARE.format(helper=shlex.quote(str(MOUNT_KFS)), scratch=shlex.quote(str(tmp_path)))

    def run(script: str) -> list[str]:
        command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", prepare + script]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
        lines = done.stdout.decode().replace(str(tmp_path), ".").splitlines()
        return [" ".join(line.split()) for line in lines]

    yield run
    assert os.listdir(tmp_path / "point") == []


def test_mount_and_umount(shell: Shell, shop: Shop) -> None:
    assert shell(f"""
        mount -t kfs {shop.root} point -o 'ro,allow_other,topic=o*'; say mount
        ls point
        findmnt --noheadings --output SOURCE,FSTYPE point
        findmnt --noheadings --output OPTIONS point | tr , '\\n' | grep -x -e ro -e noexec -e allow_other
        umount point; say umount
        ls point
        """) == [
        "mount: 0",
        "orders",
        f"{shop.root} fuse.kfs",
        *("ro", "noexec", "allow_other"),
        "umount: 0",
    ]


def test_lines_of_fstab(shell: Shell, shop: Shop) -> None:
    assert shell(f"""
        cat >fstab <<'END'
            {shop.root} $PWD/point  kfs nofail,x-systemd.requires-mounts-for={shop.root},topic=orders,topic=photos 0 0
            {shop.root} $PWD/point2 kfs noauto,user,until=hw 0 0
END
        sed -i "s|\\$PWD|$PWD|" fstab
        mount -a -T fstab; say all
        ls point point2
        mount -a -v -T fstab; say again
        mount -T fstab "$PWD/point2"; say one
        ls point2 | wc -l
        umount point point2; say umount
        """) == [
        "all: 0",
        *("point:", "orders", "photos", "", "point2:"),
        "./point: already mounted",
        "./point2: ignored",
        "again: 0",
        "one: 0",
        "3",
        "umount: 0",
    ]


def test_a_dead_mount_is_mounted_anew(shell: Shell, shop: Shop) -> None:
    assert shell(f"""
        echo "{shop.root} $PWD/point kfs defaults,topic=orders 0 0" >fstab
        mount -a -T fstab; say all
        kill -9 $(pgrep -f "mount.kfs {shop.root} $PWD/point")
        until ls point 2>&1 | grep -q 'not connected'; do sleep 0.02; done
        mount -T fstab "$PWD/point"; say anew
        ls point
        grep -c " $PWD/point " /proc/self/mountinfo
        """) == ["all: 0", "anew: 0", "orders", "1"]


def test_what_is_wrong_is_said_with_the_exit_code_of_mount(shell: Shell, shop: Shop) -> None:
    assert shell(f"""
        mount -t kfs {shop.root} point -o topics=orders; say unknown
        mount -t kfs -s {shop.root} point -o topics=orders; say sloppy
        mount -t kfs {shop.root} point; say twice
        mount -t kfs {shop.root} point -o remount,views; say remount
        mount -t kfs $PWD/nowhere point2; say source
        mount -t kfs {shop.root} $PWD/nowhere; say point
        """) == [
        "kfs: option 'topics=orders': there is no such option; 'kfs mount --help' has all",
        "unknown: 1",
        "sloppy: 0",
        f"kfs: ./point: already mounted ({shop.root}); to unmount it: kfs umount ./point",
        "twice: 32",
        "kfs: nothing of a mount can be changed: unmount it and mount it anew",
        "remount: 1",
        "kfs: ./nowhere: No such file or directory",
        "source: 32",
        "kfs: ./nowhere: no such directory; make it first: mkdir -p ./nowhere",
        "point: 32",
    ]


def test_several_log_dirs(shell: Shell, shop: Shop) -> None:
    assert shell(f"""
        mkdir empty2
        cp -r {shop.root}/orders-0 empty2
        mount -t kfs {shop.root} point -o also=$PWD/empty2; say mount
        wc -l <point/.kfs/log-dirs.jsonl
        """) == ["mount: 0", "2"]
