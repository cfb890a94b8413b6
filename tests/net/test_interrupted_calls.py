"""A signal's exception at every step of every call (docs/rebalance.md, rule 13).

The consumer is real; the test plays the network thread, so that each run is the same. KeyboardInterrupt is raised at
the n-th line that our own code runs, for every n, and the verb that it left is called again, as a program would. In the
end all must be as if nothing had happened. A run tries one line in 47; the commit says at which it begins, so
that over some commits all are tried. `make interrupts` tries every line (`INSTRIDE_WHOLE=1`).

A poll is also left for good, at every line: another verb comes after it, and no commit may cover what it took.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import instride
from contained import contained
from drawn_by_commit import WHOLE, commit
from instride import Changes, Consumer, TopicPartition
from instride._core.events import (
    ApplicationEvent,
    Assigned,
    BackgroundEvent,
    Close,
    Commit,
    Consumed,
    Epochs,
    FetchCommitted,
    Fetched,
    Lost,
    Polled,
    Positioned,
    Reassigned,
    RevocationRequested,
    SetPosition,
    Unsubscribe,
)
from instride._wire.arrow import schema
from instride.listeners import RebalanceListener
from instride.testing._simulation.chunk import SimulatedChunk
from network_replies import reply

# Whose calls ask for the time: it may not decide which lines a call runs, or an interrupt would come to another one.
TIMED = ("_consumer_base", "_net.driver", "_net.mailbox")
OURS = str(Path(instride.__file__).parent)
STRIDE = 1 if WHOLE else 47
FIRST = int(commit(), 16)


class Clock:
    """Each look at it takes a millisecond, in whichever process and beside whatever load."""

    at = 0.0

    def __call__(self) -> float:
        self.at += 0.001
        return self.at


CLOCK = Clock()


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def epochs(*numbers: int, epoch: int = 1) -> Epochs:
    return {tp(number): epoch for number in numbers}


class Network:
    """Stands for the network thread: responds at once to what is sent, whenever it is woken."""

    def __init__(self, events: deque[ApplicationEvent], up: Callable[[BackgroundEvent], None]) -> None:
        self.events = events
        self.up = up
        self.log: list[ApplicationEvent] = []
        self.returned: Callable[[TopicPartition], int] = lambda _: 0
        self.asked: dict[TopicPartition, SetPosition] = {}
        self.found: dict[TopicPartition, int] = {}
        self.begun = False
        self.alive = True
        self.is_current = False

    def start(self) -> None:
        self.begun = True

    def join(self, timeout: float) -> bool:
        return True

    def join_at_exit(self, timeout: float) -> None: ...

    def future(self, call: int) -> Future[None]:
        return Future()

    def wake(self) -> None:
        while self.events:
            event = self.events.popleft()
            self.log.append(event)
            self.alive = self.alive and not isinstance(event, Close)
            if isinstance(event, SetPosition):
                self.asked[event.partition] = event
            if (replied := reply(event, self.returned)) is not None:
                if isinstance(replied, Positioned):
                    self.found[replied.partition] = replied.offset
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
    """Raises KeyboardInterrupt at a line of our code: at = (which call, which of its lines). None: it counts them."""

    def __init__(self, at: tuple[int, int] | None) -> None:
        self.at = at
        self.lines: list[int] = []
        self.where = ""

    def run(self, verb: Callable[[], Any]) -> Any:
        """Again where it was interrupted, as a program does."""
        try:
            return self.once(verb)
        except KeyboardInterrupt:
            return verb()

    def once(self, verb: Callable[[], Any]) -> Any:
        self.lines.append(0)
        # To trace is most of the cost: only the call that is to be interrupted is traced.
        if self.at is None or self.at[0] == len(self.lines) - 1:
            return self._traced(verb)
        return verb()

    def _traced(self, verb: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return contained(verb)
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line" and not self._is_out_of_reach(frame):
            self.lines[-1] += 1
            if self.at == (len(self.lines) - 1, self.lines[-1] - 1):
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._trace

    def _is_out_of_reach(self, frame: FrameType) -> bool:
        """The poll is completed and returns: Python runs no handler between these two steps."""
        result = frame.f_locals.get("result")
        return frame.f_code.co_name in ("poll", "poll_changes", "poll_arrow") and getattr(result, "aside", self) is None


POLLS: dict[str, Callable[..., Any]] = {
    "poll": lambda consumer, **how: consumer.poll(timeout=0, **how),
    "poll_changes": lambda consumer, **how: consumer.poll_changes(timeout=0, **how),
    "poll_arrow": lambda consumer, **how: consumer.poll_arrow(timeout=0, **how),
}


def offsets(returned: Any) -> list[tuple[TopicPartition, int]]:
    """Of whatever a poll returns."""
    if isinstance(returned, pa.Table):
        return [(TopicPartition(row["topic"], row["partition"]), row["offset"]) for row in returned.to_pylist()]
    records = returned.records if isinstance(returned, Changes) else returned
    return [(each.topic_partition, each.offset) for each in records]


REPEATED = (Polled, Consumed, Commit, FetchCommitted)


def without_numbers(event: ApplicationEvent) -> Any:
    """A seek that is done again has other numbers."""
    return ("seek", event.partition, event.offset) if isinstance(event, SetPosition) else event


class Scene:
    """One run. Its outcome is what a user and the group have seen in the end."""

    def __init__(self, at: tuple[int, int] | None = None, **settings: Any) -> None:
        CLOCK.at = 1000.0
        self.interrupter = Interrupter(at)
        self.listener = Listener()
        self.consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", **settings)
        driver = self.consumer._driver
        self.network = Network(driver._thread.events, driver._mailbox.queue.append)
        self.network.returned = lambda partition: max(self.ends.get(partition, 0), self.network.found.get(partition, 0))
        driver._thread = self.network  # type: ignore[assignment]
        self.ends: dict[TopicPartition, int] = {}
        self.records: dict[TopicPartition, list[int]] = {}
        self.lost: Counter[TopicPartition] = Counter()
        self.requested: Counter[TopicPartition] = Counter()
        self.seen: list[Any] = []

    def up(self, *events: BackgroundEvent) -> None:
        self.consumer._driver._mailbox.queue.extend(events)

    def fetched(self, number: int, start: int, end: int, *, epoch: int = 1, fetch_number: int = 0) -> None:
        chunk = SimulatedChunk(topic="t", partition=number, first_offset=start, next_offset=end)
        self.up(
            Fetched(
                partition=tp(number), epoch=epoch, fetch_number=fetch_number, start=start, chunk=chunk, next_offset=end
            )
        )

    def refetched(self, number: int, start: int, end: int) -> None:
        """What comes where a seek wanted it."""
        asked = self.network.asked[tp(number)]
        self.fetched(number, start, end, epoch=asked.epoch, fetch_number=asked.fetch_number)

    def call(self, verb: Callable[[], Any]) -> Any:
        return self.interrupter.run(verb)

    def see(self, verb: Callable[[], Any]) -> None:
        self.seen.append(self.call(verb))

    def poll(self, kind: str = "poll", **how: Any) -> None:
        self.take(self.call(lambda: POLLS[kind](self.consumer, **how)))

    def leave(self, kind: str) -> None:
        """A poll that is not repeated."""
        with suppress(KeyboardInterrupt):
            self.take(self.interrupter.once(lambda: POLLS[kind](self.consumer)))

    def take(self, returned: Any) -> None:
        for partition, offset in offsets(returned):
            self.records.setdefault(partition, []).append(offset)
            self.ends[partition] = offset + 1
        self.lost.update(self.consumer.lost_partitions())
        self.requested.update(self.consumer.to_be_revoked_partitions())

    def committed(self) -> dict[TopicPartition, int]:
        return {partition: entry.offset for each in self.of(Commit) for partition, entry in each.entries.items()}

    def outcome(self) -> dict[str, Any]:
        told = Counter(
            {
                partition: sum(each.partitions.get(partition, (0, 0, 0, 0))[2] for each in self.of(Consumed))
                for partition in self.records
            }
        )
        # What a verb told before it was interrupted is told again by its repetition.
        others = [each for each, _ in groupby(map(without_numbers, self.network.log)) if not isinstance(each, REPEATED)]
        return {
            "records": self.records,
            "told as consumed": told,
            "lost": self.lost,
            "requested": self.requested,
            "heard": self.listener.heard,
            "told": others,
            "seen": self.seen,
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


def seeking(scene: Scene) -> None:
    began(scene)
    consumer = scene.consumer
    scene.poll("poll_changes", max_records=2)
    scene.call(lambda: consumer.seek(tp(0), 1))
    scene.see(lambda: consumer.position(tp(0), timeout=5))
    scene.refetched(0, 1, 4)
    scene.poll()
    scene.call(lambda: consumer.seek_to_beginning(tp(1)))
    scene.see(lambda: consumer.position(tp(1), timeout=5))
    scene.refetched(1, 0, 3)
    scene.poll("poll_changes")
    scene.see(lambda: consumer.committed(tp(0), tp(1), timeout=5))
    scene.call(lambda: consumer.seek_to_end(tp(0)))
    scene.see(lambda: consumer.position(tp(0), timeout=5))
    scene.refetched(0, 9, 12)
    scene.poll("poll_changes")


def began(scene: Scene) -> None:
    """Two partitions, each with records; nothing is interrupted before."""
    scene.consumer.subscribe(["t"], listener=scene.listener)
    scene.up(Assigned(generation=1, partitions=epochs(0, 1)))
    for number in (0, 1):
        scene.up(Positioned(partition=tp(number), epoch=1, seek_number=0, offset=0))
        scene.fetched(number, 0, 4)


def pausing(scene: Scene) -> None:
    scene.consumer.pause(tp(0), tp(1))
    scene.consumer.resume(tp(0), tp(1))


def seeking_to_where_it_is(scene: Scene) -> None:
    for number in (0, 1):
        here = scene.ends.get(tp(number), 0)
        assert scene.consumer.position(tp(number), timeout=5) == here, scene.interrupter.where
        scene.consumer.seek(tp(number), here)
        scene.refetched(number, here, 6)


AFTER: dict[str, Callable[[Scene], object]] = {
    "commit": lambda scene: scene.consumer.commit(timeout=5),
    "close": lambda scene: scene.consumer.close(timeout=5),
    "unsubscribe": lambda scene: scene.consumer.unsubscribe(timeout=5),
    "seek": seeking_to_where_it_is,
    "pause and resume": pausing,
}
ENDS = ("close", "unsubscribe")


def left_for_good(scene: Scene, kind: str, after: str) -> None:
    """One poll that returns, one that is interrupted and not repeated, then another verb, and the end."""
    began(scene)
    scene.take(POLLS["poll"](scene.consumer, max_records=5))
    for number in (0, 1):
        scene.fetched(number, 4, 6)
    scene.leave(kind)
    AFTER[after](scene)
    if after in ("commit", *ENDS):
        assert scene.committed() == scene.ends, scene.interrupter.where
    if after not in ENDS:
        for _ in range(3):
            scene.take(POLLS["poll"](scene.consumer))
        assert scene.records == {tp(number): list(range(6)) for number in (0, 1)}, scene.interrupter.where
        scene.consumer.close(timeout=5)


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


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in TIMED:
        monkeypatch.setattr(f"instride.{module}.now", CLOCK)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated records have none; these are what a poll needs to return them."""

    def to_arrow(chunk: SimulatedChunk, _: object = None, **layout: bool) -> pa.RecordBatch:
        row = {"topic": chunk.topic, "partition": chunk.partition, "timestamp": 0, "timestamp_type": 0, "headers": []}
        rows = [{**row, "offset": offset} for offset in range(chunk.first_offset, chunk.next_offset)]
        return pa.RecordBatch.from_pylist(rows, schema=schema(**layout))

    monkeypatch.setattr(SimulatedChunk, "to_arrow", to_arrow)


