"""What the front on libfuse does beside the binding, which is a stand-in here."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import ModuleType

import pytest

from kfs.errors import NotFound
from kfs.mount.front import MountOptions
from kfs.mount.libfuse.front import LibfuseFront
from kfs.mount.libfuse.operations import Operations
from kfs.tree.kafka_tree import KafkaTree
from tests.logs import content_of, dense, look_every_time, open_tree, write_partition


class Binding(ModuleType):
    """Mounts nothing, and returns when the tree holds nothing any more of the partitions that are gone."""

    def __init__(self, tree: KafkaTree) -> None:
        super().__init__("binding")
        self._tree = tree

    def FUSE(self, *_arguments: object, **_settings: object) -> None:  # noqa: N802  its name there
        until = time.monotonic() + 20
        while self._tree.views.replaced and time.monotonic() < until:
            time.sleep(0.05)


def test_what_a_tree_keeps_of_replaced_partitions_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_every_time(monkeypatch)
    write_partition(tmp_path / "a-0", {0: dense(0, 9)})
    tree = open_tree(tmp_path)
    content_of(tree, "a/0/offset/3.json")
    shutil.rmtree(tmp_path / "a-0")
    with pytest.raises(NotFound):
        tree.resolve("a/0/offset/3.json")
    write_partition(tmp_path / "a-0", {0: dense(0, 19)})
    content_of(tree, "a/0/offset/3.json")
    assert tree.views.replaced
    LibfuseFront("libfuse", Binding(tree), Operations).serve(tree, "mnt", MountOptions())
    assert not tree.views.replaced
    tree.close()
