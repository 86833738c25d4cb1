"""The dump as JSON, one object per line, with all known fields: the form for programs.

``type`` is the kind of object (``file``, ``batch``, ``record``, ``offsetIndexEntry`` ...). Names and values of
records follow the rules of :mod:`kfs.render.record_json`: UTF-8 as text, all else as base64 with an ``encoding``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from kfs.dump.batches import DumpedBatch, batches_of
from kfs.dump.control_text import control_json
from kfs.dump.forms import Printing
from kfs.dump.message_parsers import DecoderMessageParser
from kfs.errors import CorruptData
from kfs.format.aborted_txn import AbortedTxn
from kfs.format.batch_header import BatchHeader
from kfs.format.checkpoint import EpochEntry, TopicPartition
from kfs.format.columns import RecordColumns
from kfs.format.control_record import ControlRecordType, UnknownControlRecord, parse_control_record
from kfs.format.java_text import java_double
from kfs.format.layout import MAGIC_V2
from kfs.format.producer_snapshot import ProducerStateEntry
from kfs.internal.message_json import Json
from kfs.log.bulk import DecodedBatches
from kfs.log.problem import Problem
from kfs.render.quoting import quote
from kfs.render.record_json import record_fields
from kfs.render.renderers import SequencedRenderer, sequenced_renderer
from kfs.render.state_json import aborted_txn_fields, leader_epoch_fields, producer_fields


def json_of(node: Json) -> str:
    """Return JSON without whitespace and without terminal control characters."""
    if isinstance(node, str):
        return quote(node.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    if isinstance(node, Mapping):
        return "{" + ",".join([f"{quote(name)}:{json_of(value)}" for name, value in node.items()]) + "}"
    if isinstance(node, Sequence):
        return "[" + ",".join(map(json_of, node)) + "]"
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    return java_double(node) if isinstance(node, float) else str(node)


class JsonForm:
    """Formats each element of a dump as a JSON object."""

    def __init__(self, printing: Printing) -> None:
        parser = printing.parser
        self.printing = printing
        self._file = ""
        self._is_text = printing.has_metadata and isinstance(parser, DecoderMessageParser) and parser.is_text
        self.renderer: SequencedRenderer = sequenced_renderer()

    def begin(self, path: str) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.begin`."""
        self._file = json_of(path)
        return self._line("file", {})

    def _line(self, kind: str, fields: Mapping[str, Json]) -> bytes:
        rest = json_of(fields)[1:]
        return f"{self._start(kind)}{',' if fields else ''}{rest}\n".encode()

    def _lines(self, kind: str, rows: Iterable[Mapping[str, Json]]) -> bytes:
        return b"".join([self._line(kind, row) for row in rows])

    def log_start(self, base_offset: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.log_start`."""
        return self._line("log", {"baseOffset": base_offset})

    def snapshot_end(self, end_offset: int, epoch: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.snapshot_end`."""
        return self._line("snapshot", {"endOffset": end_offset, "leaderEpoch": epoch})

    def bootstrap_snapshot(self) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.bootstrap_snapshot`."""
        return self._line("snapshot", {"isBootstrap": True})

    def records(self, records: DecodedBatches) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.records`."""
        return b"".join(map(self.batch, batches_of(records)))

    def batch(self, batch: DumpedBatch) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.batch`."""
        line = f"{self._start('batch')},{_batch_fields(batch)}}}\n".encode()
        if not self.printing.is_deep or batch.columns is None:
            return line
        header, columns = batch.header, batch.columns
        start = f'{self._start("record")},"position":{header.position},"offset":'
        if self._is_text and header.magic >= MAGIC_V2 and not header.is_control:
            base_offset, base_sequence = header.base_offset, header.base_sequence
            return line + self.renderer.lines(
                columns, batch.first, batch.stop, start.encode(), base_offset, base_sequence
            )
        lines = [f"{start}{self._record_fields(batch, columns, at)}}}\n" for at in range(batch.first, batch.stop)]
        return line + "".join(lines).encode()

    def _start(self, kind: str) -> str:
        return f'{{"type":"{kind}","file":{self._file}'

    def _record_fields(self, batch: DumpedBatch, columns: RecordColumns, index: int) -> str:
        header = batch.header
        text = str(columns.offsets[index])
        if self.printing.has_metadata:
            if header.magic >= MAGIC_V2:
                text += f',"sequence":{batch.sequence(index)}'
            else:
                is_valid = "false" if index in columns.faults else "true"
                text += f',"crc":{batch.record_crc(index)},"isValid":{is_valid}'
        if header.is_control:
            text += f',"control":{json_of(_control_fields(columns.key(index), columns.value(index)))}'
        text += record_fields(columns, index, has_contents=self.printing.parser is not None)
        if self.printing.parser is None:
            text += f',"keySize":{columns.key_lengths[index]},"valueSize":{columns.value_lengths[index]}'
        elif not header.is_control:
            key, value = columns.key(index), columns.value(index)
            for name, node in self.printing.parser.json(columns.offsets[index], key, value).items():
                text += f",{quote(name)}:{json_of(node)}"
        return text

    def trailing_bytes(self, size: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.trailing_bytes`."""
        return self._line("trailingBytes", {"size": size})

    def empty_index(self) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.empty_index`."""
        return self._line("emptyIndex", {})

    def sane_index(self) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.sane_index`."""
        return self._line("saneIndex", {})

    def offset_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.offset_entries`."""
        rows = ({"offset": offset, "position": position} for offset, position in entries)
        return self._lines("offsetIndexEntry", rows)

    def time_entries(self, entries: Sequence[tuple[int, int]]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.time_entries`."""
        rows = ({"timestamp": timestamp, "offset": offset} for timestamp, offset in entries)
        return self._lines("timeIndexEntry", rows)

    def aborted_transactions(self, transactions: Sequence[AbortedTxn]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.aborted_transactions`."""
        return self._lines("abortedTransaction", map(aborted_txn_fields, transactions))

    def producers(self, producers: Sequence[ProducerStateEntry]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.producers`."""
        return self._lines("producer", map(producer_fields, producers))

    def leader_epochs(self, epochs: Sequence[EpochEntry]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.leader_epochs`."""
        return self._lines("leaderEpoch", map(leader_epoch_fields, epochs))

    def offset_checkpoint(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.offset_checkpoint`."""
        rows: Iterable[Mapping[str, Json]] = (
            {"topic": partition.topic, "partition": partition.partition, "offset": offset}
            for partition, offset in offsets.items()
        )
        return self._lines("checkpoint", rows)

    def properties(self, properties: Mapping[str, Json]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.properties`."""
        return self._line("properties", {"properties": properties})

    def problem(self, problem: Problem) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.problem`."""
        fields: Mapping[str, Json] = {"position": problem.position, "size": problem.size, "reason": problem.reason}
        return self._line("problem", fields)


def _batch_fields(batch: DumpedBatch) -> str:
    header = batch.header
    known = _known_by_attributes(header.magic, header.attributes)
    text = f'"position":{header.position},"size":{header.size},"magic":{header.magic}'
    if header.magic >= MAGIC_V2:
        text += (
            f',"baseOffset":{header.base_offset},"lastOffset":{header.last_offset},"count":{header.record_count}'
            f',"baseSequence":{header.base_sequence},"lastSequence":{header.last_sequence}'
            f',"producerId":{header.producer_id},"producerEpoch":{header.producer_epoch}'
            f',"leaderEpoch":{header.leader_epoch}{known.transaction}'
            f',"deleteHorizonMs":{header.base_timestamp if known.has_horizon else "null"}'
        )
    else:
        text += f',"lastOffset":{header.last_offset}'
    is_valid = "true" if batch.is_valid else "false"
    return f'{text}{known.timestamps}{header.max_timestamp}{known.codec},"crc":{header.crc},"isValid":{is_valid}'


class _Known(NamedTuple):
    """The parts of a batch's JSON that depend only on its attributes."""

    transaction: str
    has_horizon: bool
    timestamps: str
    codec: str


@lru_cache(maxsize=256)
def _known_by_attributes(magic: int, attributes: int) -> _Known:
    header = BatchHeader(0, 0, magic, attributes, 0, 0, 0, 0, 0, 0)
    return _Known(
        f',"isTransactional":{json_of(header.is_transactional)},"isControl":{json_of(header.is_control)}',
        header.delete_horizon is not None,
        f',"timestampType":"{header.timestamp_type.label}","maxTimestamp":',
        f',"codec":"{header.codec_label}"',
    )


def _control_fields(key: bytes | None, value: bytes | None) -> Mapping[str, Json]:
    try:
        record = parse_control_record(key, value)
    except CorruptData as error:
        return {"undecodable": error.reason}
    if isinstance(record, UnknownControlRecord):
        return {"type": f"UNKNOWN({record.type})"}
    return {"type": ControlRecordType(record.type).name, **control_json(record)}
