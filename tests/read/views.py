"""Everything that shows the records of a log, so that they can be held against each other."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import kfs
from kfs.errors import CorruptData, KfsError
from kfs.log.offset_range import OffsetRange
from kfs.read.isolation import IsolationLevel
from kfs.read.selection import Selection
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import settled
from kfs.tree.options import OnDamage, TreeOptions
from tests.export.exporting import exported
from tests.logs import directory_at, file_at, names, open_tree
from tests.spark.reads import options_for, planned, read

#: What is shown: values by offset.
Shown = dict[int, bytes | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """Log directories with copies of one partition, and the isolation level that it is read at."""

    roots: tuple[Path, ...]
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    topic: str = "t"
    partition: int = 0

    @classmethod
    def of(
        cls,
        *roots: Path,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        topic: str = "t",
        partition: int = 0,
    ) -> Self:
        return cls(roots, isolation, topic, partition)

    @property
    def name(self) -> str:
        """Where it is in the tree."""
        return f"{self.topic}/{self.partition}"

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(map(str, self.roots))


def of_lines(lines: Iterable[bytes]) -> Shown:
    """Return what lines of JSON show; each has an offset of its own, above that of the one before."""
    shown: Shown = {}
    for line in lines:
        fields = json.loads(line)
        value, offset = fields["value"], fields["offset"]
        if fields.get("valueEncoding") == "base64":
            value = base64.b64decode(value)
        elif value is not None:
            value = value.encode()
        assert offset > max(shown, default=-1), f"offset {offset} after {max(shown, default=-1)}"
        shown[offset] = value
    return shown


def _options(asked: Asked, on_damage: OnDamage = OnDamage.SKIP) -> TreeOptions:
    return TreeOptions(on_damage=on_damage, isolation=asked.isolation)


def read_file(tree: KafkaTree, path: str) -> bytes:
    """Return all of a file, found and read as a mount does: what becomes another file meanwhile is looked up again."""

    def read() -> bytes:
        file = file_at(tree, path)
        return file.read(0, file.attributes().size)

    return settled(read)


def offset_files(asked: Asked) -> Shown:
    tree = open_tree(*asked.roots, options=_options(asked))
    lines = []
    for name in names(directory_at(tree, f"{asked.name}/offset")):
        try:
            line = read_file(tree, f"{asked.name}/offset/{name}")
        except CorruptData:
            continue
        assert line.endswith(b"\n")
        assert json.loads(line)["offset"] == int(name.removesuffix(".json"))
        lines.append(line)
    return of_lines(lines)


def value_files(asked: Asked) -> Shown:
    tree = open_tree(*asked.roots, options=_options(asked))
    shown: Shown = {}
    for name in names(directory_at(tree, f"{asked.name}/offset")):
        offset = int(name.removesuffix(".json"))
        try:
            shown[offset] = read_file(tree, f"{asked.name}/value/{offset}")
        except CorruptData:
            continue
        except KfsError:
            shown[offset] = None
    return shown


def segment_files(asked: Asked) -> Shown:
    tree = open_tree(*asked.roots, options=_options(asked))
    lines: list[bytes] = []
    for name in names(directory_at(tree, f"{asked.name}/segment")):
        lines += read_file(tree, f"{asked.name}/segment/{name}").splitlines()
    return of_lines(lines)


def all_records(asked: Asked) -> Shown:
    return of_lines(
        read_file(open_tree(*asked.roots, options=_options(asked)), f"{asked.name}/records.jsonl").splitlines()
    )


def cat(asked: Asked) -> Shown:
    return of_lines(exported(asked.roots, asked.topic, asked.partition, isolation=asked.isolation)[0].splitlines())


def in_python(asked: Asked) -> Shown:
    with kfs.open(*asked.paths, isolation=asked.isolation.value, on_damage="skip") as data:
        return {record.offset: record.value for record in data[asked.topic][asked.partition].read()}


def scan(asked: Asked) -> Shown:
    with kfs.open(*asked.paths, isolation=asked.isolation.value, on_damage="skip") as data:
        table = data[asked.topic][asked.partition].scan(columns=["offset", "value"], jobs=1).to_table()
        return dict(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def spark(asked: Asked) -> Shown:
    given = {"onCorrupt": "skip", "kafka.isolation.level": asked.isolation.value}
    options = options_for(
        asked.roots[0], paths=json.dumps(asked.paths[1:]), assign=json.dumps({asked.topic: [asked.partition]}), **given
    )
    return {row["offset"]: row["value"] for row in read(planned(options), options)}


VIEWS: tuple[Callable[[Asked], Shown], ...] = (
    offset_files,
    value_files,
    segment_files,
    all_records,
    cat,
    in_python,
    scan,
    spark,
)


# --- what is said of offsets that are lost ---------------------------------------------------------------------------


def tells(view: Callable[[Asked, OffsetRange], object], asked: Asked, offsets: OffsetRange) -> bool:
    """Whether a view says that records may be missing among some offsets."""
    try:
        return bool(view(asked, offsets))
    except CorruptData:
        return True


def file_is_broken(asked: Asked, offsets: OffsetRange) -> bool:
    tree = open_tree(*asked.roots, options=_options(asked))
    for offset in range(offsets.start, offsets.end):
        try:
            file_at(tree, f"{asked.name}/offset/{offset}.json")
        except CorruptData:
            return True
        except KfsError:
            continue
    return False


def cat_has_problems(asked: Asked, offsets: OffsetRange) -> bool:
    selection = Selection(offsets.start, offsets.end)
    return bool(exported(asked.roots, asked.topic, asked.partition, selection=selection, isolation=asked.isolation)[1])


def python_raises(asked: Asked, offsets: OffsetRange) -> bool:
    with kfs.open(*asked.paths, isolation=asked.isolation.value) as data:
        list(data[asked.topic][asked.partition].read(offsets.start, offsets.end))
    return False


def scan_raises(asked: Asked, offsets: OffsetRange) -> bool:
    with kfs.open(*asked.paths, isolation=asked.isolation.value) as data:
        data[asked.topic][asked.partition].scan(
            columns=["offset"], offsets=(offsets.start, offsets.end), jobs=1
        ).to_table()
    return False


TELLING: tuple[Callable[[Asked, OffsetRange], bool], ...] = (
    file_is_broken,
    cat_has_problems,
    python_raises,
    scan_raises,
)
