"""`ThreadWorkers`, whose threads meet between any two steps: no end of a record and no wake-up is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from typing import Any

import pytest
from engine_help import Bench, desk_of
from processing_help import P0

from instride import ConsumerRecord, Retry
from instride._processing.engine import Job
from instride._processing.lifespan import SyncLifespan
from instride._processing.thread_workers import ThreadWorkers, _Gate
from interleaving import Interleaving

HERE = ("/_processing/thread_workers.py",)


def records(start: int, many: int) -> list[ConsumerRecord]:
    return [ConsumerRecord(*P0, offset, epoch=1, value=b"v") for offset in range(start, start + many)]


class Hand(threading.Thread):
    """A thread of the workers whose turns the test takes. None: it rests, or has gone."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = _Gate()
        self.job: Job | None = None
        self.stays = True

    def join(self, timeout: float | None = None) -> None:
        """It never runs."""

    @property
    def is_let_on(self) -> bool:
        return not self.gate._lock.locked()


@dataclass(slots=True)
class Scene:
    """Three hands: two have a record each and one rests. So many more records are queued."""

    queued: int
    locked: Interleaving
    bench: Bench = field(default_factory=lambda: Bench(order="none"))
    hands: list[Hand] = field(default_factory=lambda: [Hand() for _ in range(3)])
    ended: int = 0
    may_start: Callable[[], bool] = lambda: True
    workers: ThreadWorkers = field(init=False)

    def __post_init__(self) -> None:
        lock: Any = self.locked.lock()
        desk = desk_of(self.bench.engine, lock, may_start=self._asks)
        self.workers = ThreadWorkers(desk, lambda _: None, None, 3, SyncLifespan())
        self.workers._threads = list(self.hands)
        self.bench.submit(records(0, 2 + self.queued))
        for hand in self.hands[:2]:
            hand.job = self.bench.take()
        self.workers._resting.append(self.hands[2].gate)

    def _asks(self) -> bool:
        return self.may_start()

    def end(self, number: int) -> None:
        """What a thread does after its handler."""
        hand = self.hands[number]
        self.workers._ended.append((hand.job, None)) if hand.job else None
        self.ended += hand.job is not None
        hand.job, hand.stays = self.workers._next(hand, hand.gate)

    def wake_up(self, number: int) -> None:
        """What a thread does that rested, if it was let on."""
        hand = self.hands[number]
        if hand.is_let_on:
            self.workers._rest(hand.gate)
            self.end(number)

    def poll(self) -> None:
        with self.workers._desk.lock:
            self.bench.submit(records(100, 1))
        self.workers.wake()

    def go_on(self) -> None:
        """As by the acknowledgement of a letter, which another record waited for."""
        with self.workers._desk.lock:
            self.bench.submit(records(100, 1))
        self.workers._go_on()

    def close(self) -> None:
        self.workers.close()

    def judge(self) -> None:
        workers, engine = self.workers, self.bench.engine
        assert engine.tally.finished == self.ended, "an end was lost"
        assert (workers._is_served, workers._is_awaited) == (False, False)
        resting = [hand for hand in self.hands if hand.stays and hand.job is None]
        listed = [hand for hand in resting if hand.gate in workers._resting]
        let_on = [hand for hand in self.hands if hand.stays and hand.is_let_on]
        assert len(workers._resting) == len(listed), "one is listed that does not rest"
        assert sorted(map(id, [*listed, *let_on])) == sorted(map(id, resting)), (
            "one rests for ever, or one at work is let on"
        )
        assert workers._is_waking == bool(let_on) or workers._closed
        if workers._closed:
            assert not listed, "one rests after the end"
        elif engine.has_next(0.0) and resting:
            assert let_on, "there is more, and nobody comes"


Call = Callable[[Scene], object]
FIRST: dict[str, Call] = {"a thread ends": lambda scene: scene.end(0), "a poll": Scene.poll, "a letter": Scene.go_on}
SECOND: dict[str, Call] = {
    "another ends": lambda scene: scene.end(1),
    "one wakes up": lambda scene: scene.wake_up(2),
    "a poll": Scene.poll,
    "a letter": Scene.go_on,
    "the end": Scene.close,
}


