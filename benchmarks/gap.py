"""What a hold costs: the longest gap of the partitions that do not move, while one that must move is held.

    python -m benchmarks gap [--hold SECONDS]

12 partitions with 100 records a second each; a second member joins; the first needs HOLD seconds before it can let go
of what moves. instride delays those partitions; confluent-kafka waits in its revoke callback. The third row is instride
again with a handler that keeps the interpreter busy half of the time.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from itertools import pairwise

PARTITIONS = 12
RATE = 100
SETTLE = 4.0


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks gap")
    parser.add_argument("--hold", type=float, default=10.0)
    hold = parser.parse_args(arguments).hold
    from instride.testing import LocalKafka

    results: dict[str, object] = {}
    with LocalKafka() as kafka:
        servers = kafka.bootstrap_servers
        for name, run in (
            ("instride", lambda topic: ours(servers, topic, hold, busy=False)),
            ("instride, busy handler", lambda topic: ours(servers, topic, hold, busy=True)),
            ("confluent-kafka", lambda topic: confluent(servers, topic, hold)),
        ):
            topic = name.replace(" ", "-").replace(",", "")
            kafka.create_topic(topic, partitions=PARTITIONS)
            results[name] = measure(servers, topic, run)
    print(f"\nlongest gap of the partitions that stay, during a hold of {hold:.0f} s")
    for name, found in results.items():
        print(f"{name:24} {found:8.3f} s")
    return results


def measure(servers: str, topic: str, run: Callable[[str], dict[int, list[float]]]) -> float:
    """The longest time between two records of any partition that the first member kept."""
    stop = threading.Event()
    feeder = threading.Thread(target=feed, args=(servers, topic, stop))
    feeder.start()
    try:
        arrivals = run(topic)
    finally:
        stop.set()
        feeder.join()
    gaps = [later - earlier for times in arrivals.values() for earlier, later in pairwise(times)]
    return max(gaps)


def feed(servers: str, topic: str, stop: threading.Event) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "log_level": 0})
    while not stop.wait(1 / RATE):
        for partition in range(PARTITIONS):
            producer.produce(topic, value=b"x", partition=partition)
        producer.poll(0)
    producer.flush()


def ours(servers: str, topic: str, hold: float, *, busy: bool) -> dict[int, list[float]]:
    from instride import Consumer

    settings = {"bootstrap_servers": servers, "group_id": topic, "auto_offset_reset": "latest"}
    arrivals: dict[int, list[float]] = {}
    with Consumer(**settings) as first, Consumer(**settings) as second:  # type: ignore[arg-type]
        first.subscribe([topic])
        joined = asked = 0.0
        while not asked or time.monotonic() < asked + hold + SETTLE:
            for record in first.poll(timeout=0.1):
                arrivals.setdefault(record.partition, []).append(time.monotonic())
            if busy:
                spin(0.05)
            now = time.monotonic()
            if not joined and len(arrivals) == PARTITIONS:
                second.subscribe([topic])
                joined = now
            if joined:
                second.poll(timeout=0)
            moving = first.to_be_revoked_partitions()
            asked = asked or (now if moving else 0.0)
            if moving and now < asked + hold:
                first.delay_revoke(moving)
        kept = {each.partition for each in first.assignment()}
    return {partition: times for partition, times in arrivals.items() if partition in kept}


def confluent(servers: str, topic: str, hold: float) -> dict[int, list[float]]:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": servers,
        "group.id": topic,
        "auto.offset.reset": "latest",
        "partition.assignment.strategy": "cooperative-sticky",
        "log_level": 0,
    }
    arrivals: dict[int, list[float]] = {}
    moved: set[int] = set()
    asked: list[float] = []

    def on_revoke(_consumer: object, partitions: list[object]) -> None:
        if not asked:
            asked.append(time.monotonic())
            moved.update(each.partition for each in partitions)  # type: ignore[attr-defined]
            time.sleep(hold)

    first, second = Consumer(settings), Consumer(settings)
    first.subscribe([topic], on_revoke=on_revoke)
    stop = threading.Event()

    def run_second() -> None:
        second.subscribe([topic])
        while not stop.is_set():
            second.consume(100, 0.1)

    helper = threading.Thread(target=run_second)
    while not asked or time.monotonic() < asked[0] + hold + SETTLE:
        for message in first.consume(1000, 0.05):
            arrivals.setdefault(message.partition(), []).append(time.monotonic())
        if len(arrivals) == PARTITIONS and not helper.ident:
            helper.start()
    stop.set()
    helper.join()
    first.close()
    second.close()
    return {partition: times for partition, times in arrivals.items() if partition not in moved}


def spin(seconds: float) -> None:
    """Work that never lets go of the interpreter by itself."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
