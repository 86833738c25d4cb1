"""Where a log ended once tells of a base offset that was flipped since, of its last batch; no CRC covers that."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfs.format.codecs import Codec
from kfs.format.decoders import BlockDecoder
from kfs.format.layout import MAGIC_V0, MAGIC_V1, MAGIC_V2
from kfs.verify.finding import FindingKind
from tests.implementations import EVERY_DECODER
from tests.logs import Batch, dense, joined, log_name, write_checkpoint, write_log, write_partition
from tests.verify.checking import complaints, found_in, kinds, one, verified, verified_by

EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")


def moved(content: Batch, by: int) -> bytes:
    """Return the bytes of a batch with another base offset, as its header has it."""
    offset = int.from_bytes(content.data[:8]) + by
    return offset.to_bytes(8) + content.data[8:]


def stopped(directory: Path, end: int) -> Path:
    """Leave the snapshot of a clean stop at an offset; return the directory."""
    (directory / log_name(end, ".snapshot")).write_bytes(EMPTY_SNAPSHOT)
    return directory


@EVERY_DECODER
@pytest.mark.parametrize("bit", [0, 1, 3, 20, 30])
@pytest.mark.parametrize("magic", [MAGIC_V0, MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_flipped_base_offset_of_the_last_batch_is_named(
    codec: Codec, magic: int, bit: int, decoder: BlockDecoder, tmp_path: Path
) -> None:
    *before, last = dense(0, 35, 32, magic=magic, codec=codec)
    position = len(joined(before))
    directory = stopped(write_log(tmp_path / "t-0", 0, joined(before) + last.data).parent, 36)
    assert FindingKind.OFFSETS_MISPLACED not in kinds(verified_by(decoder, directory))
    write_log(directory, 0, joined(before) + moved(last, 1 << bit))
    is_told_inside = magic == MAGIC_V0 and codec is not Codec.NONE  # by the offsets of the messages in a wrapper
    finding = one(
        verified_by(decoder, directory), FindingKind.BATCH_RECORDS if is_told_inside else FindingKind.OFFSETS_MISPLACED
    )
    assert finding.file == str(directory / log_name(0))
    assert finding.bytes == (position, position + len(last.data))
    assert finding.offsets is not None
    assert finding.offsets[1] == last.last_offset + (1 << bit)
    assert is_told_inside or f"by {log_name(36, '.snapshot')} the log once ended at offset 36" in finding.sentence


def test_it_is_named_of_the_file_alone_too(tmp_path: Path) -> None:
    first, last = dense(0, 4), dense(5, 9)[0]
    directory = stopped(write_log(tmp_path / "t-0", 0, first[0].data + moved(last, 64)).parent, 10)
    assert found_in(verified(directory / log_name(0)), log_name(0)) == [
        (FindingKind.OFFSETS_MISPLACED, (len(first[0].data), len(first[0].data) + len(last.data)))
    ]


def test_after_a_clean_stop_the_recovery_point_tells_where_there_is_no_snapshot(tmp_path: Path) -> None:
    root = tmp_path / "data"
    first, last = dense(0, 4), dense(5, 9)[0]
    write_log(root / "t-0", 0, first[0].data + moved(last, 64))
    write_checkpoint(root, "recovery-point-offset-checkpoint", {("t", 0): 10})
    assert FindingKind.OFFSETS_MISPLACED not in kinds(
        verified(root)
    )  # a log start offset may be one, of a broker that runs
    (root / ".kafka_cleanshutdown").touch()
    assert "recovery-point-offset-checkpoint" in one(verified(root), FindingKind.OFFSETS_MISPLACED).sentence


@pytest.mark.parametrize(
    "segments",
    [
        {0: dense(0, 29)},  # stopped and started again, and appended to
        {0: [*dense(0, 9), *dense(20, 29)]},  # of a leader whose log is compacted
        {0: dense(0, 4), 7: [*dense(20, 29)]},  # the same behind a roll
        {0: [*dense(0, 3), *dense(14, 29)], 30: dense(30, 39)},  # compacted since
    ],
)
def test_an_end_that_any_broker_leaves_is_none_that_was_lost(segments: dict[int, list[Batch]], tmp_path: Path) -> None:
    directory = stopped(write_partition(tmp_path / "t-0", segments), 10 if 7 not in segments else 7)
    assert FindingKind.OFFSETS_MISPLACED not in kinds(complaints(verified(directory)))


def test_an_end_in_what_is_damaged_is_not_held_against_what_follows(tmp_path: Path) -> None:
    content = dense(0, 19)
    data = bytearray(b"".join(each.data for each in content))
    data[len(content[0].data) + 40] ^= 1
    directory = stopped(write_log(tmp_path / "t-0", 0, bytes(data)).parent, 10)
    assert FindingKind.OFFSETS_MISPLACED not in kinds(verified(directory))
    assert FindingKind.BATCH_CRC in kinds(verified(directory))
