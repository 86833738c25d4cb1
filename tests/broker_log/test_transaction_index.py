"""The transaction index of a segment that is written, as little checked as Kafka checks its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfs.broker_log.transaction_index import TransactionIndex, UnknownVersion
from kfs.errors import CorruptData, InvalidTransaction
from kfs.format.aborted_txn import AbortedTxn, encode_aborted_transactions
from tests.logs import log_name

ENTRIES = [AbortedTxn(7, 100 + at, 105 + at, 106 + at) for at in (0, 10, 20)]


def written(directory: Path, content: bytes) -> TransactionIndex:
    path = directory / log_name(100, ".txnindex")
    path.write_bytes(content)
    return TransactionIndex(str(path), 100)


def test_there_is_no_file_without_an_entry(tmp_path: Path) -> None:
    path = tmp_path / log_name(100, ".txnindex")
    index = TransactionIndex(str(path), 100)
    index.write()
    assert not path.exists()
    index.append(ENTRIES[0])
    index.write()
    assert path.read_bytes() == encode_aborted_transactions(ENTRIES[:1])


def test_entries_are_added_to_those_there_are(tmp_path: Path) -> None:
    index = written(tmp_path, encode_aborted_transactions(ENTRIES[:1]))
    index.append(ENTRIES[1])
    index.write()
    assert TransactionIndex(index.path, 100).entries() == ENTRIES[:2]


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (105, 0), (106, 1), (115, 1), (116, 2), (126, 3)])
def test_a_truncation_drops_what_ends_there_or_later(offset: int, left: int, tmp_path: Path) -> None:
    index = written(tmp_path, encode_aborted_transactions(ENTRIES))
    index.truncate_to(offset)
    assert index.entries() == ENTRIES[:left]


def test_what_is_left_at_the_end_is_ignored(tmp_path: Path) -> None:
    index = written(tmp_path, encode_aborted_transactions(ENTRIES) + bytes(33))
    index.check()
    assert index.entries() == ENTRIES


def test_another_version_is_told_from_other_damage(tmp_path: Path) -> None:
    with pytest.raises(UnknownVersion) as caught:
        written(tmp_path, encode_aborted_transactions(ENTRIES) + b"\0\1" + bytes(32)).check()
    assert caught.value.position == 3 * 34
    with pytest.raises(CorruptData, match="last offset 99, the segment begins at 100"):
        written(tmp_path, encode_aborted_transactions([AbortedTxn(7, 90, 99, 100)])).check()


def test_transactions_end_one_after_another(tmp_path: Path) -> None:
    index = written(tmp_path, b"")
    index.append(ENTRIES[1])
    for again in (ENTRIES[0], ENTRIES[1]):
        with pytest.raises(InvalidTransaction, match="not above 115"):
            index.append(again)
    index.truncate_to(115)
    index.append(ENTRIES[0])
    assert index.entries() == ENTRIES[:1]
