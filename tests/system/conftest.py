"""Mounts made by the installed ``kfs`` command: of the recorded corpora, of a log directory written here, of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.logs import dense, log_name, write_partition
from tests.requirements import need_fuse
from tests.system.expectation import Expectation
from tests.system.kafka_mount import KafkaMount
from tests.system.shop import Shop


class MountKafka(Protocol):
    """Mounts sources at a new mount point."""

    def __call__(self, *sources: str | Path, front: str = "auto", options: tuple[str, ...] = ()) -> KafkaMount:
        """Return the mount once it answers."""


class Mounts:
    """Mounts below one directory, made when they are first asked for and kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mounts: dict[tuple[object, ...], KafkaMount] = {}

    def get(self, *sources: str | Path, front: str = "auto", options: tuple[str, ...] = ()) -> KafkaMount:
        """Return the mount with these arguments."""
        key = (*sources, front, *options)
        mounted = self._mounts.get(key)
        if mounted is None:
            mounted = self.make(*sources, front=front, options=options)
            self._mounts[key] = mounted
        return mounted

    def make(self, *sources: str | Path, front: str = "auto", options: tuple[str, ...] = ()) -> KafkaMount:
        """Return a new mount."""
        need_fuse(front)
        mounted = KafkaMount(self._directory / f"mnt{len(self._mounts)}", *sources, front=front, options=options)
        self._mounts[mounted.point,] = mounted
        mounted.start()
        return mounted

    def assert_alive(self) -> None:
        """Fail if a daemon has died, whatever it was that was asked of it."""
        for mounted in self._mounts.values():
            assert mounted.is_alive(), f"{mounted.arguments}: {mounted.log()}"

    def discard(self) -> None:
        """Take away whatever is left."""
        for mounted in dict.fromkeys(self._mounts.values()):
            mounted.discard()


@pytest.fixture(scope="session")
def mounted_corpus(
    corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., KafkaMount]]:
    """Return the function that gives the mount of a corpus by name; its daemon must outlive all tests."""
    mounts = Mounts(tmp_path_factory.mktemp("corpora"))
    try:
        yield lambda name, **given: mounts.get(corpus(name) / "data", **given)
        mounts.assert_alive()
    finally:
        mounts.discard()


@pytest.fixture(scope="session")
def shown(mounted_corpus: Callable[..., KafkaMount]) -> Callable[[str, str], dict[str, dict[int, bytes]]]:
    """Return the function that says what a mount of a corpus shows: the lines by partition and offset, read once."""
    read: dict[tuple[str, str], dict[str, dict[int, bytes]]] = {}

    def get(name: str, front: str) -> dict[str, dict[int, bytes]]:
        if (name, front) not in read:
            mounted = mounted_corpus(name, front=front)
            read[name, front] = {partition: mounted.lines(partition) for partition in mounted.partitions()}
        return read[name, front]

    return get


@pytest.fixture(scope="session")
def expectation(corpus: Callable[[str], Path]) -> Callable[[str], Expectation]:
    """Return the function that says what a mount of a corpus must show."""
    made: dict[str, Expectation] = {}

    def get(name: str) -> Expectation:
        if name not in made:
            made[name] = Expectation(corpus(name))
        return made[name]

    return get


@pytest.fixture
def mount_kafka(tmp_path: Path) -> Iterator[MountKafka]:
    """Return the function that mounts for one test; what the test leaves mounted is taken away."""
    mounts = Mounts(tmp_path)
    try:
        yield mounts.make
    finally:
        mounts.discard()


@pytest.fixture(scope="session")
def shop_mounts(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounts]:
    """The mounts of it that live as long as the tests."""
    mounts = Mounts(tmp_path_factory.mktemp("shops"))
    try:
        yield mounts
        mounts.assert_alive()
    finally:
        mounts.discard()


@pytest.fixture
def open_shop(shop: Shop, shop_mounts: Mounts) -> KafkaMount:
    """The log directory, mounted by the default front."""
    return shop_mounts.get(shop.root)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log directory with a topic, whose last batch of the first segment is damaged."""
    directory = write_partition(tmp_path / "data" / "t-0", {0: dense(0, 49), 50: dense(50, 99)})
    path = directory / log_name(0)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    return tmp_path / "data"
