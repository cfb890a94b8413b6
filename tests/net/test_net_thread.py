"""The network thread's promises that need no broker: nothing is opened too early, nobody waits for the dead."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from attack.cases import HalfAJoin
from instride import Consumer, TopicPartition
from instride._core.events import Pause, Resume, SetPosition
from instride._core.network.actions import ConnectionKey, OpenConnection, Role
from instride._core.network.machine import NetworkMachine
from instride._net.clock import now
from instride._net.mailbox import Mailbox
from instride._net.resolver import Resolver
from instride._net.thread import NetworkThread
from instride.config import ConsumerConfig
from instride.errors import ConfigError, ConsumerClosedError, KafkaError, NetworkThreadDiedError

TP = TopicPartition("t", 0)


@contextmanager
def nobody_responds() -> Iterator[str]:
    """An address where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.requirement("threading/8")
def test_a_consumer_that_never_needed_the_network_leaves_no_socket_open() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer = Consumer(bootstrap_servers="localhost:1")
        with pytest.raises(ConfigError):
            consumer.subscribe(["t"])
        consumer.close()
        del consumer
        gc.collect()


def test_a_commit_that_was_handed_over_cannot_be_cancelled_and_ends_with_the_close() -> None:
    with nobody_responds() as address:
        consumer = Consumer(bootstrap_servers=address, group_id="g")
        consumer.assign([TP])
        future = consumer.commit_async({TP: 1})
        assert future.cancel() is False
        consumer.close(timeout=0.1)
        assert isinstance(future.exception(timeout=20), KafkaError)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    """A consumer whose network machine breaks once `die` says so."""
    tick = NetworkMachine.tick

    def broken(self: NetworkMachine, now: float) -> Any:
        if getattr(self, "dies", False):
            raise LookupError("a bug")
        return tick(self, now)

    monkeypatch.setattr(NetworkMachine, "tick", broken)
    with nobody_responds() as address:
        consumer = Consumer(bootstrap_servers=address, group_id="g")
        consumer.assign([TP])
        yield consumer
        consumer.close(timeout=1.0)


def die(consumer: Consumer) -> None:
    consumer._driver._thread._machine.dies = True  # type: ignore[attr-defined]


