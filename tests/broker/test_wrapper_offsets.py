"""Compressed messages of the old formats whose wrapper has another offset than it should have: no CRC covers it.

A broker's recovery goes by the wrapper's offset, and by those inside only where it looks for an offset, so it keeps
most of what was flipped there; ``kfs recover --mode kafka`` leaves the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kfs.format.checkpoint import encode_offset_checkpoint, parse_offset_checkpoint
from kfs.format.codecs import Codec
from kfs.format.layout import MAGIC_V0, MAGIC_V1
from tests.broker.real_broker import RealBroker
from tests.broker.test_random_damage import (
    LOG_STARTS,
    RECOVERY_POINTS,
    SETTINGS,
    compare,
    partition_of,
    put_all_in,
    recover_what_can_be,
)
from tests.logs import dense, write_log
from tests.recover.comparing import partitions
from tests.requirements import need_kafka

#: Batches of seven records from offset 0 on, of which one gets another offset: its number, and by how much.
CHANGES = [(0, 1), (0, -1), (0, -6), (0, 8), (3, 1), (3, -1), (3, -7), (3, 64), (5, 1), (5, -1), (5, -7), (5, 1 << 20)]


def with_moved_wrappers() -> Iterator[bytes]:
    """Yield the bytes of a log for each format, codec and change."""
    for magic in (MAGIC_V0, MAGIC_V1):
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            content = [each.data for each in dense(0, 41, 7, magic=magic, codec=codec)]
            for number, by in CHANGES:
                moved = (int.from_bytes(content[number][:8]) + by).to_bytes(8, signed=True) + content[number][8:]
                yield b"".join([*content[:number], moved, *content[number + 1 :]])


def recorded_with_moved_wrappers(data: Path) -> Iterator[bytes]:
    """Yield the logs of a broker of 0.8.2, the first and the last wrapper of each moved."""
    for path in sorted(data.glob("codec_*-*/*.log")):
        log = path.read_bytes()
        starts = [0]
        while (end := starts[-1] + 12 + int.from_bytes(log[starts[-1] + 8 : starts[-1] + 12])) < len(log):
            starts.append(end)
        for at in (starts[0], starts[-1]):
            yield log[:at] + (int.from_bytes(log[at : at + 8]) ^ 4).to_bytes(8) + log[at + 8 :]


def test_moved_wrappers_are_recovered_as_a_broker_does(corpus: Callable[[str], Path], tmp_path: Path) -> None:
    source = tmp_path / "source"
    logs = [*with_moved_wrappers(), *recorded_with_moved_wrappers(corpus("f_0.8.2.2") / "data")]
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), SETTINGS)
    with broker.running():
        broker.create_topics({"topic": len(logs)})
    for number, log in enumerate(logs):
        write_log(source / f"topic-{number}", 0, log)
    for name in (RECOVERY_POINTS, LOG_STARTS):
        (source / name).write_bytes(encode_offset_checkpoint({}))
    refused = recover_what_can_be(source, tmp_path / "output")
    put_all_in(broker, source)
    with broker.running():
        pass
    ends = parse_offset_checkpoint((broker.data / RECOVERY_POINTS).read_bytes())
    for ours in partitions(tmp_path / "output"):
        compare(ours, broker.data / ours.name, ends[partition_of(ours)], f"{ours.name}")
    # Below the last one inside, of v1; and messages whose offset goes back where an entry of the index is due.
    assert len(refused) == 6
