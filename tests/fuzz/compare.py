"""Both implementations over the same bytes: what one says, the other has to say."""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import zip_longest
from random import Random

from kfs.errors import CorruptData
from kfs.format.batch_header import HEADER_BYTES_NEEDED, BatchHeader, read_header
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.format.decoders import BlockDecoder
from kfs.format.layout import MAGIC_V2, MAX_INT64
from tests.fuzz.seeds import LIMIT
from tests.implementations import DECODERS, RENDERERS

Outcome = RecordColumns | tuple[type, str, int]


class DisagreementError(AssertionError):
    """The implementations differ."""


class Comparison:
    """Compares the decoders, and the renderers on what they decode; counts in ``seen`` what it met."""

    def __init__(self) -> None:
        self.decoders = [decoder() for decoder in DECODERS]
        self.renderers = [renderer("t", 0) for renderer in RENDERERS]
        if len(self.decoders) < 2 or len(self.renderers) < 2:
            raise RuntimeError("nothing was compiled: there is nothing to compare")
        self.seen: Counter[str] = Counter()

    def check(self, data: bytes) -> None:
        """Read a case in every way that there is.

        Raises:
            DisagreementError: the implementations differ.
            Exception: whatever else than :class:`~kfs.errors.CorruptData` one of them raises.
        """
        try:
            header = read_header(data.ljust(HEADER_BYTES_NEEDED, b"\0"), 0, 0)
        except CorruptData:
            self.seen["no header"] += 1
            header = None
        if header is not None and header.size == len(data):
            self._check_batch(header, data)
            return
        self._check_table(data)
        if header is not None and header.magic < MAGIC_V2 and not header.codec_id and header.size < len(data):
            self._check_messages(header, data)

    def _check_batch(self, header: BatchHeader, data: bytes) -> None:
        python, compiled = (_outcome(decoder, header, data) for decoder in self.decoders)
        _same("decode", _shown(python), _shown(compiled))
        self._count(f"v{header.magic} {header.codec_label}", python)
        if isinstance(python, RecordColumns) and isinstance(compiled, RecordColumns):
            self._check_lines(python, compiled)

    def _check_lines(self, python: RecordColumns, compiled: RecordColumns) -> None:
        """Compare lines, their sizes, and single lines, each renderer on the columns of its own kind."""
        if not len(python):
            return
        covers = (python.offsets[0], python.offsets[-1])
        one, two = self.renderers
        lines, others = one.lines(python, covers), two.lines(compiled, covers)
        _same("lines", lines.buffer, others.buffer)
        _same("starts of lines", lines.starts, others.starts)
        _same("measured starts", lines.starts, two.starts(compiled))
        last = len(python) - 1
        _same("last line", lines.line(last), two.line(compiled, last))

    def _check_table(self, data: bytes) -> None:
        how = Random(zlib.crc32(data))
        at = how.choice((0, 0, 3))  # the batches needn't be all that the buffer holds
        buffer = bytes(at) + data
        offset = min(max(int.from_bytes(data[:8], "big", signed=True), 0), MAX_INT64 - 100)
        seen = how.choice((-1, offset - 1, offset - 1, offset))
        limit = how.choice((MAX_INT64, MAX_INT64, offset + how.randrange(100)))
        max_size = how.choice((LIMIT, LIMIT, LIMIT, 400))
        python, compiled = (one.scan(buffer, at, 1000, seen, limit, max_size) for one in self.decoders)
        _same("scan", _rows(python), _rows(compiled))
        rows = len(python)
        self.seen["tables" if rows else "no table"] += 1
        if not rows:
            return
        for exact_timestamps in (False, True):
            counts = [decoder.count_records(compiled, 0, rows, LIMIT, exact_timestamps) for decoder in self.decoders]
            _same("count_records", *counts)
        before = how.choice((0, python.base_timestamps[0], python.base_timestamps[0] + how.randrange(-9, 9)))
        _same("first_before", *(one.first_before(compiled, 0, rows, LIMIT, before) for one in self.decoders))
        pieces = [self._pieces(decoder, python) for decoder in self.decoders]
        for one, two in zip_longest(*pieces):
            _same("decode_rows", one, two)
        for row in range(rows):
            lines = [
                renderer.batches(table, row, rows, LIMIT)
                for renderer, table in zip(self.renderers, (python, compiled), strict=True)
            ]
            _same("batches", *lines)

    def _pieces(self, decoder: BlockDecoder, table: BatchTable) -> list[object]:
        """Return the line and the offset of each record of a table, and in its place what is wrong with a row."""
        pieces: list[object] = []
        row = 0
        while row < len(table):
            try:
                columns, after = decoder.decode_rows(table, row, len(table), LIMIT)
            except CorruptData as error:
                pieces.append((row, type(error), error.reason, error.position))
                row += 1
                continue
            if not row < after <= len(table):
                raise DisagreementError(f"decode_rows went from row {row} to {after} of {len(table)}")
            lines = self.renderers[1].lines(columns, (0, 0))
            kind = columns.timestamp_type
            pieces += [(columns.offsets[at], kind, lines.line(at)) for at in range(len(columns))]
            row = after
        return pieces

    def _check_messages(self, header: BatchHeader, data: bytes) -> None:
        """Follow messages from the second on; what was followed is decoded as the one block that it is."""
        how = Random(zlib.crc32(data))
        end = how.choice((len(data), how.randint(header.size, len(data))))
        limit = how.choice((MAX_INT64, MAX_INT64, min(header.base_offset + how.randrange(5), MAX_INT64)))
        followed = [
            decoder.scan_messages(data, header.size, end, header, header.base_offset, limit)
            for decoder in self.decoders
        ]
        _same("scan_messages", *followed)
        self.seen["runs"] += 1
        self._check_batch(header, data[: followed[0][0]])

    def _count(self, kind: str, outcome: Outcome) -> None:
        if not isinstance(outcome, RecordColumns):
            self.seen[f"{kind}: refused"] += 1
        elif outcome.faults:
            self.seen[f"{kind}: with broken records"] += 1
        else:
            self.seen[f"{kind}: decoded"] += 1


def _outcome(decoder: BlockDecoder, header: BatchHeader, data: bytes) -> Outcome:
    try:
        return decoder.decode(header, data, LIMIT)
    except CorruptData as error:
        return type(error), error.reason, error.position


def _shown(outcome: Outcome) -> object:
    if not isinstance(outcome, RecordColumns):
        return outcome
    faults = [(index, fault.reason, fault.position) for index, fault in outcome.faults.items()]
    return [getattr(outcome, name) for name in RecordColumns.__slots__ if name != "faults"], faults


def _rows(table: BatchTable) -> object:
    return (
        table.buffer_position,
        table.positions,
        table.sizes,
        table.attributes,
        table.base_offsets,
        table.last_offsets,
        table.counts,
        table.base_timestamps,
        table.max_timestamps,
        table.producer_ids,
        table.leader_epochs,
    )


def _same(what: str, python: object, compiled: object) -> None:
    if python != compiled:
        raise DisagreementError(f"{what}: python {python!r}\ncompiled {compiled!r}")
