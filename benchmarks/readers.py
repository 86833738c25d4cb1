"""What reads segments within a Python process: kfs, the parsers of two clients, and the limit of all of them.

Each function takes ``.log`` files, looks at every record with its batch's CRC checked, and returns how many there are.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import cramjam
import lz4.frame
import orjson
import zstandard
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c
from isal import isal_zlib
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from kfs.errors import KfsError
from kfs.log.bulk import BulkReader, DecodedBatches
from kfs.log.data_dir import DataDir
from kfs.log.offset_range import SegmentBounds
from kfs.log.problem import Problem
from kfs.log.segment import Segment
from kfs.log.storage import Storage
from kfs.log.walk import SegmentWalk
from kfs.render.renderers import line_renderer

Segments = Sequence[Path]
#: What a consumer gets at a time (``max.partition.fetch.bytes``), whole batches of it.
_FETCH_BYTES: Final = 1024 * 1024
_PART_BYTES: Final = 4 * 1024 * 1024
#: As much as stays in a processor's own cache.
_WINDOW_BYTES: Final = 256 * 1024

# --- kfs --------------------------------------------------------------------------------------------------------------


def kfs_validate(segments: Segments) -> int:
    """Look at every record, as ``kfs`` does to verify."""
    return sum(reader.count() for reader in bulk_readers(segments))


def kfs_decode(segments: Segments) -> int:
    """Decode every record into columns."""
    return sum(len(each.columns) for reader in bulk_readers(segments) for each in _records(reader))


def kfs_ndjson(segments: Segments, output: IO[bytes]) -> int:
    """Write every record as a line of JSON."""
    records = 0
    renderer = line_renderer("events", 0)
    for reader in bulk_readers(segments):
        for each in _records(reader):
            output.write(renderer.lines(each.columns, (each.base_offset, each.last_offset)).buffer)
            records += len(each.columns)
    return records


def kfs_validate_part(segment: Path, position: int, end: int) -> int:
    """Look at every record from one byte position of a segment, a batch boundary, to another."""
    [reader] = bulk_readers([segment])
    return reader.count(position, end=end)


def parts(segment: Path) -> Iterator[tuple[Path, int, int]]:
    """Yield a segment, and where in it parts for :func:`kfs_validate_part` begin and end: some megabytes each."""
    position = 0
    for data in whole_batches(segment, _PART_BYTES):
        yield segment, position, position + len(data)
        position += len(data)


def bulk_readers(segments: Segments) -> Iterator[BulkReader]:
    """Yield a reader for each segment."""
    storage = Storage()
    data_dir = DataDir([str(segment) for segment in segments], storage)
    for log in (data_dir.log(topic, number) for topic in data_dir.topics() for number in data_dir.partitions(topic)):
        assert log is not None
        for segment in log.segments:
            yield bulk_reader(segment, storage)


def bulk_reader(segment: Segment, storage: Storage) -> BulkReader:
    """Return a reader that raises :class:`KfsError` where anything is wrong."""
    bounds = SegmentBounds(segment.base_offset, segment.next_base_offset)
    walk = SegmentWalk(segment.file(), bounds, storage.max_batch_bytes, _refuse, storage.decoder)
    return BulkReader(walk, storage, _refuse)


def _records(reader: BulkReader) -> Iterator[DecodedBatches]:
    for item in reader.items():
        assert isinstance(item, DecodedBatches)
        yield item


def _refuse(problem: Problem) -> None:
    raise KfsError(str(problem))


# --- the limit --------------------------------------------------------------------------------------------------------

#: Of ``DefaultRecordBatch``: what lies before the records. A batch's size counts from behind its first two fields.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_SIZE: Final = struct.Struct(">i")
_SIZE_AT: Final = 8
_LOG_OVERHEAD: Final = 12
_CRC_START: Final = 21
#: Of snappy as Java writes it (xerial): a header of 16 bytes, then blocks with their sizes in front. librdkafka writes
#: one block and no header.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES: Final = 16


def _unsnap(data: memoryview) -> None:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        cramjam.snappy.decompress_raw(data)
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        end = at + 4 + _SIZE.unpack_from(data, at)[0]
        cramjam.snappy.decompress_raw(data[at + 4 : end])
        at = end


def _ungzip(data: memoryview) -> None:
    isal_zlib.decompress(data, 31)


_ZSTD: Final = zstandard.ZstdDecompressor()


def _unzstd(data: memoryview) -> None:
    _ZSTD.decompressobj().decompress(data)


_DECOMPRESS: Final[dict[int, Callable[[memoryview], object]]] = {
    1: _ungzip,
    2: _unsnap,
    3: lz4.frame.decompress,
    4: _unzstd,
}


def limit(segments: Segments) -> int:
    """Only what can't be left out: walk the headers, check the CRCs, decompress. No record is looked at."""
    records = 0
    for segment in segments:
        for data in whole_batches(segment, _WINDOW_BYTES):
            view = memoryview(data)
            at = 0
            while at < len(data):
                fields = _HEADER.unpack_from(data, at)
                end = at + _LOG_OVERHEAD + fields[1]
                if crc32c(view[at + _CRC_START : end]) != fields[4]:
                    raise KfsError(f"{segment}: wrong CRC")
                if fields[5]:
                    _DECOMPRESS[fields[5]](view[at + _HEADER.size : end])
                records += fields[12]
                at = end
    return records


