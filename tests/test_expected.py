"""The oracle files are read completely and with the types they claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import get_type_hints

import pytest

from tests.corpus import corpus_names
from tests.expected import (
    ExpectedBatch,
    ExpectedRecord,
    expected_batches,
    expected_by_partition,
    expected_records,
    unread_logs,
)


def assert_fields_have_their_types(thing: ExpectedRecord | ExpectedBatch) -> None:
    for name, declared in get_type_hints(type(thing)).items():
        assert isinstance(declared, type | UnionType)
        assert isinstance(getattr(thing, name), declared), (name, thing)


@pytest.mark.parametrize("name", corpus_names())
def test_every_record_and_batch_has_the_types_it_claims(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    records = list(expected_records(root))
    batches = list(expected_batches(root))
    for record in records:
        assert_fields_have_their_types(record)
    for batch in batches:
        assert_fields_have_their_types(batch)
    assert {one.file for one in records} <= {one.file for one in batches}
    assert sum(len(partition) for partition in expected_by_partition(root).values()) == len(records)


def test_keys_values_and_headers_are_decoded(corpus: Callable[[str], Path]) -> None:
    shapes = expected_by_partition(corpus("a_v2"))["shapes", 0]
    assert any(record.record.key is None for record in shapes)
    assert any(record.record.value == b"" for record in shapes)
    headers = [header for record in shapes for header in record.record.headers]
    assert "ключ".encode() in [key for key, _ in headers]
    assert any(value is None for _, value in headers)


def test_logs_that_kafka_gave_up_on_are_listed(corpus: Callable[[str], Path]) -> None:
    unread = list(unread_logs(corpus("g_damage")))
    assert sum(log.error is not None for log in unread) == 7
    assert sum(log.valid_bytes is not None for log in unread) == 5
    assert not list(unread_logs(corpus("a_v2")))


def test_expected_records_are_frozen(corpus: Callable[[str], Path]) -> None:
    record = next(expected_records(corpus("e_meta")))
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.magic = 7  # type: ignore[misc]
