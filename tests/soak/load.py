"""Producers and an administrator on a real broker: everything that a broker does to its files, again and again."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError

from tests.soak.findings import Findings
from tests.soak.journal import Generation, Journal, Part
from tests.soak.plan import Plan, Topic
from tests.soak.values import Fate

_ANSWER_SECONDS: Final = 5.0
_TOMBSTONE_EVERY: Final = 15
_ABORT_EVERY: Final = 3


class Load:
    """Runs in a thread of its own from :meth:`start` to :meth:`stop`."""

    def __init__(self, port: int, data: Path, plan: Plan, journal: Journal, findings: Findings, seed: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._data = data
        self._plan = plan
        self._journal = journal
        self._findings = findings
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._producers: dict[str | None, AIOKafkaProducer] = {}
        self.events: dict[str, int] = {}

    def start(self) -> None:
        """Return when the topics are there and have their first records."""
        self._thread.start()
        if not self._ready.wait(120):
            raise TimeoutError("the topics are not filled yet")

    def stop(self) -> None:
        """Let what is under way come to its end."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    def log_start(self, topic: str, partition: int) -> int | None:
        """Return the log start offset as the broker says it now; None if it says none in time."""

        async def ask() -> int:
            where = TopicPartition(topic, partition)
            found = await asyncio.wait_for(self._asking.beginning_offsets([where]), _ANSWER_SECONDS)
            return int(found[where])

        try:
            return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(_ANSWER_SECONDS + 5)
        except (KafkaError, TimeoutError, ValueError, KeyError, AssertionError):
            return None

    def _event(self, name: str) -> None:
        self.events[name] = self.events.get(name, 0) + 1

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._work())
        except BaseException as error:
            self._findings.add("soak-error", "load", error=repr(error))
            self._ready.set()
            raise

    async def _work(self) -> None:
        self._admin = AIOKafkaAdminClient(bootstrap_servers=self._address)
        self._asking = AIOKafkaConsumer(bootstrap_servers=self._address, group_id="soak", enable_auto_commit=False)
        await self._admin.start()
        await self._asking.start()
        tasks = [asyncio.create_task(each) for each in await self._tasks()]
        over = asyncio.create_task(self._over.wait())
        try:
            done, _ = await asyncio.wait([over, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await asyncio.wait_for(asyncio.gather(*tasks), 45)
        finally:
            for task in tasks:
                task.cancel()
            for each in (*self._producers.values(), self._admin, self._asking):
                with suppress(Exception):
                    await asyncio.wait_for(each.stop() if hasattr(each, "stop") else each.close(), 10)

    async def _tasks(self) -> list[Coroutine[Any, Any, None]]:
        plan = self._plan
        for codec in {topic.codec for topic in (*plan.plain, plan.many)}:
            self._producers[codec] = await self._producer(compression_type=codec)
        made = {topic.name: await self._create(topic) for topic in (*plan.plain, plan.many, plan.ledger)}
        many = made[plan.many.name]
        rng = random.Random(f"{self._seed}/many")
        for part in many.parts:
            await self._burst(plan.many, part, self._producers[None], rng, count=3 * 16384 // plan.many.padding + 2)
        work = [self._produce(topic, made[topic.name]) for topic in plan.plain]
        work += [self._produce(plan.many, many)]
        work += [self._transact(plan.ledger, part) for part in made[plan.ledger.name].parts]
        work += [self._grow(made["wide"]), self._trim(made["trimmed"]), self._recreate()]
        work += [self._commit(), self._ask_starts()]
        for topic in plan.plain:
            for part in made[topic.name].parts:
                await self._burst(topic, part, self._producers[topic.codec], rng)
        self._ready.set()
        return work

    async def _producer(self, **options: Any) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._address, enable_idempotence=True, linger_ms=5, metadata_max_age_ms=2000, **options
        )
        await producer.start()
        return producer

    async def _create(self, topic: Topic) -> Generation:
        made = self._journal.create(topic.name, topic.partitions, topic.is_compacted)
        while True:
            wanted = NewTopic(topic.name, topic.partitions, 1, topic_configs=topic.configuration())
            answer = await self._admin.create_topics([wanted])
            codes = {error[1] for error in answer.topic_errors}
            if codes == {0}:
                return made
            if codes != {36}:  # TOPIC_ALREADY_EXISTS: its deletion isn't over
                raise RuntimeError(f"{topic.name}: {answer}")
            await asyncio.sleep(0.1)

    async def _sleep(self, seconds: float) -> bool:
        """Wait; return whether the run goes on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return not self._over.is_set()

    async def _burst(
        self, topic: Topic, part: Part, producer: AIOKafkaProducer, rng: random.Random, count: int = 0
    ) -> None:
        """Send records to a partition and wait until the broker has them."""
        await self._send(topic, part, producer, rng, Fate.PLAIN, count or rng.randint(1, 2 * topic.burst))

    async def _send(
        self, topic: Topic, part: Part, producer: AIOKafkaProducer, rng: random.Random, fate: Fate, count: int
    ) -> None:
        sent: list[tuple[int, Awaitable[Any]]] = []
        for _ in range(count):
            key = rng.randrange(topic.keys) if topic.keys else -1
            tombstone = topic.is_compacted and rng.randrange(_TOMBSTONE_EVERY) == 0
            stamp = part.stamp(fate, key, tombstone)
            future = await producer.send(
                part.topic,
                None if tombstone else stamp.value(rng.randint(topic.padding // 2, topic.padding * 3 // 2), rng),
                part.key_at(stamp.sequence),
                part.partition,
                stamp.timestamp,
                [("sequence", str(stamp.sequence).encode())],
            )
            sent.append((stamp.sequence, future))
        for sequence, future in sent:
            part.ack(sequence, (await future).offset, fate is Fate.PLAIN)
        self._event("records")
        self.events["records"] += count - 1

    async def _produce(self, topic: Topic, generation: Generation) -> None:
        rng = random.Random(f"{self._seed}/{topic.name}")
        producer = self._producers[topic.codec]
        while await self._sleep(rng.uniform(0, 2 * topic.pause)):
            part = rng.choice(generation.parts)
            if part.partition in await producer.partitions_for(topic.name):
                await self._burst(topic, part, producer, rng)

    async def _transact(self, topic: Topic, part: Part) -> None:
        rng = random.Random(f"{self._seed}/{part.name}")
        producer = await self._producer(transactional_id=f"ledger-{part.partition}")
        while await self._sleep(rng.uniform(0, 2 * topic.pause)):
            fate = Fate.ABORT if rng.randrange(_ABORT_EVERY) == 0 else Fate.COMMIT
            first = part.acked
            await producer.begin_transaction()
            for _ in range(rng.randint(1, 3)):
                await self._send(topic, part, producer, rng, fate, rng.randint(1, topic.burst))
                if rng.randrange(6) == 0:
                    await self._sleep(rng.uniform(0.5, 3))
            if fate is Fate.COMMIT:
                await producer.commit_transaction()
                part.committed(first, part.acked)
            else:
                await producer.abort_transaction()
            self._event(f"transactions {fate}")
        await producer.stop()

    async def _ask_starts(self) -> None:
        """Keep an eye on where logs start, so that readers know whether that has changed."""
        while await self._sleep(0.5):
            parts = {TopicPartition(part.topic, part.partition): part for part in self._journal.parts() if part.acked}
            with suppress(KafkaError, TimeoutError, AssertionError):
                found = await asyncio.wait_for(self._asking.beginning_offsets(list(parts)), _ANSWER_SECONDS)
                for where, offset in found.items():
                    parts[where].starts_at(offset)

    async def _grow(self, wide: Generation) -> None:
        while await self._sleep(self._plan.grow_seconds) and len(wide.parts) < self._plan.most_wide:
            await self._admin.create_partitions({wide.topic: NewPartitions(len(wide.parts) + 1)})
            wide.add_partitions(1)
            self._event("partitions added")
        await self._over.wait()

    async def _trim(self, trimmed: Generation) -> None:
        rng = random.Random(f"{self._seed}/trim")
        while await self._sleep(rng.uniform(0, 2 * self._plan.trim_seconds)):
            for part in trimmed.parts:
                before = part.offsets[rng.randrange(part.acked * 2 // 3, part.acked)]
                if rng.randrange(8) == 0:
                    before = -1  # the high watermark
                with suppress(KafkaError):  # below the log start: nothing to delete
                    await self._admin.delete_records(
                        {TopicPartition(part.topic, part.partition): RecordsToDelete(before)}
                    )
                    self._event("DeleteRecords")

    async def _recreate(self) -> None:
        rng = random.Random(f"{self._seed}/again")
        topic = self._plan.again
        while not self._over.is_set():
            generation = await self._create(topic)
            producer = await self._producer()
            until = time.monotonic() + rng.uniform(*self._plan.again_seconds)
            while time.monotonic() < until and await self._sleep(rng.uniform(0, 2 * topic.pause)):
                part = rng.choice(generation.parts)
                await self._burst(topic, part, producer, rng)
            await producer.stop()
            if self._over.is_set():
                return
            generation.deleted_at = time.time()
            await self._admin.delete_topics([topic.name])
            self._event("topics re-created")
            await self._until(lambda: not self._has_directory(topic.name))
            if rng.randrange(3) == 0:
                await self._sleep(rng.uniform(0, 3))

    def _has_directory(self, topic: str) -> bool:
        return any(name.startswith(f"{topic}-") and name.count("-") == 1 for name in os.listdir(self._data))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self._over.is_set():
            await asyncio.sleep(0.05)

    async def _commit(self) -> None:
        """Commit offsets of a group, so that ``__consumer_offsets`` grows."""
        rng = random.Random(f"{self._seed}/commit")
        consumer = AIOKafkaConsumer(bootstrap_servers=self._address, group_id="soakers", enable_auto_commit=False)
        await consumer.start()
        consumer.assign([TopicPartition("expiring", 0), TopicPartition("expiring", 1)])
        while await self._sleep(rng.uniform(0.2, 1.5)):
            for where in consumer.assignment():
                part = self._journal.part(where.topic, 0, where.partition)
                if part is not None and part.acked:
                    await consumer.commit({where: part.offsets[part.acked - 1] + 1})
                    self._event("commits")
        await consumer.stop()
