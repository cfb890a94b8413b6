"""Sends flights to a topic, keyed, each exactly once in its partition, and fails if one could not be delivered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaException, Message, Producer

from demo.flights import Flight
from instride.errors import BrokerResponseError, KafkaTimeoutError

__all__ = ["Delivered", "produce"]

Delivered = Callable[[int, int], None]
"""Called with (partition, end): records up to this offset, exclusive, are in the partition."""

FLUSH_SECONDS: Final = 60.0
PACE_ROWS: Final = 500


class _Deliveries:
    """Counts what the broker took, keeps the first failure, and passes each partition's end on."""

    def __init__(self, delivered: Delivered | None) -> None:
        self._delivered = delivered
        self._ends: dict[int, int] = {}
        self._changed: set[int] = set()
        self.count = 0
        self.failure: object | None = None

    def __call__(self, error: object | None, message: Message) -> None:
        if error is not None:
            self.failure = self.failure or error
            return
        self.count += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            self._ends[partition] = offset + 1
            self._changed.add(partition)

    def report(self) -> None:
        if self.failure is not None:
            raise _error(self.failure)
        changed, self._changed = sorted(self._changed), set()
        for partition in changed:
            if self._delivered is not None:
                self._delivered(partition, self._ends[partition])


def produce(
    flights: Iterable[Flight],
    *,
    bootstrap_servers: str,
    topic: str,
    rows_per_second: float | None = None,
    delivered: Delivered | None = None,
    running: Callable[[], bool] = lambda: True,
) -> int:
    """Produce the flights to the topic, and give back how many the broker has: all, or an error is raised.

    rows_per_second: the pace, or None for as fast as it goes. delivered: told of each partition's new end, several
    times a second, on the calling thread. running: asked several times a second; False ends it early.
    BrokerResponseError: a record was refused. KafkaTimeoutError: the broker did not take the last ones in a minute.
    """
    producer = Producer(_settings(bootstrap_servers))
    deliveries = _Deliveries(delivered)
    started = time.monotonic()
    for sent, flight in enumerate(flights):
        if sent % PACE_ROWS == 0:
            _pace(producer, due=started + sent / rows_per_second if rows_per_second else 0.0)
            deliveries.report()
            if not running():
                break
        _send(producer, topic, flight, deliveries)
    if producer.flush(FLUSH_SECONDS):
        raise KafkaTimeoutError(f"the broker did not take all flights for {topic!r} within {FLUSH_SECONDS:.0f} s")
    deliveries.report()
    return deliveries.count


def _settings(bootstrap_servers: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2",
        "linger.ms": 20,
        "log_level": 3,  # errors; what it retries by itself is no news
        "message.timeout.ms": 60_000,
    }


def _pace(producer: Producer, *, due: float) -> None:
    """Serve deliveries until the time has come."""
    producer.poll(max(0.0, due - time.monotonic()))
    while (left := due - time.monotonic()) > 0:
        producer.poll(left)


def _send(producer: Producer, topic: str, flight: Flight, deliveries: _Deliveries) -> None:
    while True:
        try:
            producer.produce(topic, key=flight.key, value=flight.value, on_delivery=deliveries)
        except BufferError:  # the local queue is full: let some of it go first
            producer.poll(0.1)
        except KafkaException as error:
            raise _error(error.args[0]) from error
        else:
            return


def _error(failure: object) -> BrokerResponseError:
    code = failure.code() if hasattr(failure, "code") else -1
    return BrokerResponseError(f"a flight was not delivered: {failure}", code=code)
