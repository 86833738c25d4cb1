"""Mounts of the toy tree, one for each module and front."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfs.mount import FRONTS
from tests.mount.toy_mount import ToyMount
from tests.mount.toy_tree import Control, ToyTree
from tests.requirements import need_fuse

#: Every front by the name that means it and no other.
EACH_FRONT = tuple(name for name in FRONTS if name not in ("auto", "libfuse"))

#: One of each way to serve a tree: our own, and libfuse's, by path. The others differ in bindings; they take their
#: turn in the long matrix, where a test is slow.
ONE_OF_EACH_KIND = tuple(
    name if name in ("kernel", "mfusepy") else pytest.param(name, marks=pytest.mark.long) for name in EACH_FRONT
)


@pytest.fixture(scope="module", params=EACH_FRONT)
def front(request: pytest.FixtureRequest) -> str:
    """Each front in turn."""
    name: str = request.param
    need_fuse(name)
    return name


@pytest.fixture(scope="module")
def mounted(front: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyMount]:
    """The toy tree, mounted with each front."""
    toy = ToyMount(tmp_path_factory.mktemp("toy"), front)
    toy.start()
    try:
        yield toy
    finally:
        toy.stop()


@pytest.fixture
def make_mount(tmp_path: Path) -> Iterator[Callable[..., ToyMount]]:
    """Makes mount points with nothing mounted yet; what a test leaves mounted is taken away."""
    need_fuse()
    made: list[ToyMount] = []

    def make(name: str = "toy", front: str = "auto") -> ToyMount:
        made.append(ToyMount(tmp_path / name, front))
        return made[-1]

    try:
        yield make
    finally:
        for toy in made:
            toy.stop()


@pytest.fixture
def toy_tree(tmp_path: Path) -> ToyTree:
    """The same tree in this process: what the mounted one must look like."""
    return ToyTree(Control(tmp_path / "control"))
