"""The mount table, with the escapes that the kernel writes."""

from __future__ import annotations

import os
from pathlib import Path

from kfs.mount.mounts import Mounted, canonical, is_mounted, mount_at, mount_table

TABLE = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue
42 27 0:39 / /a\040b\011c\012d\134e ro,nosuid - fuse.kfs /data/kafka,\040old ro,user_id=0
43 27 0:40 / /caf\303\251/\377 ro - fuse.kfs kfs ro
"""


def test_a_line_of_the_mount_table_is_taken_apart() -> None:
    assert mount_table(TABLE) == [
        Mounted(22, "/proc", "proc", "proc"),
        Mounted(36, "/mnt2", "ext3", "/dev/root"),
        Mounted(42, "/a b\tc\nd\\e", "fuse.kfs", "/data/kafka, old"),
        Mounted(43, os.fsdecode(b"/caf\xc3\xa9/\xff"), "fuse.kfs", "kfs"),
    ]


def test_only_our_own_type_is_ours() -> None:
    assert [mounted.is_ours for mounted in mount_table(TABLE)] == [False, False, True, True]


def test_what_lies_below_a_mount_point_is_in_the_mount() -> None:
    mounted = Mounted(1, "/mnt", "fuse.kfs", "kfs")
    assert mounted.contains("/mnt")
    assert mounted.contains("/mnt/topic/0")
    assert not mounted.contains("/mnt2")
    assert Mounted(1, "/", "ext4", "/dev/sda").contains("/etc")


def test_the_table_of_this_machine_is_read() -> None:
    proc = mount_at("/proc")
    assert proc is not None
    assert proc.filesystem_type == "proc"
    assert not is_mounted("/proc")
    assert mount_at("/proc/self") is None


def test_symlinks_lead_to_the_mount_point(tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to("/proc")
    (tmp_path / "above").symlink_to("/")
    assert canonical(tmp_path / "proc") == "/proc"
    assert canonical(tmp_path / "above" / "proc") == "/proc"
    assert canonical(tmp_path / "missing") == str(tmp_path / "missing")
