"""What an observer hears, and that it changes nothing."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest

from attack.broker import Broker
from instride import Consumer, RangeConsumer, RebalanceListener, TopicPartition
from instride._core.events import Assigned, BackgroundEvent, Lost, RevocationRequested
from instride._core.network.actions import Action, CloseConnection, OpenConnection
from instride._core.network.machine import NetworkMachine
from instride.errors import IllegalStateError, KafkaError, KafkaTimeoutError, WakeupError
from instride.observers import Observer, Polled
from instride.telemetry import OwnershipChanged

TP = TopicPartition("t", 0)
OF_THE_NETWORK_THREAD = (
    "on_request",
    "on_response",
    "on_connection_closed",
    "on_application_event",
    "on_background_event",
)
HOOKS = [name for name in vars(Observer) if name.startswith("on_")]


class Hearing(Observer):
    """Notes the names of what it hears, and the arguments of each: the last ones, and all."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.last: dict[str, tuple[Any, ...]] = {}
        self.each: dict[str, list[tuple[Any, ...]]] = {}

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def hear(*arguments: Any, **named: Any) -> None:
            self.heard.append(name)
            self.last[name] = (*arguments, *named.values())
            self.each.setdefault(name, []).append(self.last[name])

        return hear

    def named(self, *names: str) -> list[str]:
        return [each for each in self.heard if each in names]


