"""Lines as ``kfs cat`` prints them."""

from __future__ import annotations

from kfs.format.batch_header import read_header
from kfs.format.decoders import default_decoder
from kfs.render.record_json import RecordJson
from tests.logs import batch, records


def some_lines(count: int, topic: str = "t", partition: int = 0, start: int = 0) -> bytes:
    """Return the lines of so many records that can be told from one another."""
    data = batch(records(start, start + count - 1)).data
    columns = default_decoder().decode(read_header(data, 0, 0), data, len(data))
    return RecordJson(topic, partition).lines(columns, (0, 0)).buffer
