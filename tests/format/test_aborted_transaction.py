"""``.txnindex`` files are read as Kafka's dump tool reads them, and refused when damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.aborted_txn import (
    ABORTED_TRANSACTION,
    ABORTED_TRANSACTION_SIZE,
    AbortedTxn,
    encode_aborted_transactions,
    parse_aborted_transactions,
)
from tests.corpus import corpus_names
from tests.format.integers import offsets
from tests.format.kafka_dump import dumps


@st.composite
def indexes(draw: st.DrawFn) -> list[AbortedTxn]:
    last_offsets = sorted(draw(st.sets(offsets, max_size=20)))
    return [AbortedTxn(draw(offsets), draw(st.integers(0, last)), last, draw(offsets)) for last in last_offsets]


def as_dumped(transaction: AbortedTxn) -> dict[str, str]:
    return {
        "version": "0",
        "producerId": str(transaction.producer_id),
        "firstOffset": str(transaction.first_offset),
        "lastOffset": str(transaction.last_offset),
        "lastStableOffset": str(transaction.last_stable_offset),
    }


@pytest.mark.parametrize("name", corpus_names())
def test_every_real_index_reads_as_kafka_dumped_it(name: str, corpus: Callable[[str], Path]) -> None:
    for dump in dumps(corpus(name), ".txnindex"):
        data = dump.file.read_bytes()
        base_offset = int(dump.file.stem)
        if dump.lines is None:
            with pytest.raises(CorruptData):
                parse_aborted_transactions(data, base_offset)
        else:
            transactions = parse_aborted_transactions(data, base_offset)
            assert [as_dumped(transaction) for transaction in transactions] == dump.lines, dump.file
            assert encode_aborted_transactions(transactions) == data


def test_there_was_something_to_compare(corpus: Callable[[str], Path]) -> None:
    assert sum(len(dump.lines or []) for dump in dumps(corpus("b_txn"), ".txnindex")) > 20
    assert [dump.file.parent.name for dump in dumps(corpus("g_damage"), ".txnindex") if dump.lines is None] == [
        "broken-37"
    ]


def test_an_empty_index() -> None:
    assert parse_aborted_transactions(b"") == ()


@given(indexes())
def test_what_is_written_is_read_back(transactions: list[AbortedTxn]) -> None:
    assert parse_aborted_transactions(encode_aborted_transactions(transactions)) == tuple(transactions)


@given(st.binary(max_size=200))
def test_garbage_raises_nothing_but_corrupt_data(data: bytes) -> None:
    try:
        transactions = parse_aborted_transactions(data)
    except CorruptData:
        return
    assert encode_aborted_transactions(transactions) == data


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((1, 0, 0, 0, 0), "entry version 1, expected 0"),
        ((0, -1, 0, 0, 0), "producer id -1, offsets 0 to 0"),
        ((0, 1, -1, 0, 0), "offsets -1 to 0"),
        ((0, 1, 9, 8, 0), "offsets 9 to 8"),
        ((0, 1, 0, 0, -1), "last stable offset -1"),
        ((0, 1, 0, 3, 0), "last offset 3, expected more than 5"),
    ],
)
def test_an_entry_that_kafka_never_writes_is_refused(fields: tuple[int, ...], message: str) -> None:
    good = encode_aborted_transactions([AbortedTxn(1, 2, 5, 6)])
    with pytest.raises(CorruptData, match=message) as raised:
        parse_aborted_transactions(good + ABORTED_TRANSACTION.pack(*fields))
    assert raised.value.position == ABORTED_TRANSACTION_SIZE


def test_entries_below_the_segment_are_refused() -> None:
    index = encode_aborted_transactions([AbortedTxn(1, 2, 5, 6)])
    assert parse_aborted_transactions(index, 5)
    with pytest.raises(CorruptData, match="last offset 5, expected more than 5"):
        parse_aborted_transactions(index, 6)


def test_an_entry_cut_off_is_refused() -> None:
    index = encode_aborted_transactions([AbortedTxn(1, 2, 5, 6), AbortedTxn(1, 7, 8, 9)])
    with pytest.raises(CorruptData, match="33 bytes left, an entry has 34") as raised:
        parse_aborted_transactions(index[:-1])
    assert raised.value.position == ABORTED_TRANSACTION_SIZE
