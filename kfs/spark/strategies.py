"""The partitions to read: assigned, subscribed to, or by a pattern (``ConsumerStrategy.scala``)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kfs.errors import NotFound
from kfs.format.checkpoint import TopicPartition
from kfs.log.data_dir import DataDir
from kfs.log.directory_name import is_legal_topic, topic_filter

_LOG = logging.getLogger("kfs.spark")
#: Topics that no pattern matches: the broker's own (``Topic.INTERNAL_TOPICS``), and the one it never lists.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)

#: Called with the names of requested topics that don't exist.
Missing = Callable[[str], None] | None


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions, without those that their topic lacks, as in Spark."""

    wanted: tuple[TopicPartition, ...]

    def partitions(self, data_dir: DataDir, missing: Missing = None) -> set[TopicPartition]:
        """Return the partitions to read; a topic that isn't there is ``missing``, or raises :class:`NotFound`."""
        there = _partitions_of(data_dir, {each.topic for each in self.wanted}, missing)
        for each in sorted(set(self.wanted) - there) if missing is None else ():
            _LOG.warning("there is no partition %s in %s; left out", each, ", ".join(data_dir.paths))
        return there & set(self.wanted)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]

    def partitions(self, data_dir: DataDir, missing: Missing = None) -> set[TopicPartition]:
        """Return the partitions to read; a topic that isn't there is ``missing``, or raises :class:`NotFound`."""
        return _partitions_of(data_dir, self.topics, missing)


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose name the pattern is found, Kafka's own topics aside."""

    pattern: re.Pattern[str]

    def partitions(self, data_dir: DataDir, missing: Missing = None) -> set[TopicPartition]:
        """Return the partitions to read; there may be none."""
        topics = (topic for topic in data_dir.topics() if topic not in INTERNAL_TOPICS)
        return _partitions_of(data_dir, filter(self.pattern.search, topics), missing)


@dataclass(frozen=True, slots=True)
class Matching:
    """All partitions of the topics that match shell patterns; without patterns, of all topics but Kafka's own.

    Kafka's own topics are read only if a pattern is their exact name. Names that are invalid in Kafka are left out.
    """

    patterns: tuple[str, ...] = ()

    def partitions(self, data_dir: DataDir, missing: Missing = None) -> set[TopicPartition]:
        """Return the partitions to read; a pattern without a topic is ``missing``, or raises :class:`NotFound`."""
        there = [topic for topic in data_dir.topics() if self._may_be_read(topic, data_dir)]
        topics = set() if self.patterns else set(there)
        for pattern in self.patterns:
            matches = topic_filter((pattern,))
            found = {topic for topic in there if matches is not None and matches(topic)}
            topics |= found or {each.topic for each in _partitions_of(data_dir, (pattern,), missing)}
        return _partitions_of(data_dir, topics, missing)

    def _may_be_read(self, topic: str, data_dir: DataDir) -> bool:
        if not is_legal_topic(topic):
            _LOG.warning("%s: %r is not a topic name; left out", ", ".join(data_dir.paths), topic)
            return False
        return topic not in INTERNAL_TOPICS or topic in self.patterns


Strategy = Assign | Subscribe | SubscribePattern | Matching


def _partitions_of(data_dir: DataDir, topics: Iterable[str], missing: Missing) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic in topics:
        partitions = data_dir.partitions(topic)
        if not partitions and missing is not None:
            missing(topic)
        elif not partitions:
            there = ", ".join(data_dir.topics()) or "none"
            raise NotFound(f"no topic {topic!r} in {', '.join(data_dir.paths)}; the topics there: {there}")
        found.update(TopicPartition(topic, partition) for partition in partitions)
    return found
