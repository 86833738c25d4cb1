"""A consumer without a broker: the paid orders of a mounted topic into files, from where the last run stopped.

::

    consumer_loop.py MOUNTED_TOPIC DATASET STORE [DIES_IN_BATCH]

Each round takes up to 100 messages of each partition. The files of a round and the positions behind it become valid at
once, so that it doesn't matter when this is killed. DIES_IN_BATCH has it kill itself to show that.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from kfs.spark.offsets import ConsumedRange, StagedOutput, TopicPartition, open_writable_store, range_file_name

GROUP = "paid-orders"
MESSAGES_A_ROUND = 100


def next_ranges(topic: Path, positions: Mapping[TopicPartition, int]) -> list[ConsumedRange]:
    """Return what comes next of each partition; nothing when all is read."""
    ranges = []
    for directory in sorted(topic.iterdir()):
        log = json.loads((directory / "meta/log.json").read_text())
        partition = TopicPartition(topic.name, int(directory.name))
        at = positions.get(partition, log["logStartOffset"])
        if at < log["logEndOffset"]:
            end = min(at + MESSAGES_A_ROUND, log["logEndOffset"])
            ranges.append(ConsumedRange(partition.topic, partition.partition, at, end))
    return ranges


def messages(topic: Path, each: ConsumedRange) -> Iterator[dict[str, object]]:
    """Yield the messages of a range, a whole segment's lines at a time."""
    segments = sorted((topic / str(each.partition) / "segment").iterdir())
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if int(segment.stem) >= each.until_offset:
            break
        if following is not None and int(following.stem) <= each.from_offset:
            continue
        with segment.open() as lines:
            for line in lines:
                message = json.loads(line)
                if each.from_offset <= message["offset"] < each.until_offset:
                    yield message


def paid(topic: Path, each: ConsumedRange) -> Iterator[bytes]:
    """Yield the lines of the output."""
    for message in messages(topic, each):
        order = json.loads(str(message["value"]))
        if order["status"] == "paid":
            line = {"partition": each.partition, "offset": message["offset"], "total": order["total"]}
            yield json.dumps(line).encode() + b"\n"


def main(topic: Path, dataset: str, url: str, dies_in: int = 0) -> None:
    """Read to the end."""
    with open_writable_store(url) as store, StagedOutput(store, GROUP, dataset) as output:
        rounds = 0
        while ranges := next_ranges(topic, output.progress.positions):
            rounds += 1
            files = [output.staging.write(range_file_name(each, ".jsonl"), paid(topic, each)) for each in ranges]
            if rounds == dies_in:
                os.kill(os.getpid(), signal.SIGKILL)
            output.commit(ranges, files)
            print(
                *(f"{each.partition}: {each.from_offset} to {each.until_offset}" for each in ranges),
                sep=", ",
                flush=True,
            )


if __name__ == "__main__":
    topic_path, dataset_path, store_url, *dies_in_batch = sys.argv[1:]
    main(Path(topic_path), dataset_path, store_url, *map(int, dies_in_batch))
