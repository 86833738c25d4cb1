"""Everything that shows the records of a log, so that they can be held against each other."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import kfs
from kfs.api import Data
from kfs.cat.records import CatRequest
from kfs.errors import CorruptData, KfsError
from kfs.log.offset_range import OffsetRange
from kfs.log.problem import DamagePolicy, Problem
from kfs.read.isolation_level import IsolationLevel
from kfs.read.selection import Selection
from kfs.tree.kafka_tree import KafkaTree
from kfs.tree.node import settled
from kfs.tree.options import TreeOptions
from tests.cat.printing import EVERYTHING, LINES, printed, written
from tests.logs import directory_at, file_at, names, open_tree
from tests.spark.reads import batches_of, options_for, planned

#: What is shown: values by offset.
Shown = dict[int, bytes | None]
View = Callable[["Asked"], Shown]


@dataclass(frozen=True, slots=True)
class Asked:
    """Log directories with copies of one partition, and the isolation level that it is read at."""

    roots: tuple[Path, ...]
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    topic: str = "t"
    partition: int = 0
    #: What all views that are asked are to share; without it each opens the log directories for itself.
    opened: KafkaTree | None = None

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

    @contextmanager
    def shared(self) -> Iterator[Self]:
        """Open the log directories once for several views."""
        with closing(self._open()) as tree:
            yield replace(self, opened=tree)

    def _open(self) -> KafkaTree:
        options = TreeOptions(on_damage=DamagePolicy.SKIP, isolation=self.isolation)
        return open_tree(*self.roots, options=options)

    def tree(self) -> AbstractContextManager[KafkaTree]:
        """Return the tree, which skips what is damaged."""
        return closing(self._open()) if self.opened is None else nullcontext(self.opened)

    def data(self, on_damage: DamagePolicy) -> AbstractContextManager[Data]:
        """Return what Python has of it."""
        if self.opened is None:
            return kfs.open(*self.paths, isolation=self.isolation.value, on_damage=on_damage.value)
        return nullcontext(Data(self.opened.data_dir, self.isolation, on_damage))

    def printed(self, selection: Selection = EVERYTHING) -> tuple[bytes, list[Problem]]:
        """Return the lines of ``kfs cat``, and its problems."""
        if self.opened is None:
            return printed(self.roots, self.topic, self.partition, selection=selection, isolation=self.isolation)
        request = CatRequest(selection, LINES, isolation=self.isolation)
        return written(request, self.opened.data_dir, self.topic, self.partition)


def ascending(pairs: Iterable[tuple[int, bytes | None]]) -> Shown:
    """Return offsets and values as they are shown; each offset is above the one before."""
    shown: Shown = {}
    last = -1
    for offset, value in pairs:
        assert offset > last, f"offset {offset} after {last}"
        shown[offset] = value
        last = offset
    return shown


def of_lines(lines: Iterable[bytes]) -> Shown:
    """Return what lines of JSON show."""
    return ascending(map(_of_line, lines))


def _of_line(line: bytes) -> tuple[int, bytes | None]:
    fields = json.loads(line)
    offset, value = fields["offset"], fields["value"]
    if value is None:
        return offset, None
    return offset, base64.b64decode(value) if fields.get("valueEncoding") == "base64" else value.encode()


def read_file(tree: KafkaTree, path: str) -> bytes:
    """Return all of a file, found and read as a mount does: what becomes another file meanwhile is looked up again."""

    def read() -> bytes:
        file = file_at(tree, path)
        return file.read(0, file.attributes().size)

    return settled(read)


def offset_files(asked: Asked) -> Shown:
    found = []
    with asked.tree() as tree:
        for name in names(directory_at(tree, f"{asked.name}/offset")):
            try:
                line = read_file(tree, f"{asked.name}/offset/{name}")
            except CorruptData:
                continue
            assert line.endswith(b"\n")
            found.append(_of_line(line))
            assert found[-1][0] == int(name.removesuffix(".json"))
    return ascending(found)


def value_files(asked: Asked) -> Shown:
    shown: Shown = {}
    with asked.tree() as tree:
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
    lines: list[bytes] = []
    with asked.tree() as tree:
        for name in names(directory_at(tree, f"{asked.name}/segment")):
            lines += read_file(tree, f"{asked.name}/segment/{name}").splitlines()
    return of_lines(lines)


def all_records(asked: Asked) -> Shown:
    with asked.tree() as tree:
        return of_lines(read_file(tree, f"{asked.name}/records.jsonl").splitlines())


def cat(asked: Asked) -> Shown:
    return of_lines(asked.printed()[0].splitlines())


def in_python(asked: Asked) -> Shown:
    with asked.data(DamagePolicy.SKIP) as data:
        return ascending((record.offset, record.value) for record in data[asked.topic][asked.partition].read())


def scan(asked: Asked) -> Shown:
    with asked.data(DamagePolicy.SKIP) as data:
        table = data[asked.topic][asked.partition].scan(columns=["offset", "value"], jobs=1).to_table()
        return ascending(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))


def spark(asked: Asked) -> Shown:
    given = {"onDamage": "skip", "kafka.isolation.level": asked.isolation.value}
    options = options_for(
        asked.roots[0], paths=json.dumps(asked.paths[1:]), assign=json.dumps({asked.topic: [asked.partition]}), **given
    )
    batches = batches_of(planned(options), options)
    return ascending(
        pair for each in batches for pair in zip(each["offset"].to_pylist(), each["value"].to_pylist(), strict=True)
    )


VIEWS: tuple[View, ...] = (
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
    with asked.tree() as tree:
        for offset in range(offsets.start, offsets.end):
            try:
                file_at(tree, f"{asked.name}/offset/{offset}.json")
            except CorruptData:
                return True
            except KfsError:
                continue
    return False


def cat_has_problems(asked: Asked, offsets: OffsetRange) -> bool:
    return bool(asked.printed(Selection(offsets.start, offsets.end))[1])


def python_raises(asked: Asked, offsets: OffsetRange) -> bool:
    with asked.data(DamagePolicy.FAIL) as data:
        list(data[asked.topic][asked.partition].read(offsets.start, offsets.end))
    return False


def scan_raises(asked: Asked, offsets: OffsetRange) -> bool:
    with asked.data(DamagePolicy.FAIL) as data:
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
