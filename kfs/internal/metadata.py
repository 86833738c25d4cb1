"""Records of ``__cluster_metadata`` and of ``__remote_log_metadata`` (``AbstractApiMessageSerde.java``).

They have no key. The value begins with three unsigned varints: the frame version, the record type and the record
version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kfs.errors import CorruptData
from kfs.format.flexible import FlexibleReader
from kfs.internal.schema import Decoded, Malformed, Message

_FRAME_VERSION: Final = 1
_MAX_INT16: Final = 2**15 - 1


@dataclass(frozen=True, slots=True)
class MetadataKind:
    """A record type: its number, Kafka's name (``MetadataRecordType``), and its schema."""

    id: int
    name: str
    schema: Message


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A decoded record; ``version`` is the declared version, and a negative one is read as version 0."""

    kind: MetadataKind
    message: Decoded
    version: int


class MetadataKinds(Mapping[int, MetadataKind]):
    """The kinds of records of a topic, by number."""

    def __init__(self, kinds: Iterable[MetadataKind]) -> None:
        self._by_id = {kind.id: kind for kind in kinds}

    def __getitem__(self, type_id: int) -> MetadataKind:
        return self._by_id[type_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def decode(self, value: bytes) -> MetadataRecord:
        """Decode a record of the topic.

        As in Kafka, a version above the highest known one is read with the known fields only. That fails if bytes are
        left over, or if the message contains structs.

        Raises:
            Malformed: it is none of these kinds, or doesn't match its type and version.
        """
        reader = FlexibleReader(value)
        frame_version = _read_int16(reader, "frame version")
        if frame_version != _FRAME_VERSION:
            raise _frame_error(frame_version)
        type_id = _read_int16(reader, "type")
        version = _read_int16(reader, "version")
        kind = self._by_id.get(type_id)
        if kind is None:
            reason = f"Unknown metadata id {type_id}"
            kafka = f"org.apache.kafka.common.errors.UnsupportedVersionException: {reason}"
            raise Malformed(reason, 1, None, kafka)
        try:
            message = kind.schema.decode(reader, max(version, 0))
        except Malformed as error:
            kafka = f"Failed to deserialize record with type {type_id}"
            raise Malformed(error.reason, error.position, None, kafka) from None
        if reader.remaining:
            reason = f"Found {reader.remaining} byte(s) of garbage after {type_id}"
            raise Malformed(reason, reader.position, None, reason)
        return MetadataRecord(kind, message, version)


def _read_int16(reader: FlexibleReader, what: str) -> int:
    """Read a varint as Kafka does: as an int32, rejected if too large for an int16, and truncated if negative."""
    start = reader.position
    try:
        value = _signed(reader.read_unsigned_varint(), 32)
    except CorruptData as error:
        raise Malformed(error.reason, error.position, None, f"Error while reading {what}") from None
    if value > _MAX_INT16:
        reason = f"Value for {what} was too large."
        raise Malformed(reason, start, None, reason)
    return _signed(value, 16)


def _signed(value: int, bits: int) -> int:
    """Return the lowest bits of a number, like Java's casts."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def _frame_error(frame_version: int) -> Malformed:
    reason = f"frame version {frame_version}, expected {_FRAME_VERSION}"
    if frame_version:
        kafka = (
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    else:
        kafka = (
            "Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release "
            "of KRaft in 2.8 to newer versions are not supported."
        )
    return Malformed(reason, 0, None, kafka)
