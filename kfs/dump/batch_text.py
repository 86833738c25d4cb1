"""Batches and records in the format of ``kafka-dump-log`` of Kafka 4.3.1 (``DumpLogSegments.dumpLog``)."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from kfs.compiled import compiled_or_python
from kfs.dump.batches import DumpedBatch, batches_of
from kfs.dump.control_text import control_text
from kfs.dump.forms import Printing
from kfs.format.batch_header import BatchHeader
from kfs.format.java_text import java_text
from kfs.format.layout import MAGIC_V2
from kfs.log.bulk import DecodedBatches


class BatchLines(Protocol):
    """Formats batches and, if wanted, their records."""

    def __init__(self, printing: Printing) -> None: ...

    def records(self, records: DecodedBatches) -> bytes:
        """Return the lines of batches that were decoded together."""
        ...

    def batch(self, batch: DumpedBatch) -> bytes:
        """Return the lines of one batch, which may be invalid."""
        ...


def batch_lines(printing: Printing) -> BatchLines:
    """Return the formatter for 4.3.1; see :func:`~kfs.compiled.compiled_or_python` for choice and errors."""
    return _lines_class()(printing)


@cache
def _lines_class() -> type[BatchLines]:
    lines: type[BatchLines] = compiled_or_python(lambda: BatchText, _import_compiled)
    return lines


def _import_compiled() -> type[BatchLines]:
    from kfs.dump.compiled_batch_text import CompiledBatchText

    return CompiledBatchText


def java_boolean(value: bool) -> str:
    """Return the text of Java's ``Boolean.toString``."""
    return "true" if value else "false"


def optional_long(value: int | None) -> str:
    """Return the text of Java's ``OptionalLong.toString``."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


class BatchText:
    """The implementation of :class:`BatchLines` in Python."""

    def __init__(self, printing: Printing) -> None:
        self.printing = printing

    def records(self, records: DecodedBatches) -> bytes:
        """See :meth:`BatchLines.records`."""
        return b"".join(map(self.batch, batches_of(records)))

    def batch(self, batch: DumpedBatch) -> bytes:
        """See :meth:`BatchLines.batch`."""
        lines = [self.batch_line(batch)]
        if self.printing.is_deep and batch.columns is not None:
            lines += [self.record_line(batch, index) for index in range(batch.first, batch.stop)]
        return "".join(lines).encode()

    def batch_line(self, batch: DumpedBatch) -> str:
        """Return the line of the batch itself."""
        header = batch.header
        start = self.batch_start(header)
        if header.magic >= MAGIC_V2:
            start += f" isControl: {java_boolean(header.is_control)}{self.horizon(header)}"
        return (
            f"{start} position: {header.position} {header.timestamp_type.label}: {header.max_timestamp}"
            f" size: {header.size} magic: {header.magic} compresscodec: {self.codec(header)}"
            f" crc: {header.crc} isvalid: {java_boolean(batch.is_valid)}\n"
        )

    @staticmethod
    def batch_start(header: BatchHeader) -> str:
        """Return the beginning of a batch's line."""
        if header.magic < MAGIC_V2:
            return f"offset: {header.last_offset}"
        return (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
            f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
            f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
            f" partitionLeaderEpoch: {header.leader_epoch}"
            f" isTransactional: {java_boolean(header.is_transactional)}"
        )

    def horizon(self, header: BatchHeader) -> str:
        """Return the text on the delete horizon."""
        return f" deleteHorizonMs: {optional_long(header.delete_horizon)}"

    def codec(self, header: BatchHeader) -> str:
        """Return the name of the codec."""
        return header.codec_label

    def record_line(self, batch: DumpedBatch, index: int) -> str:
        """Return the line of one of the batch's records."""
        parts = self.metadata(batch, index) if self.printing.has_metadata else ""
        if self.printing.parser is not None and not batch.header.is_control:
            contents = self._contents(batch, index)
            parts = f"{parts} {contents}" if parts and contents else parts or (contents and f"| {contents}")
        return parts + "\n"

    def metadata(self, batch: DumpedBatch, index: int) -> str:
        """Return the text on a record's metadata."""
        columns, header = batch.columns, batch.header
        assert columns is not None
        text = (
            f"| offset: {columns.offsets[index]} {header.timestamp_type.label}: {columns.timestamps[index]}"
            f" keySize: {columns.key_lengths[index]} valueSize: {columns.value_lengths[index]}"
        )
        if header.magic < MAGIC_V2:
            is_valid = java_boolean(index not in columns.faults)
            return f"{text} isValid: {is_valid} crc: {batch.record_crc(index)}"
        text += f" sequence: {batch.sequence(index)} headerKeys: [{self.header_keys(batch, index)}]"
        if header.is_control:
            text += f" {control_text(columns.key(index), columns.value(index))}"
        return text

    def _contents(self, batch: DumpedBatch, index: int) -> str:
        columns, parser = batch.columns, self.printing.parser
        assert columns is not None
        assert parser is not None
        key, value = parser.texts(columns.offsets[index], columns.key(index), columns.value(index))
        parts = ([] if key is None else [f"key: {key}"]) + ([] if value is None else [f"payload: {value}"])
        return " ".join(parts)

    @staticmethod
    def header_keys(batch: DumpedBatch, index: int) -> str:
        """Return the names of a record's headers, separated by commas."""
        assert batch.columns is not None
        if batch.columns.header_starts[index] < 0:
            return ""
        return ",".join(java_text(key) for key, _ in batch.columns.headers(index))
