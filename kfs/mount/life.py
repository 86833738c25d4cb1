"""Mounting: from the check of the mount point until the mount answers, in this process or in a daemon."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfs.errors import KfsError, MountFailed
from kfs.log_lines import LogFormat, formatter_of, is_journal
from kfs.mount import daemon, fronts, systemd
from kfs.mount.abort_stacks import print_stacks_at_abort
from kfs.mount.background_indexer import indexing_in_background
from kfs.mount.companion import Companion
from kfs.mount.front import MountOptions
from kfs.mount.mounts import DEAD, Mounted, canonical, is_automounted, is_mounted, mount_at
from kfs.mount.unmounting import unmount
from kfs.storage.memory import collect_garbage_of_server
from kfs.tree.node import Tree

logger = logging.getLogger("kfs.mount")

#: How long, in seconds, a mount may take to answer once its tree is open.
READY_TIMEOUT: Final = 30.0
#: How long, in seconds, to wait for the lock on the mount point, which an unmount holds briefly.
_LOCK_TIMEOUT: Final = 1.0

_FUSE_CONFIGURATION: Final = Path("/etc/fuse.conf")


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checked arguments of :func:`mount`."""

    tree_factory: Callable[[], Tree]
    mountpoint: str
    front: str
    options: MountOptions
    indexer: Sequence[str] | None


def mount(
    tree_factory: Callable[[], Tree],
    mountpoint: str | os.PathLike[str],
    *,
    source: str = "",
    front: str = "auto",
    foreground: bool = False,
    allow_other: bool = False,
    log_file: str | os.PathLike[str] | None = None,
    log_format: LogFormat = LogFormat.TEXT,
    indexer: Sequence[str] | None = None,
    timeout: float = READY_TIMEOUT,
) -> None:
    """Mount the tree that ``tree_factory`` opens at the empty directory ``mountpoint``.

    The serving process opens the tree, in the caller's working directory. By default that process is a daemon, and this
    function returns once the mount answers. With ``foreground`` (main thread only) it is this process, and the function
    returns once the mount is gone: by :func:`unmount`, SIGTERM, SIGINT or SIGHUP. It then prints a line, and notifies
    systemd, when the mount answers.

    A mount that was left there by a daemon that died is replaced.

    ``source`` is the source that the mount table shows. What happens later is logged to ``log_file``, as ``log_format``
    has it; without a file, to standard error in the foreground, and nowhere in a daemon.

    ``indexer`` is a command that runs beside the serving process, starting a moment later, until the mount is gone.

    The daemon is forked: call this before starting threads.

    Raises :class:`~kfs.errors.MountFailed`, and what ``tree_factory`` raises: from a daemon, UnusableSource as it is
    and anything else as MountFailed.
    """
    point = _checked_mountpoint(mountpoint)
    fronts.check(front)
    if allow_other:
        _check_allow_other()
    log = os.path.abspath(log_file) if log_file is not None else None
    plan = _Plan(tree_factory, point, front, MountOptions(source, allow_other), indexer)
    if foreground:
        _log_to(log, log_format)
        _serve(plan, forked=print_stacks_at_abort, mounting=lambda: None, ready=lambda: _announce(plan))
        return
    try:
        daemon.start(
            lambda reports: _serve_in_daemon(plan, log, log_format, reports),
            log_file=log,
            timeout=timeout,
            give_up=lambda: _remove(point),
        )
    except TimeoutError:
        raise MountFailed(f"{point}: the mount did not answer within {timeout:g} s and was unmounted") from None


def _serve_in_daemon(plan: _Plan, log: str | None, log_format: LogFormat, reports: daemon.Reports) -> None:
    _log_to(log, log_format, level=logging.WARNING if log is None else logging.INFO)

    def mounting() -> None:
        os.chdir("/")
        reports.mounting()

    _serve(plan, forked=lambda: None, mounting=mounting, ready=reports.ready)


def _serve(plan: _Plan, *, forked: Callable[[], None], mounting: Callable[[], None], ready: Callable[[], None]) -> None:
    """Serve until the mount is gone.

    Call ``forked`` when threads may be started, ``mounting`` when the tree is open, ``ready`` when the mount answers.
    """
    companion = Companion(plan.mountpoint)
    try:
        forked()
        with contextlib.ExitStack() as released_last:
            front = fronts.load(plan.front)
            tree = plan.tree_factory()
            try:
                mounting()
                # Only now: an error where a dead mount is says more than the empty directory under it.
                _take_dead_away(plan.mountpoint)
                released_last.enter_context(_locked(plan.mountpoint))
                companion.when_ready(ready)
                logger.info("%s: mounting with %s", plan.mountpoint, front.name)
                collect_garbage_of_server()
                with indexing_in_background(plan.indexer):
                    front.serve(tree, plan.mountpoint, plan.options)
                logger.info("%s: unmounted", plan.mountpoint)
            finally:
                tree.close()
    finally:
        companion.close()


