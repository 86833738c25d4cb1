"""The transaction index of a segment open for writing (``TransactionIndex.java``)."""

from __future__ import annotations

import os
from contextlib import suppress

from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.aborted_txn import (
    ABORTED_TRANSACTION,
    ABORTED_TRANSACTION_SIZE,
    ABORTED_TRANSACTION_VERSION,
    AbortedTxn,
    encode_aborted_transactions,
)


class UnknownVersion(CorruptData):
    """An entry of a version above 0: Kafka rebuilds an index with other damage, but fails on this."""


class TransactionIndex:
    """The aborted transactions whose markers are in a segment; the file exists only after the first entry."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._content = bytearray()
        with suppress(FileNotFoundError), open(path, "rb") as file:
            self._content += file.read()
        self._written = bytes(self._content)
        self._last_offset: int | None = None  # of the entries added since; Kafka ignores existing ones

    def entries(self) -> list[AbortedTxn]:
        """Return the complete entries, with as few checks as in Kafka; an incomplete one at the end is ignored.

        Raises:
            UnknownVersion: an entry has a version above 0.
        """
        found = []
        for position in range(0, len(self._content) - ABORTED_TRANSACTION_SIZE + 1, ABORTED_TRANSACTION_SIZE):
            version, *fields = ABORTED_TRANSACTION.unpack_from(self._content, position)
            if version > ABORTED_TRANSACTION_VERSION:
                reason = f"aborted transaction of version {version}, expected {ABORTED_TRANSACTION_VERSION}"
                raise UnknownVersion(reason, position, self.path)
            found.append(AbortedTxn(*fields))
        return found

    def check(self) -> None:
        """Check the entries (``TransactionIndex.sanityCheck``).

        Raises:
            CorruptData: a transaction ends before the segment begins.
            UnknownVersion: see :meth:`entries`.
        """
        for number, transaction in enumerate(self.entries()):
            if transaction.last_offset < self._base_offset:
                reason = f"last offset {transaction.last_offset}, the segment begins at {self._base_offset}"
                raise CorruptData(reason, number * ABORTED_TRANSACTION_SIZE, self.path)

    def append(self, transaction: AbortedTxn) -> None:
        """Add an entry.

        Raises:
            InvalidTransaction: its last offset isn't above that of the previous one.
        """
        if self._last_offset is not None and transaction.last_offset <= self._last_offset:
            raise InvalidTransaction(
                f"{self.path}: an aborted transaction that ends at offset {transaction.last_offset},"
                f" not above {self._last_offset}, the end of the previous one"
            )
        self._last_offset = transaction.last_offset
        self._content += encode_aborted_transactions([transaction])

    def truncate_to(self, offset: int) -> None:
        """Drop the first entry whose transaction ends at or after ``offset``, and all entries after it."""
        last_offset = None
        for number, transaction in enumerate(self.entries()):
            if transaction.last_offset >= offset:
                del self._content[number * ABORTED_TRANSACTION_SIZE :]
                self._last_offset = last_offset
                return
            last_offset = transaction.last_offset

    def reset(self) -> None:
        """Drop all entries."""
        self._content.clear()
        self._last_offset = None

    def write(self) -> None:
        """Write the file if it has changed."""
        if self._content != self._written:
            with open(self.path, "wb") as file:
                file.write(self._content)
            self._written = bytes(self._content)

    def delete(self) -> None:
        """Remove the file, if there is one."""
        with suppress(FileNotFoundError):
            os.unlink(self.path)
