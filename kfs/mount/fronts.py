"""Choosing a FUSE binding, and handling its errors.

The bindings load libfuse at import, and take the library from the environment. So no other module imports them, and
this one does so only in the serving process.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kfs.errors import MountFailed
from kfs.mount.front import Front
from kfs.mount.kernel import mounting
from kfs.mount.kernel.front import KernelFront
from kfs.mount.libfuse.front import LibfuseFront
from kfs.mount.libfuse.operations import Latin1Operations, Operations

#: The valid names: ``auto`` takes the first of the others that works, ``libfuse`` the first that uses libfuse.
FRONTS: Final = ("auto", "kernel", "libfuse", "mfusepy", "mfusepy-fuse2", "fusepy")

#: Both bindings read the library's path from here.
_LIBRARY_VARIABLE: Final = "FUSE_LIBRARY_PATH"
_DEVICE: Final = mounting.DEVICE


@dataclass(frozen=True, slots=True)
class _Library:
    """A major version of libfuse: the names of its files, its helper and its Debian package."""

    major: int
    file_names: tuple[str, ...]
    helper: str
    package: str

    def find(self) -> str:
        """Return the name to pass to dlopen; raise MountFailed if the library is missing."""
        chosen = os.environ.get(_LIBRARY_VARIABLE)
        for name in (*((chosen,) if chosen else ()), *self.file_names):
            try:
                version: int = ctypes.CDLL(name).fuse_version()
            except (OSError, AttributeError):
                continue
            if int(str(version)[0]) == self.major:
                return str(name)
        raise MountFailed(f"libfuse {self.major} is not installed: apt install {self.package}")


def _check_helper(helper: str) -> None:
    """Raise MountFailed if the setuid helper is needed and missing."""
    if os.geteuid() != 0 and shutil.which(helper) is None:
        raise MountFailed(f"{helper} is missing, and only root can mount without it: apt install fuse3")


@dataclass(frozen=True, slots=True)
class _OwnCandidate:
    """Our own front, which needs only Linux."""

    name: str = "kernel"

    def check(self) -> None:
        """Raise MountFailed, saying what is missing and what installs it."""
        if sys.platform != "linux":
            raise MountFailed(f"the front {self.name} works only on Linux")
        _check_helper(mounting.HELPER)

    def load(self) -> Front:
        """Return the front; raise MountFailed."""
        self.check()
        return KernelFront()


_OWN: Final = _OwnCandidate()
_LIBFUSE_3: Final = _Library(3, ("libfuse3.so.4", "libfuse3.so.3"), "fusermount3", "fuse3")
_LIBFUSE_2: Final = _Library(2, ("libfuse.so.2",), "fusermount", "libfuse2")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A binding with a library, and the callbacks that it gets."""

    name: str
    binding: str
    library: _Library
    install: str
    operations: type[Operations]

    def check(self) -> None:
        """Raise MountFailed, saying what is missing and what installs it. Imports nothing."""
        if importlib.util.find_spec(self.binding) is None:
            raise MountFailed(f"the Python module {self.binding} is not installed: pip install {self.install}")
        self.library.find()
        _check_helper(self.library.helper)

    def load(self) -> Front:
        """Import the binding with its library, and return the front; raise MountFailed."""
        self.check()
        try:
            with _library_path(self.library.find()):
                module = importlib.import_module(self.binding)
        except (ImportError, OSError, AttributeError) as error:
            raise MountFailed(f"{self.binding} with libfuse {self.library.major}: {error}") from error
        loaded = getattr(module, "fuse_version_major", self.library.major)
        if loaded != self.library.major:
            raise MountFailed(f"{self.binding} was imported earlier, with libfuse {loaded}")
        return LibfuseFront(self.name, module, self.operations)


_FUSE_3: Final = _Candidate("mfusepy", "mfusepy", _LIBFUSE_3, "mfusepy", Operations)
_FUSE_2: Final = _Candidate("mfusepy-fuse2", "mfusepy", _LIBFUSE_2, "mfusepy", Operations)
_FUSEPY: Final = _Candidate("fusepy", "fuse", _LIBFUSE_2, "fusepy", Latin1Operations)

#: The candidates for each name, best first.
_CHOICES: Final[dict[str, tuple[_OwnCandidate | _Candidate, ...]]] = {
    "auto": (_OWN, _FUSE_3, _FUSE_2, _FUSEPY),
    "kernel": (_OWN,),
    "libfuse": (_FUSE_3, _FUSE_2, _FUSEPY),
    "mfusepy": (_FUSE_3, _FUSE_2),
    "mfusepy-fuse2": (_FUSE_2,),
    "fusepy": (_FUSEPY,),
}


def load(name: str) -> Front:
    """Import the binding of the named front and return the front; raise MountFailed with all reasons."""
    reasons = []
    for candidate in _candidates(name):
        try:
            return candidate.load()
        except MountFailed as error:
            reasons.append(str(error))
    raise MountFailed(_no_front(name, reasons))


def check(name: str) -> None:
    """Raise MountFailed, with the reasons, if no front of that name can work here; import nothing."""
    check_device()
    reasons = []
    for candidate in _candidates(name):
        try:
            return candidate.check()
        except MountFailed as error:
            reasons.append(str(error))
    raise MountFailed(_no_front(name, reasons))


def available_fronts() -> list[str]:
    """Return the names of the fronts that can work here, best first, without ``auto`` and ``libfuse``."""
    names = []
    for candidate in (_OWN, _FUSE_3, _FUSE_2, _FUSEPY):
        try:
            check_device()
            candidate.check()
        except MountFailed:
            continue
        names.append(candidate.name)
    return names


def check_device() -> None:
    """Raise MountFailed if this process may not use the kernel's FUSE."""
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        raise MountFailed(
            f"there is no {_DEVICE}: run `modprobe fuse` as root; "
            "a container must be started with --device /dev/fuse --cap-add SYS_ADMIN"
        ) from None
    except OSError as error:
        raise MountFailed(
            f"{_DEVICE}: {error.strerror}: mount as root, or have root run `chmod 666 {_DEVICE}`; "
            "a container must be started with --device /dev/fuse --cap-add SYS_ADMIN"
        ) from None


def _candidates(name: str) -> tuple[_OwnCandidate | _Candidate, ...]:
    try:
        return _CHOICES[name]
    except KeyError:
        raise MountFailed(f"no front {name!r}: choose one of {', '.join(FRONTS)}") from None


def _no_front(name: str, reasons: list[str]) -> str:
    if len(reasons) == 1:
        return reasons[0]
    asked = "FUSE" if name == "auto" else name
    lines = [f"no usable front for {asked}:"]
    return "\n".join([*lines, *(f"  - {reason}" for reason in dict.fromkeys(reasons))])


@contextmanager
def _library_path(path: str) -> Iterator[None]:
    """Make a binding that is imported inside the block load the library at ``path``."""
    before = os.environ.get(_LIBRARY_VARIABLE)
    os.environ[_LIBRARY_VARIABLE] = path
    try:
        yield
    finally:
        if before is None:
            del os.environ[_LIBRARY_VARIABLE]
        else:
            os.environ[_LIBRARY_VARIABLE] = before
