"""A signal's exception at every step of every call (docs/rebalance.md, rule 13).

The consumer is real; the test plays the network thread, so that each run is the same. KeyboardInterrupt is raised at
the n-th line that our own code runs, for every n, and the verb that it left is called again, as a program would. In the
end all must be as if nothing had happened. `INSTRIDE_EVERY_STEP=1` tries every line; else a sample is taken.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import instride
from instride import Consumer, TopicPartition
from instride._core.events import (
    ApplicationEvent,
    Assigned,
    BackgroundEvent,
    Close,
    Commit,
    Consumed,
    Epochs,
    Fetched,
    Lost,
    Polled,
    Positioned,
    Reassigned,
    RevocationRequested,
    Unsubscribe,
)
from instride.listeners import RebalanceListener
from instride.testing._simulation.chunk import SimulatedChunk
from network_replies import reply

OURS = str(Path(instride.__file__).parent)
STRIDE = 1 if os.environ.get("INSTRIDE_EVERY_STEP") else 23


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def epochs(*numbers: int, epoch: int = 1) -> Epochs:
    return {tp(number): epoch for number in numbers}


class Network:
    """Stands for the network thread: answers at once what is sent, whenever it is woken."""

    def __init__(self, events: deque[ApplicationEvent], up: Callable[[BackgroundEvent], None]) -> None:
        self.events = events
        self.up = up
        self.log: list[ApplicationEvent] = []
        self.returned: Callable[[TopicPartition], int] = lambda _: 0
        self.alive = True
        self.is_current = False

    def start(self) -> None: ...

    def join(self, timeout: float) -> bool:
        return True

    def future(self, call: int) -> Future[None]:
        return Future()

    def wake(self) -> None:
        while self.events:
            event = self.events.popleft()
            self.log.append(event)
            self.alive = self.alive and not isinstance(event, Close)
            if (replied := reply(event, self.returned)) is not None:
                self.up(replied)


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[int, ...]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("assigned", tuple(each.partition for each in partitions)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("revoked", tuple(each.partition for each in partitions)))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.heard.append(("lost", tuple(each.partition for each in partitions)))


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line that our code runs. at: below zero counts only."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.steps = 0
        self.where = ""

    def run(self, verb: Callable[[], Any]) -> Any:
        """Again where it was interrupted, as a program does."""
        try:
            return self._traced(verb)
        except KeyboardInterrupt:
            return self._traced(verb)

    def _traced(self, verb: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return verb()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line" and not self._is_out_of_reach(frame):
            self.steps += 1
            if self.steps - 1 == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._trace

    def _is_out_of_reach(self, frame: FrameType) -> bool:
        """The poll is completed and returns: Python runs no handler between these two steps."""
        result = frame.f_locals.get("result")
        return frame.f_code.co_name in ("poll", "poll_changes") and getattr(result, "aside", self) is None


class Scene:
    """One run. Its outcome is what a user and the group have seen in the end."""

    def __init__(self, at: int, **settings: Any) -> None:
        self.interrupter = Interrupter(at)
        self.listener = Listener()
        self.consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", **settings)
        driver = self.consumer._driver
        self.network = Network(driver._thread.events, driver._mailbox.queue.append)
        self.network.returned = lambda partition: self.ends.get(partition, 0)
        driver._thread = self.network  # type: ignore[assignment]
        self.ends: dict[TopicPartition, int] = {}
        self.records: dict[TopicPartition, list[int]] = {}
        self.lost: Counter[TopicPartition] = Counter()
        self.requested: Counter[TopicPartition] = Counter()

    def up(self, *events: BackgroundEvent) -> None:
        self.consumer._driver._mailbox.queue.extend(events)

    def fetched(self, number: int, start: int, end: int, *, epoch: int = 1, fetch_number: int = 0) -> None:
        chunk = SimulatedChunk(topic="t", partition=number, first_offset=start, next_offset=end)
        self.up(
            Fetched(
                partition=tp(number), epoch=epoch, fetch_number=fetch_number, start=start, chunk=chunk, next_offset=end
            )
        )

    def call(self, verb: Callable[[], Any]) -> Any:
        return self.interrupter.run(verb)

    def poll(self, **how: Any) -> None:
        records = self.call(lambda: self.consumer.poll(timeout=0, **how))
        for record in records:
            self.records.setdefault(record.topic_partition, []).append(record.offset)
            self.ends[record.topic_partition] = record.offset + 1
        self.lost.update(self.consumer.lost_partitions())
        self.requested.update(self.consumer.to_be_revoked_partitions())

    def outcome(self) -> dict[str, Any]:
        told = Counter(
            {
                partition: sum(each.partitions.get(partition, (0, 0, 0, 0))[2] for each in self.of(Consumed))
                for partition in self.records
            }
        )
        # What a verb told before it was interrupted is told again by its repetition.
        others = [each for each, _ in groupby(self.network.log) if not isinstance(each, Polled | Consumed | Commit)]
        return {
            "records": self.records,
            "told as consumed": told,
            "lost": self.lost,
            "requested": self.requested,
            "heard": self.listener.heard,
            "told": others,
            "paused": self.still(self.consumer.paused),
            "assigned": self.still(self.consumer.assignment),
        }

    def of(self, kind: type) -> Iterator[Any]:
        return (each for each in self.network.log if isinstance(each, kind))

    def still(self, look: Callable[[], Any]) -> Any:
        """From another thread: nobody is left inside."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(look() if not self.consumer._driver.closed else "closed"))
        thread.start()
        thread.join()
        return found[0]


