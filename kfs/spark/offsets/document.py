"""A group's progress as one JSON document, which is validated when it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from kfs.errors import CorruptData, CorruptStore, OffsetStoreError
from kfs.format.checkpoint import TopicPartition
from kfs.format.uuid import Uuid, parse_uuid
from kfs.log.identity import Identity
from kfs.spark.offsets.progress import ConsumedRange, PendingBatch, Progress, StagedFile, WriterName, check_position

#: More than any batch of files needs, and small enough to read any value.
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
_FORMAT: Final = 1
_LONGEST_TEXT: Final = 4096
Kind = TypeVar("Kind", int, str, dict[str, Any], list[Any])


def encode_document(progress: Progress, *, with_positions: bool = True) -> bytes:
    """Return ``progress`` as JSON; positions are left out if the store keeps each separately.

    Raises:
        OffsetStoreError: it would be larger than what can be read again.
    """
    fields: dict[str, Any] = {"format": _FORMAT, "change": progress.change, "epoch": progress.epoch}
    writer = progress.writer
    if writer is not None:
        fields["writer"] = {"host": writer.host, "pid": writer.pid, "since": writer.since, "token": writer.token}
    if with_positions:
        fields["positions"] = positions_by_topic(progress.positions)
    identities = list(_identity_fields(progress))
    if identities:
        fields["identities"] = identities
    if progress.batch is not None:
        fields["batch"] = {
            "ranges": [range_fields(each) for each in progress.batch.ranges],
            "files": [{"staged": file.staged, "final": file.final} for file in progress.batch.files],
        }
    document = json.dumps(fields, separators=(",", ":")).encode()
    if len(document) > MAX_DOCUMENT_BYTES:
        raise OffsetStoreError(f"a batch whose description takes {len(document):,} bytes can't be saved at once")
    return document


def positions_by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return positions as Spark writes a Kafka source's offsets: ``{"orders":{"0":100}}``."""
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(positions):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = positions[partition]
    return topics


def _identity_fields(progress: Progress) -> Iterator[dict[str, Any]]:
    """Yield the identities of the positions' logs, grouped by topic id.

    Each has its position: it doesn't apply to one that something else has moved since.
    """
    topics: dict[tuple[str, str | None], dict[TopicPartition, Identity]] = {}
    for partition in sorted(progress.identities.keys() & progress.positions.keys()):
        identity = progress.identities[partition]
        topic_id = None if identity.topic_id is None else str(identity.topic_id)
        topics.setdefault((partition.topic, topic_id), {})[partition] = identity
    for (topic, topic_id), found in topics.items():
        fields: dict[str, Any] = {"topic": topic}
        if topic_id is not None:
            fields["topicId"] = topic_id
        fields["offsets"] = {str(each.partition): progress.positions[each] for each in found}
        fields["leaderEpochs"] = {
            str(each.partition): identity.leader_epoch
            for each, identity in found.items()
            if identity.leader_epoch is not None
        }
        yield fields


def range_fields(consumed: ConsumedRange) -> dict[str, Any]:
    """Return a range with the field names of Spark's ``OffsetRange``."""
    return {
        "topic": consumed.topic,
        "partition": consumed.partition,
        "fromOffset": consumed.from_offset,
        "untilOffset": consumed.until_offset,
    }


