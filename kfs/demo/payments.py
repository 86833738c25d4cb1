"""Payments in transactions: most are committed, some aborted, and several are open at the same time."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Final

from kfs.demo.timeline import SECOND, header, hexadecimal, moments
from kfs.demo.topic import DemoPartition, DemoTopic, EndOfTransaction, Event, NewLeader, ProducedBatch, Producer, Roll
from kfs.format.record import Record

_TRANSACTIONS: Final = 120
_SEGMENTS: Final = 3
_DECLINED: Final = 0.15
_METHODS: Final = ("card", "card", "transfer", "wallet")


def payments() -> DemoTopic:
    """Return a topic with JSON values in transactions, uncompressed."""
    return DemoTopic("payments", "JSON in transactions, some aborted", [_payments(number) for number in range(2)])


def _payments(number: int) -> DemoPartition:
    source = random.Random(f"payments {number}")
    producers = [Producer(5000 + 10 * number + each, epoch=each) for each in range(3)]
    log = _TransactionalLog(source)
    events = log.events
    events.append(NewLeader(0))
    open_producers: list[Producer] = []
    for at, moment in enumerate(moments(source, _TRANSACTIONS)):
        # The oldest open transaction ends at the latest when all producers have one open, and at random before that.
        while open_producers and (len(open_producers) == len(producers) or source.random() < 0.6):
            log.end(open_producers.pop(0), moment, is_commit=source.random() >= _DECLINED)
        if any(at == _TRANSACTIONS * part // _SEGMENTS for part in range(1, _SEGMENTS)):
            events.append(Roll(log.end_offset))
        producer = next(each for each in producers if each not in open_producers)
        open_producers.append(producer)
        log.send(producer, moment + 20)
    last = log.moment
    for producer in open_producers:
        log.end(producer, last + SECOND, is_commit=True)
    return DemoPartition(events)


class _TransactionalLog:
    """Collects the events of a partition, and tracks its log end offset."""

    def __init__(self, source: random.Random) -> None:
        self.events: list[Event] = []
        self.moment = 0
        self._source = source
        self.end_offset = 0
        self._sequences: Counter[Producer] = Counter()

    def send(self, producer: Producer, moment: int) -> None:
        """Append a transaction's payments in one or two batches."""
        source = self._source
        trace = header("trace-id", hexadecimal(source, 16))
        for _ in range(source.randint(1, 2)):
            records: list[Record] = []
            for _ in range(source.randint(1, 4)):
                moment += 1 + int(source.random() * 40)
                offset = self.end_offset + len(records)
                records.append(Record(offset, moment, f"p-{offset:06d}".encode(), self._payment(offset), (trace,)))
            last_offset = self.end_offset + len(records) - 1
            self.events.append(
                ProducedBatch(
                    records=records,
                    base_offset=self.end_offset,
                    last_offset=last_offset,
                    producer=producer,
                    base_sequence=self._sequences[producer],
                    is_transactional=True,
                )
            )
            self._sequences[producer] += len(records)
            self.end_offset = last_offset + 1
        self.moment = moment

    def end(self, producer: Producer, moment: int, *, is_commit: bool) -> None:
        """Append the marker that ends the producer's transaction; it is a control record, not a message."""
        self.events.append(EndOfTransaction(self.end_offset, max(moment, self.moment), producer, is_commit))
        self.end_offset += 1

    def _payment(self, offset: int) -> bytes:
        source = self._source
        payment = {
            "paymentId": f"p-{offset:06d}",
            "orderId": f"o-{source.randrange(3)}{source.randrange(700):06d}",
            "amount": round(5 + source.random() * 300, 2),
            "currency": "EUR",
            "method": source.choice(_METHODS),
        }
        return json.dumps(payment, separators=(",", ":")).encode()
