"""A member of a group in a process of its own: `python -m benchmarks.members CLIENT SERVERS TOPIC HOLD BUSY`.

Lines of its standard input: "join", "leave" and "report". Each gets a line back: a report is `Seen` since the
last report, as JSON. It holds for HOLD seconds what is to be revoked: instride delays those partitions,
confluent-kafka and kafka-python wait in their revoke callback, which is the one way that they
have. "confluent-kafka, worker and pause" does so in a thread that polls; another handles the records, and a partition
is paused while many of its records wait. So does Java's member, which is `peers/Member.java`. All rebalance
cooperatively. The handler computes for BUSY seconds a record. Each commits by its own means
(auto-commit; instride not where it holds, which excludes that).
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.feeder import TIME
from benchmarks.meter import Meter


@dataclass(slots=True)
class Seen:
    """latencies: seconds from the feeder to the poll that returned the record. Of the partitions that stayed all the
    time, gaps: the seconds between two polls that returned records, records: how many of them. cpu: seconds."""

    latencies: list[float] = field(default_factory=list)
    gaps: dict[int, list[float]] = field(default_factory=dict)
    records: dict[int, int] = field(default_factory=dict)
    cpu: float = 0.0
    seconds: float = 0.0


class Client:
    """What the clients have in common: the verbs of their consumers have the same names."""

    def __init__(self, consumer: Any, topic: str, hold: float) -> None:
        self._consumer = consumer
        self._topic, self._hold, self._is_member = topic, hold, False

    def join(self) -> None:
        self._subscribe()
        self._is_member = True

    def leave(self) -> None:
        self._consumer.unsubscribe()
        self._is_member = False

    def turn(self) -> Iterable[tuple[int, bytes]]:
        if self._is_member:
            return self._poll()
        time.sleep(0.01)
        return ()

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic])

    def _poll(self) -> Iterator[tuple[int, bytes]]:
        """The partition and the value of each record that one poll returns."""
        raise NotImplementedError


class Instride(Client):
    def __init__(self, servers: str, topic: str, hold: float) -> None:
        from instride import Consumer

        consumer = Consumer(
            bootstrap_servers=servers, group_id=topic, auto_offset_reset="latest", enable_auto_commit=not hold
        )
        super().__init__(consumer, topic, hold)
        self._until = 0.0
        self._moving: Collection[Any] = ()

    def owned(self) -> set[int]:
        """Without those that move: while they are delayed they are assigned still."""
        return super().owned() - {each.partition for each in self._moving}

    def _poll(self) -> Iterator[tuple[int, bytes]]:
        for record in self._consumer.poll(timeout=0.1):
            yield record.partition, record.value or b""
        self._moving = moving = self._consumer.to_be_revoked_partitions() if self._hold else ()
        now = time.monotonic()
        self._until = self._until or (now + self._hold if moving else 0.0)
        if moving and now < self._until:
            self._consumer.delay_revoke(moving)


class Confluent(Client):
    def __init__(self, servers: str, topic: str, hold: float) -> None:
        from confluent_kafka import Consumer

        settings = {
            "bootstrap.servers": servers,
            "group.id": topic,
            "auto.offset.reset": "latest",
            "partition.assignment.strategy": "cooperative-sticky",
            "log_level": 0,
        }
        super().__init__(Consumer(settings), topic, hold)

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_revoke=lambda _consumer, _partitions: time.sleep(self._hold))

    def _poll(self) -> Iterator[tuple[int, bytes]]:
        for message in self._consumer.consume(1000, 0.01) if self._hold else _one(self._consumer.poll(0.1)):
            yield message.partition(), message.value()


def _one(message: Any) -> Iterator[Any]:
    if message is not None:
        yield message


class ConfluentWorker(Confluent):
    """One thread polls; this one, the worker, handles: what has come goes on while the revoke callback waits."""

    MOST_WAITING = 100

    def __init__(self, servers: str, topic: str, hold: float) -> None:
        super().__init__(servers, topic, hold)
        self._handed: queue.SimpleQueue[tuple[Any, bytes]] = queue.SimpleQueue()
        # Of each partition: each is written by one of the threads.
        self._polled: Counter[int] = Counter()
        self._taken: Counter[int] = Counter()
        self._owned: set[int] = set()
        self._paused: dict[int, Any] = {}
        threading.Thread(target=self._poll_on, daemon=True).start()

    def owned(self) -> set[int]:
        return set(self._owned)

    def turn(self) -> Iterable[tuple[int, bytes]]:
        with suppress(queue.Empty):
            taken = [self._handed.get(timeout=0.1)]
            while len(taken) < self.MOST_WAITING and not self._handed.empty():
                taken.append(self._handed.get())
            self._taken.update(each.partition for each, _ in taken)
            return [(each.partition, value) for each, value in taken]
        return ()

    def _subscribe(self) -> None:
        def assigned(_: object, partitions: list[Any]) -> None:
            self._owned |= {each.partition for each in partitions}

        def revoked(_: object, partitions: list[Any]) -> None:
            for each in partitions:
                self._owned.discard(each.partition)
                self._paused.pop(each.partition, None)
            time.sleep(self._hold)

        self._consumer.subscribe([self._topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def _poll_on(self) -> None:
        try:
            while True:
                self._turn_of_poller()
        except BaseException as error:  # noqa: BLE001 - the process ends
            # Else a gap without an end would be measured.
            print(f"the poller died: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)

    def _turn_of_poller(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        if not self._is_member:
            time.sleep(0.01)
            return
        for message in self._consumer.consume(100, 0.01):
            if message.error():
                raise KafkaException(message.error())
            partition = TopicPartition(message.topic(), message.partition())
            number = partition.partition
            self._polled[number] += 1
            self._handed.put((partition, message.value()))
            if self._waiting(number) > self.MOST_WAITING and number not in self._paused:
                self._paused[number] = partition
                self._consumer.pause([partition])
        ready = [number for number in self._paused if self._waiting(number) < self.MOST_WAITING // 2]
        if ready:
            self._consumer.resume([self._paused.pop(number) for number in ready])

    def _waiting(self, number: int) -> int:
        return self._polled[number] - self._taken[number]


class KafkaPython(Client):
    """Its revoke callback waits, as confluent-kafka's does. From version 3 on it rebalances cooperatively, but a poll
    returns nothing until the rebalance is finished, so a worker, or a callback that is a coroutine, would help nothing.
    """

    def __init__(self, servers: str, topic: str, hold: float) -> None:
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=topic,
            auto_offset_reset="latest",
            partition_assignment_strategy=[CooperativeStickyAssignor],
        )
        super().__init__(consumer, topic, hold)

    def _subscribe(self) -> None:
        from kafka import ConsumerRebalanceListener

        hold = self._hold

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc, unused-ignore]
            def on_partitions_assigned(self, assigned: object) -> None:
                pass

            def on_partitions_revoked(self, revoked: object) -> None:
                if revoked:
                    time.sleep(hold)

        self._consumer.subscribe([self._topic], listener=Listener())

    def _poll(self) -> Iterator[tuple[int, bytes]]:
        for records in self._consumer.poll(timeout_ms=100).values():
            for record in records:
                yield record.partition, record.value


CLIENTS = {
    "instride": Instride,
    "confluent-kafka": Confluent,
    "confluent-kafka, worker and pause": ConfluentWorker,
    "kafka-python": KafkaPython,
}


class Window:
    """What the polls return, since the last report."""

    def __init__(self, owned: set[int]) -> None:
        self._seen, self._meter = Seen(), Meter()
        self._last = dict.fromkeys(owned, time.monotonic())
        self._stayed = owned

    def see(self, records: list[tuple[int, bytes]], owned: set[int]) -> None:
        now, wall = time.monotonic(), time.time_ns()
        self._stayed &= owned
        for partition, count in Counter(each for each, _ in records).items():
            self._gap(partition, now)
            self._seen.records[partition] = self._seen.records.get(partition, 0) + count
        self._seen.latencies.extend((wall - TIME.unpack(value)[0]) / 1e9 for _, value in records)

    def _gap(self, partition: int, now: float) -> None:
        if partition in self._last:
            self._seen.gaps.setdefault(partition, []).append(now - self._last[partition])
        self._last[partition] = now

    def report(self) -> Seen:
        for partition in self._stayed:
            self._gap(partition, time.monotonic())
        used, seen = self._meter.read(0), self._seen
        seen.cpu, seen.seconds = used["cpu"], used["seconds"]
        seen.gaps = {partition: gaps for partition, gaps in seen.gaps.items() if partition in self._stayed}
        seen.records = {partition: seen.records.get(partition, 0) for partition in self._stayed}
        return seen


def work(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _hear(told: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        told.put(line.strip())


def main(name: str, servers: str, topic: str, hold: float, busy: float) -> None:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(told,), daemon=True).start()
    client = CLIENTS[name](servers, topic, hold)
    window = Window(set())
    while True:
        records = list(client.turn())
        window.see(records, client.owned())
        work(busy * len(records))
        with suppress(queue.Empty):
            verb = told.get_nowait()
            if verb == "report":
                print(json.dumps(asdict(window.report())), flush=True)
                window = Window(client.owned())
            else:
                getattr(client, verb)()
                print(verb, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
