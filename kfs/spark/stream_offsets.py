"""Positions of a stream: an offset for each partition, in the JSON of Spark's Kafka source (``JsonUtils.scala``).

That format has no field for the identities of logs. But it ignores a topic without partitions, whatever its name. So
names that no topic can have carry the identities, together for partitions with the same topic id::

    {"orders":{"0":23,"1":42},"kfs:orders?topicId=2aUYYZ3oTPKPQwGfG2CkPA&leaderEpochs=0:5,1:-1":{}}

Nothing here needs Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kfs.errors import CorruptData, InvalidOption
from kfs.format.checkpoint import TopicPartition
from kfs.format.layout import MAX_INT32, MAX_INT64, NO_PARTITION_LEADER_EPOCH
from kfs.format.uuid import Uuid, parse_uuid
from kfs.log.identity import Identity

#: For each partition the offset after the last one read.
Offsets = dict[TopicPartition, int]
#: The known identities of the offsets' logs.
Identities = Mapping[TopicPartition, Identity]
Json = dict[str, dict[str, int]]

_IDENTITY: Final = re.compile(
    r"kfs:(?P<topic>[^?]+)\?(topicId=(?P<id>[^&]+)&)?leaderEpochs=(?P<epochs>[0-9]+:-?[0-9]+(,[0-9]+:-?[0-9]+)*)"
)


@dataclass(frozen=True, slots=True)
class Positions:
    """Offsets, and the identities of their logs."""

    offsets: Offsets
    identities: Identities = field(default_factory=dict)


def as_json(offsets: Mapping[TopicPartition, int], identities: Identities | None = None) -> Json:
    """Return ``{"topic":{"0":23,"1":42}}``, and names with the known identities of the logs.

    Deterministic, since Spark compares the text.
    """
    topics: Json = {}
    for each in sorted(offsets):
        topics.setdefault(each.topic, {})[str(each.partition)] = offsets[each]
    known = {each: found for each, found in (identities or {}).items() if each in offsets and found.is_known}
    topics.update((name, {}) for name in _names_of(known))
    return topics


def _names_of(identities: Identities) -> Iterator[str]:
    by_id: dict[tuple[str, str], list[str]] = {}
    for each in sorted(identities):
        found = identities[each]
        of_id = by_id.setdefault((each.topic, "" if found.topic_id is None else f"topicId={found.topic_id}&"), [])
        epoch = NO_PARTITION_LEADER_EPOCH if found.leader_epoch is None else found.leader_epoch
        of_id.append(f"{each.partition}:{epoch}")
    for (topic, topic_id), epochs in sorted(by_id.items()):
        yield f"kfs:{topic}?{topic_id}leaderEpochs={','.join(epochs)}"


def identities_in(topics: Mapping[str, object]) -> dict[TopicPartition, Identity]:
    """Return the identities in the names of such JSON; raise ValueError if one is malformed."""
    found: dict[TopicPartition, Identity] = {}
    for name, partitions in topics.items():
        if not name.startswith("kfs:"):
            continue
        match = _IDENTITY.fullmatch(name)
        if match is None or partitions != {}:
            raise ValueError(name)
        topic_id = _uuid(match["id"]) if match["id"] is not None else None
        for pair in match["epochs"].split(","):
            partition, _, epoch = pair.partition(":")
            if int(partition) > MAX_INT32 or int(epoch) > MAX_INT32:
                raise ValueError(name)
            identity = Identity(topic_id, int(epoch) if int(epoch) >= 0 else None)
            found[TopicPartition(match["topic"], int(partition))] = identity
    return found


def _uuid(text: str) -> Uuid:
    try:
        return parse_uuid(text.encode())
    except CorruptData as error:
        raise ValueError(error.reason) from None


def from_json(topics: object) -> Positions:
    """Return the positions in a checkpoint of this source or of Spark's Kafka source.

    Raises:
        InvalidOption: they have another format.
    """
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise _unknown(topics)
    try:
        identities = identities_in(topics)
    except ValueError:
        raise _unknown(topics) from None
    offsets = {}
    for topic, partitions in topics.items():
        for partition, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not (partition.isascii() and partition.isdigit() and is_number and 0 <= offset <= MAX_INT64):
                raise _unknown(topics)
            if int(partition) > MAX_INT32:
                raise _unknown(topics)
            offsets[TopicPartition(topic, int(partition))] = offset
    return Positions(offsets, {each: found for each, found in identities.items() if each in offsets})


def _unknown(topics: object) -> InvalidOption:
    return InvalidOption(f'offsets in the checkpoint of a stream have to be like {{"topicA":{{"0":23}}}}, not {topics}')


def limited(most: int, start: Offsets, latest: Offsets, earliest: Mapping[TopicPartition, int]) -> Offsets:
    """Return ends for about ``most`` offsets, shared in proportion to each partition's available offsets.

    Each partition advances by at least one (``KafkaMicroBatchStream.rateLimit``). ``earliest`` are the starts of
    partitions that aren't in ``start``.
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
    """Return the number of offsets to read (``KafkaMicroBatchStream.delayBatch``)."""
    return sum(end - start.get(each, 0) for each, end in latest.items())
