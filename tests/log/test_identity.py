"""What tells the log of a position from others, and what contradicts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfs.format.uuid import Uuid
from kfs.log.identity import UNKNOWN, Identity, identity_at, other_log
from tests.logs import batch, dense, log_name, open_log, positions, records, write_partition

A, B = Uuid(b"A" * 16), Uuid(b"B" * 16)


def compacted(directory: Path) -> Path:
    """Write a log of which offsets 10 to 19 and 30 to 39 are gone: epochs 0 below 10, 2 from 20, 5 from 40 on."""
    content = [
        batch(records(first, first + 9), partition_leader_epoch=epoch) for first, epoch in ((0, 0), (20, 2), (40, 5))
    ]
    return write_partition(directory, {0: content[:2], 40: content[2:]})


def with_id(directory: Path, topic_id: Uuid) -> Path:
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return directory


def test_it_is_the_id_of_the_topic_and_the_epoch_of_the_record_before(tmp_path: Path) -> None:
    log = open_log(with_id(compacted(tmp_path / "t-0"), A))
    found = {offset: identity_at(log, offset) for offset in (0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51)}
    epochs = {0: None, 1: 0, 10: 0, 11: None, 20: None, 21: 2, 30: 2, 31: None, 40: None, 41: 5, 50: 5, 51: None}
    assert found == {offset: Identity(A, epoch) for offset, epoch in epochs.items()}


def test_where_nothing_is_known_nothing_is_said(tmp_path: Path) -> None:
    log = open_log(write_partition(tmp_path / "t-0", {0: dense(0, 9, magic=1)}))
    assert identity_at(log, 5) == UNKNOWN
    assert not identity_at(log, 5).is_known
    assert other_log(log, 5, Identity(A, 3)) is None
    assert other_log(log, 5, None) is None


@pytest.mark.parametrize(
    ("offset", "epoch", "why"),
    [
        (5, 0, None),
        (5, 1, "epoch 0 there"),
        (15, 0, None),  # it was compacted away: of epoch 0, 1 or 2
        (15, 1, None),
        (15, 2, None),
        (15, 3, "epoch 2 still above"),
        (25, 0, "epoch 2 there"),
        (35, 1, "epoch 2 already below"),
        (35, 2, None),
        (35, 5, None),
        (35, 6, "epoch 5 still above"),
        (40, 3, None),
        (50, 5, None),
        (50, 4, "epoch 5 there"),
        (60, 5, None),  # it ends before, which is said elsewhere
        (60, 4, "epoch 5 already below"),
        (60, 9, None),
    ],
)
def test_epochs_never_go_back(offset: int, epoch: int, why: str | None, tmp_path: Path) -> None:
    log = open_log(compacted(tmp_path / "t-0"))
    other = other_log(log, offset, Identity(A, epoch))
    assert (other is None) == (why is None)
    if other is not None:
        assert f"leader epoch {epoch}, and {tmp_path}/t-0 has {why}: " in other.reason
        assert other.common == offset  # there is no leader-epoch-checkpoint to tell


def test_where_histories_part_the_checkpoint_tells(tmp_path: Path) -> None:
    log = open_log(compacted(tmp_path / "t-0"))
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n2 20\n5 40\n")
    for offset, epoch, common in ((25, 0, 20), (50, 2, 40), (50, 4, 40), (10, 3, 10)):
        other = other_log(log, offset, Identity(None, epoch))
        assert other is not None
        assert other.common == common


def test_another_id_is_another_topic(tmp_path: Path) -> None:
    log = open_log(with_id(compacted(tmp_path / "t-0"), A))
    assert other_log(log, 25, Identity(A, 2)) is None
    other = other_log(log, 25, Identity(B, 2))
    assert other is not None
    assert other.common is None
    assert other.reason == (
        f"topic t was deleted and re-created: position 25 of t-0 belongs to topic id {B}, and {tmp_path}/t-0 to "
        f"topic id {A}"
    )


def test_what_is_damaged_tells_nothing(tmp_path: Path) -> None:
    directory = with_id(compacted(tmp_path / "t-0"), A)
    content = [batch(records(first, first + 9), partition_leader_epoch=0) for first in (0, 20)]
    path = directory / log_name(0)
    damaged = bytearray(path.read_bytes())
    damaged[positions(content)[1] + 70] ^= 1
    path.write_bytes(damaged)
    (directory / "partition.metadata").write_text("damaged")
    log = open_log(directory)
    assert identity_at(log, 25) == UNKNOWN
    assert identity_at(log, 5) == Identity(None, 0)
    assert other_log(log, 25, Identity(B, 7)) is not None  # behind it there is epoch 5
    assert other_log(log, 25, Identity(B, 4)) is None
