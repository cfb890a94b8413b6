"""An event loop in virtual time, and an `AsyncConsumer` whose network thread the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

import instride._consumer_base
import instride._net.async_driver
import instride._net.loop_mailbox
import instride.aio
from instride import AsyncConsumer, AsyncRebalanceListener, TopicPartition
from instride._core.events import (
    ApplicationEvent,
    Assigned,
    BackgroundEvent,
    CallCompleted,
    Close,
    Epochs,
    Fetched,
    Positioned,
)
from instride.testing._simulation.chunk import SimulatedChunk
from network_replies import reply

__all__ = ["CLOCKED", "Listener", "Network", "Scene", "VirtualLoop", "epochs", "patched_clock", "tp"]

T = TypeVar("T")
RESPONSE: Final = 0.01
CLOCKED: Final = (instride._consumer_base, instride.aio, instride._net.async_driver, instride._net.loop_mailbox)
"""What reads the clock."""


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def epochs(*numbers: int, epoch: int = 1) -> Epochs:
    return {tp(number): epoch for number in numbers}


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time goes to the next timer when there is nothing else to do. Where there is none either, that is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1000.0
        self.turns = 0
        # What happens before the turn of this number.
        self.before: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        return self.at

    def _run_once(self) -> None:
        waiting: Any = self
        if not waiting._ready:
            if not waiting._scheduled:
                raise RuntimeError("nobody will ever wake the tasks that wait")
            self.at = max(self.at, waiting._scheduled[0]._when)
        self.before.pop(self.turns, lambda: None)()
        self.turns += 1
        super()._run_once()  # type: ignore[misc]

    def play(self, story: Coroutine[Any, Any, T]) -> T:
        """To its end; then nothing is left of it."""
        try:
            return self.run_until_complete(story)
        finally:
            for task in asyncio.all_tasks(self):
                task.cancel()
            self.run_until_complete(asyncio.sleep(0))
            self.close()


@contextmanager
def patched_clock(loop: VirtualLoop) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in CLOCKED:
            patch.setattr(module, "now", loop.time)
        yield


class Network:
    """Stands for the network thread: responds a moment after it is woken. silent: what it does not respond to."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        driver: Any = consumer._driver
        self.events = driver._thread.events
        self.mailbox = driver._mailbox
        self.log: list[ApplicationEvent] = []
        self.silent: set[type] = set()
        self.returned: Callable[[TopicPartition], int] = lambda _: 1 << 60
        self.begun = False
        self.alive = True
        self.is_current = False
        self._futures: dict[int, Future[Any]] = {}
        self._woken = False
        driver._thread = self

    def start(self) -> None:
        self.begun = True

    def join(self, timeout: float) -> bool:
        return not self.alive

    def join_at_exit(self, timeout: float) -> None: ...

    def future(self, call: int) -> Future[Any]:
        self._futures[call] = Future()
        return self._futures[call]

    def wake(self) -> None:
        loop = asyncio._get_running_loop()
        if loop is None:
            self._turn()
        elif not self._woken:
            self._woken = True
            loop.call_later(RESPONSE, self._turn)

    def _turn(self) -> None:
        self._woken = False
        while self.events:
            event = self.events.popleft()
            self.log.append(event)
            if type(event) not in self.silent:
                self._respond(event)

    def up(self, *events: BackgroundEvent) -> None:
        for event in events:
            if isinstance(event, CallCompleted) and event.call in self._futures:
                self._futures.pop(event.call).set_result(event.result)
        self.mailbox.deliver(list(events))

    def _respond(self, event: ApplicationEvent) -> None:
        closes = isinstance(event, Close)
        self.alive = self.alive and not closes
        if (replied := reply(event, self.returned)) is not None:
            self.up(replied)
        if closes:
            self.mailbox.network_ended()

    def of(self, kind: type[T]) -> list[T]:
        return [each for each in self.log if isinstance(each, kind)]


class Listener(AsyncRebalanceListener):
    """Asynchronous: each method takes a moment. meanwhile: awaited in it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[int, ...]]] = []
        self.ended = 0
        self.meanwhile: Callable[[], Coroutine[Any, Any, object]] | None = None

    async def _hear(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append((what, tuple(each.partition for each in partitions)))
        await asyncio.sleep(0.05)
        if self.meanwhile is not None:
            await self.meanwhile()
        self.ended += 1

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._hear("assigned", partitions)

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._hear("revoked", partitions)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._hear("lost", partitions)


class Scene:
    """A consumer, its network, and what a user has seen."""

    def __init__(self, **settings: Any) -> None:
        self.consumer = AsyncConsumer(**{"bootstrap_servers": "127.0.0.1:1", "group_id": "g", **settings})
        self.network = Network(self.consumer)
        self.listener = Listener()
        self.records: dict[TopicPartition, list[int]] = {}

    def up(self, *events: BackgroundEvent) -> None:
        self.network.up(*events)

    def assigned(self, *numbers: int) -> None:
        self.up(Assigned(generation=1, partitions=epochs(*numbers)))
        for number in numbers:
            self.up(Positioned(partition=tp(number), epoch=1, seek_number=0, offset=0))

    def fetched(self, number: int, start: int, end: int, *, epoch: int = 1, fetch_number: int = 0) -> None:
        chunk = SimulatedChunk(topic="t", partition=number, first_offset=start, next_offset=end)
        self.up(
            Fetched(
                partition=tp(number), epoch=epoch, fetch_number=fetch_number, start=start, chunk=chunk, next_offset=end
            )
        )