def _checked_mountpoint(mountpoint: str | os.PathLike[str]) -> str:
    """Return the canonical path of a usable mount point; raise MountFailed for any other."""
    point = canonical(mountpoint)
    mounted = mount_at(point)
    try:
        if mounted is not None and mounted.is_ours:
            if not _is_dead(mounted):
                raise MountFailed(f"{point}: already mounted ({mounted.source}); to unmount it: kfs umount {point}")
            return point
        if is_automounted(point):
            return point
        names = os.listdir(point)
    except FileNotFoundError:
        raise MountFailed(f"{point}: no such directory; make it first: mkdir -p {point}") from None
    except NotADirectoryError:
        raise MountFailed(f"{point}: not a directory") from None
    except OSError as error:
        raise MountFailed(f"{point}: {error.strerror}") from None
    if names:
        raise MountFailed(f"{point}: not empty, and the mount would hide its files: choose an empty directory")
    return point


def _is_dead(mounted: Mounted) -> bool:
    """Return whether a mount of ours was left behind by a daemon that died."""
    try:
        # Attributes may still be cached after the daemon died; an open never is.
        os.close(os.open(mounted.mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in DEAD
    return False


def _take_dead_away(mountpoint: str) -> None:
    """Detach what daemons that died left at the mount point; what is open in it stays dead."""
    while (mounted := mount_at(mountpoint)) is not None and mounted.is_ours and _is_dead(mounted):
        logger.warning("%s: a daemon died here; its mount is replaced", mountpoint)
        unmount(mountpoint, lazy=True)


def _check_allow_other() -> None:
    """Raise MountFailed if fusermount would refuse the option."""
    if os.geteuid() == 0:
        return
    with contextlib.suppress(OSError):
        lines = _FUSE_CONFIGURATION.read_text().splitlines()
        if any(line.strip() == "user_allow_other" for line in lines):
            return
    raise MountFailed(
        f"only root may use --allow-other, unless root permits it: echo user_allow_other >> {_FUSE_CONFIGURATION}"
    )


@contextlib.contextmanager
def _locked(mountpoint: str) -> Iterator[None]:
    """Hold a lock on the directory under the mount for as long as this process lives.

    It keeps two daemons from mounting over each other, and tells ``kfs umount`` when this one is gone and has released
    its source, without leaving a file behind. Under autofs, which lets nobody open the directory until this is mounted,
    it does neither.
    """
    if is_automounted(mountpoint):
        yield
        return
    descriptor = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise MountFailed(f"{mountpoint}: another kfs is being mounted or unmounted here") from None
                time.sleep(0.02)
            except OSError as error:
                # A directory on a network filesystem may not support locks; then go on without one.
                logger.info("%s: no lock: %s", mountpoint, error)
                break
        if is_mounted(mountpoint):  # while the tree was opened; then it is in that mount that we have the lock
            raise MountFailed(f"{mountpoint}: another kfs was mounted here meanwhile")
        yield
    finally:
        os.close(descriptor)


def _announce(plan: _Plan) -> None:
    """Print that the mount answers, and tell the supervisor if it started us."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), f"{plan.mountpoint}: mounted\n".encode("utf-8", "surrogateescape"))
    systemd.notify("READY=1", f"STATUS=serving {plan.options.source} at {plan.mountpoint}")


def _log_to(log_file: str | None, log_format: LogFormat, level: int = logging.INFO) -> None:
    """Send the log messages of kfs and its binding, from ``level`` on, to ``log_file`` or to standard error.

    A program that has set up its own logging keeps it.
    """
    if log_file is None and logging.getLogger().handlers:
        return
    try:
        handler = logging.StreamHandler() if log_file is None else logging.FileHandler(log_file)
    except OSError as error:
        raise MountFailed(f"{log_file}: can't write a log file there: {error.strerror}") from None
    handler.setFormatter(formatter_of(log_format, is_journal=log_file is None and is_journal()))
    for name in ("kfs", "fuse"):
        logging.getLogger(name).addHandler(handler)
    own = logging.getLogger("kfs")
    if own.level == logging.NOTSET:
        own.setLevel(level)


def _remove(mountpoint: str) -> None:
    """Remove the mount that a killed daemon may have left."""
    with contextlib.suppress(KfsError):
        unmount(mountpoint, lazy=True)
