"""What interceptors hear, in which order, and that they harm nobody."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from instride import Consumer, ConsumerInterceptor, ConsumerRecords, OffsetAndMetadata, TopicPartition
from instride._core.application.partition import Delivery
from instride._interceptors import Interceptors
from instride.errors import ConfigError
from instride.testing._simulation.chunk import SimulatedChunk

TP = TopicPartition("t", 0)


class Recording(ConsumerInterceptor):
    def __init__(self, heard: list[tuple[str, str, object]], name: str = "a", *, fails: bool = False) -> None:
        self.heard = heard
        self.name = name
        self.fails = fails

    def _hear(self, what: str, value: object) -> None:
        self.heard.append((self.name, what, value))
        if self.fails:
            raise LookupError("an interceptor's bug")

    def on_consume(self, records: ConsumerRecords) -> None:
        self._hear("consume", len(records))

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._hear("commit", dict(offsets))

    def close(self) -> None:
        self._hear("close", None)


def some_records() -> ConsumerRecords:
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=0, next_offset=3)
    return ConsumerRecords([Delivery(partition=TP, chunk=chunk, epoch=1, seek_number=0)])


@pytest.mark.requirement("surface/interceptors")
def test_all_hear_in_the_order_given_also_when_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[str, str, object]] = []
    both = Interceptors([Recording(heard, "a", fails=True), Recording(heard, "b")])
    offsets = {TP: OffsetAndMetadata(offset=3)}
    both.on_consume(some_records())
    both.on_commit(offsets)
    both.close()
    events: list[tuple[str, object]] = [("consume", 3), ("commit", offsets), ("close", None)]
    assert heard == [(name, what, value) for what, value in events for name in "ab"]
    assert [each.message for each in caplog.records] == [
        f"Recording.{name} raised" for name in ("on_consume", "on_commit", "close")
    ]


def test_a_poll_without_records_is_not_told() -> None:
    heard: list[tuple[str, str, object]] = []
    Interceptors([Recording(heard)]).on_consume(ConsumerRecords())
    assert heard == []


def test_what_is_no_interceptor_is_refused_when_the_consumer_is_built() -> None:
    wrong: Any = [object()]
    with pytest.raises(ConfigError, match="object has no method on_consume"):
        Consumer(bootstrap_servers="localhost:9092", interceptors=wrong)


@pytest.mark.parametrize("name", ["on_consume", "on_commit", "close"])
def test_a_method_without_a_name_of_its_own_may_raise_too(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A `partial`, or a mock. It ended each poll, so that no record ever came."""

    def fails(*_: object) -> None:
        raise LookupError("an interceptor's bug")

    made = ConsumerInterceptor()
    setattr(made, name, partial(fails))
    one = Interceptors([made])
    one.on_consume(some_records())
    one.on_commit({})
    one.close()
    assert [each.message for each in caplog.records] == [f"ConsumerInterceptor.{name} raised"]


@pytest.mark.parametrize("name", ["on_consume", "on_commit", "close"])
def test_an_interceptor_that_nobody_would_await_is_refused(name: str) -> None:
    async def method(self: Any, *arguments: Any) -> None: ...

    wrong = type("Theirs", (ConsumerInterceptor,), {name: method})()
    with pytest.raises(ConfigError, match=f"Theirs.{name} is asynchronous"):
        Consumer(bootstrap_servers="localhost:9092", interceptors=[wrong])


def test_a_subclass_needs_no_method_of_its_own() -> None:
    Interceptors([ConsumerInterceptor()]).on_consume(some_records())


def test_close_is_heard_once() -> None:
    heard: list[tuple[str, str, object]] = []
    consumer = Consumer(bootstrap_servers="localhost:9092", interceptors=[Recording(heard)])
    consumer.close()
    consumer.close()
    assert heard == [("a", "close", None)]