def polling(scene: Scene) -> None:
    consumer = scene.consumer
    scene.call(lambda: consumer.subscribe(["t"], listener=scene.listener))
    scene.up(Assigned(generation=1, partitions=epochs(0, 1, 2)))
    for number in (0, 1, 2):
        scene.up(Positioned(partition=tp(number), epoch=1, seek_number=0, offset=0))
    scene.fetched(0, 0, 4)
    scene.fetched(1, 0, 3)
    scene.poll(max_records=5)
    scene.poll()
    scene.poll()  # an interrupted poll may have shifted whose turn it is
    scene.fetched(0, 4, 6)
    scene.up(RevocationRequested(partitions=epochs(1, 2), deadline=float("inf")))
    scene.poll()
    scene.call(lambda: consumer.delay_revoke([tp(1)]))
    scene.up(Lost(partitions=epochs(2)))
    scene.poll()
    scene.call(lambda: consumer.commit(timeout=0))
    scene.up(Reassigned(partitions=epochs(1)), RevocationRequested(partitions=epochs(0), deadline=float("inf")))
    scene.poll()
    scene.fetched(1, 3, 5, fetch_number=2)
    scene.poll()
    scene.poll()


def verbs(scene: Scene) -> None:
    consumer = scene.consumer
    scene.call(lambda: consumer.assign([tp(0), tp(1)]))
    for number in (0, 1):
        scene.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=0))
        scene.fetched(number, 0, 3, epoch=number + 1)
    scene.poll(max_records=2)
    scene.call(lambda: consumer.pause(tp(0)))
    scene.poll()
    scene.call(lambda: consumer.resume(tp(0)))
    scene.call(consumer.commit_async)
    scene.poll()
    scene.call(lambda: consumer.pause(tp(1)))
    scene.poll()


def ending(scene: Scene, end: Callable[[Consumer], None]) -> None:
    scene.consumer.subscribe(["t"], listener=scene.listener)
    scene.up(Assigned(generation=1, partitions=epochs(0, 1)))
    scene.poll()
    scene.call(lambda: end(scene.consumer))


def closing(scene: Scene) -> None:
    ending(scene, lambda consumer: consumer.close(timeout=5))


def unsubscribing(scene: Scene) -> None:
    ending(scene, lambda consumer: consumer.unsubscribe(timeout=5))


def identity(data: bytes) -> bytes:
    return data


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "auto-commit": {"enable_auto_commit": True, "auto_commit_interval": 0.01},
    "deserializers": {"key_deserializer": identity, "value_deserializer": identity},
    "proportional": {"fetch_fairness": "proportional"},
}


def runs(story: Callable[[Scene], None], **settings: Any) -> Iterator[tuple[Scene, Scene]]:
    """Each run with an interrupt, beside one without."""
    quiet = Scene(-1, **settings)
    story(quiet)
    for at in range(0, quiet.interrupter.steps, STRIDE):
        scene = Scene(at, **settings)
        story(scene)
        yield scene, quiet


@pytest.mark.rule("13")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("story", [polling, verbs])
def test_wherever_a_call_is_interrupted_all_goes_on_as_if_nothing_had_been(
    story: Callable[[Scene], None], settings: str
) -> None:
    chosen = SETTINGS[settings]
    if story is polling and settings == "auto-commit":
        pytest.skip("delay_revoke is refused with auto-commit")
    for scene, quiet in runs(story, **chosen):
        outcome, expected = scene.outcome(), quiet.outcome()
        assert outcome == expected, scene.interrupter.where


@pytest.mark.rule("13")
@pytest.mark.parametrize("story", [closing, unsubscribing])
def test_wherever_an_end_is_interrupted_the_membership_ends(story: Callable[[Scene], None]) -> None:
    for scene, quiet in runs(story):
        left = [*scene.of(Close), *scene.of(Unsubscribe)]
        assert left, scene.interrupter.where
        assert scene.still(scene.consumer.assignment) == quiet.still(quiet.consumer.assignment), scene.interrupter.where