@pytest.mark.requirement("surface/thread-death")
def test_when_the_network_thread_dies_waiting_and_later_calls_raise_what_killed_it(
    dying: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    future = dying.commit_async({TP: 1})
    die(dying)
    with pytest.raises(NetworkThreadDiedError, match=r"LookupError.*close it") as waiting:
        dying.poll(timeout=60)
    assert isinstance(waiting.value.__cause__, LookupError)
    handed_over = future.exception(timeout=20)
    assert isinstance(handed_over, NetworkThreadDiedError)
    assert isinstance(handed_over.__cause__, LookupError)
    for call in (dying.poll, lambda: dying.commit({TP: 1}), lambda: dying.position(TP), lambda: dying.committed(TP)):
        with pytest.raises(NetworkThreadDiedError):
            call()
    dying.close()
    with pytest.raises(ConsumerClosedError):
        dying.poll()
    assert "the network thread died" in caplog.text


def test_local_verbs_still_return_when_the_network_thread_is_dead(dying: Consumer) -> None:
    die(dying)
    with pytest.raises(NetworkThreadDiedError):
        dying.poll(timeout=60)
    assert dying.assignment() == {TP}
    assert dying.lost_partitions() == frozenset()


def test_a_thread_that_dies_while_it_is_closed_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What killed it is told in the log: whoever closes cannot mend it."""

    def dies(call: object) -> None:
        raise NetworkThreadDiedError("the network thread died of LookupError")

    with nobody_responds() as address:
        consumer = Consumer(bootstrap_servers=address, group_id="g")
        consumer.assign([TP])
        driver = consumer._driver
        monkeypatch.setattr(driver, "run", dies)
        monkeypatch.setattr(driver, "join", lambda timeout: True)
        consumer.close()
        with pytest.raises(ConsumerClosedError):
            consumer.assignment()
        assert "closing without the network thread: the network thread died of LookupError" in caplog.text
        driver.application.end(now(), 0.0, leave=False)
        assert driver._thread.join(30)


def test_a_thread_that_cannot_clean_up_keeps_nobody_who_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = Resolver.close

    def broken(self: Resolver) -> None:
        close(self)
        raise LookupError("a bug")

    with nobody_responds() as address:
        consumer = Consumer(bootstrap_servers=address, group_id="g")
        consumer.assign([TP])
        monkeypatch.setattr(Resolver, "close", broken)
        consumer.close(timeout=1.0)
        thread = consumer._driver._thread
        assert thread.join(30)
        assert thread._mailbox.ended
        assert thread._wake_pair is not None
        assert thread._wake_pair.inner.fileno() == -1, "what comes after it is closed, too"
    assert "the network thread could not close all that it had opened" in caplog.text


@pytest.mark.requirement("threading/29")
def test_no_event_of_the_application_is_lost_and_they_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real queue, while the network thread turns."""
    handled: list[Any] = []
    handle = NetworkMachine.handle

    def noted(self: NetworkMachine, event: Any, now: float) -> None:
        handled.append(event)
        handle(self, event, now)

    monkeypatch.setattr(NetworkMachine, "handle", noted)
    with nobody_responds() as address:
        consumer = Consumer(bootstrap_servers=address, group_id="g")
        consumer.assign([TP])
        for number in range(3000):
            consumer.seek(TP, number)
            if number % 3 == 0:
                consumer.pause(TP)
                consumer.resume(TP)
        consumer.close(timeout=0)
    seeks = [event.offset for event in handled if isinstance(event, SetPosition)]
    assert seeks == list(range(3000))
    kinds = [type(event) for event in handled if isinstance(event, SetPosition | Pause | Resume)]
    assert kinds == [SetPosition, Pause, Resume, SetPosition, SetPosition] * 1000


def _seek_until_interrupted(consumer: Consumer) -> None:
    while True:
        consumer.seek(TP, 1)


def test_a_wake_up_that_an_interrupt_prevented_is_made_good_when_the_verb_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal's exception right before the byte is sent: without another, an idle thread slept for up to a minute."""
    wakes, wake = 0, NetworkThread._wake

    def interrupts(self: NetworkThread) -> None:
        nonlocal wakes
        if threading.current_thread() is threading.main_thread():
            wakes += 1
            if wakes == 1:
                raise KeyboardInterrupt
        wake(self)

    with nobody_responds() as address, Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([TP])
        monkeypatch.setattr(NetworkThread, "_wake", interrupts)
        for _ in range(5):  # a thread that a timer woke just then needs no byte
            wakes = 0
            with pytest.raises(KeyboardInterrupt):
                _seek_until_interrupted(consumer)
            if wakes > 1:
                return
    raise AssertionError("nothing woke the thread")


@pytest.mark.requirement("surface/thread-death")
@pytest.mark.requirement("threading/29")
def test_a_death_is_told_to_a_call_that_would_wait_for_an_hour(dying: Consumer) -> None:
    die(dying)
    for call in (lambda: dying.poll(timeout=3600), lambda: dying.list_topics(timeout=3600)):
        with pytest.raises(NetworkThreadDiedError, match="LookupError"):
            call()


def test_a_response_that_stops_in_its_middle_ends_its_connection_despite_a_join() -> None:
    with closing(HalfAJoin()) as broker:
        settings: dict[str, Any] = {"request_timeout": 0.5, "auto_offset_reset": "earliest", "group_id": "g"}
        with Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", **settings) as consumer:
            consumer.subscribe(["t"])
            while not consumer.poll(timeout=0.2):
                assert broker.requested[11] < 3
        assert broker.requested[11] == 2


def test_nothing_is_kept_of_places_that_come_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may make up others for ever. (No name is looked up here.)"""
    machine: Any = None
    thread = NetworkThread(ConsumerConfig(bootstrap_servers="b:1"), machine, Mailbox())
    monkeypatch.setattr(thread._resolver, "resolve", lambda *_, **__: None)
    for number in range(2500):
        thread._open(OpenConnection(key=ConnectionKey(Role.DATA, number), host=f"b{number}", port=9092))
        thread._close(ConnectionKey(Role.DATA, number))
    assert not thread._names_tried
    assert not thread._openings
    assert not thread._mechanisms
