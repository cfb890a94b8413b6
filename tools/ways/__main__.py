"""Counts the files and functions that a record, a commit and a delayed revoke pass through, beside kafka-python's.

PYTHONPATH=tools python -m ways      # starts a Kafka; half a minute

`sys.setprofile` and `threading.setprofile` see every call of Python code, on the application's and on the network's
thread. Compiled code (`_wire.decoder` and its neighbours) is not seen. What is counted is what runs from the moment at
which the broker has the record, the call is made, or the group wants the partition, to the end of the step.

A record and a commit are counted in several rounds, and the round with the fewest files is told: in another one a
heartbeat or an automatic commit came in between.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import Producer

import instride
import kafka
from instride import Consumer
from instride.testing import LocalKafka

_SECONDS = 60.0
_ROUNDS = 5


class Passed:
    """The functions of a package that run while it counts, by file and name."""

    def __init__(self, package: Path) -> None:
        self._package = str(package)
        self._threads: set[str] | None = None
        self.seen: set[tuple[str, str]] = set()

    def hook(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._threads is None or event != "call" or not frame.f_code.co_filename.startswith(self._package):
            return
        if not (threads := self._threads) or threading.current_thread().name in threads:
            self.seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    @contextmanager
    def counting(self, *threads: str) -> Iterator[None]:
        """threads: count these only."""
        self._threads = set(threads)
        try:
            yield
        finally:
            self._threads = None

    def take(self) -> tuple[int, int]:
        """How many files, and how many functions of them, were seen since the last call."""
        files = {file for file, _ in self.seen}
        counts = len(files), len(self.seen)
        self.seen.clear()
        return counts


def _line(what: str, rounds: list[tuple[int, int]]) -> str:
    files, functions = min(rounds)
    between = f"; with what came in between up to {max(rounds)[0]} files" if max(rounds)[0] > files else ""
    return f"{what}: {files} files, {functions} functions{between}"


def _until(step: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not step():
        if time.monotonic() > end:
            raise TimeoutError(step)


def _produce(servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(2):
        producer.produce(topic, b"x", partition=partition)
    producer.flush(_SECONDS)


def _record_and_commit(name: str, package: Path, build: Callable[[], Any], servers: str, topic: str) -> list[str]:
    passed = Passed(package)
    threading.setprofile(passed.hook)
    sys.setprofile(passed.hook)
    consumer = build()
    consumer.subscribe([topic])
    try:
        _until(lambda: _polled(consumer) is not None and len(consumer.assignment()) == 2)
        for _ in range(5):
            _polled(consumer)
        records, commits = [], []
        for _ in range(_ROUNDS):
            _produce(servers, topic)
            with passed.counting():
                _until(lambda: bool(_polled(consumer)))
            records.append(passed.take())
        consumer.commit()  # the first one opens a connection
        for _ in range(_ROUNDS):
            _produce(servers, topic)
            ends = consumer.end_offsets(consumer.assignment())
            _until(lambda ends=ends: _read_to(consumer, ends))  # type: ignore[misc]
            with passed.counting():  # nothing is left to be fetched: what runs is the commit's, and the thread's turns
                consumer.commit()
            commits.append(passed.take())
        return [_line(f"{name}, a record", records), _line(f"{name}, a blocking commit", commits)]
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        consumer.close()


def _read_to(consumer: Any, ends: dict[Any, int]) -> bool:
    return _polled(consumer) is not None and all(consumer.position(tp) == end for tp, end in ends.items())


def _polled(consumer: Any) -> Any:
    return consumer.poll(timeout=0.2) if isinstance(consumer, Consumer) else consumer.poll(timeout_ms=1000)


def _delayed_revoke(servers: str, topic: str) -> str:
    passed = Passed(Path(instride.__file__).parent)
    threading.setprofile(passed.hook)
    sys.setprofile(passed.hook)
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "ways-revoke", "heartbeat_interval": 0.2}
    one, other = Consumer(client_id="one", **settings), Consumer(client_id="other", **settings)
    try:
        one.subscribe([topic])
        _until(lambda: one.poll(timeout=0.2) is not None and len(one.assignment()) == 2)
        other.subscribe([topic])
        delays = 0

        def step() -> bool:
            nonlocal delays
            with passed.counting("MainThread", "instride-one"):
                one.poll(timeout=0.1)
                requested = one.to_be_revoked_partitions()
                if requested and delays < 3:
                    delays += 1
                    one.delay_revoke(requested)
            other.poll(timeout=0.1)
            return len(other.assignment()) == 1

        _until(step)
        return _line("instride, a delayed revoke (polls, heartbeats and the rejoin included)", [passed.take()])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        one.close()
        other.close()


def main() -> None:
    with LocalKafka() as cluster:
        servers, topic = cluster.bootstrap_servers, "ways"
        cluster.create_topic(topic, partitions=2)
        _produce(servers, topic)

        def ours() -> Consumer:
            return Consumer(bootstrap_servers=servers, group_id="ways", auto_offset_reset="earliest")

        def theirs() -> Any:
            return kafka.KafkaConsumer(
                bootstrap_servers=servers,
                group_id="theirs",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                consumer_timeout_ms=1000,
            )

        told = _record_and_commit("instride", Path(instride.__file__).parent, ours, servers, topic)
        told += _record_and_commit("kafka-python", Path(kafka.__file__).parent, theirs, servers, topic)
        told.append(_delayed_revoke(servers, topic))
    print("\n".join(told))


if __name__ == "__main__":
    main()
