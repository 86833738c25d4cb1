"""Checkpoint files are read as Kafka's ``CheckpointFile`` reads them, but stricter in what a number is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData, LimitExceeded
from kfs.format import checkpoint
from kfs.format.checkpoint import (
    EpochEntry,
    TopicPartition,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
)
from kfs.format.layout import MAX_INT32
from tests.corpus import corpus_names
from tests.format.integers import offsets
from tests.format.refusal import refused_at

NEVER_IN_TOPICS = st.characters(exclude_categories=["Z", "C"])

partitions = st.builds(TopicPartition, topic=st.text(NEVER_IN_TOPICS, min_size=1), partition=st.integers(0, MAX_INT32))
epoch_entries = st.builds(EpochEntry, leader_epoch=st.integers(0, MAX_INT32), start_offset=offsets)


def offset_checkpoints(corpus: Path) -> Iterator[Path]:
    yield from (file for file in corpus.rglob("*-checkpoint") if file.name != "leader-epoch-checkpoint")


@pytest.mark.parametrize("name", corpus_names())
def test_every_real_offset_checkpoint_is_understood(name: str, corpus: Callable[[str], Path]) -> None:
    for file in offset_checkpoints(corpus(name)):
        data = file.read_bytes()
        parsed = parse_offset_checkpoint(data)
        assert encode_offset_checkpoint(parsed) == (data or b"0\n0\n")


def test_high_watermarks_are_those_that_the_broker_reported(corpus: Callable[[str], Path]) -> None:
    root = corpus("a_v2")
    parsed = parse_offset_checkpoint((root / "data" / "replication-offset-checkpoint").read_bytes())
    watermarks = json.loads((root / "watermarks.json").read_text())
    assert {name: watermarks[name][1] for name in watermarks} == {
        str(partition): offset for partition, offset in parsed.items() if not partition.topic.startswith("__")
    }


@pytest.mark.parametrize("name", corpus_names())
def test_every_real_epoch_checkpoint_is_understood(name: str, corpus: Callable[[str], Path]) -> None:
    refused = []
    for file in corpus(name).rglob("leader-epoch-checkpoint"):
        data = file.read_bytes()
        try:
            assert encode_leader_epoch_checkpoint(parse_leader_epoch_checkpoint(data)) == (data or b"0\n0\n")
        except CorruptData as error:
            refused.append((file.parent.name, str(error)))
    damaged = [("broken-30", "<bytes>: position 2: 1 entries, expected 2 by the count")]
    assert refused == (damaged if name == "g_damage" else [])


def test_entries_come_with_their_offsets() -> None:
    data = b"0\n2\npayments 0 368776\nweird.na-me_1-7 12 9223372036854775807\n"
    assert parse_offset_checkpoint(data) == {
        TopicPartition("payments", 0): 368776,
        TopicPartition("weird.na-me_1-7", 12): 2**63 - 1,
    }
    assert parse_leader_epoch_checkpoint(b"0\n2\n0 0\n7 12\n") == (EpochEntry(0, 0), EpochEntry(7, 12))


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n", b"0\n0"])
def test_files_without_entries(data: bytes) -> None:
    assert parse_offset_checkpoint(data) == {}
    assert parse_leader_epoch_checkpoint(data) == ()


@pytest.mark.parametrize("data", [b"0\n1\na 0 5", b"0\r\n1\r\na 0 5\r\n", b"0\n1\na \t0  5 \n"])
def test_line_ends_and_blanks_may_differ_as_in_java(data: bytes) -> None:
    assert parse_offset_checkpoint(data) == {TopicPartition("a", 0): 5}


def test_the_later_of_two_lines_for_a_partition_counts() -> None:
    assert parse_offset_checkpoint(b"0\n2\na 0 5\na 0 6\n") == {TopicPartition("a", 0): 6}


@pytest.mark.parametrize(
    ("data", "position", "message"),
    [
        (b"1\n0\n", 0, "checkpoint version 1, expected 0"),
        (b"-1\n0\n", 0, "the version is '-1'"),
        (b"\n", 0, "the version is ''"),
        (b"0\nx\n", 2, "the count of entries is 'x'"),
        (b"0\n-1\n", 2, "the count of entries is '-1'"),
        (b"0\n2147483647\n", 2, "0 entries, expected 2147483647"),
        (b"0\n2147483648\n", 2, "expected a number from 0 to 2147483647"),
        (b"0\n2\na 0 5\n", 2, "1 entries, expected 2"),
        (b"0\n0\na 0 5\n", 2, "1 entries, expected 0"),
        (b"0\n1\na 0 5\n\n", 2, "2 entries, expected 1"),
        (b"0\n2\na 0 5\n\n", 10, "the line '', expected a topic, a partition and an offset"),
        (b"0\n1\na 0\n", 4, "the line 'a 0', expected"),
        (b"0\n1\na b 0 5\n", 4, "the line 'a b 0 5', expected"),
        (b"0\n1\na -1 5\n", 4, "the partition is '-1', expected a number from 0 to 2147483647"),
        (b"0\n1\na 0 -5\n", 4, "the offset is '-5', expected a number from 0 to 9223372036854775807"),
        (b"0\n1\na 0 +5\n", 4, "the offset is"),
        (b"0\n1\na 0 1_0\n", 4, "the offset is"),
        (b"0\n1\na 0 9223372036854775808\n", 4, "the offset is"),
        (b"0\n1\na 0 " + b"9" * 100_000 + b"\n", 4, "the offset is '9{60}'…"),
        ("0\n1\na 0 \N{ARABIC-INDIC DIGIT FIVE}\n".encode(), 4, "the offset is"),
        (b"0\n1\n\xff 0 5\n", 4, r"the topic '\\\\xff' is not UTF-8"),
        (b"\x00" * 100, 0, "the version is"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(data: bytes, position: int, message: str) -> None:
    with pytest.raises(CorruptData, match=message) as raised:
        parse_offset_checkpoint(data)
    assert raised.value.position == position


def test_a_broken_epoch_is_refused() -> None:
    with pytest.raises(CorruptData, match="expected an epoch and a start offset"):
        parse_leader_epoch_checkpoint(b"0\n1\n0 0 0\n")
    with pytest.raises(CorruptData, match="the epoch is '-1'"):
        parse_leader_epoch_checkpoint(b"0\n1\n-1 0\n")
    with pytest.raises(CorruptData, match="the start offset is 'x'"):
        parse_leader_epoch_checkpoint(b"0\n1\n0 x\n")


def test_a_file_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_CHECKPOINT_BYTES", 10)
    with pytest.raises(LimitExceeded, match="the limit is 10"):
        parse_offset_checkpoint(b"0\n1\na 0 5\n2")


@given(st.dictionaries(partitions, offsets))
def test_offsets_written_are_read_back(written: dict[TopicPartition, int]) -> None:
    assert parse_offset_checkpoint(encode_offset_checkpoint(written)) == written


@given(st.lists(epoch_entries))
def test_epochs_written_are_read_back(written: list[EpochEntry]) -> None:
    assert parse_leader_epoch_checkpoint(encode_leader_epoch_checkpoint(written)) == tuple(written)


almost_checkpoints = st.lists(st.sampled_from([b"0", b"1", b"a", b" ", b"\n", b"\r", b"-", b"\xff"])).map(b"".join)


@given(st.binary() | almost_checkpoints | almost_checkpoints.map(lambda rest: b"0\n1\n" + rest))
def test_garbage_raises_nothing_but_corrupt_data(data: bytes) -> None:
    for parse in (parse_offset_checkpoint, parse_leader_epoch_checkpoint):
        assert 0 <= (refused_at(parse, data) or 0) <= len(data)
