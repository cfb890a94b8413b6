"""Rule 21 for the threads: no event waits for a time-out, and a wait ends when it is to end. The clock, the socket's
pump and the token are scripted, so nothing here takes time; but for the test that counts the wakes of many polls.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import instride._net.mailbox
import instride._net.thread
from attack.broker import Broker, Request
from attack.bytes_of import batch, record
from instride import Consumer, TopicPartition
from instride._core.events import CallCompleted, CallsCompleted, Consumed, Polled, Wakeup
from instride._core.network.actions import Deliver
from instride._net.mailbox import Mailbox
from instride._net.thread import NetworkThread
from instride.commits import CommitResult
from instride.config import ConsumerConfig
from instride.errors import KafkaTimeoutError, WakeupError

pytestmark = pytest.mark.rule("21")


@dataclass(slots=True)
class Clock:
    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(instride._net.mailbox, "now", made)
    monkeypatch.setattr(instride._net.thread, "now", made)
    return made


@dataclass(slots=True)
class Tokens:
    """The mailbox's token: a wait for one that nobody leaves takes all of its time."""

    clock: Clock
    left: int = 0
    waits: list[float] = field(default_factory=list)

    def locked(self) -> bool:
        return self.left == 0

    def release(self) -> None:
        self.left += 1

    def acquire(self, *, timeout: float) -> bool:
        self.waits.append(timeout)
        if not self.left:
            self.clock.at += timeout
            return False
        self.left -= 1
        return True


@pytest.fixture
def mailbox(clock: Clock) -> Mailbox:
    made = Mailbox()
    made._no_token = Tokens(clock)  # type: ignore[assignment]  # scripted
    return made


def test_a_wait_ends_at_its_time(mailbox: Mailbox, clock: Clock) -> None:
    mailbox.wait(clock.at + 5.0)
    assert clock.at == 1005.0


def test_a_wait_looks_at_the_clock_once_a_minute_at_least(mailbox: Mailbox, clock: Clock) -> None:
    """The lock's time stands still while the machine is suspended, and the clock goes on."""
    mailbox.wait(clock.at + 3600.0)
    tokens: Any = mailbox._no_token
    assert max(tokens.waits) <= 60.0
    assert clock.at == 4600.0


def test_what_is_delivered_leaves_a_token_for_whoever_waits(mailbox: Mailbox, clock: Clock) -> None:
    mailbox.deliver([Wakeup()])
    waiting = mailbox.queue
    mailbox.queue = deque()  # as it was at the look, before the delivery

    def acquire(*, timeout: float) -> bool:
        taken = Tokens.acquire(tokens, timeout=timeout)
        mailbox.queue = waiting
        return taken

    tokens: Any = mailbox._no_token
    mailbox._no_token = SimpleNamespace(acquire=acquire)  # type: ignore[assignment]  # scripted
    mailbox.wait(clock.at + 5.0)
    assert clock.at == 1000.0


class Machine:
    """A network machine that has nothing to do before its deadline."""

    def __init__(self) -> None:
        self.handled: list[tuple[object, float]] = []
        self.at = float("inf")
        self.actions: list[Any] = []
        self.waits_for_capacity = False
        self.awaits_poll_at = float("-inf")

    def handle(self, event: object, now: float) -> None:
        self.handled.append((event, now))

    def tick(self, now: float) -> list[Any]:
        due, self.actions = self.actions, []
        return due

    def deadline(self) -> float:
        return self.at


@dataclass(slots=True)
class Selector:
    """Ends at once where the thread was woken; else it takes its time-out. meanwhile: what another thread does."""

    clock: Clock
    wake: socket.socket
    meanwhile: Any = None
    waits: list[float] = field(default_factory=list)
    crowded = False

    def select(self, timeout: float) -> list[tuple[None, int]]:
        self.waits.append(timeout)
        if self.meanwhile is not None:
            self.meanwhile()
        if select.select([self.wake], [], [], 0)[0]:
            return [(None, 1)]
        self.clock.at += timeout
        return []


@dataclass(slots=True)
class Turns:
    thread: NetworkThread
    machine: Machine
    selector: Selector
    woken: socket.socket


@pytest.fixture
def turns(clock: Clock) -> Iterator[Turns]:
    """A network thread whose turns the test takes itself."""
    machine = Machine()
    config = ConsumerConfig(bootstrap_servers="test:9092", group_id="g")
    thread = NetworkThread(config, machine, Mailbox())  # type: ignore[arg-type]  # scripted
    with ExitStack() as opened:
        thread._open_own(opened)
        assert thread._wake_pair is not None
        selector = Selector(clock, thread._wake_pair.inner)
        thread._pump = selector  # type: ignore[assignment]  # scripted
        yield Turns(thread, machine, selector, thread._wake_pair.inner)


