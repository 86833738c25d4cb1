"""``partition.metadata`` and the ids in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.layout import MAX_INT32
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata, parse_partition_metadata
from kfs.format.uuid import ZERO_UUID, Uuid, parse_uuid
from tests.corpus import corpus_names
from tests.format.refusal import refused_at

TOPIC_ID = parse_uuid(b"7tSH6UPpTNKrSGI0okjrOw")

uuids = st.binary(min_size=16, max_size=16).map(Uuid)


@pytest.mark.parametrize("name", corpus_names())
def test_every_real_file_is_understood(name: str, corpus: Callable[[str], Path]) -> None:
    for file in corpus(name).rglob("partition.metadata"):
        data = file.read_bytes()
        assert encode_partition_metadata(parse_partition_metadata(data)) == data


def test_all_partitions_of_a_topic_have_one_id(corpus: Callable[[str], Path]) -> None:
    files = (corpus("a_v2") / "data").glob("wide-*/partition.metadata")
    ids = [parse_partition_metadata(file.read_bytes()).topic_id for file in files]
    assert len(ids) == 12
    assert len(set(ids)) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"version: 0\ntopic_id: 7tSH6UPpTNKrSGI0okjrOw",
        b"version: 0\ntopic_id: 7tSH6UPpTNKrSGI0okjrOw\n",
        b"version: 0\r\ntopic_id:  7tSH6UPpTNKrSGI0okjrOw\r\n",
    ],
)
def test_the_last_line_may_end(data: bytes) -> None:
    assert parse_partition_metadata(data) == PartitionMetadata(TOPIC_ID)


def test_a_later_version_is_read_for_its_id() -> None:
    data = b"version: 7\ntopic_id: 7tSH6UPpTNKrSGI0okjrOw\nmore: to come\n"
    assert parse_partition_metadata(data) == PartitionMetadata(TOPIC_ID, 7)


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"", 0, "0 lines, expected version and topic_id"),
        (b"version: 0\n", 11, "1 lines"),
        (b"version: -1\ntopic_id: 7tSH6UPpTNKrSGI0okjrOw", 0, "the version is '-1'"),
        (b"version:0\ntopic_id: 7tSH6UPpTNKrSGI0okjrOw", 0, "the line 'version:0', expected version:"),
        (b"version: 0\ntopic: 7tSH6UPpTNKrSGI0okjrOw", 11, "expected topic_id: and its value"),
        (
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            11,
            "the topic id AAAAAAAAAAAAAAAAAAAAAA, which no topic has",
        ),
        (b"version: 0\ntopic_id: 7tSH6UPpTNKrSGI0okjrO", 11, "'7tSH6UPpTNKrSGI0okjrO' is not"),
        (b"version: 0\ntopic_id: 7tSH6UPpTNKrSGI0okjrOx", 11, "is not how the id 7tSH6UPpTNKrSGI0okjrOw is written"),
        (b"version: 0\ntopic_id: 7tSH6UPpTNKrSGI0okj+/w", 11, "is not"),
        (b"version: 0\ntopic_id: \xff", 11, "is not an id"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(data: bytes, position: int, message: str) -> None:
    with pytest.raises(CorruptData, match=message) as raised:
        parse_partition_metadata(data)
    assert raised.value.position == position


@given(uuids.filter(lambda uuid: uuid != ZERO_UUID), st.integers(0, MAX_INT32))
@example(Uuid(b"\xfb" * 16), 0)
def test_what_is_written_is_read_back(topic_id: Uuid, version: int) -> None:
    metadata = PartitionMetadata(topic_id, version)
    assert parse_partition_metadata(encode_partition_metadata(metadata)) == metadata


@given(uuids)
def test_an_id_has_22_characters(uuid: Uuid) -> None:
    assert len(str(uuid)) == 22
    assert parse_uuid(str(uuid).encode()) == uuid


def test_ids_may_begin_with_and_hold_dashes() -> None:
    assert str(parse_uuid(b"-7NO5-d-T_aB-cDeFgHiJw")) == "-7NO5-d-T_aB-cDeFgHiJw"


def test_an_id_has_16_bytes() -> None:
    with pytest.raises(ValueError, match="a Uuid has 16 bytes, not 15"):
        Uuid(bytes(15))


@given(st.binary() | st.binary(max_size=30).map(lambda rest: b"version: 0\ntopic_id: " + rest))
def test_garbage_raises_nothing_but_corrupt_data(data: bytes) -> None:
    assert 0 <= (refused_at(parse_partition_metadata, data) or 0) <= len(data)
