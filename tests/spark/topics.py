"""Topics with what tells them from others of the same name: an id, and the leader epochs of their batches."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from kfs.format.checkpoint import EpochEntry, encode_leader_epoch_checkpoint
from kfs.format.partition_metadata import PartitionMetadata, encode_partition_metadata
from kfs.format.uuid import Uuid
from tests.logs import Batch, batch, log_name, records, write_partition

A = Uuid(b"A" * 16)
B = Uuid(b"B" * 16)
C = Uuid(b"C" * 16)


def in_epochs(end: int, epochs: Mapping[int, int], first: int = 0) -> list[Batch]:
    """Return batches of five records up to ``end``; ``epochs`` says at which offsets leader epochs begin."""
    found = []
    for start in range(first, end, 5):
        epoch = next(epoch for at, epoch in sorted(epochs.items(), reverse=True) if at <= start)
        content = records(start, min(start + 5, end) - 1)
        found.append(batch(content, partition_leader_epoch=epoch))
    return found


def make_topic(
    data: Path, end: int, topic_id: Uuid | None, epochs: Mapping[int, int] | None = None, name: str = "t-0"
) -> Path:
    """Write a partition anew, with the offsets from 0 up to ``end``, as a broker that has deleted the one before."""
    directory = data / name
    if directory.exists():
        directory.rename(data / f"{name}.{'0' * 32}-delete")
        shutil.rmtree(data / f"{name}.{'0' * 32}-delete")
    write_partition(directory, {0: in_epochs(end, epochs or {0: 0})})
    (directory / "leader-epoch-checkpoint").write_bytes(
        encode_leader_epoch_checkpoint([EpochEntry(epoch, at) for at, epoch in sorted((epochs or {0: 0}).items())])
    )
    if topic_id is not None:
        (directory / "partition.metadata").write_bytes(encode_partition_metadata(PartitionMetadata(topic_id)))
    return directory


def append(data: Path, first: int, end: int, epoch: int = 0, name: str = "t-0") -> None:
    """Append records to the only segment."""
    with (data / name / log_name(0)).open("ab") as log:
        log.writelines(one.data for one in in_epochs(end, {0: epoch}, first))
