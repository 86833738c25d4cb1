"""Runs a broker for whoever wants one, until it is told to end.

::

    python -m tests.broker DIRECTORY [TOPIC=PARTITIONS ...]

Its log directory is ``DIRECTORY/data``. When it is up, it prints where it listens, and where Kafka's jars are.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from benchmarks.kafka_jars import kafka_jars
from tests.broker.real_broker import RealBroker
from tests.requirements import need_kafka


def main(directory: str, *topics: str) -> None:
    """Run it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    broker = RealBroker.make(Path(directory), need_kafka(), {})
    with broker.running():
        broker.create_topics({name: int(count) for name, _, count in (topic.partition("=") for topic in topics)})
        sys.stdout.write(f"127.0.0.1:{broker.port} {kafka_jars()}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
