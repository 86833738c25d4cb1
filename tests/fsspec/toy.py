"""The filesystem over trees that aren't Kafka's."""

from __future__ import annotations

from pathlib import Path

from fsspec.spec import AbstractFileSystem

from kfs.fsspec import KafkaFileSystem
from kfs.tree.node import Tree
from tests.mount.toy_tree import Control, Own, ToyDirectory, ToyTree


class ToyFileSystem(KafkaFileSystem):
    """Whatever tree there is, as a filesystem."""

    cachable = False

    def __init__(self, tree: Tree) -> None:
        AbstractFileSystem.__init__(self)
        self.log_dirs = []  # type: ignore[misc]
        self.tree = tree


class MirrorTree(ToyTree):
    """The files below a directory, as they are when it is made."""

    def __init__(self, mirrored: Path, control: Path) -> None:
        self._mirrored = mirrored
        super().__init__(Control(control), 0)

    def _build(self) -> ToyDirectory:
        return self._mirror(self._mirrored)

    def _mirror(self, directory: Path) -> ToyDirectory:
        children: dict[str, Own] = {
            path.name: self._mirror(path) if path.is_dir() else self._file(path.read_bytes())
            for path in sorted(directory.iterdir())
        }
        return self._directory(children)
