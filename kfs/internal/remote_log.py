"""Records of ``__remote_log_metadata`` as text: the ``toString`` of the Kafka classes that they are parsed into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kfs.internal.metadata import MetadataRecord
from kfs.internal.schema import Fields, Malformed, Value

# RemoteLogSegmentState.java, RemotePartitionDeleteState.java.
_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def remote_log_text(record: MetadataRecord) -> str:
    """Return a record as Kafka's tool prints it.

    Raises:
        Malformed: the number of a state has no name in Kafka.
    """
    name = record.kind.name.removesuffix("_RECORD").title().replace("_", "")
    parts = [f"{label}={show(record.message.fields)}" for label, show in _PARTS[record.kind.id]]
    return f"{name}{{{', '.join(parts)}}}"


def _fields(value: Value) -> Fields:
    assert isinstance(value, Mapping)
    return value


def _start_offset(fields: Fields) -> str:
    """Return the start offset after validating both offsets of the segment."""
    start, end = fields["startOffset"], fields["endOffset"]
    assert isinstance(start, int)
    assert isinstance(end, int)
    if start < 0:
        reason = f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative"
        raise Malformed(reason, 0, None, reason)
    if end < start:
        reason = (
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        )
        raise Malformed(reason, 0, None, reason)
    return str(start)


def _text_of(name: str) -> Callable[[Fields], str]:
    return lambda fields: str(fields[name])


def _topic_partition(fields: Fields) -> str:
    partition = _fields(fields["topicIdPartition"])
    return f"{partition['id']!s}:{partition['name']!s}-{partition['partition']!s}"


def _segment_id(fields: Fields) -> str:
    segment = _fields(fields["remoteLogSegmentId"])
    return f"RemoteLogSegmentId{{topicIdPartition={_topic_partition(segment)}, id={segment['id']!s}}}"


def _epochs(fields: Fields) -> str:
    entries = fields["segmentLeaderEpochs"]
    assert isinstance(entries, tuple)
    if not entries:
        reason = "segmentLeaderEpochs can not be null or empty"
        raise Malformed(reason, 0, None, reason)
    offsets = {int(str(_fields(entry)["leaderEpoch"])): _fields(entry)["offset"] for entry in entries}
    return "{" + ", ".join(f"{epoch}={offsets[epoch]!s}" for epoch in sorted(offsets)) + "}"


def _custom_metadata(fields: Fields) -> str:
    data = fields["customMetadata"]
    return f"Optional[CustomMetadata{{{len(data)} bytes}}]" if isinstance(data, bytes) else "Optional.empty"


def _state(name: str, states: tuple[str, ...], kafka: str) -> Callable[[Fields], str]:
    def show(fields: Fields) -> str:
        number = fields[name]
        assert isinstance(number, int)
        if not 0 <= number < len(states):
            raise Malformed(f"{name} is {number}", 0, None, kafka)
        return states[number]

    return show


def _is_empty(fields: Fields) -> str:
    return "true" if fields["txnIndexEmpty"] else "false"


_SEGMENT_STATE: Final = _state("remoteLogSegmentState", _SEGMENT_STATES, "state can not be null")
#: The printed parts of each record type, in order.
_PARTS: Final[Mapping[int, tuple[tuple[str, Callable[[Fields], str]], ...]]] = {
    0: (
        ("remoteLogSegmentId", _segment_id),
        ("startOffset", _start_offset),
        ("endOffset", _text_of("endOffset")),
        ("brokerId", _text_of("brokerId")),
        ("maxTimestampMs", _text_of("maxTimestampMs")),
        ("eventTimestampMs", _text_of("eventTimestampMs")),
        ("segmentLeaderEpochs", _epochs),
        ("segmentSizeInBytes", _text_of("segmentSizeInBytes")),
        ("customMetadata", _custom_metadata),
        ("state", _SEGMENT_STATE),
        ("txnIdxEmpty", _is_empty),
    ),
    1: (
        ("remoteLogSegmentId", _segment_id),
        ("customMetadata", _custom_metadata),
        ("state", _SEGMENT_STATE),
        ("eventTimestampMs", _text_of("eventTimestampMs")),
        ("brokerId", _text_of("brokerId")),
    ),
    2: (
        ("topicPartition", _topic_partition),
        ("state", _state("remotePartitionDeleteState", _PARTITION_STATES, "null")),
        ("eventTimestampMs", _text_of("eventTimestampMs")),
        ("brokerId", _text_of("brokerId")),
    ),
    3: (
        ("segmentId", _text_of("segmentId")),
        ("startOffset", _text_of("startOffset")),
        ("endOffset", _text_of("endOffset")),
        ("maxTimestampMs", _text_of("maxTimestampMs")),
        ("segmentLeaderEpochs", _epochs),
        ("segmentSizeInBytes", _text_of("segmentSizeInBytes")),
        ("customMetadata", _custom_metadata),
        ("state", _SEGMENT_STATE),
        ("txnIdxEmpty", _is_empty),
    ),
}