def test_a_turn_waits_until_the_machines_deadline(turns: Turns, clock: Clock) -> None:
    turns.machine.at = clock.at + 5.0
    turns.thread._turn()
    assert clock.at == 1005.0


def test_what_is_queued_before_the_wait_is_not_waited_for(turns: Turns, clock: Clock) -> None:
    turns.thread.events.append(Polled(at=0.0))
    turns.thread.wake()
    turns.thread._turn()
    assert (turns.machine.handled, clock.at) == ([(Polled(at=0.0), 1000.0)], 1060.0)
    assert turns.selector.waits == [60.0]


def test_a_loop_that_is_awake_is_not_woken(turns: Turns) -> None:
    turns.thread.events.append(Polled(at=0.0))
    turns.thread.wake()
    assert select.select([turns.woken], [], [], 0)[0] == [], "it takes the event without being told"


def test_a_loop_that_was_woken_is_not_woken_again_before_it_has_run(turns: Turns) -> None:
    """A thread that waits for the interpreter's lock stands as asleep: each write of a poll told it again."""
    sent: list[int] = []

    def post() -> None:
        for _ in range(3):
            turns.thread.events.append(Polled(at=0.0))
            turns.thread.wake()
        sent.append(len(turns.woken.recv(100, socket.MSG_PEEK)))

    turns.selector.meanwhile = post
    turns.thread._turn()
    turns.thread._turn()
    assert sent == [1, 1], "bytes for three events, in each of two sleeps"


@pytest.mark.parametrize("waits_for_capacity", [True, False])
def test_what_was_consumed_wakes_a_loop_only_where_something_waits_for_the_room(
    turns: Turns, waits_for_capacity: bool
) -> None:
    """Else a record at a time costs two turns: that of its response, and that of its word."""
    woken: list[bool] = []

    def post() -> None:
        turns.selector.meanwhile = None
        turns.thread.events.append(Consumed(partitions={}))
        turns.thread.wake()
        woken.append(bool(select.select([turns.woken], [], [], 0)[0]))
        turns.thread.events.append(Polled(at=0.0))
        turns.thread.wake()
        woken.append(bool(select.select([turns.woken], [], [], 0)[0]))

    turns.machine.waits_for_capacity, turns.selector.meanwhile = waits_for_capacity, post
    turns.thread._turn()
    turns.thread._turn()
    assert woken == [waits_for_capacity, True]
    assert [type(event) for event, _ in turns.machine.handled] == [Consumed, Polled]


@pytest.mark.parametrize(("at", "wakes"), [(4.9, False), (5.0, True)])
def test_a_poll_wakes_a_loop_only_where_something_awaits_one(turns: Turns, at: float, wakes: bool) -> None:
    """Else each poll costs a turn, also one that returns what was fetched long before."""
    woken: list[bool] = []

    def post() -> None:
        turns.selector.meanwhile = None
        turns.thread.events.append(Polled(at=at))
        turns.thread.wake()
        woken.append(bool(select.select([turns.woken], [], [], 0)[0]))

    turns.machine.awaits_poll_at, turns.selector.meanwhile = 5.0, post
    turns.thread._turn()
    turns.thread._turn()
    assert woken == [wakes]
    assert [type(event) for event, _ in turns.machine.handled] == [Polled], "it is heard of in the next turn anyway"


def test_words_that_may_wait_do_not_pile_up(turns: Turns) -> None:
    """A consumer all of whose partitions are paused has a turn a minute, and may be polled without end."""
    turns.machine.awaits_poll_at = float("inf")
    sent: list[int] = []

    def post() -> None:
        turns.selector.meanwhile = None
        for number in range(1000):
            turns.thread.events.append(Polled(at=0.0))
            turns.thread.wake()
            if select.select([turns.woken], [], [], 0)[0]:
                sent.append(number)
                return

    turns.selector.meanwhile = post
    turns.thread._turn()
    assert sent == [100]


def test_what_is_queued_during_the_wait_ends_it(turns: Turns, clock: Clock) -> None:
    def post() -> None:
        turns.selector.meanwhile = None
        turns.thread.events.append(Polled(at=0.0))
        turns.thread.wake()

    turns.selector.meanwhile = post
    turns.thread._turn()
    turns.thread._turn()
    assert turns.machine.handled == [(Polled(at=0.0), 1000.0)], "a lost wake-up: the event waited for a time-out"


