"""Choosing a front, and what is said where none works."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec

import pytest

from kfs.errors import MountFailed
from kfs.mount import FRONTS, available_fronts, fronts


@pytest.fixture
def _device(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    """A machine with a device that we may open."""
    monkeypatch.setattr(fronts, "_DEVICE", os.devnull)


def no_libraries(*missing: str) -> type[ctypes.CDLL]:
    class Loader(ctypes.CDLL):
        def __init__(self, name: str) -> None:
            if name.startswith(missing):
                raise OSError(f"{name}: cannot open shared object file")
            self.fuse_version = lambda: 314 if "fuse3" in name else 29

    return Loader


def test_the_names_are_known() -> None:
    assert FRONTS[0] == "auto"
    assert set(available_fronts()) <= set(FRONTS[1:])
    with pytest.raises(MountFailed, match="no front 'nfs': choose one of auto, kernel, libfuse, "):
        fronts.check("nfs")


def test_asking_imports_no_binding() -> None:
    before = set(sys.modules)
    available_fronts()
    assert {"mfusepy", "fuse"}.isdisjoint(set(sys.modules) - before)


@pytest.mark.usefixtures("_device")
def test_libfuse_2_takes_over_where_3_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_libraries("libfuse3"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    assert available_fronts() == ["kernel", "mfusepy-fuse2", "fusepy"]
    fronts.check("mfusepy")


@pytest.mark.usefixtures("_device")
def test_linux_needs_no_libfuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_libraries("libfuse"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert available_fronts() == ["kernel"]
    fronts.check("auto")
    assert fronts.load("auto").name == "kernel"


@pytest.mark.usefixtures("_device")
def test_other_systems_need_libfuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    monkeypatch.setattr(ctypes, "CDLL", no_libraries("libfuse.so"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    assert available_fronts() == ["mfusepy"]
    fronts.check("auto")
    with pytest.raises(MountFailed, match="works only on Linux"):
        fronts.check("kernel")


@pytest.mark.usefixtures("_device")
def test_every_reason_is_given_where_nothing_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    monkeypatch.setattr(ctypes, "CDLL", no_libraries("libfuse"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fuse" else ModuleSpec(name, None))
    assert available_fronts() == []
    with pytest.raises(MountFailed) as caught:
        fronts.check("auto")
    assert str(caught.value).splitlines()[1:] == [
        "  - the front kernel works only on Linux",
        "  - libfuse 3 is not installed: apt install fuse3",
        "  - libfuse 2 is not installed: apt install libfuse2",
        "  - the Python module fuse is not installed: pip install fusepy",
    ]


@pytest.mark.usefixtures("_device")
def test_a_user_needs_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_libraries("nothing"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MountFailed, match="fusermount3 is missing, and only root can mount without it: apt install"):
        fronts.check("auto")


def test_a_machine_without_the_device_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "_DEVICE", "/dev/no-fuse")
    with pytest.raises(MountFailed, match=r"modprobe fuse.*--device /dev/fuse"):
        fronts.check("auto")
    monkeypatch.setattr(fronts, "_DEVICE", "/proc")
    with pytest.raises(MountFailed, match=r"/proc: .*chmod.*--device"):
        fronts.check("auto")
