"""Guards against misuse: threads, forks, listeners, the end."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from types import FrameType
from typing import Any

import pytest

from attack.broker import Broker
from instride import Consumer, RebalanceListener, TopicPartition
from instride._core.application.calls import Call, Wait
from instride._core.events import Assigned, CallCompleted, CallsCompleted, ChangeSettings
from instride._core.network.actions import Action, Deliver
from instride._core.network.machine import NetworkMachine
from instride._net.clock import now
from instride._net.driver import Driver
from instride._net.resolver import SocketAddress
from instride._net.transport import Transport
from instride._wire.connection import Connection
from instride._wire.memory_pool import kept_bytes
from instride.commits import CommitResult
from instride.errors import (
    ConcurrentUseError,
    ConfigError,
    ConsumerClosedError,
    ForkedConsumerError,
    IllegalStateError,
    WakeupError,
)

TP = TopicPartition("t", 0)


def driver_of(consumer: Consumer) -> Driver:
    return consumer._driver


@pytest.mark.requirement("surface/concurrent-use")
@pytest.mark.requirement("KIP-983/20")
def test_a_second_thread_inside_a_call_is_refused_and_the_first_goes_on(consumer: Consumer) -> None:
    inside, done = threading.Event(), threading.Event()

    def first() -> None:
        with driver_of(consumer).use():
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(30)
    with pytest.raises(ConcurrentUseError):
        consumer.assignment()
    consumer.wakeup()  # alone may come from any thread
    done.set()
    thread.join()
    with pytest.raises(WakeupError):
        consumer.poll(timeout=30)


@pytest.mark.requirement("KIP-983/20")
@pytest.mark.rule("full-speed")
def test_a_consumer_may_move_from_thread_to_thread(consumer: Consumer) -> None:
    found: list[frozenset[TopicPartition]] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(consumer.assignment()))
        thread.start()
        thread.join()
    assert found == [{TP}, {TP}]


@pytest.mark.parametrize(
    "verb",
    [
        lambda consumer: consumer.poll(timeout=0),
        lambda consumer: consumer.unsubscribe(),
    ],
    ids=["poll", "unsubscribe"],
)
def test_what_cannot_be_done_within_a_listener_is_refused(
    consumer: Consumer, verb: Callable[[Consumer], object]
) -> None:
    with driver_of(consumer).use(), pytest.raises(IllegalStateError, match="listener"):
        verb(consumer)
    assert consumer.assignment() == {TP}


def test_a_close_within_a_call_comes_when_that_ends(consumer: Consumer) -> None:
    """In a listener, or a signal's handler."""
    with driver_of(consumer).use():
        consumer.close(timeout=0.1)
        consumer.close(timeout=0.1)
        assert consumer.assignment() == {TP}, "an inner call is not the end"
    with pytest.raises(ConsumerClosedError):
        consumer.assignment()


