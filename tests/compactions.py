"""A partition as several compactions leave it, with the files that wait for their removal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.logs import Batch, batch, content_of, dense, log_name, names, open_tree, write_partition, write_segment

SUFFIXES: Final = (".log", ".index", ".timeindex")


class Compacted:
    """A partition whose segments are merged one time after another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "t-0"
        self.content: dict[int, Sequence[Batch]] = {base: dense(base, base + 9) for base in range(0, 60, 10)}
        #: What each ``.log.deleted`` holds, by its base offset.
        self.deleted: dict[int, list[int]] = {}
        write_partition(self.directory, self.content)

    def compact(self, bases: Sequence[int], kept: Sequence[int]) -> None:
        """Merge segments into one with only the offsets that are ``kept``: ``UnifiedLog.replaceSegments``.

        What is kept of a batch is a batch.
        """
        merged = []
        for base in bases:
            for one in self.content.pop(base):
                left = [each for each in one.records if each.offset in kept]
                if left:
                    merged.append(batch(left))
            for suffix in SUFFIXES:
                path = self.directory / log_name(base, suffix)
                path.rename(f"{path}.deleted")  # over that of an earlier compaction
        self.deleted |= {base: offsets_of(self.directory / log_name(base, ".log.deleted")) for base in bases}
        write_segment(self.directory, bases[0], merged, interval=0)
        self.content[bases[0]] = merged

    def remove(self, base: int) -> None:
        """What ``file.delete.delay.ms`` ends with."""
        for suffix in SUFFIXES:
            (self.directory / log_name(base, f"{suffix}.deleted")).unlink()
        del self.deleted[base]

    @property
    def union(self) -> list[int]:
        return sorted({offset for offsets in self.deleted.values() for offset in offsets})


def offsets_of(path: Path) -> list[int]:
    """Return the offsets that a file holds, read by itself."""
    tree = open_tree(path)
    (topic,) = (name for name in names(tree.root) if not name.startswith("."))
    return [json.loads(line)["offset"] for line in content_of(tree, f"{topic}/0/records.jsonl").splitlines()]


def compacted_thrice(root: Path) -> Compacted:
    """Return files of three compactions: 0 of the third covers 10 and 20 of the first and 30 of the second."""
    log = Compacted(root)
    log.compact([0, 10, 20], range(0, 30, 3))
    log.compact([0, 30], range(0, 40, 6))
    log.compact([0, 40], range(0, 50, 12))
    return log
