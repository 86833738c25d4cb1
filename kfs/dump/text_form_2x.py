"""The output of ``kafka-dump-log`` of older versions: Kafka 2.0, which most articles show, and Kafka 2.8.

Both write compression types by their enum names, ``Starting offset`` instead of ``Log starting offset``, and producers
without their last timestamp. Records of Kafka's internal topics are formatted as in 4.x.
"""

from __future__ import annotations

from collections.abc import Sequence

from kfs.dump.batch_text import BatchText, java_boolean
from kfs.dump.batches import DumpedBatch
from kfs.dump.control_text import control_text
from kfs.dump.forms import Printing
from kfs.dump.text_form import TextForm, encoded, joined, last_batch
from kfs.errors import CorruptData
from kfs.format.batch_header import BatchHeader
from kfs.format.control_record import AbortMarker, CommitMarker, ControlRecordType, parse_control_record
from kfs.format.layout import MAGIC_V2
from kfs.format.producer_snapshot import ProducerStateEntry


class _EarlierBatchText(BatchText):
    """The batch format that both versions share."""

    def codec(self, header: BatchHeader) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.codec`."""
        return header.codec_label.upper()

    def _is_valid(self, batch: DumpedBatch, index: int) -> str:
        """Return whether a record is valid. Records in v2 have no CRC of their own."""
        assert batch.columns is not None
        return java_boolean(index not in batch.columns.faults)

    def _crc(self, batch: DumpedBatch, index: int) -> str:
        return "null" if batch.header.magic >= MAGIC_V2 else str(batch.record_crc(index))

    def _parts(self, batch: DumpedBatch, index: int) -> tuple[str, str]:
        """Return the texts of the key and the value, which may be empty."""
        columns, parser = batch.columns, self.printing.parser
        if parser is None or columns is None or batch.header.is_control:
            return "", ""
        key, value = parser.texts(columns.offsets[index], columns.key(index), columns.value(index))
        return "" if key is None else f"key: {key}", "" if value is None else f" payload: {value}"


def _earlier_control_text(key: bytes | None, value: bytes | None) -> str:
    """Return the text that follows a control record's metadata; old versions don't parse KRaft's control records."""
    try:
        record = parse_control_record(key, value)
    except CorruptData:
        return control_text(key, value)
    if isinstance(record, AbortMarker | CommitMarker) or record.type not in set(ControlRecordType):
        return control_text(key, value)
    return f"controlType: {ControlRecordType(record.type).name}({int(record.type)})"


class BatchText20(_EarlierBatchText):
    """Formats batches as Kafka 2.0 does: a line per record, or without records a line per batch."""

    def batch(self, batch: DumpedBatch) -> bytes:
        """See :meth:`~kfs.dump.batch_text.BatchLines.batch`."""
        if not self.printing.is_deep:
            return self.batch_line(batch).encode()
        if batch.columns is None:
            return b""
        return joined(self.record_line(batch, index) for index in range(batch.first, batch.stop))

    def batch_line(self, batch: DumpedBatch) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.batch_line`."""
        header = batch.header
        return (
            f"{self.batch_start(header)} position: {header.position}"
            f" {header.timestamp_type.label}: {header.max_timestamp} isvalid: {java_boolean(batch.is_valid)}"
            f" size: {header.size} magic: {header.magic} compresscodec: {self.codec(header)} crc: {header.crc}\n"
        )

    def record_line(self, batch: DumpedBatch, index: int) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.record_line`."""
        key, value = self._parts(batch, index)
        key = f" {key}" if key else ""
        metadata = self.metadata(batch, index) if self.printing.has_metadata else ""
        return f"{metadata}{key}{value}\n"

    def metadata(self, batch: DumpedBatch, index: int) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.metadata`."""
        columns, header = batch.columns, batch.header
        assert columns is not None
        text = (
            f"offset: {columns.offsets[index]} position: {header.position}"
            f" {header.timestamp_type.label}: {columns.timestamps[index]} isvalid: {self._is_valid(batch, index)}"
            f" keysize: {columns.key_lengths[index]} valuesize: {columns.value_lengths[index]}"
            f" magic: {header.magic} compresscodec: {self.codec(header)}"
        )
        if header.magic < MAGIC_V2:
            return f"{text} crc: {self._crc(batch, index)}"
        text += (
            f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
            f" sequence: {batch.sequence(index)} isTransactional: {java_boolean(header.is_transactional)}"
            f" headerKeys: [{self.header_keys(batch, index)}]"
        )
        if header.is_control:
            text += f" {_earlier_control_text(columns.key(index), columns.value(index))}"
        return text


class BatchText28(_EarlierBatchText):
    """Formats batches as Kafka 2.8 does: a line per batch, then a line per record, which begins with a bar."""

    def horizon(self, header: BatchHeader) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.horizon`; Kafka 2.8 doesn't print it."""
        return ""

    def record_line(self, batch: DumpedBatch, index: int) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.record_line`."""
        key, value = self._parts(batch, index)
        metadata = self.metadata(batch, index) if self.printing.has_metadata else ""
        if key:
            key = f" {key}" if metadata else f"| {key}"
        return f"{metadata}{key}{value}\n"

    def metadata(self, batch: DumpedBatch, index: int) -> str:
        """See :meth:`~kfs.dump.batch_text.BatchText.metadata`."""
        columns, header = batch.columns, batch.header
        assert columns is not None
        base_offset = header.base_offset if header.magic >= MAGIC_V2 else columns.offsets[batch.first]
        crc, is_valid = self._crc(batch, index), self._is_valid(batch, index)
        text = (
            f"| offset: {columns.offsets[index]} isValid: {is_valid} crc: {crc}"
            f" keySize: {columns.key_lengths[index]} valueSize: {columns.value_lengths[index]}"
            f" {header.timestamp_type.label}: {columns.timestamps[index]}"
            f" baseOffset: {base_offset} lastOffset: {header.last_offset}"
            f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
            f" producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch}"
            f" batchSize: {header.size} magic: {header.magic} compressType: {self.codec(header)}"
            f" position: {header.position}"
        )
        if header.magic < MAGIC_V2:
            return f"{text} crc: {crc} isvalid: {is_valid}"
        text += f" sequence: {batch.sequence(index)} headerKeys: [{self.header_keys(batch, index)}]"
        if header.is_control:
            text += f" {_earlier_control_text(columns.key(index), columns.value(index))}"
        return text


class _EarlierForm(TextForm):
    """The format that both versions share, except for batches."""

    def log_start(self, base_offset: int) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.log_start`."""
        return encoded(f"Starting offset: {base_offset}\n")

    def producers(self, producers: Sequence[ProducerStateEntry]) -> bytes:
        """See :meth:`~kfs.dump.forms.Form.producers`."""
        return joined(map(self._earlier_producer, producers))

    @staticmethod
    def _earlier_producer(producer: ProducerStateEntry) -> str:
        first = producer.current_txn_first_offset
        return (
            f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch}"
            f" coordinatorEpoch: {producer.coordinator_epoch}"
            f" currentTxnFirstOffset: {'None' if first is None else f'Some({first})'} {last_batch(producer)}\n"
        )


class TextForm20(_EarlierForm):
    """Formats a dump as Kafka 2.0 does."""

    def __init__(self, printing: Printing) -> None:
        super().__init__(printing)
        self.lines = BatchText20(printing)


class TextForm28(_EarlierForm):
    """Formats a dump as Kafka 2.8 does."""

    def __init__(self, printing: Printing) -> None:
        super().__init__(printing)
        self.lines = BatchText28(printing)