def runs(story: Callable[[Scene], None], *, stride: int = STRIDE, **settings: Any) -> Iterator[tuple[Scene, Scene]]:
    """Each run with an interrupt, beside one without."""
    for _ in range(2):  # what is imported or compiled by the first is none of the other's lines
        quiet = Scene(**settings)
        story(quiet)
    places = [(call, line) for call, lines in enumerate(quiet.interrupter.lines) for line in range(lines)]
    for at in places[FIRST % min(stride, len(places)) :: stride]:
        scene = Scene(at, **settings)
        story(scene)
        yield scene, quiet


@pytest.mark.rule("13")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("story", [polling, verbs, seeking])
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


@pytest.mark.rule("13")
@pytest.mark.parametrize("leave", [None, True, False])
def test_an_interrupted_close_leaves_as_it_was_told_to(leave: bool | None) -> None:
    """A static member by its setting: None stays in the group."""

    def story(scene: Scene) -> None:
        ending(scene, lambda consumer: consumer.close(timeout=5, leave_group=leave))

    for scene, _ in runs(story, group_instance_id="i"):
        assert {each.leave for each in scene.of(Close)} == {leave}, scene.interrupter.where


@pytest.mark.rule("13")
@pytest.mark.parametrize("kind", POLLS)
@pytest.mark.parametrize("after", AFTER)
def test_what_an_interrupted_poll_took_is_never_committed_and_is_returned_later(kind: str, after: str) -> None:
    """With auto-commit at every line. Above, a repeated poll makes good what the interrupted one left."""
    settings = {"enable_auto_commit": after in ENDS, "auto_commit_interval": 3600.0}
    stride = 1 if (kind, after) == ("poll", "close") else STRIDE
    for scene, _ in runs(lambda scene: left_for_good(scene, kind, after), stride=stride, **settings):
        assert scene.interrupter.where
