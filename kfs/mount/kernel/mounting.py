"""Mounting without libfuse: by mount(2) as root, by the setuid helper ``fusermount3`` as another user."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import socket
import stat
import subprocess
from typing import Final

from kfs.errors import KfsError, MountFailed
from kfs.mount.front import MountOptions, kernel_options, source_name
from kfs.mount.mounts import FILESYSTEM_TYPE, mount_at
from kfs.mount.unmounting import unmount

DEVICE: Final = "/dev/fuse"
HELPER: Final = "fusermount3"
#: The kernel's read-ahead in a large file, in bytes, if we may set it. Its default is 128 KiB.
READ_AHEAD_BYTES: Final = 1 << 20

#: ``<sys/mount.h>``
_MS_RDONLY: Final = 1
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
_MS_NOEXEC: Final = 8
_MNT_FORCE: Final = 1
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8


def mount_device(mountpoint: str, options: MountOptions) -> int:
    """Mount at ``mountpoint``; return the open device.

    Raises :class:`~kfs.errors.MountFailed`.
    """
    if os.geteuid() == 0:
        return _mount_as_root(mountpoint, options)
    return _mount_through_helper(mountpoint, options)


def _mount_as_root(mountpoint: str, options: MountOptions) -> int:
    try:
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise MountFailed(f"{DEVICE}: {error.strerror}") from None
    settings = f"fd={device},rootmode={stat.S_IFDIR:o},user_id={os.getuid()},group_id={os.getgid()}"
    if options.allow_other:
        settings += ",allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.mount(
        os.fsencode(source_name(options)),
        os.fsencode(mountpoint),
        FILESYSTEM_TYPE.encode(),
        ctypes.c_ulong(_MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC),
        settings.encode(),
    )
    if failed:
        number = ctypes.get_errno()
        os.close(device)
        hint = ""
        if number in (errno.EPERM, errno.EACCES):
            hint = "; a container must be started with --device /dev/fuse --cap-add SYS_ADMIN"
        raise MountFailed(f"{mountpoint}: could not mount: {os.strerror(number)}{hint}")
    return device


def _mount_through_helper(mountpoint: str, options: MountOptions) -> int:
    """Mount through ``fusermount3``, which passes the device to the socket that ``_FUSE_COMMFD`` names."""
    helper = shutil.which(HELPER)
    if helper is None:
        raise MountFailed(f"{HELPER} is missing, and only root can mount without it: apt install fuse3")
    settings = [name if value is True else f"{name}={value}" for name, value in kernel_options(options).items()]
    command = [helper, "-o", ",".join(["nosuid", "nodev", *settings]), "--", mountpoint]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno()), "LC_ALL": "C"}
        done = subprocess.run(  # noqa: S603
            command, env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True, check=False
        )
        theirs.close()
        if done.returncode != 0:
            raise MountFailed(f"{mountpoint}: could not mount: {done.stderr.strip()}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        raise MountFailed(f"{mountpoint}: {HELPER} passed no device")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def read_further_ahead(mountpoint: str) -> None:
    """Set the kernel's read-ahead to :data:`READ_AHEAD_BYTES`, which only root may.

    Call it before answering INIT: the kernel then takes the lesser of this and the value in INIT.
    """
    mounted = mount_at(mountpoint)
    if mounted is not None:
        with contextlib.suppress(OSError), open(f"/sys/class/bdi/{mounted.device}/read_ahead_kb", "w") as setting:
            setting.write(str(READ_AHEAD_BYTES // 1024))


def take_away(mountpoint: str) -> None:
    """Unmount after a signal: readers still inside get errors, as when libfuse ends."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        point = ctypes.c_char_p(os.fsencode(mountpoint))
        if libc.umount2(point, _UMOUNT_NOFOLLOW) == 0:
            return
        # MNT_FORCE aborts the connection: pending requests fail, and our own read of the device returns.
        if libc.umount2(point, _UMOUNT_NOFOLLOW | _MNT_FORCE | _MNT_DETACH) == 0:
            return
    with contextlib.suppress(KfsError):
        unmount(mountpoint, lazy=True)
