"""A verb inside a call that waits may take out of the queue what ends the wait (law 7 of `driver`).

Telemetry's listener calls it after the call's last look; a signal's handler, amid the wait. The wait is the real one:
its token is scripted, and fails the test where the call would sleep on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

import instride._consumer_base
import instride._net.driver
import instride._net.mailbox
from instride import Consumer, TopicPartition
from instride._core.events import (
    Assigned,
    CallCompleted,
    Close,
    Commit,
    CompleteRevoke,
    Fetched,
    FetchMetadata,
    FetchOffsets,
    Lost,
    Noticed,
    Positioned,
    Unsubscribe,
    Wakeup,
)
from instride.commits import CommitResult
from instride.errors import TransportError, WakeupError
from instride.records import OffsetAndTimestamp
from instride.telemetry import DelayAtRisk
from instride.testing._simulation.chunk import SimulatedChunk
from network_replies import reply

pytestmark = pytest.mark.rule("21")
TP = TopicPartition("t", 0)


@dataclass(slots=True)
class Clock:
    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@dataclass(slots=True)
class Token:
    """Of the mailbox. meanwhile: a signal's handler runs in the first wait. sleeps: whether a wait may take time."""

    clock: Clock
    sleeps: bool = False
    left: bool = False
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def locked(self) -> bool:
        return not self.left

    def release(self) -> None:
        self.left = True

    def acquire(self, timeout: float) -> bool:
        while self.meanwhile:
            self.meanwhile.pop()()
        taken, self.left = self.left, False
        if not taken:
            assert self.sleeps, "it sleeps on"
            self.clock.at += timeout
        return taken


class Scene:
    """A member that owns t-0, and its network side, which says nothing of `silent` until `respond`."""

    def __init__(self, clock: Clock) -> None:
        self.within: list[Callable[[], object]] = []
        self.consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", telemetry=self._listen)
        driver: Any = self.consumer._driver
        self.events: deque[Any] = driver._thread.events
        self.mailbox = driver._mailbox
        self.token = self.mailbox._no_token = Token(clock)
        self.silent = False
        self.asked: list[Any] = []
        self.begun = False
        self.alive = True
        self.is_current = False
        driver._thread = self
        self.consumer.subscribe(["t"])
        self.up(Assigned(generation=1, partitions={TP: 1}))
        self.consumer.poll(timeout=0)

    def _listen(self, _: object) -> None:
        while self.within:
            self.within.pop()()

    def up(self, *events: Any) -> None:
        self.mailbox.deliver(list(events))

    def found(self) -> None:
        self.up(Positioned(partition=TP, epoch=1, seek_number=0, offset=0))

    def fetched(self) -> None:
        chunk = SimulatedChunk(topic="t", partition=0, first_offset=0, next_offset=3)
        self.up(Fetched(partition=TP, epoch=1, fetch_number=0, start=0, chunk=chunk, next_offset=3))

    # as the network thread

    def start(self) -> None:
        self.begun = True

    def join(self, timeout: float) -> bool:
        return True

    def future(self, call: int) -> Future[None]:
        return Future()

    def wake(self) -> None:
        while self.events:
            event = self.events.popleft()
            self.asked.append(event)
            if not self.silent:
                self._reply(event)

    def _reply(self, event: Any) -> None:
        self.alive = self.alive and not isinstance(event, Close)
        replied = reply(event, lambda _: 1 << 60)
        if isinstance(event, FetchOffsets):
            replied = CallCompleted(call=event.call, result={TP: OffsetAndTimestamp(offset=3, timestamp=-1)})
        elif isinstance(event, FetchMetadata):
            replied = CallCompleted(call=event.call, result={})
        elif isinstance(event, Commit):
            replied = CallCompleted(call=event.call, result=CommitResult(), committed=dict.fromkeys(event.entries))
        if replied is not None:
            self.up(replied)

    def respond(self) -> None:
        for event in self.asked:
            self._reply(event)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (instride._consumer_base, instride._net.mailbox, instride._net.driver):
        monkeypatch.setattr(module, "now", made)
    return made


def fetched(scene: Scene) -> None:
    scene.fetched()
    scene.consumer.lag(TP)


def resumed(scene: Scene) -> None:
    scene.consumer.resume(TP)


def lost(scene: Scene) -> None:
    scene.up(Lost(partitions={TP: 1}))
    scene.consumer.assignment()


def woken(scene: Scene) -> None:
    scene.up(Wakeup())
    scene.consumer.subscription()