def whole_batches(segment: Path, most: int) -> Iterator[bytes]:
    """Yield a segment in pieces of at most so many bytes, each of whole batches."""
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        position = 0
        while data := os.pread(descriptor, most, position):
            end = 0
            while end + _LOG_OVERHEAD <= len(data):
                size = _LOG_OVERHEAD + _SIZE.unpack_from(data, end + _SIZE_AT)[0]
                if end + size > len(data):
                    break
                end += size
            if not end:
                raise KfsError(f"{segment}: no whole batch at {position}")
            yield data[:end]
            position += end
    finally:
        os.close(descriptor)


# --- the clients ------------------------------------------------------------------------------------------------------


def aiokafka_validate(segments: Segments) -> int:
    """Parse every record with aiokafka's compiled parser."""
    return _records_in(parsed_batches(segments, MemoryRecords))


def kafka_python_validate(segments: Segments) -> int:
    """Parse every record with kafka-python, which has no compiled code of its own."""
    return _records_in(parsed_batches(segments, KafkaPythonRecords))


def aiokafka_ndjson(segments: Segments, output: IO[bytes]) -> int:
    """Write every record as a line of JSON with orjson: without the times in words that kfs writes."""
    records = 0
    dumps, newline = orjson.dumps, orjson.OPT_APPEND_NEWLINE
    for batch in parsed_batches(segments, MemoryRecords):
        lines = [dumps(_as_json(record), option=newline) for record in batch]
        output.write(b"".join(lines))
        records += len(lines)
    return records


def parsed_batches(segments: Segments, parser: Callable[[bytes], Any]) -> Iterator[Iterable[Any]]:
    """Yield every batch as a client's parser gives it, its CRC checked."""
    for segment in segments:
        for data in whole_batches(segment, _FETCH_BYTES):
            parsed = parser(data)
            while parsed.has_next():
                batch = parsed.next_batch()
                if not batch.validate_crc():
                    raise KfsError(f"{segment}: wrong CRC")
                yield batch


def _records_in(batches: Iterable[Iterable[object]]) -> int:
    records = 0
    for batch in batches:
        for _ in batch:
            records += 1
    return records


def _as_json(record: object) -> dict[str, object]:
    key, value = record.key, record.value  # type: ignore[attr-defined]  # aiokafka has no types
    return {
        "topic": "events",
        "partition": 0,
        "offset": record.offset,  # type: ignore[attr-defined]
        "timestamp": record.timestamp,  # type: ignore[attr-defined]
        "key": None if key is None else key.decode(),
        "value": None if value is None else value.decode(),
        "headers": [
            {"key": name, "value": content.decode()}
            for name, content in record.headers  # type: ignore[attr-defined]
        ],
    }
