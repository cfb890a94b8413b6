"""How telemetry reaches the log and the user's listener."""

from __future__ import annotations

import logging
from itertools import count
from typing import Any

import pytest

from instride import Consumer, ConsumerConfig, KafkaError, TopicPartition
from instride._net import driver
from instride._net.driver import TelemetryDispatcher
from instride.observers import Observers
from instride.telemetry import (
    DelayAtRisk,
    FetchBegan,
    HandedOver,
    OwnershipChange,
    OwnershipChanged,
    RebalanceStarted,
    TelemetryEvent,
)
from interleaving import Interleaving

STARTED = RebalanceStarted(at=1.0, generation=1, reason="first")
NEXT = RebalanceStarted(at=2.0, generation=2, reason="next")


class Source:
    def __init__(self, *events: TelemetryEvent) -> None:
        self.events = list(events)

    def take(self) -> list[TelemetryEvent]:
        taken, self.events = self.events, []
        return taken


def dispatcher(source: Source, listener: Any) -> TelemetryDispatcher:
    return TelemetryDispatcher(
        ConsumerConfig(bootstrap_servers="test:9092", client_id="me", telemetry=listener), source.take, Observers()
    )


@pytest.mark.requirement("surface/telemetry-events")
def test_events_are_told_in_order_each_once() -> None:
    heard: list[TelemetryEvent] = []
    made = dispatcher(Source(STARTED, NEXT), heard.append)
    made.tell()
    made.tell()
    assert heard == [STARTED, NEXT]


@pytest.mark.requirement("surface/telemetry-events")
def test_a_listener_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[TelemetryEvent] = []

    def listener(event: TelemetryEvent) -> None:
        heard.append(event)
        raise ValueError("mine")

    dispatcher(Source(STARTED, NEXT), listener).tell()
    assert heard == [STARTED, NEXT]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "consuming goes on" in caplog.text
    assert "mine" in caplog.text


def test_an_interrupt_of_a_listener_is_not_swallowed_and_the_rest_is_told_later() -> None:
    heard: list[TelemetryEvent] = []

    def listener(event: TelemetryEvent) -> None:
        heard.append(event)
        if event is STARTED:
            raise KeyboardInterrupt

    made = dispatcher(Source(STARTED, NEXT), listener)
    with pytest.raises(KeyboardInterrupt):
        made.tell()
    made.tell()
    assert heard == [STARTED, NEXT]


def test_what_comes_while_a_listener_runs_follows() -> None:
    heard: list[TelemetryEvent] = []
    source = Source(STARTED)

    def listener(event: TelemetryEvent) -> None:
        if event is STARTED:
            source.events.append(NEXT)
            made.tell()
            assert heard == [], "not inside the listener"
        heard.append(event)

    made = dispatcher(source, listener)
    made.tell()
    assert heard == [STARTED, NEXT]


@pytest.mark.requirement("surface/telemetry-lines")
def test_lines_name_the_client_and_are_not_said_twice(caplog: pytest.LogCaptureFixture) -> None:
    risk = DelayAtRisk(at=1.0, partition=TopicPartition("t", 0), epoch=1, seconds_left=1.0)
    with caplog.at_level(logging.DEBUG, logger="instride.telemetry"):
        dispatcher(Source(STARTED, risk), None).tell()
    assert [record.getMessage() for record in caplog.records] == ["me: a rebalance began after generation 1: first"]


@pytest.mark.rule("20")
def test_a_loss_of_many_partitions_is_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    lost = tuple(TopicPartition("t", p) for p in range(300))
    events: list[TelemetryEvent] = [
        OwnershipChanged(at=1.0, change=OwnershipChange.LOST, partitions=lost),
        *(HandedOver(at=1.0, partition=tp, epoch=1, how=OwnershipChange.LOST, since=0.0) for tp in lost),
    ]
    heard: list[TelemetryEvent] = []
    dispatcher(Source(*events), heard.append).tell()
    assert heard == events
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 21
    assert lines[0].startswith("me: lost: t-0, t-1, ")
    assert lines[0].endswith("t-19 and 280 more")


