"""What is mutated: real batches and messages of every format, codec and kind, small enough to try many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfs.errors import CorruptData
from kfs.format.batch_header import HEADER_BYTES_NEEDED, BatchHeader, read_header
from kfs.format.codecs import Codec
from kfs.format.decode import PythonDecoder
from kfs.format.layout import (
    BATCH_OVERHEAD,
    LEGACY_TIMESTAMP_OFFSET,
    LOG_OVERHEAD,
    LOG_OVERHEAD_STRUCT,
    MAGIC_V1,
    MAGIC_V2,
)
from kfs.format.record import Record
from tests.corpus import corpus_names
from tests.format.recorded_batches import recorded_batches

#: What a batch may decompress to, in the fuzzer: enough for every seed, little enough for thousands of bombs a second.
LIMIT: Final = 1 << 20
#: Payloads up to this size are tried; of a kind that has none so small, the smallest few.
_SMALL: Final = 1200
_MOST_OF_A_KIND: Final = 24
_LEAST_OF_A_KIND: Final = 3


@dataclass(frozen=True, slots=True)
class Seed:
    """A batch, wrapper or message as it was recorded, and what is in it.

    ``payload`` is what the codec was applied to: the records of a batch, the messages in a wrapper; of an
    uncompressed message it is the message. ``spots`` are positions in it where a length, a count or a delta stands.
    """

    data: bytes
    header: BatchHeader
    payload: bytes
    records: tuple[Record, ...]
    spots: tuple[int, ...]

    @property
    def codec(self) -> Codec:
        return Codec.of(self.header.attributes)


def load_seeds(corpus: Callable[[str], Path]) -> list[Seed]:
    """Return the seeds, the same and in the same order each time; ``corpus`` gives the directory of one by name."""
    kinds: dict[tuple[int, int], dict[bytes, Seed]] = {}
    for name in corpus_names():
        for batch in recorded_batches(corpus(name)):
            seed = _seed_of(batch.data)
            if seed is not None:
                kinds.setdefault((seed.header.magic, seed.header.attributes), {})[seed.data] = seed
    return [seed for kind in sorted(kinds) for seed in _chosen(kinds[kind].values())]


def _chosen(seeds: Iterable[Seed]) -> list[Seed]:
    """Choose some of a kind, of different sizes."""
    by_size = sorted(seeds, key=lambda seed: (len(seed.payload), seed.data))
    small = [seed for seed in by_size if len(seed.payload) <= _SMALL]
    few = small if len(small) >= _LEAST_OF_A_KIND else by_size[:_LEAST_OF_A_KIND]
    step = -(-len(few) // _MOST_OF_A_KIND)
    return few[::step]


def _seed_of(data: bytes) -> Seed | None:
    """Return the seed that a recorded batch is, None where it can't be decoded or is too large to be one."""
    try:
        header = read_header(data.ljust(HEADER_BYTES_NEEDED, b"\0"), 0, 0)
        columns = PythonDecoder().decode(header, data, LIMIT)
    except CorruptData:
        return None
    in_place = columns.buffer is data
    payload = data[BATCH_OVERHEAD:] if in_place and header.magic == MAGIC_V2 else columns.buffer
    moved = BATCH_OVERHEAD if in_place and header.magic == MAGIC_V2 else 0
    starts = [*columns.key_starts, *columns.value_starts]
    if header.magic == MAGIC_V2:
        # One byte before a key or a value its length ends; before the key's come the deltas and the record's size.
        spots = {start - back for start in columns.key_starts for back in range(1, 6)}
        spots |= {start - 1 for start in columns.value_starts} | {at for at in columns.header_starts if at >= 0}
        spots |= {at + 1 for at in columns.header_starts if at >= 0}
    else:
        spots = {start - 4 for start in starts} | set(_message_sizes(payload, header.magic))
    legal = sorted(at - moved for at in spots if 0 <= at - moved < len(payload))
    records = tuple(columns.record(index) for index in range(len(columns)) if index not in columns.faults)
    return Seed(data, header, payload, records, tuple(legal))


def _message_sizes(payload: bytes, magic: int) -> list[int]:
    """Return where the sizes, magics and timestamps of messages that follow one another stand."""
    found, at = [], 0
    while at + LOG_OVERHEAD <= len(payload):
        found += [at + 8, at + 16, at + LEGACY_TIMESTAMP_OFFSET] if magic == MAGIC_V1 else [at + 8, at + 16]
        at += LOG_OVERHEAD + LOG_OVERHEAD_STRUCT.unpack_from(payload, at)[1]
    return found
