"""The interfaces of the JSON renderers, and the choice between compiled and Python ones."""

from __future__ import annotations

from array import array
from functools import cache
from typing import Protocol

from kfs.compiled import compiled_or_python
from kfs.format.batch_table import BatchTable
from kfs.format.columns import RecordColumns
from kfs.render.record_json import RecordJson, RenderedLines, SequencedJson


class LineRenderer(Protocol):
    """Renders the records of one partition as lines of JSON."""

    def __init__(self, topic: str, partition: int) -> None: ...

    def lines(self, columns: RecordColumns, covers: tuple[int, int]) -> RenderedLines:
        """Render a block; ``covers`` are the first and last offset that the block is responsible for."""
        ...

    def text(self, columns: RecordColumns) -> bytes:
        """Return all lines of a block together, as in :attr:`RenderedLines.buffer`."""
        ...

    def batches(self, table: BatchTable, first: int, stop: int, limit: int) -> tuple[bytes, int]:
        """Render the batches in rows ``first`` to ``stop``; stop early at a control batch or one that can't be decoded.

        ``limit`` bounds the decompressed bytes of each batch. Returns the lines, and the row after the last one.
        """
        ...

    def line(self, columns: RecordColumns, index: int) -> bytes:
        """Render one record of a block."""
        ...

    def starts(self, columns: RecordColumns) -> array[int]:
        """Return the lines' positions, as in :attr:`RenderedLines.starts`, without the lines."""
        ...


class SequencedRenderer(Protocol):
    """Renders the records of batches as lines of JSON with sequence numbers."""

    def __init__(self) -> None: ...

    def lines(
        self, columns: RecordColumns, first: int, stop: int, start: bytes, base_offset: int, base_sequence: int
    ) -> bytes:
        """See :meth:`kfs.render.record_json.SequencedJson.lines`."""
        ...


def line_renderer(topic: str, partition: int) -> LineRenderer:
    """Return a partition's renderer; see :func:`~kfs.compiled.compiled_or_python` for the choice and errors."""
    return _renderer_class()(topic, partition)


@cache
def _renderer_class() -> type[LineRenderer]:
    renderer: type[LineRenderer] = compiled_or_python(lambda: RecordJson, _import_compiled)
    return renderer


def _import_compiled() -> type[LineRenderer]:
    from kfs.render.compiled_json import CompiledRecordJson

    return CompiledRecordJson


def sequenced_renderer() -> SequencedRenderer:
    """Return a renderer of batches; see :func:`~kfs.compiled.compiled_or_python` for the choice and errors."""
    return _sequenced_class()()


@cache
def _sequenced_class() -> type[SequencedRenderer]:
    renderer: type[SequencedRenderer] = compiled_or_python(lambda: SequencedJson, _import_compiled_sequenced)
    return renderer


def _import_compiled_sequenced() -> type[SequencedRenderer]:
    from kfs.render.compiled_json import CompiledSequencedJson

    return CompiledSequencedJson