FETCHES = [FetchBegan(at=1.0, partition=TopicPartition("t", p), epoch=1, assigned_at=0.5) for p in range(300)]


@pytest.mark.rule("20")
def test_first_fetches_that_come_together_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[TelemetryEvent] = []
    with caplog.at_level(logging.DEBUG, logger="instride.telemetry"):
        dispatcher(Source(STARTED, *FETCHES, NEXT, FETCHES[0]), heard.append).tell()
    assert heard == [STARTED, *FETCHES, NEXT, FETCHES[0]]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert lines[1].startswith("me: the first fetches of t-0, t-1, ")
    assert lines[1].endswith("t-19 and 280 more were sent 0.500 s after they were assigned")
    assert lines[3] == "me: the first fetch of t-0 was sent 0.500 s after it was assigned"


def test_first_fetches_are_told_to_the_listener_though_nobody_logs_them(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[TelemetryEvent] = []
    with caplog.at_level(logging.INFO, logger="instride.telemetry"):
        dispatcher(Source(*FETCHES), heard.append).tell()
    assert heard == FETCHES
    assert caplog.records == []


def test_first_fetches_whose_telling_is_interrupted_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[TelemetryEvent] = []

    def listener(event: TelemetryEvent) -> None:
        heard.append(event)
        if event is FETCHES[1]:
            raise KeyboardInterrupt

    with caplog.at_level(logging.DEBUG, logger="instride.telemetry"):
        made = dispatcher(Source(*FETCHES), listener)
        with pytest.raises(KeyboardInterrupt):
            made.tell()
        made.tell()
    assert heard == FETCHES
    assert len(caplog.records) == 1


def test_a_handler_of_a_signal_that_calls_the_consumer_loses_no_event(caplog: pytest.LogCaptureFixture) -> None:
    """At each line while first fetches are told of: the handler's call brings one event more."""
    caplog.set_level(logging.DEBUG, "instride.telemetry")
    began = [FetchBegan(at=1.0, partition=TopicPartition("t", p), epoch=1, assigned_at=0.5) for p in range(5)]
    for step in count(1):
        source, heard = Source(*began), list[TelemetryEvent]()
        told = dispatcher(source, heard.append)

        def handler(source: Source = source, told: TelemetryDispatcher = told) -> None:
            source.events.append(STARTED)
            told.tell()

        interleaving = Interleaving(here=(driver.__file__,), others={step: handler}, kind="line")
        interleaving.run(told.tell)
        told.tell()
        if not interleaving.called:
            assert step > 20
            return
        assert heard.count(STARTED) == 1
        assert [each for each in heard if each != STARTED] == began


def test_a_consumer_tells_its_listener_which_may_use_it() -> None:
    heard: list[Any] = []

    def listener(event: TelemetryEvent) -> None:
        assert isinstance(event, OwnershipChanged)
        heard.append((event.change, len(consumer.assignment())))

    consumer = Consumer(bootstrap_servers="127.0.0.1:1", telemetry=listener)
    consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    assert heard == [(OwnershipChange.ASSIGNED, 2)]
    assert [hold.state for hold in consumer.holdings().values()] == [OwnershipChange.ASSIGNED] * 2
    consumer.close(timeout=0.1)


def test_a_listener_that_nobody_would_await_is_refused() -> None:
    class Listener:
        async def __call__(self, event: TelemetryEvent) -> None: ...

    async def listener(event: TelemetryEvent) -> None: ...

    for each in (listener, Listener()):
        with pytest.raises(KafkaError, match="telemetry is asynchronous"):
            Consumer(bootstrap_servers="test:9092", telemetry=each)


def test_a_listener_that_is_no_function_is_refused() -> None:
    with pytest.raises(KafkaError, match="telemetry must be callable"):
        Consumer(bootstrap_servers="test:9092", telemetry="me")  # type: ignore[arg-type]