def test_futures_of_calls_that_were_completed_together_are_resolved_each(turns: Turns) -> None:
    error = KafkaTimeoutError("late")
    futures = [turns.thread.future(call) for call in range(4)]
    calls = (CallCompleted(call=0, result=CommitResult()), CallCompleted(call=1, error=error), CallCompleted(call=77))
    turns.machine.actions = [
        Deliver(event=CallsCompleted(calls=calls)),
        Deliver(event=CallCompleted(call=2, error=error)),
    ]
    turns.thread._turn()
    assert futures[0].result(timeout=0) == CommitResult()
    assert [each.exception(timeout=0) for each in futures[1:3]] == [error, error]
    assert not futures[3].done()


def test_a_wake_up_is_taken_once(turns: Turns) -> None:
    """Else the loop would spin."""
    woken: list[bool] = []

    def post() -> None:
        turns.thread.events.append(Polled(at=0.0))
        turns.thread.wake()
        woken.append(bool(select.select([turns.woken], [], [], 0)[0]))

    turns.selector.meanwhile = post
    turns.thread._turn()
    assert woken == [True]
    assert select.select([turns.woken], [], [], 0)[0] == []


def test_many_wakeups_that_nobody_has_heard_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NetworkThread, "start", lambda thread: None)
    consumer = Consumer(bootstrap_servers="test:9092", group_id="g")
    consumer.subscribe(["t"])
    for _ in range(1000):
        consumer.wakeup()
    assert len(consumer._driver.application._state.queue) == 1
    for _ in range(2):
        with pytest.raises(WakeupError):
            consumer.poll(timeout=0)
        consumer.wakeup()


def test_each_verb_that_says_something_wakes_the_network_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[int] = []
    monkeypatch.setattr(NetworkThread, "start", lambda thread: None)
    monkeypatch.setattr(NetworkThread, "wake", lambda thread: woken.append(len(thread.events)))
    consumer = Consumer(bootstrap_servers="test:9092", group_id="g")
    tp = TopicPartition("t", 0)
    verbs = (
        lambda: consumer.assign([tp]),
        lambda: consumer.pause(tp),
        lambda: consumer.resume(tp),
        lambda: consumer.seek(tp, 3),
        lambda: consumer.commit_async({tp: 3}),
        lambda: consumer.poll(timeout=0),
    )
    for verb in verbs:
        woken.clear()
        verb()
        assert woken, "the network thread sleeps on"
        assert woken[-1] == len(consumer._driver._thread.events), "something came after the last wake-up"


class Trickling(Broker):
    """Has one partition, and in it a record more each time that `let_go` is called. A fetch waits for that."""

    partitions, end = 1, 0

    def __init__(self) -> None:
        self._more = threading.Semaphore(0)
        super().__init__()

    def let_go(self) -> None:
        self.end += 1
        self._more.release()

    def fetch(self, request: Request) -> bytes:
        self._more.acquire(timeout=0.4)
        return super().fetch(request)

    def records(self, index: int, offset: int) -> bytes:
        return b"" if offset >= self.end else batch(offset, record(0, b"%d" % offset), 1)

    def linger(self) -> None:
        pass


def test_polls_of_records_that_trickle_wake_each_thread_as_often_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's thread once for each record, the network's by none of the polls."""
    woken: list[str] = []

    def count(kind: Any, method: str, who: str) -> None:
        counted = getattr(kind, method)

        def called(*given: Any) -> None:
            woken.append(who)
            counted(*given)

        monkeypatch.setattr(kind, method, called)

    count(instride._net.thread._WakePair, "wake", "network")
    count(Mailbox, "deliver", "application")
    with (
        closing(Trickling()) as broker,
        Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        consumer.subscribe(["t"])
        broker.let_go()
        while not consumer.poll(timeout=60.0):
            pass
        woken.clear()
        for number in range(1, 51):
            deadline = time.monotonic() + 60.0
            while not consumer._driver._thread._asleep:  # else it needs no waking
                assert time.monotonic() < deadline
                time.sleep(0)
            broker.let_go()
            (found,) = consumer.poll(timeout=60.0)
            assert found.value == b"%d" % number
        of_polls = woken.copy()
    assert of_polls.count("network") <= 5, "a heartbeat's connection is opened, perhaps"
    assert 50 <= of_polls.count("application") <= 75, "one a record, and a renewed lease now and then"
