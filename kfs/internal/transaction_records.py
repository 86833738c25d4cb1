"""Transactions and their states: the records of ``__transaction_state``, as of Kafka 4.3."""

from __future__ import annotations

from typing import Final

from kfs.internal.coordinator import RecordKind
from kfs.internal.schema import INT8, INT16, INT32, INT64, STRING, Array, Field, Message, Struct

TRANSACTION_LOG_KEY: Final = Message("TransactionLogKey", "0", "none", Field("transactionalId", STRING))
_PARTITIONS: Final = Struct(Field("topic", STRING), Field("partitionIds", Array(INT32)))
TRANSACTION_LOG_VALUE: Final = Message(
    "TransactionLogValue",
    "0-1",
    "1+",
    Field("producerId", INT64),
    Field("previousProducerId", INT64, "1+", tag=0, default=-1),
    Field("nextProducerId", INT64, "1+", tag=1, default=-1),
    Field("producerEpoch", INT16),
    Field("nextProducerEpoch", INT16, "1+", tag=3, default=-1),
    Field("transactionTimeoutMs", INT32),
    Field("transactionStatus", INT8),
    Field("transactionPartitions", Array(_PARTITIONS), nullable="0+"),
    Field("transactionLastUpdateTimestampMs", INT64),
    Field("transactionStartTimestampMs", INT64),
    Field("clientTransactionVersion", INT16, "1+", tag=2),
)

TRANSACTION_RECORDS: Final = (RecordKind(0, "TransactionLog", TRANSACTION_LOG_KEY, TRANSACTION_LOG_VALUE),)
