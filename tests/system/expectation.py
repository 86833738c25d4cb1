"""What a mount has to show of a record, made from Kafka's own account of it and without kfs's renderer."""

from __future__ import annotations

import base64
import errno
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from kfs.format.record import Record
from tests.expected import ExpectedBatch, ExpectedRecord, expected_batches, expected_records

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: In these partitions of ``g_damage`` the end of the log is missing: what was there just isn't.
_GONE: Final = ("broken/5", "broken/6", "broken/13", "broken/36")

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_DIRECTORY: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)(?P<rest>\.[0-9a-f]{32}-delete)?")

#: The records of a partition that is named ``<topic>/<partition>``, by offset.
Shown = dict[int, dict[str, Any]]


def fields_of(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """Return the JSON object of a record, its members in the order in which they are promised."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type.label,
        "time": _time(record.timestamp),
        **_field("key", record.key, "keyEncoding"),
        **_field("value", record.value, "valueEncoding"),
        "headers": [
            {**_field("key", key, "keyEncoding"), **_field("value", value, "encoding")} for key, value in record.headers
        ],
    }


def line_of(topic: str, partition: int, record: Record) -> bytes:
    """Return the line of a record whose strings have nothing that must be escaped otherwise than in all JSON."""
    return json.dumps(fields_of(topic, partition, record), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _time(timestamp: int) -> str | None:
    if timestamp == -1:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _field(name: str, data: bytes | None, encoding: str) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), encoding: "base64"}


def assert_is_line_of(line: bytes, fields: Mapping[str, Any]) -> None:
    """Fail unless ``line`` is one line of JSON with these members in this order, and can't drive a terminal."""
    shown = json.loads(line)
    assert shown == fields
    assert list(shown) == list(fields)
    assert line.endswith(b"\n")
    assert not _CONTROL.search(line.decode(), 0, len(line.decode()) - 1)


@dataclass(frozen=True, slots=True)
class LostBatch:
    """A batch of ``g_damage`` whose bytes are no longer what they were: files are relative to the log root.

    That it is lost is ``told_in`` a file, at a byte position: where it was, or, where its segment is missing, at the
    end of the segment before.
    """

    file: str
    position: int
    offsets: range
    error: int
    told_in: str = ""
    told_at: int = 0

    @property
    def partition(self) -> str:
        """``<topic>/<partition>``."""
        return _Place.of(self.file).name

    def holds(self, expected: ExpectedRecord) -> bool:
        """Whether the batch had this record."""
        return expected.file == self.file and expected.record.offset in self.offsets


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition's directory; ``rest`` is what a deleted one has behind its number."""

    topic: str
    partition: int
    rest: str = ""

    @classmethod
    def of(cls, file: str) -> _Place:
        """Return the one in which ``file``, relative to the log root, lies."""
        found = _DIRECTORY.fullmatch(file.split("/")[0])
        assert found is not None, file
        return cls(found["topic"], int(found["partition"]), found["rest"] or "")

    @property
    def name(self) -> str:
        """The partition's path in the tree."""
        return f"{self.topic}/{self.partition}"

    @property
    def deleted_name(self) -> str:
        """The path under which the tree keeps what is deleted and still on the disk."""
        return f".kfs/deleted/{self.topic}/{self.partition}{self.rest}"


class Expectation:
    """What a mount of a corpus must show: ``partitions`` in the open, ``deleted`` ones and parts below ``.kfs``.

    ``lost`` are the batches of the damaged corpus whose records nobody can have.
    """

    def __init__(self, corpus: Path) -> None:
        self.root = corpus / "data"
        is_damaged = (corpus / "expected_before.jsonl").exists()
        self.lost = list(_lost_batches(corpus)) if is_damaged else []
        self.partitions: dict[str, Shown] = {}
        self.deleted: dict[str, Shown] = {}
        self._lost_offsets: dict[str, dict[int, int]] = defaultdict(dict)
        for directory in self.root.iterdir():
            if _DIRECTORY.fullmatch(directory.name) and not directory.name.endswith("-delete"):
                self.partitions[_Place.of(directory.name).name] = {}
        starts = _log_start_offsets(self.root)
        for expected in expected_records(corpus, "expected_before.jsonl" if is_damaged else "expected.jsonl"):
            if not expected.is_control:
                self._add(expected, starts)

    def _add(self, expected: ExpectedRecord, starts: Mapping[str, int]) -> None:
        place, offset = _Place.of(expected.file), expected.record.offset
        batch = next((batch for batch in self.lost if batch.holds(expected)), None)
        if batch is not None:
            self._lost_offsets[place.name][offset] = batch.error
            return
        fields = fields_of(place.topic, place.partition, expected.record)
        if place.rest or offset < starts.get(place.name, 0):
            self.deleted.setdefault(place.deleted_name, {})[offset] = fields
        else:
            self.partitions[place.name][offset] = fields

    def errors(self) -> dict[str, dict[int, int]]:
        """Return by partition and offset the errno with which the lost messages answer."""
        return dict(self._lost_offsets)


def _log_start_offsets(root: Path) -> dict[str, int]:
    try:
        lines = (root / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    entries = (line.split() for line in lines)
    return {f"{topic}/{partition}": int(offset) for topic, partition, offset in entries}


def _lost_batches(corpus: Path) -> Iterator[LostBatch]:
    for batch in expected_batches(corpus, "batches_before.jsonl"):
        if _bytes_of(corpus / "data", batch) != _bytes_of(corpus / "before", batch):
            error = errno.ENOENT if _Place.of(batch.file).name in _GONE else errno.EIO
            offsets = range(batch.base_offset, batch.last_offset + 1)
            told = _end_of_the_one_before(corpus / "data", batch) or (batch.file, batch.position)
            yield LostBatch(batch.file, batch.position, offsets, error, *told)


def _end_of_the_one_before(root: Path, batch: ExpectedBatch) -> tuple[str, int] | None:
    """Where the segment before that of a batch ends, if that is missing between others."""
    segments = sorted((root / batch.file).parent.glob("*.log"))
    before = [path for path in segments if path.name < Path(batch.file).name]
    if not before or len(before) == len(segments) or (root / batch.file) in segments:
        return None
    return str(before[-1].relative_to(root)), before[-1].stat().st_size


def _bytes_of(root: Path, batch: ExpectedBatch) -> bytes:
    """The bytes where the batch was; a segment that a crash left as ``.swap`` is the segment."""
    for path in (root / batch.file, root / f"{batch.file}.swap"):
        if path.exists():
            return path.read_bytes()[batch.position : batch.position + batch.size]
    return b""
