"""A log directory of very many small partitions, whose files are hard links to those of one partition of each topic.

So it takes next to no space, and is there in seconds: only the names differ, and what ``partition.metadata`` and the
checkpoints say of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from kfs.broker_log.log_segment import LogSegment
from kfs.format.record import Record
from kfs.format.writer import encode_batch

_FIRST_TIMESTAMP = 1_790_000_000_000
#: Records of a segment, in one batch.
_RECORDS = 3


def many_logs(directory: Path, topics: int, partitions: int, segments: int) -> None:
    """Write ``topics`` of so many ``partitions``, each of so many ``segments`` of a few records, into a directory."""
    directory.mkdir(parents=True)
    template = directory.with_name(f"{directory.name}.template")
    _write_partition(template, segments)
    names = os.listdir(template)
    for topic in range(topics):
        metadata = directory / f"metadata-{topic}.tmp"
        metadata.write_text(f"version: 0\ntopic_id: {_topic_id(topic)}\n")
        for partition in range(partitions):
            path = directory / f"topic{topic:03d}-{partition}"
            path.mkdir()
            for name in names:
                os.link(template / name, path / name)
            os.link(metadata, path / "partition.metadata")
        metadata.unlink()
    rows = [
        f"topic{topic:03d} {partition} {segments * _RECORDS}"
        for topic in range(topics)
        for partition in range(partitions)
    ]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory / name).write_text("\n".join(["0", str(len(rows)), *rows, ""]))
    (directory / "log-start-offset-checkpoint").write_text("0\n0\n")
    (directory / "meta.properties").write_text("version=1\nbroker.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")


def _write_partition(directory: Path, segments: int) -> None:
    directory.mkdir()
    for number in range(segments):
        first = number * _RECORDS
        segment = LogSegment.create(os.fspath(directory), first)
        records = [
            Record(offset, _FIRST_TIMESTAMP + offset, b"key-%d" % offset, b'{"number":%d}' % offset)
            for offset in range(first, first + _RECORDS)
        ]
        segment.append(encode_batch(records))
        segment.close()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _topic_id(topic: int) -> str:
    """Return a topic id as Kafka writes it: 16 bytes, Base64 without padding."""
    import base64

    return base64.urlsafe_b64encode((topic + 1).to_bytes(16, "big")).decode().rstrip("=")
