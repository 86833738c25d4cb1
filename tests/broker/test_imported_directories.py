"""A real Kafka broker starts on what ``kfs import`` makes, and a consumer reads from it exactly what was imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kfs.format.codecs import Codec
from kfs.format.record import Record
from kfs.imports.layout import BatchLayout
from kfs.read.isolation_level import IsolationLevel
from kfs.render.record_line import parse_line
from tests.broker.real_broker import RealBroker, as_read, errors_in
from tests.cat.printing import printed
from tests.imports.test_import import imported, topics_of
from tests.requirements import need_kafka

CorpusPath = Callable[[str], Path]
SEGMENT_BYTES = 400_000


@dataclass(frozen=True, slots=True)
class Source:
    """What of a recorded broker is imported, and how."""

    corpus: str
    layout: BatchLayout
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


#: A format for each, as aiokafka reads a fetch of several formats in the first one only, and has no lz4 of v0.
SOURCES = (
    Source("f_0.8.2.2", BatchLayout(0, Codec.GZIP, batch_records=5)),
    Source("f_0.9.0.1", BatchLayout(None, Codec.SNAPPY, batch_records=5)),
    Source("f_0.10.2.2", BatchLayout(1, Codec.GZIP, batch_records=5)),
    Source("b_txn", BatchLayout(2), IsolationLevel.READ_COMMITTED),
    Source("a_v2", BatchLayout(None, Codec.ZSTD, batch_records=50)),
    Source("c_clean", BatchLayout(2, Codec.LZ4, batch_records=3)),
)


def test_a_broker_starts_on_imported_directories_and_a_consumer_reads_what_was_imported(
    corpus: CorpusPath, tmp_path: Path
) -> None:
    expected: dict[str, list[Record]] = defaultdict(list)
    directories = list(made(corpus, tmp_path, expected))
    assert len(directories) > 20
    broker = RealBroker.make(tmp_path / "broker", need_kafka(), {})
    broker.take_over(directories)
    with broker.running() as log:
        for level in IsolationLevel:
            consumed = broker.consumed(level.value, [directory.name for directory in directories])
            for name, records in expected.items():
                assert [as_read(record) for record in consumed[name]] == records, name
    assert errors_in(log) == []
    assert not list(broker.data.glob("*-stray"))


def made(corpus: CorpusPath, root: Path, expected: dict[str, list[Record]]) -> Iterator[Path]:
    """Import topics, each name once, and yield the partitions; their records are put into ``expected``."""
    seen: set[str] = set()
    for source in SOURCES:
        data = corpus(source.corpus) / "data"
        topics = [topic for topic in topics_of(data) if not topic.startswith("__") and topic not in seen]
        seen.update(topics)
        lines = b"".join(printed(data, topic, isolation=source.isolation)[0] for topic in topics)
        for line in lines.splitlines():
            topic, partition, record = parse_line(line)
            expected[f"{topic}-{partition}"].append(record)
        for one in imported(root / source.corpus, lines, source.layout, segment_bytes=SEGMENT_BYTES):
            yield Path(one.directory)
