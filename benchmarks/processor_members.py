"""A member that handles records, in a process of its own.

    python -m benchmarks.processor_members FORM SERVERS TOPIC WORK CONCURRENCY

Lines of its standard input: "join", "leave", "count" and "report": each gets one line back when that is done. A count
is how many records were handled so far; a report is `Report`, as JSON, which takes the member's time. WORK is "sleep"
(5 ms) or "compute" (1 ms of the thread's CPU time).
benchmarks/peers/Parallel.java speaks the same. Nothing of instride is imported for the other forms: FastStream is run
by another virtual environment.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.meter import peak_mb
from benchmarks.processor_handlers import compute_there, sleep_there, work, work_in_loop


@dataclass(slots=True)
class Report:
    """finished: of each record partition, offset, and the seconds since 1970 at its end. cpu: seconds of
    this process, and of those that it started and that have ended. peak_mb: see `Memory`."""

    finished: list[tuple[int, int, float]] = field(default_factory=list)
    cpu: float = 0.0
    peak_mb: float = 0.0


FINISHED: list[tuple[int, int, float]] = []
"""Of this process."""


def finish(partition: int, offset: int) -> None:
    FINISHED.append((partition, offset, time.time()))


class Memory:
    """peak_mb: of this process and, as they were at any look, of those that it started."""

    def __init__(self) -> None:
        self._children = 0.0

    def peak_mb(self) -> float:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        self._children = max(self._children, sum(peak_mb(child) for child in children))
        return peak_mb("self") + self._children


@dataclass(frozen=True, slots=True)
class Told:
    servers: str
    topic: str
    kind: str
    concurrency: int


class InThreads:
    """instride, in all its forms."""

    def __init__(self, told: Told, **how: Any) -> None:
        from instride import Processor

        self._told = told
        options = {"order": "key", "concurrency": told.concurrency, **how}
        self._processor: Any = Processor(self._handler(), topics=[told.topic], **options)
        self._running: Any = None

    def _handler(self) -> Callable[[Any], object]:
        kind = self._told.kind

        def handle(record: Any) -> None:
            work(kind)
            finish(record.partition, record.offset)

        return handle

    def join(self) -> None:
        told = self._told
        settings = {"bootstrap_servers": told.servers, "group_id": told.topic, "auto_offset_reset": "earliest"}
        self._running = self._processor.running(**settings)
        self._running.__enter__()
        while not self._running.health().ready:
            time.sleep(0.01)

    def leave(self) -> None:
        self._running.__exit__(None, None, None)


class InLoop(InThreads):
    def _handler(self) -> Callable[[Any], object]:
        kind = self._told.kind

        async def handle(record: Any) -> None:
            await work_in_loop(kind)
            finish(record.partition, record.offset)

        return handle


class InProcesses(InThreads):
    """A process handles one at a time; concurrency is what waits in them too. What one has finished is known by what it
    returns."""

    def __init__(self, told: Told) -> None:
        super().__init__(told, processes=os.cpu_count() or 1, concurrency=64, output="none", produce=_note)

    def _handler(self) -> Callable[[Any], object]:
        return compute_there if self._told.kind == "compute" else sleep_there


def _note(output: Any) -> None:
    finish(*map(int, output.value.split()))


class Pool:
    """A plain loop of confluent-kafka with a pool of threads, as careful as such a loop can be: it commits when all
    that was begun is finished, and waits for that in its revoke callback. Records of a key are in no order.

    With the default assignor: with "cooperative-sticky" the commit in that callback is refused (ILLEGAL_GENERATION),
    and then it stands still.
    """

    def __init__(self, told: Told) -> None:
        self._told = told
        self._thread = threading.Thread()
        self._stops = False
        self._joined = threading.Event()

    def join(self) -> None:
        self._stops = False
        self._joined.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._joined.wait()

    def leave(self) -> None:
        self._stops = True
        self._thread.join()

    def _handle(self, message: Any) -> None:
        work(self._told.kind)
        finish(message.partition(), message.offset())

    def _run(self) -> None:
        from confluent_kafka import Consumer

        told = self._told
        consumer = Consumer(
            {
                "bootstrap.servers": told.servers,
                "group.id": told.topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "log_level": 0,
            }
        )
        with ThreadPoolExecutor(told.concurrency) as pool:
            at_work: set[Future[None]] = set()
            next_offsets: dict[int, int] = {}

            def finish_all() -> None:
                wait(at_work)
                at_work.clear()
                self._commit(consumer, next_offsets)

            consumer.subscribe(
                [told.topic],
                on_assign=lambda *_: self._joined.set(),
                on_revoke=lambda *_: finish_all(),
            )
            committed = time.monotonic()
            while not self._stops:
                for message in consumer.consume(4 * told.concurrency - len(at_work), 0.02):
                    at_work.add(pool.submit(self._handle, message))
                    next_offsets[message.partition()] = message.offset() + 1  # type: ignore[index, operator]
                if len(at_work) >= 4 * told.concurrency:
                    at_work -= wait(at_work, return_when=FIRST_COMPLETED).done
                if time.monotonic() >= committed + 1.0:
                    finish_all()
                    committed = time.monotonic()
            finish_all()
        consumer.close()

    def _commit(self, consumer: Any, next_offsets: dict[int, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(self._told.topic, number, offset) for number, offset in next_offsets.items()]
        next_offsets.clear()
        if offsets:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                print(f"a commit failed: {error}", file=sys.stderr)


class FastStream:
    """policy "ack": at least once, a consumer for each of so many workers, which share the partitions: one record of a
    partition at a time. "ack_first": so many records at a time in no order; what was taken is committed (at most once).
    """

    def __init__(self, told: Told, policy: str) -> None:
        self._told = told
        self._policy = policy
        self._loop = asyncio.new_event_loop()
        self._broker: Any = None
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def _do(self, what: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def join(self) -> None:
        self._do(self._join())

    async def _join(self) -> None:
        from faststream import AckPolicy
        from faststream.kafka import KafkaBroker, KafkaMessage

        told = self._told
        self._broker = broker = KafkaBroker(told.servers, logger=None)

        @broker.subscriber(  # type: ignore[untyped-decorator, unused-ignore]
            told.topic,
            group_id=told.topic,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy(self._policy),
            max_workers=told.concurrency if self._policy == "ack_first" else min(told.concurrency, 12),
        )
        async def handle(_: bytes, message: KafkaMessage) -> None:
            await work_in_loop(told.kind)
            raw: Any = message.raw_message
            finish(raw.partition, raw.offset)

        handle.__annotations__["message"] = KafkaMessage
        await broker.start()

    def leave(self) -> None:
        self._do(self._broker.stop())


FORMS: dict[str, Callable[[Told], Any]] = {
    "instride, threads": InThreads,
    "instride, asyncio": InLoop,
    "instride, processes": InProcesses,
    "confluent-kafka, thread pool": Pool,
    "FastStream, ack": lambda told: FastStream(told, "ack"),
    "FastStream, ack first": lambda told: FastStream(told, "ack_first"),
}


@contextmanager
def quiet() -> Iterator[None]:
    """Peers tell of every rebalance."""
    logging.disable(logging.ERROR)
    yield


def main(form: str, servers: str, topic: str, kind: str, concurrency: str) -> None:
    member, memory = FORMS[form](Told(servers, topic, kind, int(concurrency))), Memory()
    with quiet():
        for line in sys.stdin:
            verb = line.strip()
            if verb == "count":
                print(len(FINISHED), flush=True)
            elif verb == "report":
                spent = sum(os.times()[:4])
                print(json.dumps(asdict(Report(FINISHED, spent, memory.peak_mb()))), flush=True)
            else:
                getattr(member, verb)()
                print(verb, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
