"""How far a stream has come: an offset for each partition, in the JSON of Spark's Kafka source (``JsonUtils.scala``).

Nothing here needs Spark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kfs.errors import InvalidOption
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT32, MAX_INT64

#: Of each partition the offset after the last one that was read.
Offsets = dict[TopicPartition, int]
Json = dict[str, dict[str, int]]


def as_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Return ``{"topic":{"0":23,"1":42}}``; the same offsets always give the same text, which Spark compares."""
    topics: Json = {}
    for each in sorted(offsets):
        topics.setdefault(each.topic, {})[str(each.partition)] = offsets[each]
    return topics


def from_json(topics: object) -> Offsets:
    """Return the offsets that a checkpoint has, this source's or that of Spark's Kafka source.

    Raises:
        InvalidOption: they are of another form.
    """
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise _unknown(topics)
    offsets = {}
    for topic, partitions in topics.items():
        for partition, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not (partition.isascii() and partition.isdigit() and is_number and 0 <= offset <= MAX_INT64):
                raise _unknown(topics)
            if int(partition) > MAX_INT32:
                raise _unknown(topics)
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _unknown(topics: object) -> InvalidOption:
    return InvalidOption(f'offsets in the checkpoint of a stream have to be like {{"topicA":{{"0":23}}}}, not {topics}')


def limited(most: int, start: Offsets, latest: Offsets, earliest: Mapping[TopicPartition, int]) -> Offsets:
    """Return how far to go for about ``most`` offsets, shared out by how much each partition has to offer.

    Each goes on by at least one (``KafkaMicroBatchStream.rateLimit``). ``earliest`` is where partitions begin that
    aren't in ``start``.
    """
    begins = {each: start.get(each, earliest.get(each, end)) for each, end in latest.items()}
    total = sum(max(end - begins[each], 0) for each, end in latest.items())
    if total == 0:
        return dict(latest)
    return {each: _limited(begins[each], end, most, total) for each, end in latest.items()}


def _limited(begin: int, end: int, most: int, total: int) -> int:
    if end <= begin:
        return end
    share = most * ((end - begin) / total)
    return min(end, begin + (math.ceil(share) if share < 1 else math.floor(share)))


def new_offsets(start: Offsets, latest: Offsets) -> int:
    """Return how many offsets are there to be read (``KafkaMicroBatchStream.delayBatch``)."""
    return sum(end - start.get(each, 0) for each, end in latest.items())