def decode_document(content: bytes, place: str, positions: Mapping[TopicPartition, int] | None = None) -> Progress:
    """Return the progress in a document of :func:`encode_document`; ``positions`` are those kept elsewhere, if any.

    Raises:
        CorruptStore: it is anything else; ``place`` is for the message.
    """
    if len(content) > MAX_DOCUMENT_BYTES:
        raise CorruptStore(place, f"more than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        fields = json.loads(content)
        return _progress(fields, positions)
    except RecursionError:
        raise CorruptStore(place, "JSON that is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise CorruptStore(place, f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise CorruptStore(place, f"not JSON at character {error.pos}: {error.msg}") from None
    except ValueError as error:
        raise CorruptStore(place, str(error)) from None


def _progress(fields: Any, positions: Mapping[TopicPartition, int] | None) -> Progress:
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    if fields.get("format") != _FORMAT:
        raise ValueError(f"its format is {str(fields.get('format'))[:50]!r}, and only {_FORMAT} is known here")
    writer = _take(fields, "writer", dict) if "writer" in fields else None
    batch = _take(fields, "batch", dict) if "batch" in fields else None
    epoch = _take(fields, "epoch", int)
    if epoch < 0:
        raise ValueError(f"an epoch of {epoch}")
    positions = _positions(_take(fields, "positions", dict)) if positions is None else positions
    return Progress(
        positions,
        epoch,
        None if writer is None else _writer(writer),
        None if batch is None else _batch(batch),
        _take(fields, "change", str),
        identities=_identities(_take(fields, "identities", list) if "identities" in fields else [], positions),
    )


def _identities(topics: list[Any], positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Identity]:
    """Return the identities of the positions' logs; skips those of outdated positions."""
    found: dict[TopicPartition, Identity] = {}
    for fields in topics:
        if not isinstance(fields, dict):
            raise ValueError("an identity that isn't an object")
        topic = _take(fields, "topic", str)
        topic_id = _topic_id(_take(fields, "topicId", str)) if "topicId" in fields else None
        offsets = _positions({topic: _take(fields, "offsets", dict)})
        epochs = _positions({topic: _take(fields, "leaderEpochs", dict)})
        for partition, offset in offsets.items():
            identity = Identity(topic_id, epochs.get(partition))
            if identity.is_known and positions.get(partition) == offset:
                found[partition] = identity
    return found


def _topic_id(text: str) -> Uuid:
    try:
        return parse_uuid(text.encode("utf-8", "surrogatepass"))
    except CorruptData as error:
        raise ValueError(error.reason) from None


def _writer(fields: dict[str, Any]) -> WriterName:
    pid, since = _take(fields, "pid", int), _take(fields, "since", int)
    return WriterName(_take(fields, "host", str), pid, since, _take(fields, "token", str))


def _batch(fields: dict[str, Any]) -> PendingBatch:
    ranges = tuple(range_of(each) for each in _take(fields, "ranges", list))
    files = tuple(_staged_file(each) for each in _take(fields, "files", list))
    return PendingBatch(ranges, files)


def _staged_file(fields: Any) -> StagedFile:
    if not isinstance(fields, dict):
        raise ValueError("a file that isn't an object")
    return StagedFile(_take(fields, "staged", str), _take(fields, "final", str))


def range_of(fields: Any) -> ConsumedRange:
    """Return the range in an object with the fields of :func:`range_fields`; raise ValueError if it is invalid."""
    if not isinstance(fields, dict):
        raise ValueError("a range that isn't an object")
    return ConsumedRange(
        _take(fields, "topic", str),
        _take(fields, "partition", int),
        _take(fields, "fromOffset", int),
        _take(fields, "untilOffset", int),
    )


def _positions(topics: dict[str, Any]) -> dict[TopicPartition, int]:
    positions = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"the partitions of {topic[:250]!r} aren't an object")
        for number in partitions:
            if not (number.isascii() and number.isdecimal() and len(number) <= 10):
                raise ValueError(f"{number[:50]!r} is not a partition number")
            partition = TopicPartition(topic, int(number))
            positions[partition] = _take(partitions, number, int)
            check_position(partition, positions[partition])
    return positions


def _take(fields: dict[str, Any], name: str, kind: type[Kind]) -> Kind:
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = "nothing" if name not in fields else "another type"
        raise ValueError(f"{name!r} has to be of type {kind.__name__}, and {found} is there")
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        raise ValueError(f"{name!r} is longer than {_LONGEST_TEXT} characters")
    return value