@pytest.fixture
def address() -> Iterator[str]:
    """Where connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def observed(address: str) -> Iterator[tuple[Consumer, Hearing]]:
    consumer, hearing = Consumer(bootstrap_servers=address, group_id="g"), Hearing()
    consumer.observe(hearing)
    yield consumer, hearing
    consumer.close(timeout=0.1)


def up(consumer: Consumer, *events: BackgroundEvent) -> None:
    consumer._driver._mailbox.deliver(list(events))


def test_every_hook_does_nothing_by_itself() -> None:
    """So an observer overrides what it wants, and a new hook breaks none."""
    assert HOOKS
    for name in HOOKS:
        assert vars(Observer)[name].__doc__, name
    Observer().on_telemetry(OwnershipChanged(at=0.0, change=None, partitions=()))  # type: ignore[arg-type]


def test_it_hears_from_the_beginning_or_not_at_all(observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    assert hearing.last["on_observed"][0] is consumer
    consumer.subscribe(["t"])
    with pytest.raises(IllegalStateError, match="before its first use"):
        consumer.observe(Observer())


def test_verbs_are_heard_in_their_order(observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    consumer.subscribe(iter(["t", "s"]), listener=RebalanceListener())
    assert consumer.subscription() == {"t", "s"}, "the topics are read once"
    up(consumer, Assigned(generation=1, partitions={TP: 1}))
    consumer.poll(timeout=0)
    consumer.seek(TP, 4)
    up(consumer, RevocationRequested(partitions={TP: 1}, deadline=1e9))
    consumer.poll(timeout=0)
    assert consumer.delay_revoke([TP])
    consumer.commit_async({TP: 4})
    verbs = ("on_subscribe", "on_poll", "on_seek", "on_delay_revoke", "on_commit", "on_listener")
    told = ["on_subscribe", "on_listener", "on_poll", "on_seek", "on_poll", "on_delay_revoke", "on_commit"]
    assert hearing.named(*verbs) == told
    assert hearing.last["on_delay_revoke"] == ((TP,), True)
    assert hearing.last["on_commit"][1]()[TP] == (1, 1, 4), "positions, with what fences them"
    polled = hearing.last["on_poll"][0]
    assert isinstance(polled, Polled)
    assert polled.to_be_revoked == frozenset({TP})
    assert list(polled.records()) == []


def test_a_loss_and_what_the_listener_is_told_are_heard(observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    consumer.subscribe(["t"], listener=RebalanceListener())
    up(consumer, Assigned(generation=1, partitions={TP: 1}))
    consumer.poll(timeout=0)
    up(consumer, Lost(partitions={TP: 1}))
    consumer.poll(timeout=0)
    assert hearing.last["on_listener"] == ("on_partitions_lost", (TP,))
    assert hearing.last["on_poll"][0].lost == {TP}
    assert "on_telemetry" in hearing.heard


def test_what_the_network_thread_does_is_heard(observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    consumer.assign([TP])
    with pytest.raises(KafkaTimeoutError):
        consumer.end_offsets([TP], timeout=0.2)
    consumer.close(timeout=0.1)
    assert "on_application_event" in hearing.heard
    assert "on_connection_closed" in hearing.heard
    assert hearing.named("on_close") == ["on_close"]


def test_requests_their_responses_and_their_connections_are_heard() -> None:
    with closing(Broker()) as broker:
        consumer, hearing = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}"), Hearing()
        consumer.observe(hearing)
        consumer.list_topics(timeout=60)
        consumer.close()
    heard = hearing.named("on_connection_closed", "on_request", "on_response", "on_background_event")
    assert heard[0] == "on_connection_closed", "it is about to be opened"
    assert heard.index("on_request") < heard.index("on_response") < heard.index("on_background_event")
    sent = {number: request for _, number, request, _ in hearing.each["on_request"]}
    responses = hearing.each["on_response"]
    assert responses
    for number, response, _ in responses:
        assert type(response).__name__ == f"{type(sent[number]).__name__}Response"


def test_a_connection_that_its_peer_ends_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    acted: list[Action] = []
    tick = NetworkMachine.tick

    def noted(self: NetworkMachine, now: float) -> list[Action]:
        actions = tick(self, now)
        acted.extend(actions)
        return actions

    monkeypatch.setattr(NetworkMachine, "tick", noted)

    class HangsUp(Broker):
        def response(self, frame: bytes) -> bytes:
            raise OSError

    with closing(HangsUp()) as broker:
        consumer, hearing = (
            Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", reconnect_backoff_max=60.0),
            Hearing(),
        )
        consumer.observe(hearing)
        ended = 0
        while ended <= 0:  # for ever, if only what the machine wants is heard
            with suppress(KafkaError):
                consumer.list_topics(timeout=0.01)
            told = hearing.heard.count("on_connection_closed")
            ended = told - sum(isinstance(each, OpenConnection | CloseConnection) for each in acted)
        consumer.close(timeout=0.1)
    assert "on_request" not in hearing.heard


def test_a_commit_that_is_woken_up_has_not_failed(observed: tuple[Consumer, Hearing]) -> None:
    """What becomes of it is not known yet."""
    consumer, hearing = observed
    consumer.assign([TP])
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.commit({TP: 1}, timeout=60)
    assert hearing.named("on_commit", "on_commit_failed") == ["on_commit"]


def test_a_commit_that_fails_is_heard(observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    consumer.assign([TP])
    with pytest.raises(KafkaTimeoutError):
        consumer.commit({TP: 1}, timeout=0.01)
    assert hearing.named("on_commit", "on_commit_failed") == ["on_commit", "on_commit_failed"]
    consumer.unsubscribe(timeout=0.01)
    assert hearing.named("on_unsubscribe", "on_timed_out") == ["on_unsubscribe", "on_unsubscribe"]


@pytest.mark.parametrize("allow_rewind", [True, False])
def test_that_a_commit_may_go_back_is_heard_before_it(allow_rewind: bool, observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    consumer.assign([TP])
    consumer.commit_async({TP: 1}, allow_rewind=allow_rewind)
    with pytest.raises(KafkaTimeoutError):
        consumer.commit({TP: 2}, timeout=0.01, allow_rewind=allow_rewind)
    told = ["on_allow_rewind", "on_commit"] if allow_rewind else ["on_commit"]
    assert hearing.named("on_allow_rewind", "on_commit") == told * 2
    if allow_rewind:
        assert [each[0][TP].offset for each in hearing.each["on_allow_rewind"]] == [1, 2]


def test_an_unsubscribe_that_takes_its_whole_timeout_is_heard(observed: tuple[Consumer, Hearing]) -> None:
    consumer, hearing = observed
    consumer.subscribe(["t"])
    up(consumer, Assigned(generation=1, partitions={TP: 1}))
    consumer.poll(timeout=0)
    consumer.unsubscribe(timeout=0)  # the network side says nothing of its revoke
    assert hearing.named("on_unsubscribe", "on_timed_out") == ["on_unsubscribe", "on_timed_out", "on_unsubscribe"]
    assert hearing.last["on_timed_out"] == ("unsubscribe",)


@pytest.mark.parametrize("verb", ["unsubscribe", "close"])
def test_an_end_that_an_exception_leaves_is_heard(verb: str, observed: tuple[Consumer, Hearing]) -> None:
    class Interrupts(RebalanceListener):
        def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
            raise KeyboardInterrupt

    consumer, hearing = observed
    consumer.subscribe(["t"], listener=Interrupts())
    up(consumer, Assigned(generation=1, partitions={TP: 1}))
    consumer.poll(timeout=0)
    with pytest.raises(KeyboardInterrupt):
        getattr(consumer, verb)(timeout=0)
    assert hearing.last["on_interrupted"] == (verb,)


def test_what_an_observer_raises_is_logged_and_goes_no_further(address: str, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def on_poll(self, polled: Polled) -> None:
            raise ZeroDivisionError

    consumer, hearing = RangeConsumer(bootstrap_servers=address, group_id="g"), Hearing()
    consumer.observe(Broken())
    consumer.observe(hearing)
    consumer.subscribe(["t"])
    with caplog.at_level(logging.ERROR, "instride.observers"):
        assert consumer.poll(timeout=0) == []
    consumer.close(timeout=0.1)
    assert "Broken" in caplog.text
    assert "on_poll" in hearing.heard, "the others hear it all the same"


def test_an_observer_that_refuses_a_consumer_is_heard_and_hears_nothing(address: str) -> None:
    class Refuses(Hearing):
        def __getattribute__(self, name: str) -> Any:
            if name == "on_observed":
                raise ZeroDivisionError
            return super().__getattribute__(name)

    consumer, refuses = RangeConsumer(bootstrap_servers=address, group_id="g"), Refuses()
    with pytest.raises(ZeroDivisionError):
        consumer.observe(refuses)
    consumer.subscribe(["t"])
    consumer.close(timeout=0.1)
    assert refuses.heard == []


def test_an_observer_that_exits_ends_a_call_of_yours_and_not_the_thread() -> None:
    class Exits(Observer):
        def __getattribute__(self, name: str) -> Any:
            if name in OF_THE_NETWORK_THREAD or name == "on_seek":
                sys.exit(3)
            return super().__getattribute__(name)

    with closing(Broker()) as broker, Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}") as consumer:
        consumer.observe(Exits())
        assert list(consumer.list_topics(timeout=60)) == ["t"]
        consumer.assign([TP])
        with pytest.raises(SystemExit):
            consumer.seek(TP, 0)
        assert list(consumer.list_topics(timeout=60)) == ["t"], "the thread lives"
