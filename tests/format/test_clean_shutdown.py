"""The marker that a broker leaves when it stops cleanly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData, LimitExceeded
from kfs.format.clean_shutdown import (
    MAX_CLEAN_SHUTDOWN_BYTES,
    CleanShutdown,
    encode_clean_shutdown,
    parse_clean_shutdown,
)
from kfs.format.layout import MAX_INT64
from tests.format.refusal import refused_at


@pytest.mark.parametrize(
    ("name", "broker_epoch"), [("f_0.8.2.2", None), ("f_2.8.2_formats", None), ("f_mixed", -1), ("b_txn", 14)]
)
def test_brokers_of_every_age(name: str, broker_epoch: int | None, corpus: Callable[[str], Path]) -> None:
    data = (corpus(name) / "data" / ".kafka_cleanshutdown").read_bytes()
    assert parse_clean_shutdown(data) == CleanShutdown(broker_epoch)
    assert encode_clean_shutdown(CleanShutdown(broker_epoch)) == data


@pytest.mark.parametrize(
    ("data", "broker_epoch"),
    [(b"{}", None), (b'{"version":0}', None), (b'{"brokerEpoch":null}', None), (b'{"brokerEpoch":7,"later":[]}', 7)],
)
def test_what_is_missing_is_not_known_and_what_is_new_is_ignored(data: bytes, broker_epoch: int | None) -> None:
    assert parse_clean_shutdown(data) == CleanShutdown(broker_epoch)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xff",
        b"[]",
        b"[" * 50_000,
        b'{"brokerEpoch":"7"}',
        b'{"brokerEpoch":1.5}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":9223372036854775808}',
        b'{"brokerEpoch":' + b"9" * 10_000 + b"}",
        b'{"version":0,"bro',
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_clean_shutdown(data)


def test_a_file_beyond_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded):
        parse_clean_shutdown(b" " * (MAX_CLEAN_SHUTDOWN_BYTES + 1))


@given(st.none() | st.integers(-1, MAX_INT64))
def test_what_is_written_is_read_back(broker_epoch: int | None) -> None:
    marker = CleanShutdown(broker_epoch)
    assert parse_clean_shutdown(encode_clean_shutdown(marker)) == marker


@given(st.binary() | st.text().map(str.encode))
def test_garbage_raises_nothing_but_corrupt_data(data: bytes) -> None:
    assert refused_at(parse_clean_shutdown, data) in (None, 0)
