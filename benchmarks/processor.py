"""What a `Processor` adds: records a second with a handler that waits 5 ms, and its own CPU time of a record.

    python -m benchmarks processor [--records N] [--concurrency N]

10,000 keys in 12 partitions, order by key, one member. The rate is that of the middle 80 % of the records, so that
joining and the last stragglers do not count; ideal is concurrency / 5 ms. "threads alone" and "asyncio alone" are the
same handlers with nothing around them: what the operating system's and the event loop's clocks leave of the ideal,
since asyncio rounds each sleep up to whole milliseconds; "our loop" is what a processor makes, which does not.
"confluent-kafka, thread pool" is a loop that submits what it consumes to a pool, waits when that is full, and commits
when all is finished: in no order of keys. The own cost is measured without a broker: records go in, a handler that does
nothing is called, commits get their responses.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from instride import ConsumerRecord, OffsetAndMetadata, Processor, TopicPartition
from instride._processing.attempts import Desk
from instride._processing.coroutine_workers import LoopWorkers
from instride._processing.engine import Engine, EnginePlan, Order
from instride._processing.event_loop import be_punctual, new_event_loop
from instride._processing.lifespan import AsyncLifespan, SyncLifespan
from instride._processing.thread_workers import ThreadWorkers
from instride._record_deserializer import RecordDeserializer

PARTITIONS, KEYS, HANDLER = 12, 10_000, 0.005

ALONE = 5.0
"""Seconds."""


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks processor")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--concurrency", type=int, default=32)
    given = parser.parse_args(arguments)
    results: dict[str, object] = {"own cost, microseconds": own_costs(), **rates(given.records, given.concurrency)}
    return results


class Clocked:
    """When each record was finished."""

    def __init__(self, count: int) -> None:
        self.times: list[float] = []
        self.done = threading.Event()
        self._count = count

    def finished(self) -> None:
        self.times.append(time.monotonic())  # one step of the interpreter
        if len(self.times) >= self._count:
            self.done.set()

    def rate(self) -> float:
        times = sorted(self.times)
        first, last = len(times) // 10, len(times) * 9 // 10
        return (last - first) / (times[last] - times[first])


def rates(records: int, concurrency: int) -> dict[str, object]:
    from confluent_kafka import Producer

    from instride.testing import LocalKafka

    results: dict[str, object] = {}
    with LocalKafka() as kafka:
        kafka.create_topic("orders", partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50})
        for number in range(records):
            producer.produce("orders", b"v" * 100, b"k%d" % (number % KEYS))
            producer.poll(0)
        producer.flush(60)
        ideal = concurrency / HANDLER
        print(f"\n{records} records, {concurrency} handlers of 5 ms: ideal {ideal:.0f} a second")
        alone = {
            "threads alone": threads_alone(concurrency),
            "asyncio alone": asyncio.run(asyncio_alone(concurrency)),
            "asyncio alone, our loop": our_loop_alone(concurrency),
        }
        for name, rate in alone.items():
            results[name] = {"records a second": rate, "of ideal": rate / ideal}
            print(f"{name:30} {rate:8.0f} a second, {100 * rate / ideal:5.1f} % of ideal")
        for name, run in (
            ("instride, threads", in_threads),
            ("instride, asyncio", in_asyncio),
            ("confluent-kafka, thread pool", confluent),
        ):
            clocked, cpu = Clocked(records), time.process_time()
            run(kafka.bootstrap_servers, name.replace(", ", "-").replace(" ", "-"), concurrency, clocked)
            cpu = (time.process_time() - cpu) / records * 1e6
            results[name] = {"records a second": clocked.rate(), "of ideal": clocked.rate() / ideal, "cpu": cpu}
            rate, part = clocked.rate(), 100 * clocked.rate() / ideal
            print(f"{name:30} {rate:8.0f} a second, {part:5.1f} % of ideal, {cpu:5.1f} us of CPU a record in all")
    return results


def threads_alone(concurrency: int) -> float:
    """How often a second so many threads sleep."""
    done, end = [0] * concurrency, time.monotonic() + ALONE

    def sleep(number: int) -> None:
        while time.monotonic() < end:
            time.sleep(HANDLER)
            done[number] += 1

    threads = [threading.Thread(target=sleep, args=(number,)) for number in range(concurrency)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(done) / ALONE


async def asyncio_alone(concurrency: int) -> float:
    """How often a second so many tasks sleep."""
    done, end = [0] * concurrency, time.monotonic() + ALONE

    async def sleep(number: int) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(HANDLER)
            done[number] += 1

    await asyncio.gather(*(sleep(number) for number in range(concurrency)))
    return sum(done) / ALONE


def our_loop_alone(concurrency: int) -> float:
    """On an event loop such as a processor makes, in a thread of its own."""

    def run() -> float:
        be_punctual()
        loop = new_event_loop()
        try:
            return loop.run_until_complete(asyncio_alone(concurrency))
        finally:
            loop.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def in_threads(servers: str, group: str, concurrency: int, clocked: Clocked) -> None:
    def handle(record: ConsumerRecord) -> None:
        time.sleep(HANDLER)
        clocked.finished()

    ours(handle, servers, group, concurrency, clocked)


def in_asyncio(servers: str, group: str, concurrency: int, clocked: Clocked) -> None:
    async def handle(record: ConsumerRecord) -> None:
        await asyncio.sleep(HANDLER)
        clocked.finished()

    ours(handle, servers, group, concurrency, clocked)


def ours(handle: Callable[..., object], servers: str, group: str, concurrency: int, clocked: Clocked) -> None:
    processor = Processor(handle, topics=["orders"], order="key", concurrency=concurrency)
    with processor.running(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"):
        clocked.done.wait()


def confluent(servers: str, group: str, concurrency: int, clocked: Clocked) -> None:
    from confluent_kafka import Consumer

    def handle(message: Any) -> None:
        time.sleep(HANDLER)
        clocked.finished()

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    at_work: set[Future[None]] = set()
    with ThreadPoolExecutor(concurrency) as pool:
        while not clocked.done.is_set():
            for message in consumer.consume(500, 0.1):
                at_work.add(pool.submit(handle, message))
            while len(at_work) > 4 * concurrency:
                at_work = wait(at_work, return_when=FIRST_COMPLETED).not_done
            if not at_work:
                consumer.commit(asynchronous=True)
            at_work = {each for each in at_work if not each.done()}
    consumer.close()


def own_costs(count: int = 100_000) -> dict[str, float]:
    found: dict[str, float] = {}
    print("\nown CPU time of a record, in microseconds")
    for form in ("threads", "asyncio"):
        for order in ("key", "partition", "none"):
            found[f"{form}, {order}"] = cost = own_cost(form, order, count)  # type: ignore[arg-type]
            print(f"{form:8} order by {order:10} {cost:6.1f}")
    return found


def own_cost(form: str, order: Order, count: int) -> float:
    lock = threading.RLock()
    engine = Engine(EnginePlan(order=order), lambda record: len(record.value or b""))
    desk = Desk(
        engine=engine,
        lock=lock,
        reader=RecordDeserializer(None, None),
        clock=time.monotonic,
        chance=random.random,
        attention=lambda: None,
        wants_attention=lambda: False,
        may_start=lambda: True,
        dead_letters=None,
        output=None,
        group="g",
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    workers: ThreadWorkers | LoopWorkers = (
        ThreadWorkers(desk, lambda record: None, None, 32, SyncLifespan())
        if form == "threads"
        else LoopWorkers(desk, _nothing, None, 32, loop, None, AsyncLifespan(lambda _: None))
    )
    for number in range(PARTITIONS):
        engine.locate(TopicPartition("t", number), OffsetAndMetadata(offset=0))
    polls = [_poll(start) for start in range(0, count, 480)]
    before = time.process_time()
    for poll in polls:
        with lock:
            engine.submit(poll)
        workers.wake()
        with lock:
            snapshot = engine.committable()
            for partition, entry in snapshot.entries.items():
                snapshot.settle(partition, entry, committed=True)
        while engine.records > 9_000:
            time.sleep(0.001)
    while engine.records:
        time.sleep(0.001)
    cpu = time.process_time() - before
    workers.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return cpu / len(polls) / 480 * 1e6


async def _nothing(record: ConsumerRecord) -> None: ...


def _poll(start: int) -> list[ConsumerRecord]:
    each = 480 // PARTITIONS
    first = start // PARTITIONS
    return [
        ConsumerRecord(
            "t", number, offset, key=b"k%d" % (offset * PARTITIONS % KEYS + number), value=b"v" * 100, epoch=1
        )
        for number in range(PARTITIONS)
        for offset in range(first, first + each)
    ]