def meet(queued: int, first: Call, others: dict[int, Call], **kind: Any) -> int:
    """How many of the others met it."""
    all_of_them: dict[int, Callable[[], object]] = {}
    met = Interleaving(HERE, all_of_them, **kind)
    scene = Scene(queued, met)
    all_of_them |= {at: partial(other, scene) for at, other in others.items()}
    met.run(partial(first, scene))
    scene.judge()
    return met.called


@pytest.mark.parametrize("queued", [0, 1, 2])
@pytest.mark.parametrize(("first", "second"), list(product(FIRST, SECOND)))
def test_wherever_two_threads_meet_no_end_and_no_wake_up_is_lost(queued: int, first: str, second: str) -> None:
    met = next(at for at in count() if not meet(queued, FIRST[first], {at: SECOND[second]}))
    assert met > 30


@pytest.mark.drawn(2)
@pytest.mark.parametrize("queued", [0, 2])
@pytest.mark.parametrize("third", ["one wakes up", "a poll", "the end"])
def test_wherever_a_third_comes_while_the_second_waits_nothing_is_lost_either(queued: int, third: str) -> None:
    meetings = 0
    for at in count():
        others = SECOND["another ends"], SECOND[third]
        of_both = [
            meet(queued, FIRST["a thread ends"], {at: others[0], later: others[1]}, kind="line")
            for later in range(at + 1, at + 40)
        ]
        meetings += of_both.count(2)
        if 2 not in of_both:
            break
    assert meetings > 300


class Inside:
    """A thread that has the lock, after it has looked at what ended, and goes on when it is let."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._is_inside, self._goes_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=scene.end, args=(1,), daemon=True)
        scene.may_start = self._pause
        self._thread.start()
        self._is_inside.wait()
        scene.may_start = lambda: True

    def _pause(self) -> bool:
        self._is_inside.set()
        self._goes_on.wait()
        return True

    def leave(self) -> None:
        self._goes_on.set()
        self._thread.join()


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("queued", [0, 1, 2])
@pytest.mark.parametrize("second", ["end", "wake_up"])
def test_wherever_the_one_with_the_lock_leaves_it_another_has_not_come_in_vain(
    queued: int, second: str, is_closed: bool
) -> None:
    for at in count():
        leaves: dict[int, Callable[[], object]] = {}
        met = Interleaving(HERE, leaves)
        scene = Scene(queued, met)
        if is_closed or second == "wake_up":
            scene.workers.wake() if queued else scene.close()
        if is_closed:
            scene.close()
        inside = Inside(scene)
        leaves[at] = inside.leave
        met.run(partial(scene.end, 0) if second == "end" else partial(scene.wake_up, 2))
        inside.leave()
        scene.judge()
        if not met.called:
            break
    assert at > 10


def test_behind_a_poll_one_thread_waits_for_the_lock_and_the_others_rest() -> None:
    met = Interleaving(HERE, {})
    scene, lock, waits = Scene(0, met), met.lock(), threading.Event()
    lock._told = waits.set
    scene.workers._desk = desk_of(scene.bench.engine, lock)  # type: ignore[arg-type]  # scripted
    polls, has_polled = threading.Event(), threading.Event()

    def poll() -> None:
        with lock:
            polls.set()
            has_polled.wait()

    first = threading.Thread(target=scene.end, args=(0,), daemon=True)
    threading.Thread(target=poll, daemon=True).start()
    polls.wait()
    first.start()
    waits.wait()
    lock._told = partial(pytest.fail, "the second waits for the poll too")
    scene.end(1)
    assert (scene.hands[1].job, scene.ended) == (None, 2)
    has_polled.set()
    first.join()
    scene.judge()


def test_what_ended_in_time_is_not_late_before_anybody_has_looked_at_it() -> None:
    """Its thread waits for the lock while the loop, which has it, looks for what is late."""
    bench, hand, times = Bench(order="none", retry=Retry(attempts=2)), Hand(), [0.0]
    desk = desk_of(bench.engine, clock=lambda: times[-1])
    workers = ThreadWorkers(desk, lambda _: None, None, 1, SyncLifespan(), timeout=0.5)
    workers._threads.append(hand)
    bench.submit(records(0, 2))
    hand.job, _ = workers._next(hand, hand.gate)
    assert hand.job is not None
    workers._ended.append((hand.job, None))
    times.append(1.0)
    workers.wake()
    workers._next(hand, hand.gate)
    assert (bench.engine.tally.finished, bench.engine.tally.retried) == (1, 0)
