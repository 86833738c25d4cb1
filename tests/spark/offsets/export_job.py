"""A job as a plain loop: the records of two partitions into files, from where the group stands to the end.

::

    python -m tests.spark.offsets.export_job URL DATASET [--kill-at STEP] [--dawdle SEED]

``--kill-at`` has it kill itself before its nth step; ``--dawdle`` has it wait now and then, so that others get in.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from kfs.errors import Fenced
from kfs.format.checkpoint import TopicPartition
from kfs.log.offset_range import OffsetRange
from kfs.spark.offsets import (
    ConsumedRange,
    OffsetReset,
    StagedOutput,
    WritableStore,
    open_writable_store,
    range_file_name,
    starting_positions,
)
from tests.spark.offsets.steps import Step, watched

GROUP = "export"
#: What there is to be exported.
LOGS = {TopicPartition("orders", 0): OffsetRange(3, 20), TopicPartition("orders", 1): OffsetRange(0, 11)}
RECORDS_A_BATCH = 7
FENCED = 3


def export(store: WritableStore, dataset: str) -> None:
    """Export what isn't exported yet."""
    with StagedOutput(store, GROUP, dataset) as output:
        while ranges := next_ranges(starting_positions(output.progress.positions, LOGS, OffsetReset.EARLIEST)):
            files = []
            for each in ranges:
                lines = [json.dumps([each.partition, offset]).encode() + b"\n" for offset in offsets(each)]
                name = f"topic={each.topic}/{range_file_name(each, '.jsonl')}"
                files.append(output.staging.write(name, lines))
            output.commit(ranges, files)


def next_ranges(positions: dict[TopicPartition, int]) -> list[ConsumedRange]:
    """Return the next batch; nothing at the end."""
    return [
        ConsumedRange(partition.topic, partition.partition, at, min(at + RECORDS_A_BATCH, LOGS[partition].end))
        for partition, at in positions.items()
        if at < LOGS[partition].end
    ]


def offsets(consumed: ConsumedRange) -> range:
    """Return the offsets of a range."""
    return range(consumed.from_offset, consumed.until_offset)


def exported(dataset: Path) -> Counter[tuple[int, int]]:
    """Return how often each record, by partition and offset, is in the dataset."""
    return Counter(
        tuple(json.loads(line)) for path in dataset.rglob("*.jsonl") for line in path.read_text().splitlines()
    )


#: What a dataset has to have: every record once.
EVERY_RECORD_ONCE = Counter(
    (partition.partition, offset) for partition, there in LOGS.items() for offset in range(there.start, there.end)
)


def killing_at(step: int) -> Step:
    """Return what kills this process at its nth step."""
    count = 0

    def at_step(_name: str) -> None:
        nonlocal count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return at_step


def dawdling(seed: int) -> Step:
    """Return what waits at some steps."""
    chance = random.Random(seed)
    return lambda _name: time.sleep(chance.choice([0, 0, 0, 0.005, 0.05]))


def main() -> int:
    """Run the job; return 3 where it was fenced."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("dataset")
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--dawdle", type=int)
    arguments = parser.parse_args()
    with open_writable_store(arguments.url, patience=20) as store:
        step = killing_at(arguments.kill_at) if arguments.kill_at else None
        step = dawdling(arguments.dawdle) if arguments.dawdle is not None else step
        try:
            with watched(store, step) if step else nullcontext():
                export(store, arguments.dataset)
        except Fenced:
            return FENCED
    return 0


if __name__ == "__main__":
    sys.exit(main())
