"""Whatever writes is refused with EROFS, by the kernel and, should that be talked round, by the front."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.toy_mount import ToyMount

pytestmark = pytest.mark.fuse


def _open(flags: int, name: str = "static/page") -> Callable[[str], None]:
    def attempt(point: str) -> None:
        descriptor = os.open(f"{point}/{name}", flags, 0o644)
        try:
            os.write(descriptor, b"x")
        finally:
            os.close(descriptor)

    return attempt


WRITES: dict[str, Callable[[str], object]] = {
    "create": _open(os.O_WRONLY | os.O_CREAT, "static/new"),
    "create exclusively": _open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, "static/new"),
    "open to write": _open(os.O_WRONLY),
    "open to read and write": _open(os.O_RDWR),
    "append": _open(os.O_WRONLY | os.O_APPEND),
    "open and truncate": _open(os.O_WRONLY | os.O_TRUNC),
    "open without a name": _open(os.O_TMPFILE | os.O_RDWR, "static"),
    "truncate": lambda point: os.truncate(f"{point}/static/page", 1),
    "unlink": lambda point: os.unlink(f"{point}/static/page"),
    "mkdir": lambda point: os.mkdir(f"{point}/static/new"),
    "rmdir": lambda point: os.rmdir(f"{point}/static/inner"),
    "rename": lambda point: os.rename(f"{point}/static/page", f"{point}/static/new"),
    "rename over": lambda point: os.rename(f"{point}/static/page", f"{point}/static/empty"),
    "chmod": lambda point: os.chmod(f"{point}/static/page", 0o600),
    "chown": lambda point: os.chown(f"{point}/static/page", 1, 1),
    "set times": lambda point: os.utime(f"{point}/static/page"),
    "set an extended attribute": lambda point: os.setxattr(f"{point}/static/page", "user.x", b"1"),
    "remove an extended attribute": lambda point: os.removexattr(f"{point}/static/page", "user.x"),
    "link": lambda point: os.link(f"{point}/static/page", f"{point}/static/new"),
    "symlink": lambda point: os.symlink("page", f"{point}/static/new"),
    "make a pipe": lambda point: os.mkfifo(f"{point}/static/new"),
    "make a file with mknod": lambda point: os.mknod(f"{point}/static/new"),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_kind_of_write_is_refused(mounted: ToyMount, write: str) -> None:
    with pytest.raises(OSError) as caught:
        WRITES[write](str(mounted.point))
    assert caught.value.errno == errno.EROFS


def test_nothing_is_writable_to_access(mounted: ToyMount) -> None:
    assert os.access(mounted.path("static/page"), os.R_OK)
    assert not os.access(mounted.path("static/page"), os.W_OK)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may remount")
def test_a_mount_made_writable_by_root_still_refuses(mounted: ToyMount) -> None:
    before = Path(mounted.path("static/page")).read_bytes()
    subprocess.run(["mount", "-i", "-o", "remount,rw", str(mounted.point)], check=True)
    try:
        for name, write in WRITES.items():
            if name != "open without a name":  # a kind that the kernel offers to no FUSE of this age
                with pytest.raises(OSError) as caught:
                    write(str(mounted.point))
                assert (name, caught.value.errno) == (name, errno.EROFS)
        assert Path(mounted.path("static/page")).read_bytes() == before
    finally:
        subprocess.run(["mount", "-i", "-o", "remount,ro", str(mounted.point)], check=True)
