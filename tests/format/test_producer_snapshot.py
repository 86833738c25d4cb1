"""Producer snapshots are read as Kafka's dump tool reads them, written as Kafka does, and refused when damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfs.errors import CorruptData
from kfs.format.producer_snapshot import ProducerStateEntry, encode_producer_snapshot, parse_producer_snapshot
from tests.corpus import corpus_names
from tests.format.integers import int16s, int32s, int64s, offsets
from tests.format.kafka_dump import dumps

EMPTY = bytes.fromhex("0001 48674bc7 00000000")  # as Kafka 4.3.1 wrote it

entries = st.builds(
    ProducerStateEntry,
    producer_id=int64s,
    producer_epoch=int16s,
    last_sequence=int32s,
    last_offset=int64s,
    offset_delta=int32s,
    timestamp=int64s,
    coordinator_epoch=int32s,
    current_txn_first_offset=st.none() | offsets,
)


def as_dumped(entry: ProducerStateEntry) -> dict[str, str]:
    first_offset = entry.current_txn_first_offset
    dumped: dict[str, object] = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": "OptionalLong.empty" if first_offset is None else f"OptionalLong[{first_offset}]",
        "lastTimestamp": entry.timestamp,
    }
    if entry.has_batch:
        dumped |= {
            "firstSequence": entry.first_sequence,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
            "timestamp": entry.timestamp,
        }
    return {name: str(value) for name, value in dumped.items()}


@pytest.mark.parametrize("name", corpus_names())
def test_every_real_snapshot_reads_as_kafka_dumped_it(name: str, corpus: Callable[[str], Path]) -> None:
    for dump in dumps(corpus(name), ".snapshot"):
        data = dump.file.read_bytes()
        if dump.lines is None:
            with pytest.raises(CorruptData):
                parse_producer_snapshot(data)
        else:
            producers = parse_producer_snapshot(data)
            assert [as_dumped(producer) for producer in producers] == dump.lines, dump.file
            assert encode_producer_snapshot(producers) == data


def test_the_corpora_have_open_transactions_and_damage_to_compare(corpus: Callable[[str], Path]) -> None:
    lines = [line for dump in dumps(corpus("b_txn"), ".snapshot") for line in dump.lines or []]
    assert any(line["currentTxnFirstOffset"] == "OptionalLong[29]" for line in lines)
    assert any("lastSequence" not in line for line in lines)
    assert sum(dump.lines is None for dump in dumps(corpus("g_damage"), ".snapshot")) == 1


def test_an_empty_snapshot() -> None:
    assert parse_producer_snapshot(EMPTY) == ()
    assert encode_producer_snapshot([]) == EMPTY


@given(st.lists(entries))
def test_what_is_written_is_read_back(producers: list[ProducerStateEntry]) -> None:
    assert parse_producer_snapshot(encode_producer_snapshot(producers)) == tuple(producers)


@given(st.lists(entries, max_size=3), st.data())
def test_any_flipped_bit_is_noticed(producers: list[ProducerStateEntry], data: st.DataObject) -> None:
    snapshot = bytearray(encode_producer_snapshot(producers))
    bit = data.draw(st.integers(0, len(snapshot) * 8 - 1))
    snapshot[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptData):
        parse_producer_snapshot(snapshot)


@given(st.lists(entries, max_size=3), st.data())
def test_a_cut_off_snapshot_is_noticed(producers: list[ProducerStateEntry], data: st.DataObject) -> None:
    snapshot = encode_producer_snapshot(producers)
    with pytest.raises(CorruptData):
        parse_producer_snapshot(snapshot[: data.draw(st.integers(0, len(snapshot) - 1))])


@given(st.binary())
def test_garbage_raises_nothing_but_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_producer_snapshot(data)


@pytest.mark.parametrize(("last", "delta", "first"), [(8, 2, 6), (0, 0, 0), (1, 3, 2**31 - 2), (-1, 0, 2**31 - 1)])
def test_sequences_wrap(last: int, delta: int, first: int) -> None:
    assert ProducerStateEntry(1, 0, last, 10, delta, 0, 0, None).first_sequence == first


def test_the_message_says_what_and_where() -> None:
    with pytest.raises(CorruptData, match=r"position 2: snapshot CRC 0x48674bc7, expected the stored 0x00000000"):
        parse_producer_snapshot(bytes.fromhex("0001 00000000 00000000"))
    with pytest.raises(CorruptData, match=r"position 0: snapshot version 2, expected 1"):
        parse_producer_snapshot(bytes.fromhex("0002 00000000 00000000"))
