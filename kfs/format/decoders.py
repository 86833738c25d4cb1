"""The interface of the decoders, and the choice between the compiled and the Python one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

from kfs.compiled import compiled_or_python

if TYPE_CHECKING:
    from kfs.format.batch_header import BatchHeader
    from kfs.format.batch_table import BatchTable
    from kfs.format.columns import RecordColumns


class BlockDecoder(Protocol):
    """A decoder of blocks to columns."""

    @property
    def name(self) -> str:
        """The name that ``kfs --version`` prints."""
        ...

    def decode(self, header: BatchHeader, data: bytes, limit: int) -> RecordColumns:
        """Decode ``data``: a record batch, a wrapper, or a run of uncompressed messages.

        ``header`` is the batch's header; for a run only its magic and attributes matter. The caller has checked the
        CRC. ``limit`` is the maximum number of decompressed bytes. Positions in errors are in ``data``, or in the
        decompressed data if the message says so.

        Raises:
            CorruptData: the records don't match the header.
            LimitExceeded: they decompress to more than ``limit`` bytes.
        """
        ...

    def scan(self, buffer: bytes, at: int, position: int, after: int, limit: int, max_size: int) -> BatchTable:
        """Return the record batches (v2) from ``at`` in ``buffer`` on, up to the first that isn't ordinary.

        An ordinary batch is complete and no larger than ``max_size`` bytes. Its CRC matches. Its offsets lie above
        ``after``, the highest offset before it, and below ``limit``. If there is an offset gap before it, the next
        header must have higher offsets too; a jump that the next batch takes back is left to the caller. ``position``
        is the position of ``at`` in the file.
        """
        ...

    def scan_messages(
        self, buffer: bytes, at: int, end: int, header: BatchHeader, last: int, limit: int
    ) -> tuple[int, int, int]:
        """Find the end of a run of uncompressed messages (v0, v1) from ``at`` in ``buffer`` on, up to ``end``.

        The messages of a run have the magic and the attributes of ``header``, and are complete and intact. Their
        offsets are consecutive, start after ``last``, and are below ``limit``. Returns the end of the run in
        ``buffer``, its last offset, and its latest timestamp (-1: none).
        """
        ...

    def decode_rows(self, table: BatchTable, first: int, stop: int, limit: int) -> tuple[RecordColumns, int]:
        """Decode the batch in row ``first`` and the following ones, up to row ``stop``, that can share its columns.

        Returns the columns, and the row after the last one in them. Control batches never share columns with others.
        Errors are those of :meth:`decode`, but only for row ``first``.
        """
        ...

    def count_records(
        self, table: BatchTable, first: int, stop: int, limit: int, exact_timestamps: bool = False
    ) -> tuple[int, int]:
        """Check every record of the rows from ``first`` to ``stop``, as :meth:`decode_rows` does, without keeping any.

        Returns the number of records, excluding control records, and the first row whose records can't be decoded, or
        ``stop``. With ``exact_timestamps``, a row whose header doesn't have the latest timestamp of its records also
        counts as such a row. The header of a batch without records may have any timestamp.
        """
        ...

    def first_before(self, table: BatchTable, first: int, stop: int, limit: int, before: int) -> int:
        """Return the first row from ``first`` up to ``stop`` with a record before a timestamp, or ``stop``.

        A row whose records can't be decoded, as :meth:`decode_rows` would, also counts as such a row.
        """
        ...


@cache
def default_decoder() -> BlockDecoder:
    """Return the decoder to use; :func:`~kfs.compiled.compiled_or_python` picks it, and may raise."""
    decoder: type[BlockDecoder] = compiled_or_python(_import_python, _import_compiled)
    return decoder()


def _import_python() -> type[BlockDecoder]:
    from kfs.format.decode import PythonDecoder

    return PythonDecoder


def _import_compiled() -> type[BlockDecoder]:
    from kfs.format.compiled_decode import CompiledDecoder

    return CompiledDecoder
