"""`AsyncConsumer` on a real Kafka: beside a blocking member in one group, cancelled at will, with another loop."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka_help import PATIENCE, QUICK, tps

from filled_topics import fill
from instride import AsyncConsumer, AsyncRebalanceListener, Consumer, ConsumerRecord, OffsetLedger, TopicPartition
from instride.errors import ConsumerClosedError
from instride.testing import LocalKafka, Recorder

Topic = Callable[..., str]


class Handled:
    """What was handled, by whom; any thread and task may say so."""

    def __init__(self) -> None:
        self.count: Counter[tuple[int, int]] = Counter()
        self.by: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, who: str, record: ConsumerRecord) -> None:
        with self._lock:
            self.count[record.partition, record.offset] += 1
            self.by[who] += 1

    async def until(self, done: Callable[[], bool], *tasks: asyncio.Task[None]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not done():
                for task in tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)


async def asynchronous(consumer: AsyncConsumer, handled: Handled, stop: threading.Event, work: float) -> None:
    """The loop of docs/asyncio.md. What is awaited is cancelled now and then."""
    ledger, tasks = OffsetLedger(), set[asyncio.Task[None]]()
    chance = random.Random(1)

    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(work * chance.random())
        handled.add("async", record)

    while not stop.is_set():
        try:
            async with asyncio.timeout(chance.choice([0.001, 0.05, 1.0])):
                records = await consumer.poll(timeout=0.1)
        except TimeoutError:
            continue
        assert not consumer.lost_partitions()
        for record in ledger.track(records):
            task = asyncio.create_task(handle(record))
            ledger.watch(record, task)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        consumer.commit_async(ledger.committable())
        consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
        ledger.check()
    if tasks:
        await asyncio.wait(tasks)
    await consumer.commit(ledger.committable())
    await consumer.close()


def blocking(consumer: Consumer, topic: str, handled: Handled, stop: threading.Event) -> None:
    consumer.subscribe([topic])  # not before: it is a member from then on, and its share waits for its polls
    ledger = OffsetLedger()
    with ThreadPoolExecutor(4) as pool:
        while not stop.is_set():
            records = consumer.poll(timeout=0.05)
            assert not consumer.lost_partitions()
            for record in ledger.track(records):
                ledger.watch(record, pool.submit(handled.add, "blocking", record))
            consumer.commit_async(ledger.committable())
            consumer.delay_revoke(ledger.uncommitted(consumer.to_be_revoked_partitions()))
            ledger.check()
    consumer.commit(ledger.committable())
    consumer.close()


@pytest.mark.requirement("KIP-983/1")
@pytest.mark.rule("13")
def test_it_shares_a_group_with_a_blocking_member_and_nothing_is_handled_twice(
    kafka: LocalKafka, kafka_topic: Topic, group: str, history: Recorder
) -> None:
    """Tasks that take long hold their partition at the hand-over; polls are cancelled all the time."""
    topic = kafka_topic(6)
    settings: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": group, **QUICK}
    a, b = AsyncConsumer(**settings, client_id="a"), Consumer(**settings, client_id="b")
    for name, each in (("a", a), ("b", b)):
        history.watch(each, name, finishes="delivered")
    a.subscribe([topic])
    handled, ends = Handled(), (threading.Event(), threading.Event())

    async def story() -> None:
        end = 0

        async def write(count: int) -> None:
            nonlocal end
            await asyncio.to_thread(fill, kafka, topic, dict.fromkeys(range(6), count), start=end)
            end += count

        first = asyncio.create_task(asynchronous(a, handled, ends[0], 0.4))
        await write(20)
        await handled.until(lambda: handled.by["async"] >= 60, first)
        second = asyncio.create_task(asyncio.to_thread(blocking, b, topic, handled, ends[1]))
        while handled.by["blocking"] < 60:
            await write(5)
            await asyncio.sleep(0.05)
            assert end < 5_000, "the other member got nothing"
        ends[1].set()
        await second
        await write(20)
        await handled.until(lambda: handled.count.total() >= 6 * end, first)
        ends[0].set()
        await first
        assert handled.count == Counter((partition, offset) for partition in range(6) for offset in range(end))

    asyncio.run(story())


@asynccontextmanager
async def opened(kafka: LocalKafka, **settings: Any) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(**{"bootstrap_servers": kafka.bootstrap_servers, **QUICK, **settings}) as consumer:
        yield consumer


def test_every_verb_asks_a_real_broker(kafka: LocalKafka, kafka_topic: Topic, group: str) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    (tp,) = tps(topic, 0)

    async def story() -> None:
        async with opened(kafka, group_id=group) as consumer:
            consumer.subscribe([topic])
            got: list[int] = []
            async for record in consumer:
                got.append(record.offset)
                if len(got) == 4:
                    break
            assert (await consumer.commit()).committed[tp].offset == 4
            committed = (await consumer.committed(tp))[tp]
            assert committed is not None
            assert committed.offset == await consumer.position(tp) == 4
            assert (await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])) == ({tp: 0}, {tp: 10})
            assert (await consumer.offsets_for_times({tp: 0}))[tp] is not None
            assert [each.partition for each in await consumer.partitions_for(topic)] == [0]
            assert topic in await consumer.list_topics()
            consumer.seek_to_beginning()
            assert (await consumer.poll(max_records=1)).next_offsets() == {tp: 1}
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()

    asyncio.run(story())


class Lingering(AsyncRebalanceListener):
    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self.revoked: list[TopicPartition] = []

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await asyncio.sleep(0.2)
        await self._consumer.commit()
        self.revoked += partitions


def test_an_asynchronous_listener_commits_last_as_before_the_kip(
    kafka: LocalKafka, kafka_topic: Topic, group: str
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5, 1: 5})

    async def story() -> None:
        async with opened(kafka, group_id=group, revoke_mode="immediate") as consumer:
            listener = Lingering(consumer)
            consumer.subscribe([topic], listener=listener)
            count = 0
            while count < 10:
                count += len(await consumer.poll(timeout=1.0))
            await consumer.close()
            assert sorted(listener.revoked) == tps(topic, 0, 1)
        async with opened(kafka, group_id=group) as reader:
            found = await reader.committed(tps(topic, 0, 1))
            assert [offset and offset.offset for offset in found.values()] == [5, 5]

    asyncio.run(story())


@pytest.mark.parametrize("cancelled", ["poll", "close"])
def test_what_is_cancelled_leaves_no_thread_and_no_member(
    kafka: LocalKafka, kafka_topic: Topic, group: str, cancelled: str
) -> None:
    topic = kafka_topic(1)

    async def story() -> None:
        consumer = AsyncConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group, **QUICK)
        consumer.subscribe([topic])
        while not consumer.assignment():
            await consumer.poll(timeout=0.2)
        task = asyncio.create_task(getattr(consumer, cancelled)())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:  # on a busy machine it may have ended in these two turns of the loop
            await task
        if cancelled == "close":
            with pytest.raises(ConsumerClosedError):
                await consumer.poll()
        await consumer.close()
        assert not consumer._driver.alive
        async with opened(kafka, group_id=group) as other:  # it need not wait for the session of the first to end
            other.subscribe([topic])
            async with asyncio.timeout(5.0):
                while not other.assignment():
                    await other.poll(timeout=0.2)

    asyncio.run(story())


def test_on_uvloop(kafka: LocalKafka, kafka_topic: Topic, group: str) -> None:
    uvloop = pytest.importorskip("uvloop", reason="needs uvloop")
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})

    async def story() -> None:
        async with opened(kafka, group_id=group) as consumer:
            consumer.subscribe([topic])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0):
                    await consumer.poll()
            count = 0
            while count < 10:
                count += len(await consumer.poll())
            await consumer.commit()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
