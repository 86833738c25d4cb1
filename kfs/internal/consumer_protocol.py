"""The consumer protocol of classic groups: the bytes inside ``GroupMetadataValue``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.errors import CorruptData
from kfs.format.flexible import FlexibleReader
from kfs.internal.schema import BYTES, INT32, STRING, Array, Decoded, Field, Message, Struct

#: The protocol type of groups that use this protocol.
PROTOCOL_TYPE: Final = "consumer"

_TOPIC_PARTITION: Final = Struct(Field("topic", STRING, "1+"), Field("partitions", Array(INT32), "1+"))
CONSUMER_PROTOCOL_SUBSCRIPTION: Final = Message(
    "ConsumerProtocolSubscription",
    "0-3",
    "none",
    Field("topics", Array(STRING)),
    Field("userData", BYTES, nullable="0+", default=None),
    Field("ownedPartitions", Array(_TOPIC_PARTITION), "1+"),
    Field("generationId", INT32, "2+", default=-1),
    Field("rackId", STRING, "3+", nullable="3+", default=None),
)
_ASSIGNED_TOPIC_PARTITION: Final = Struct(Field("topic", STRING), Field("partitions", Array(INT32)))
CONSUMER_PROTOCOL_ASSIGNMENT: Final = Message(
    "ConsumerProtocolAssignment",
    "0-3",
    "none",
    Field("assignedPartitions", Array(_ASSIGNED_TOPIC_PARTITION)),
    Field("userData", BYTES, nullable="0+", default=None),
)


def decode_protocol(schema: Message, data: bytes) -> Decoded | None:
    """Decode a subscription or an assignment, which begins with its version; return None if it is invalid."""
    reader = FlexibleReader(data)
    try:
        return schema.decode(reader, reader.read_int16())
    except CorruptData:
        return None