@pytest.mark.requirement("surface/close-signal")
def test_a_close_within_a_call_ends_a_blocking_one(consumer: Consumer) -> None:
    """The handler runs between any two steps: here, while the call waits."""
    mailbox = driver_of(consumer)._mailbox
    wait = mailbox.wait

    def interrupted(until: float) -> None:
        if not driver_of(consumer)._at_end:
            consumer.close(timeout=0.1)
        wait(until)

    mailbox.wait = interrupted  # type: ignore[method-assign]
    with pytest.raises(WakeupError):
        consumer.poll(timeout=3600)
    with pytest.raises(ConsumerClosedError):
        consumer.poll()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_close_from_a_handler_that_interrupts_the_way_in_closes_at_once(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A handler may run before the way in counts as being inside, and right after."""
    driver = driver_of(consumer)
    enter = driver.enter

    def interrupted(me: int, frame: FrameType) -> int:
        monkeypatch.setattr(driver, "enter", enter)
        if moment == "before":
            consumer.close(timeout=0.1)
            return enter(me, frame)
        before = enter(me, frame)
        consumer.close(timeout=0.1)
        return before

    monkeypatch.setattr(driver, "enter", interrupted)
    with pytest.raises(ConsumerClosedError if moment == "before" else WakeupError):
        consumer.poll(timeout=3600)
    assert driver.closed


def test_a_close_that_a_handlers_close_interrupts_on_its_way_in_has_closed(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(consumer)
    enter = driver.enter

    def interrupted(me: int, frame: FrameType) -> int:
        monkeypatch.setattr(driver, "enter", enter)
        consumer.close(timeout=0.1)
        return enter(me, frame)

    monkeypatch.setattr(driver, "enter", interrupted)
    consumer.close(timeout=30)
    assert driver.closed
    assert not driver.inside


def test_a_close_raises_what_a_listener_heard_of_another_consumer_that_is_closed(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(call: Call[bool]) -> bool:
        raise ConsumerClosedError("another one's")

    monkeypatch.setattr(driver_of(consumer), "run", closed)
    with pytest.raises(ConsumerClosedError, match="another one's"):
        consumer.close(timeout=0.1)
    assert driver_of(consumer).closed


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_on_the_way_in_leaves_nobody_inside(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    driver = driver_of(consumer)
    enter = driver.enter

    def interrupted(me: int, frame: FrameType) -> int:
        if moment == "after":
            enter(me, frame)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver, "enter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.assignment()
    assert not driver.inside
    found: list[frozenset[TopicPartition]] = []
    thread = threading.Thread(target=lambda: found.append(consumer.assignment()))
    thread.start()
    thread.join()
    assert found == [{TP}]
    consumer.close(timeout=0.1)
    assert driver.closed


def test_what_a_plain_method_of_a_listener_returns_is_not_awaited() -> None:
    """Whether it is asynchronous cannot be seen before: the poll raises."""

    class Later:
        def __await__(self) -> Iterator[None]:
            raise AssertionError("nobody awaits it")

    class Disguised(RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
            return Later()

    with socket.create_server(("127.0.0.1", 0)) as server:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", group_id="g")
        consumer.subscribe(["t"], listener=Disguised())
        driver_of(consumer)._mailbox.deliver([Assigned(generation=1, partitions={TP: 1})])
        with pytest.raises(TypeError, match="only AsyncConsumer can await it"):
            consumer.poll(timeout=0)
        assert consumer.assignment() == {TP}
        consumer.close(timeout=0.1)


def test_a_handler_that_interrupts_the_way_in_leaves_its_call_inside(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the note that it is inside and the count of how deep."""
    driver = driver_of(consumer)

    class Interrupted(dict[str, Any]):
        signals = 1

        def setdefault(self, key: str, value: Any = None) -> Any:
            found = super().setdefault(key, value)
            if self.signals:
                self.signals = 0
                consumer.assignment()
            return found

    monkeypatch.setattr(driver, "_inside", Interrupted())
    with driver.use():
        assert driver.inside, "another thread may come in"
        assert not driver.nested
    assert not driver.inside


def test_a_close_within_a_call_comes_also_where_telemetrys_listener_is_interrupted(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(consumer)

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    def closes() -> None:
        with driver.use():
            consumer.close(timeout=0.1)
            monkeypatch.setattr(driver, "_tell", interrupted)

    with pytest.raises(KeyboardInterrupt):
        closes()
    assert driver.closed


def test_a_close_within_a_close_does_nothing_more(consumer: Consumer) -> None:
    application = driver_of(consumer).application
    close = application.close
    calls: list[float] = []

    def closing(now: float, timeout: float, *, leave: bool | None) -> Call[bool]:
        calls.append(timeout)
        consumer.close(timeout=9.0)
        return close(now, timeout, leave=leave)

    application.close = closing  # type: ignore[method-assign]
    consumer.close(timeout=0.1)
    assert calls == [0.1]


@pytest.mark.requirement("surface/use-after-close")
def test_after_close_every_use_is_refused_but_close(consumer: Consumer) -> None:
    consumer.close(timeout=0.1)
    consumer.close()
    for use in (consumer.assignment, consumer.poll, consumer.commit_async, lambda: consumer.pause(TP)):
        with pytest.raises(ConsumerClosedError):
            use()


@pytest.mark.requirement("surface/fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_no_connection_of_the_parents_open() -> None:
    """What was closed or aborted lived on until the child ended: the broker went on waiting, or reading."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        server.settimeout(30)
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", group_id="g")
        stack.callback(consumer.close, timeout=0.1)
        consumer.assign([TP])
        peer, _ = server.accept()
        stack.callback(peer.close)
        peer.settimeout(30)
        assert peer.recv(1)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                code = _lives_on(consumer, reading, writing)
            finally:  # not on to the rest of the tests
                os._exit(code)
        try:
            consumer.close(timeout=0.1)
            while _received(peer):
                pass
        finally:
            os.close(writing)
            status = os.waitpid(child, 0)[1]
            os.close(reading)
        assert status == 0, "what the child opened later, under the same numbers, is its own"


def _received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(4096)
    except ConnectionResetError:
        return b""


def _lives_on(consumer: Consumer, reading: int, writing: int) -> int:
    """The child: until the parent has seen the end."""
    os.close(writing)
    opened = [os.dup(reading) for _ in range(32)]
    os.read(reading, 1)
    driver_of(consumer)._thread._clean_up()
    gc.collect()
    try:
        return 0 if [os.fstat(each) for each in opened] else 1
    except OSError:
        return 1


@pytest.mark.requirement("surface/fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_open_consumer_is_refused_in_a_child_and_stays_good_in_the_parent(consumer: Consumer) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer.assignment()
        except ForkedConsumerError:
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert consumer.assignment() == {TP}


def test_an_open_consumer_is_refused_by_every_verb_of_another_process(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 0)
        for verb in (consumer.assignment, consumer.poll, lambda: consumer.commit({TP: 1}), lambda: consumer.pause(TP)):
            with pytest.raises(ForkedConsumerError, match="before the process forked"):
                verb()
    assert consumer.paused() == frozenset()


def test_a_call_that_is_interrupted_in_its_wait_is_ended(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def waiting() -> Call[None]:
        try:
            yield Wait(until=now() + 60)
        finally:
            ended.append("ended")

    def interrupt(until: float) -> None:
        raise KeyboardInterrupt

    driver = driver_of(consumer)
    with monkeypatch.context() as patch:
        patch.setattr(driver._mailbox, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            driver.run(waiting())
    assert ended == ["ended"]


@pytest.mark.rule("12")
def test_a_close_that_is_interrupted_ends_the_thread_all_the_same(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(consumer)
    close = driver.application.close

    def waiting(*arguments: Any, **options: Any) -> Call[bool]:
        clean = yield from close(*arguments, **options)
        yield Wait(until=now() + 60)  # where the response was there before anybody waited for it
        return clean

    def interrupt(until: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver.application, "close", waiting)
    monkeypatch.setattr(driver._mailbox, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert driver.join(30)


@pytest.mark.parametrize(
    "verb",
    [
        lambda consumer: consumer.poll(timeout=0),
        lambda consumer: consumer.commit({TP: 1}),
        lambda consumer: consumer.position(TP),
        lambda consumer: consumer.unsubscribe(),
        lambda consumer: consumer.close(),
    ],
    ids=["poll", "commit", "position", "unsubscribe", "close"],
)
def test_a_blocking_call_in_a_futures_callback_is_refused_at_once(verb: Callable[[Consumer], object]) -> None:
    """It runs on the network thread, which it would stall."""
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.assign([TP])
    driver, raised = driver_of(consumer), []

    def callback(_: object) -> None:
        try:
            verb(consumer)
        except IllegalStateError as error:
            raised.append(error)

    consumer.commit_async({TP: 1}).add_done_callback(callback)
    driver.application.end(now(), 0.0, leave=False)
    assert driver.join(30)
    assert len(raised) == 1
    assert consumer.assignment() == frozenset()
    consumer.close(timeout=0.1)


def test_a_futures_callback_that_exits_ends_neither_the_thread_nor_others(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the network thread, and with it the membership."""
    driver = driver_of(consumer)
    exits, other = (driver.future(call) for call in (-1, -2))
    exits.add_done_callback(lambda _: sys.exit(3))
    completed = CallsCompleted(calls=tuple(CallCompleted(call=call, result=CommitResult()) for call in (-1, -2)))
    tick, told = NetworkMachine.tick, [Deliver(event=completed)]

    def tells(self: NetworkMachine, at: float) -> list[Action]:
        actions = tick(self, at)
        return [*actions, told.pop()] if told else actions

    monkeypatch.setattr(NetworkMachine, "tick", tells)
    driver._thread._wake()
    assert other.result(30) == CommitResult()
    assert exits.result(0) == CommitResult()
    assert driver.alive
    assert "a callback of commit_async's future raised SystemExit" in caplog.text
    assert consumer.assignment() == {TP}


def test_a_close_that_is_interrupted_when_the_thread_has_ended_is_done(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, at_exit = driver_of(consumer), list[object]()

    def interrupted(timeout: float) -> bool:
        assert driver._thread.join(30)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atexit, "register", lambda *arguments: at_exit.append(arguments))
        patch.setattr(driver, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.close(timeout=0.1)
    assert not at_exit, "nobody has to wait for it"
    assert not driver._thread.events, "nor is it told anything"
    with pytest.raises(ConsumerClosedError):
        consumer.assignment()


@pytest.mark.rule("13")
def test_the_membership_that_an_interrupted_unsubscribe_left_ends_with_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Python calls when it exits is called here."""
    at_exit: list[tuple[Any, ...]] = []

    def interrupted(call: Call[bool]) -> bool:
        raise KeyboardInterrupt

    with closing(Broker()) as broker:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", group_id="g")
        driver = driver_of(consumer)
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(timeout=0.1)
        with monkeypatch.context() as patch:
            patch.setattr(atexit, "register", lambda *arguments: at_exit.append(arguments))
            patch.setattr(driver, "run", interrupted)
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    consumer.unsubscribe(timeout=60)
        ((end, timeout),) = at_exit
        assert driver.alive
        end(timeout)
        assert driver.join(0), "it was waited for"
        assert broker.requested[13] == 1
        consumer.close()
        end(timeout)
        assert not driver._thread.events, "of one that is closed there is nothing to end"


@pytest.mark.parametrize("verb", ["close", "unsubscribe"])
def test_once_it_is_closed_and_its_thread_has_ended_the_program_keeps_nothing_of_it(verb: str) -> None:
    """What an interrupted verb leaves for the program's end kept the consumer's buffers until then."""

    def interrupted(call: Call[bool]) -> bool:
        raise KeyboardInterrupt

    with closing(Broker()) as broker:
        consumer = Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", group_id="g")
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(timeout=0.1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver_of(consumer), "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                getattr(consumer, verb)(timeout=10)
        consumer.close()
        assert driver_of(consumer).join(30)
        kept = weakref.ref(driver_of(consumer)._thread), weakref.ref(driver_of(consumer))
        del consumer
    gc.collect()
    assert [each() for each in kept] == [None, None]


def test_a_thread_that_cannot_start_leaves_the_consumer_unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(driver_of(consumer)._thread, "start", refuse)
    with pytest.raises(RuntimeError):
        consumer.subscribe(["t"])
    consumer.close()


def test_settings_that_change_while_it_runs_are_told_to_the_network_thread(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, in their turn: its machine belongs to it."""
    told: list[tuple[int, str]] = []
    handle = NetworkMachine.handle

    def noted(self: NetworkMachine, event: Any, at: float) -> None:
        if isinstance(event, ChangeSettings):
            told.append((event.config.fetch_min_bytes, threading.current_thread().name))
        handle(self, event, at)

    monkeypatch.setattr(NetworkMachine, "handle", noted)
    consumer.change_settings(fetch_min_bytes=3)
    consumer.close(timeout=0.1)
    assert driver_of(consumer).join(30)
    assert told == [(3, driver_of(consumer)._thread._thread.name)]


def test_settings_may_change_before_anything_was_started_and_start_nothing() -> None:
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    consumer.change_settings(max_poll_records=7, fetch_min_bytes=3)
    driver = driver_of(consumer)
    assert not driver.started
    assert driver._network._context.config.fetch_min_bytes == 3
    consumer.change_settings(fetch_buffer_bytes=1 << 20)
    assert driver._thread._segments._most_bytes == kept_bytes(1 << 20)
    with pytest.raises(ConfigError, match="cannot be changed"):
        consumer.change_settings(group_id="h")  # type: ignore[call-arg]
    assert consumer._config.max_poll_records == 7
    consumer.close()
    with pytest.raises(ConsumerClosedError):
        consumer.change_settings(max_poll_records=8)


# --- connecting --------------------------------------------------------------------------------------------


def test_an_address_that_fails_at_once_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ::1 does on a machine without IPv6, before 127.0.0.1 is tried."""
    made: list[socket.socket] = []
    real = socket.socket

    def counted(family: int, kind: int) -> socket.socket:
        made.append(real(family, kind))
        return made[-1]

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket, "socket", counted)
        bad: SocketAddress = (socket.AF_INET, ("240.0.0.1", 0))
        good: SocketAddress = (socket.AF_INET, server.getsockname())
        monkeypatch.setattr("instride._net.transport.Transport._start", failing_first(Transport._start))
        transport = Transport([bad, good], "somewhere", Connection(client_id="c", max_frame_bytes=1 << 20)).open()
        assert transport.failure is None
        assert [each.fileno() >= 0 for each in made] == [False, True]
        transport.close()


def failing_first(start: Callable[..., None]) -> Callable[..., None]:
    failed: list[bool] = []

    def _start(self: Transport, family: int, address: object) -> None:
        start(self, family, address)
        if not failed:
            failed.append(True)
            raise OSError("network is unreachable")

    return _start


@pytest.mark.parametrize("abort", [False, True])
def test_a_connection_that_is_aborted_is_reset(*, abort: bool) -> None:
    """So the kernel does not go on sending what was given up: a commit could arrive after a newer one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address: SocketAddress = (socket.AF_INET, server.getsockname())
        transport = Transport([address], "somewhere", Connection(client_id="c", max_frame_bytes=1 << 20)).open()
        peer, _ = server.accept()
        with peer:
            peer.settimeout(30)
            transport.close(abort=abort)
            if abort:
                with pytest.raises(ConnectionResetError):
                    peer.recv(1)
            else:
                assert peer.recv(1) == b""
