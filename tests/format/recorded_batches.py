"""The raw batches and messages of the recorded broker directories, found through Kafka's own list of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kfs.format.layout import BATCH_HEADER, BATCH_OVERHEAD, LEGACY_HEADER, MAGIC_V1, MAGIC_V2
from tests.expected import ExpectedBatch, expected_batches


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch of any format: its bytes, and what Kafka says about it."""

    data: bytes
    expected: ExpectedBatch

    @property
    def attributes(self) -> int:
        fields = (BATCH_HEADER if self.expected.magic == MAGIC_V2 else LEGACY_HEADER).unpack_from(self.data)
        return int(fields[5] if self.expected.magic == MAGIC_V2 else fields[4])

    @property
    def payload(self) -> bytes:
        """What the codec was applied to: the records of a batch, the value of a (keyless) wrapper message."""
        if self.expected.magic == MAGIC_V2:
            return self.data[BATCH_OVERHEAD:]
        key_and_value_lengths = 8 + (8 if self.expected.magic == MAGIC_V1 else 0)
        return self.data[LEGACY_HEADER.size + key_and_value_lengths :]


def recorded_batches(corpus: Path) -> Iterator[RecordedBatch]:
    """Yield every batch of every ``.log`` of a corpus."""
    contents: dict[str, bytes] = {}
    for expected in expected_batches(corpus):
        if expected.file not in contents:
            contents = {expected.file: (corpus / "data" / expected.file).read_bytes()}
        data = contents[expected.file][expected.position : expected.position + expected.size]
        yield RecordedBatch(data, expected)
