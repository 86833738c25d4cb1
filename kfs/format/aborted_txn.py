"""``.txnindex`` files (``AbortedTxn.java``): the transactions whose ABORT markers are in the segment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kfs.errors import CorruptData
from kfs.format.varint import Buffer

ABORTED_TRANSACTION_VERSION: Final = 0
ABORTED_TRANSACTION: Final = Struct(">hqqqq")  # version, producer id, first, last and last stable offset
ABORTED_TRANSACTION_SIZE: Final = ABORTED_TRANSACTION.size  # 34


@dataclass(frozen=True, slots=True)
class AbortedTxn:
    """An aborted transaction: ``last_offset`` is the offset of its ABORT marker.

    ``last_stable_offset`` is the partition's last stable offset after its end: no transaction that ended later began
    below it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_aborted_transactions(data: Buffer, base_offset: int = 0) -> tuple[AbortedTxn, ...]:
    """Return the entries of the ``.txnindex`` of the segment at ``base_offset``.

    This is stricter than ``TransactionIndex.sanityCheck``, which checks only the last offsets and ignores a truncated
    last entry. If it raises, callers rebuild the entries from the log, while a missing entry would expose aborted
    records.
    """
    transactions = []
    end_of_previous = base_offset - 1
    for position in range(0, len(data), ABORTED_TRANSACTION_SIZE):
        transaction = _parse(data, position)
        # TransactionIndex.append: markers are appended in the order of their offsets.
        if transaction.last_offset <= end_of_previous:
            raise CorruptData(f"last offset {transaction.last_offset}, expected more than {end_of_previous}", position)
        end_of_previous = transaction.last_offset
        transactions.append(transaction)
    return tuple(transactions)


def encode_aborted_transactions(transactions: Iterable[AbortedTxn]) -> bytes:
    """Encode a ``.txnindex``."""
    return b"".join(
        ABORTED_TRANSACTION.pack(
            ABORTED_TRANSACTION_VERSION,
            transaction.producer_id,
            transaction.first_offset,
            transaction.last_offset,
            transaction.last_stable_offset,
        )
        for transaction in transactions
    )


def _parse(data: Buffer, position: int) -> AbortedTxn:
    if len(data) - position < ABORTED_TRANSACTION_SIZE:
        raise CorruptData(f"{len(data) - position} bytes left, an entry has {ABORTED_TRANSACTION_SIZE}", position)
    version, producer_id, first, last, last_stable = ABORTED_TRANSACTION.unpack_from(data, position)
    if version != ABORTED_TRANSACTION_VERSION:
        raise CorruptData(f"entry version {version}, expected {ABORTED_TRANSACTION_VERSION}", position)
    if producer_id < 0 or not 0 <= first <= last or last_stable < 0:
        raise CorruptData(
            f"producer id {producer_id}, offsets {first} to {last}, last stable offset {last_stable}: out of range",
            position,
        )
    return AbortedTxn(producer_id, first, last, last_stable)
