"""Byte layouts of the three message formats, declared once; every integer is big-endian.

v0 and v1 (``LegacyRecord``): the log overhead ``offset:int64 size:int32``, then the message
``crc:uint32 magic:int8 attributes:int8 [timestamp:int64 in v1] keyLength:int32 key valueLength:int32 value``.
A compressed message (the wrapper) has a message set as its value.

v2 (``DefaultRecordBatch``, KIP-98)::

    baseOffset:int64 length:int32 partitionLeaderEpoch:int32 magic:int8 crc:uint32
    attributes:int16 lastOffsetDelta:int32 baseTimestamp:int64 maxTimestamp:int64
    producerId:int64 producerEpoch:int16 baseSequence:int32 count:int32 records
"""

from __future__ import annotations

from struct import Struct
from typing import Final

MAGIC_V0: Final = 0
MAGIC_V1: Final = 1
MAGIC_V2: Final = 2

# Records.java: the start of every format.
LOG_OVERHEAD_STRUCT: Final = Struct(">qi")  # offset (v2: base offset), size of the rest
LOG_OVERHEAD: Final = LOG_OVERHEAD_STRUCT.size  # 12
MAGIC_OFFSET: Final = 16  # magic is at the same position in all three formats
HEADER_SIZE_UP_TO_MAGIC: Final = 17

# LegacyRecord.java. Positions count from the start of the log overhead.
LEGACY_HEADER: Final = Struct(">qiIbb")  # offset, size, crc, magic, attributes
LEGACY_CRC_OFFSET: Final = 12
LEGACY_CRC_START: Final = 16  # the CRC-32 covers magic to the end
LEGACY_TIMESTAMP_OFFSET: Final = 18
MIN_MESSAGE_SIZE: Final = {MAGIC_V0: 14, MAGIC_V1: 22}  # crc to value, both null

# DefaultRecordBatch.java
BATCH_HEADER: Final = Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD: Final = BATCH_HEADER.size  # 61
BATCH_CRC_OFFSET: Final = 17
BATCH_CRC_START: Final = 21  # the CRC-32C covers attributes to the end
BATCH_MIN_LENGTH: Final = BATCH_OVERHEAD - LOG_OVERHEAD  # 49, the minimum of `length`

# OffsetIndex.java, TimeIndex.java; offsets are relative to the base offset of the segment
OFFSET_INDEX_ENTRY: Final = Struct(">ii")  # offset, position
TIME_INDEX_ENTRY: Final = Struct(">qi")  # timestamp, offset

# Attribute bits. v0 and v1 have only the codec (2 bits in effect) and, in v1, the timestamp type.
CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40  # KIP-534: baseTimestamp is the horizon
BATCH_ATTRIBUTES_KNOWN: Final = 0x7F
LEGACY_ATTRIBUTES_KNOWN: Final = {MAGIC_V0: 0x07, MAGIC_V1: 0x0F}

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
