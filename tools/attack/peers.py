"""The clients that cases are run against: ours, and the others, each with the settings that come nearest to ours."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

__all__ = ["CLIENTS", "Client"]

Record = tuple[int, int, bytes | None]
"""Partition, offset, value."""

PAUSED_AFTER = 1.5
"""Seconds: by then much is on its way, buffered or returned."""


class Client(Protocol):
    """errors: what its calls may raise."""

    errors: tuple[type[BaseException], ...]

    def begin(self) -> None: ...
    def poll(self, timeout: float) -> Iterable[Record]: ...
    def begin_again(self) -> None: ...
    def close(self) -> None: ...


class Instride:
    def __init__(self, case: dict[str, Any]) -> None:
        from instride import Consumer, OAuthToken  # noqa: PLC0415 - each client alone is in its process
        from instride.errors import KafkaError  # noqa: PLC0415

        self.errors: tuple[type[BaseException], ...] = (KafkaError,)
        self._case = case
        settings = dict(case["settings"])
        if case["token_life"]:
            settings["sasl_oauth_token"] = lambda: OAuthToken(value="t", expires_in=10 ** case["token_life"])
        self._consumer = Consumer(**settings)
        self._pauses_at = time.monotonic() + PAUSED_AFTER if case["pauses"] else float("inf")

    def begin(self) -> None:
        from instride import TopicPartition  # noqa: PLC0415

        if self._case["pattern"]:
            self._consumer.subscribe(pattern=self._case["pattern"])
            return
        _read(self._consumer, self._case, TopicPartition, self._case["topic"])

    def poll(self, timeout: float) -> Iterable[Record]:
        if self._case["lists"]:
            with contextlib.suppress(*self.errors):
                self._consumer.list_topics(timeout=timeout)
        if time.monotonic() >= self._pauses_at:
            self._pauses_at = float("inf")
            self._consumer.pause(sorted(self._consumer.assignment())[: self._case["pauses"]])
        return _read_one_by_one(self._consumer.poll(timeout=timeout))

    def begin_again(self) -> None:
        if self._case["assign"]:
            self._consumer.seek_to_beginning()
        else:  # what a group's leader says was assigned has no checksum: only another rebalance mends it
            self._consumer.unsubscribe()
            self.begin()

    def close(self) -> None:
        self._consumer.close(timeout=self._case["close"])


def _read_one_by_one(records: Iterable[Any]) -> Iterable[Record]:
    """The batches that these lie in are the application's from now on."""
    for each in records:
        _ = each.headers
        yield each.partition, each.offset, each.value


class Confluent:
    """librdkafka: its queue is bounded as ours is."""

    def __init__(self, case: dict[str, Any]) -> None:
        from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415

        self.errors: tuple[type[BaseException], ...] = (KafkaException,)
        self._case, self._failure = case, KafkaException
        ours = case["settings"]
        self._consumer = Consumer(
            {
                "bootstrap.servers": ours["bootstrap_servers"],
                "group.id": "g",
                "auto.offset.reset": ours["auto_offset_reset"],
                "enable.auto.commit": False,
                "isolation.level": ours.get("isolation_level", "read_uncommitted"),
                "queued.max.messages.kbytes": ours["fetch_buffer_bytes"] >> 10,
                "socket.timeout.ms": 3000,
                "check.crcs": True,
            },
            logger=_logger(),
        )

    def begin(self) -> None:
        from confluent_kafka import TopicPartition  # noqa: PLC0415

        _read(self._consumer, self._case, TopicPartition)

    def poll(self, timeout: float) -> Iterable[Record]:
        for each in self._consumer.consume(500, timeout):
            if each.error() is not None:
                raise self._failure(each.error())
            _ = each.headers()
            yield each.partition() or 0, each.offset() or 0, each.value()

    def begin_again(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, case: dict[str, Any]) -> None:
        from kafka.errors import KafkaError  # noqa: PLC0415

        from kafka import KafkaConsumer  # noqa: PLC0415

        self.errors: tuple[type[BaseException], ...] = (KafkaError,)
        self._case, self._class = case, KafkaConsumer
        self._consumer: Any = None

    def begin(self) -> None:
        from kafka import TopicPartition  # noqa: PLC0415

        self._consumer = self._consumer or self._class(**_python_settings(self._case))
        _read(self._consumer, self._case, TopicPartition)

    def poll(self, timeout: float) -> Iterable[Record]:
        if self._consumer is None:
            self.begin()
        yield from _records(self._consumer.poll(timeout_ms=round(timeout * 1000)))

    def begin_again(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class Aiokafka:
    def __init__(self, case: dict[str, Any]) -> None:
        from aiokafka import AIOKafkaConsumer  # noqa: PLC0415
        from aiokafka.errors import KafkaError  # noqa: PLC0415

        self.errors: tuple[type[BaseException], ...] = (KafkaError, TimeoutError)
        self._case, self._class = case, AIOKafkaConsumer
        self._consumer: Any = None
        self._loop = asyncio.new_event_loop()

    def begin(self) -> None:
        self._run(self._begin())

    async def _begin(self) -> None:
        from aiokafka import TopicPartition  # noqa: PLC0415

        if self._consumer is None:
            consumer = self._class(**_python_settings(self._case))
            await consumer.start()
            self._consumer = consumer
        _read(self._consumer, self._case, TopicPartition)

    def poll(self, timeout: float) -> Iterable[Record]:
        if self._consumer is None:
            self.begin()
        found = self._run(self._consumer.getmany(timeout_ms=round(timeout * 1000), max_records=500))
        yield from _records(found)

    def begin_again(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._consumer is not None:
            self._run(self._consumer.stop())

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(call, 10.0))


def _read(consumer: Any, case: dict[str, Any], partition: Callable[[str, int], Any], topic: str = "t") -> None:
    """Assign or subscribe: every client has these two verbs, and a partition of its own."""
    if case["assign"]:
        consumer.assign([partition(topic, number) for number in range(case["assign"])])
    else:
        consumer.subscribe([topic])


def _records(found: Mapping[Any, Iterable[Any]]) -> Iterable[Record]:
    """Of kafka-python and aiokafka: a poll's records by partition."""
    for records in found.values():
        for each in records:
            yield each.partition, each.offset, each.value


def _python_settings(case: dict[str, Any]) -> dict[str, Any]:
    ours = case["settings"]
    return {
        "bootstrap_servers": ours["bootstrap_servers"],
        "group_id": ours.get("group_id"),
        "auto_offset_reset": ours["auto_offset_reset"],
        "enable_auto_commit": False,
        "isolation_level": ours.get("isolation_level", "read_uncommitted"),
        "request_timeout_ms": 3000,
        "fetch_max_wait_ms": 100,
        **({"session_timeout_ms": 2500, "heartbeat_interval_ms": 500} if "group_id" in ours else {}),
    }


def _logger() -> Any:
    import logging  # noqa: PLC0415

    return logging.getLogger("confluent")


CLIENTS: dict[str, Callable[[dict[str, Any]], Client]] = {
    "instride": Instride,
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