def positioned(scene: Scene) -> None:
    scene.found()
    scene.consumer.failed_partitions()


def responded(scene: Scene) -> None:
    scene.respond()
    scene.consumer.assignment()


def commits(scene: Scene) -> None:
    """A whole round trip: the other call's response comes with it."""
    scene.respond()
    scene.silent = False
    scene.consumer.commit({TP: 0}, timeout=5.0)


def polls_records(scene: Scene) -> None:
    assert len(scene.consumer.poll()) == 3


def polls_paused_ones(scene: Scene) -> None:
    scene.fetched()
    assert len(scene.consumer.poll()) == 3


def is_woken(scene: Scene) -> None:
    with pytest.raises(WakeupError):
        scene.consumer.poll()


CALLS: dict[str, tuple[Callable[[Scene], object], Callable[[Scene], object]]] = {
    "records": (polls_records, fetched),
    "records of what was paused": (polls_paused_ones, resumed),
    "a loss": (lambda scene: scene.consumer.poll(), lost),
    "a wakeup": (is_woken, woken),
    "a position": (lambda scene: scene.consumer.position(TP), positioned),
    "a commit": (lambda scene: scene.consumer.commit({TP: 1}), responded),
    "a commit beside another": (lambda scene: scene.consumer.commit({TP: 1}), commits),
    "committed offsets": (lambda scene: scene.consumer.committed(TP), responded),
    "the end of a log": (lambda scene: scene.consumer.end_offsets([TP]), responded),
    "topics": (lambda scene: scene.consumer.list_topics(), responded),
}


@pytest.mark.parametrize("where", ["telemetry's listener", "a signal's handler"])
@pytest.mark.parametrize("name", CALLS)
def test_what_a_verb_within_a_wait_takes_or_changes_ends_the_wait(clock: Clock, name: str, where: str) -> None:
    call, within = CALLS[name]
    scene = Scene(clock)
    if name != "a position":
        scene.found()
        scene.consumer.lag(TP)
    if within is resumed:
        scene.consumer.pause(TP)
    scene.silent = within in (responded, commits)
    if where == "a signal's handler":
        scene.token.meanwhile.append(lambda: within(scene))
    else:
        scene.within.append(lambda: within(scene))
        scene.up(Noticed(event=DelayAtRisk(at=clock.at, partition=TP, epoch=1, seconds_left=1.0)))
    scene.asked.clear()
    call(scene)
    assert not scene.within
    assert not scene.token.meanwhile


@pytest.mark.parametrize("where", ["telemetry's listener", "a signal's handler"])
@pytest.mark.parametrize("end", ["unsubscribe", "close"])
@pytest.mark.parametrize("awaited", [CompleteRevoke, Unsubscribe])
def test_what_a_verb_takes_within_an_end_keeps_it_no_longer(clock: Clock, end: str, where: str, awaited: type) -> None:
    scene = Scene(clock)
    scene.found()
    reply_to, kinds = scene._reply, (awaited, Close) if awaited is Unsubscribe else (awaited,)

    def late(event: Any) -> None:
        if not isinstance(event, kinds):
            reply_to(event)
            return
        within = lambda: (reply_to(event), scene.consumer.assignment())  # noqa: E731
        (scene.token.meanwhile if where == "a signal's handler" else scene.within).append(within)
        scene.up(Noticed(event=DelayAtRisk(at=clock.at, partition=TP, epoch=1, seconds_left=1.0)))

    scene._reply = late  # type: ignore[method-assign]
    getattr(scene.consumer, end)()
    assert not scene.within
    assert not scene.token.meanwhile


def test_verbs_within_a_call_leave_one_word_at_most(clock: Clock) -> None:
    """In a deserializer that asks for the lag of each record, say."""
    scene = Scene(clock)
    with scene.consumer._driver.use():
        for _ in range(5):
            scene.consumer.pause(TP)
        assert len(scene.mailbox.queue) == 1


def test_a_start_that_failed_is_tried_again_by_the_next_poll(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon that comes: else it waits for a network thread that there is not."""
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", retry_backoff=0.001)
    starts = []

    def fail() -> None:
        starts.append(clock.at)
        raise TransportError("no thread is left")

    monkeypatch.setattr(consumer._driver._thread, "start", fail)
    consumer._driver._mailbox._no_token = Token(clock, sleeps=True)  # type: ignore[assignment]  # scripted
    with pytest.raises(TransportError):
        consumer.assign([TP])
    for _ in range(3):
        with pytest.raises(TransportError):
            consumer.poll(timeout=0)
    assert len(starts) == 4
