"""What the CRC can't tell: batches that are intact, and whose records aren't what they should be."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from pathlib import Path

import pytest

from kfs.format.codecs import Codec
from kfs.format.control_record import AbortMarker, LeaderChange, encode_control_record
from kfs.format.decoders import BlockDecoder
from kfs.format.record import Record, TimestampType
from kfs.format.writer import encode_batch, encode_empty_batch
from kfs.log.storage import Storage
from kfs.verify.finding import Finding, FindingKind, Severity
from kfs.verify.segment import check_segment
from kfs.verify.verification import Verification
from tests.implementations import EVERY_DECODER
from tests.logs import START, batch, dense, joined, log_name, record, records, resealed, write_log, write_partition
from tests.verify.checking import complaints, one, verified, verified_by


def found_in_log(decoder: BlockDecoder, directory: Path, *batches: bytes) -> list[Finding]:
    """Return what is found in a segment of these batches."""
    path = write_log(directory / "t-0", 0, b"".join(batches))
    return verified_by(decoder, path)


@EVERY_DECODER
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.GZIP])
@pytest.mark.parametrize("by", [-1, 1])
def test_the_latest_timestamp_is_that_of_the_records(
    decoder: BlockDecoder, codec: Codec, by: int, tmp_path: Path
) -> None:
    good = [batch(records(first, first + 4), codec=codec).data for first in (0, 5, 10)]
    wrong = resealed(good[1], max_timestamp=START + 9000 + by)
    found = found_in_log(decoder, tmp_path, good[0], wrong, good[2])
    finding = one(found, FindingKind.BATCH_TIMESTAMP)
    assert len(found) == 1
    assert finding.bytes == (len(good[0]), len(good[0]) + len(wrong))
    assert finding.offsets == (5, 9)
    assert f"{START + 9000} (offset 9), {'above' if by < 0 else 'below'} the {START + 9000 + by}" in finding.sentence


@EVERY_DECODER
def test_timestamps_that_only_the_header_gives_are_right_as_they_are(decoder: BlockDecoder, tmp_path: Path) -> None:
    appended = batch(records(0, 4), timestamp_type=TimestampType.LOG_APPEND_TIME, append_time=START + 77).data
    horizon = batch(records(5, 9), delete_horizon=START + 10**9).data
    empty = encode_empty_batch(10, 14, max_timestamp=5, producer_id=1, producer_epoch=0, base_sequence=3)
    assert found_in_log(decoder, tmp_path, appended, horizon, empty) == []


@EVERY_DECODER
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"count": 4}, FindingKind.BATCH_RECORDS),
        ({"last_offset_delta": 5}, None),  # a hole at the end is legal
        ({"last_offset_delta": 3}, FindingKind.BATCH_HEADER),
        ({"count": 4, "last_offset_delta": 3}, FindingKind.BATCH_RECORDS),
        ({"attributes": 5}, FindingKind.BATCH_RECORDS),
        ({"attributes": 3}, FindingKind.BATCH_RECORDS),
    ],
)
def test_records_that_aren_t_what_the_header_says_are_named(
    decoder: BlockDecoder, fields: dict[str, int], kind: FindingKind | None, tmp_path: Path
) -> None:
    wrong = resealed(batch(records(0, 4)).data, **fields)
    found = found_in_log(decoder, tmp_path, wrong)
    assert [(each.kind, each.bytes) for each in found] == ([] if kind is None else [(kind, (0, len(wrong)))])


@EVERY_DECODER
def test_control_records_are_read(decoder: BlockDecoder, tmp_path: Path) -> None:
    key, value = encode_control_record(AbortMarker(1))
    marker = partial(encode_batch, producer_id=5, producer_epoch=0, transactional=True, control=True)
    good = marker([Record(0, START, key, value)])
    cut = marker([Record(1, START, key[:3], value)])
    leader_key, leader_value = encode_control_record(LeaderChange(1, (), ()))
    foreign = marker([Record(2, START, leader_key, leader_value)])
    leader = encode_batch([Record(3, START, leader_key, leader_value)], control=True)
    found = found_in_log(decoder, tmp_path, good, cut, foreign, leader)
    assert [(each.kind, each.offsets) for each in found] == [
        (FindingKind.CONTROL_RECORD, (1, 1)),
        (FindingKind.CONTROL_RECORD, (2, 2)),
    ]


@EVERY_DECODER
@pytest.mark.parametrize("magic", [0, 1])
def test_a_broken_message_inside_of_a_wrapper_is_named(decoder: BlockDecoder, magic: int, tmp_path: Path) -> None:
    data = bytearray(batch(records(0, 4), magic=magic, codec=Codec.GZIP).data)
    header = 18 + 8 * magic + 4 + 4  # up to the value
    inner = bytearray(zlib.decompress(bytes(data[header:]), 31))
    inner[-1] ^= 1
    value = zlib.compress(bytes(inner), wbits=31)
    covered = bytes(data[16 : header - 4]) + struct.pack(">i", len(value)) + value
    message = struct.pack(">qiI", 4, len(covered) + 4, zlib.crc32(covered)) + covered
    finding = one(found_in_log(decoder, tmp_path, message), FindingKind.BATCH_RECORDS)
    assert "offset 4" in finding.sentence


@EVERY_DECODER
def test_a_wrapper_that_reaches_back_is_named(decoder: BlockDecoder, tmp_path: Path) -> None:
    first = joined(dense(0, 4, magic=1))
    wrapper = bytearray(batch(records(5, 9), magic=1, codec=Codec.LZ4).data)
    struct.pack_into(">q", wrapper, 0, 7)  # its offset isn't covered by the CRC: 3 to 7 now
    finding = one(found_in_log(decoder, tmp_path, first, bytes(wrapper)), FindingKind.OFFSETS_MISPLACED)
    assert "offsets 3 to 7" in finding.sentence


@EVERY_DECODER
def test_offsets_belong_to_their_segment(decoder: BlockDecoder, tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    path = directory / log_name(0)
    data = path.read_bytes()
    reaching = batch(records(8, 12)).data
    for more, kind, offsets in (
        (reaching, FindingKind.OFFSETS_MISPLACED, (8, 12)),
        (batch(records(12, 13)).data, FindingKind.OFFSETS_MISPLACED, None),
        (batch(records(3, 4)).data, FindingKind.OFFSETS_REPEATED, None),
    ):
        path.write_bytes(data + more)
        found = [each for each in verified_by(decoder, directory) if each.file == str(path)]
        assert [(each.kind, each.bytes, each.offsets) for each in found] == [
            (kind, (len(data), len(data) + len(more)), offsets)
        ]


def test_offsets_don_t_reach_past_int32(tmp_path: Path) -> None:
    far = batch(records(2**31, 2**31 + 4)).data
    path = write_log(tmp_path / "t-0", 0, joined(dense(0, 4)) + far)
    assert one(verified(path), FindingKind.OFFSETS_MISPLACED).bytes is not None


@pytest.mark.parametrize("cut", [8, 10, 16, 30, 60, 70])
def test_a_torn_tail_is_named_in_the_last_segment_and_damage_in_others(cut: int, tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    for base, kind in ((10, FindingKind.TORN_TAIL), (0, FindingKind.BATCH_TRUNCATED)):
        path = directory / log_name(base)
        data, size = path.read_bytes(), len(dense(base, base + 4)[0].data)
        path.write_bytes(data[: size + cut])
        finding = one(complaints(verified(path)), kind)
        assert finding.bytes == (size, size + cut)
        assert finding.severity is (Severity.WARNING if base else Severity.ERROR)
        path.write_bytes(data)


def test_zeros_at_the_end_are_legal_only_there(tmp_path: Path) -> None:
    directory = write_partition(tmp_path / "t-0", {0: dense(0, 9), 10: dense(10, 19)})
    for base in (0, 10):
        with (directory / log_name(base)).open("ab") as file:
            file.write(bytes(1000))
    found = {Path(each.file).name: (each.kind, each.severity) for each in verified(directory)}
    assert found[log_name(0)] == (FindingKind.BATCH_HEADER, Severity.ERROR)
    assert found[log_name(10)] == (FindingKind.ZERO_TAIL, Severity.INFO)


def test_what_is_too_large_is_said_and_not_read(tmp_path: Path) -> None:
    content = [
        batch([record(0)]),
        batch([record(1, bytes(200_000))], codec=Codec.ZSTD),
        batch([record(2, bytes(9000))]),
    ]
    path = write_log(tmp_path / "t-0", 0, joined(content))
    storage = Storage(max_batch_bytes=5000)
    verification = Verification([str(path)], storage)
    found = list(verification.run(check_segment(task, storage) for task in verification.tasks()))
    assert [(each.kind, each.offsets) for each in found] == [
        (FindingKind.BATCH_TOO_LARGE, (1, 1)),
        (FindingKind.BATCH_TOO_LARGE, (2, 2)),
    ]


def test_batches_and_records_are_counted(tmp_path: Path) -> None:
    write_partition(
        tmp_path / "t-0", {0: dense(0, 9, magic=0), 10: dense(10, 19, magic=1, codec=Codec.LZ4), 20: dense(20, 29)}
    )
    storage = Storage()
    verification = Verification([str(tmp_path / "t-0")], storage)
    assert list(verification.run(check_segment(task, storage) for task in verification.tasks())) == []
    totals = verification.totals
    assert (totals.segments, totals.batches, totals.records) == (3, 10 + 2 + 2, 30)
    assert totals.is_clean
