"""A cancellation at every turn of the loop, of every call (docs/rebalance.md, rule 13).

The loop's time is virtual and the test plays the network thread, so that each run is the same. The task of the verb
that is under way is cancelled before the n-th turn, for every n, and the verb is called again, as a program would. In
the end all must be as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import groupby
from typing import Any

import pytest
from aio_help import Scene, VirtualLoop, epochs, patched_clock, tp
from hypothesis import given
from hypothesis import strategies as st

from instride import TopicPartition
from instride._core.events import (
    Close,
    Commit,
    Consumed,
    Lost,
    Polled,
    Positioned,
    Reassigned,
    RevocationRequested,
    Unsubscribe,
)

Verb = Callable[[], Coroutine[Any, Any, Any]]


class Cancelled(Scene):
    """One run. at: before which turn of the loop what is under way is cancelled; -1 is never."""

    def __init__(self, loop: VirtualLoop, at: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.under_way: asyncio.Task[Any] | None = None
        self.cancellations = 0
        self.begun = False
        self.seen: dict[str, Any] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.lost: set[TopicPartition] = set()
        self.requested: set[TopicPartition] = set()
        self.holding: set[TopicPartition] = set()
        self.network.returned = lambda partition: self.ends.get(partition, 0)
        self._loop = loop
        loop.before[at] = self.cancel

    def cancel(self) -> None:
        if self.under_way is not None:
            self.under_way.cancel()

    async def call(self, verb: Verb) -> Any:
        """Again where it was cancelled."""
        while True:
            self.under_way = asyncio.create_task(verb())
            try:
                return await self.under_way
            except asyncio.CancelledError:
                self.cancellations += 1
            finally:
                self.under_way = None

    async def once(self, verb: Verb) -> None:
        """Not again where it was cancelled, in the middle or before its first step."""

        async def begun() -> None:
            self.begun = True
            await verb()

        self.under_way = asyncio.create_task(begun())
        await asyncio.wait([self.under_way])

    async def poll(self, *, timeout: float | None = None, **how: Any) -> None:
        records = await self.call(lambda: self.consumer.poll(timeout=timeout, **how))
        for record in records:
            self.records.setdefault(record.topic_partition, []).append(record.offset)
            self.ends[record.topic_partition] = record.offset + 1
        self.lost |= self.consumer.lost_partitions()
        requested = self.consumer.to_be_revoked_partitions()
        self.requested |= requested
        self.consumer.delay_revoke(requested & self.holding)

    async def poll_until(self, done: Callable[[], object]) -> None:
        polls = 0
        while not done():
            polls += 1
            assert polls < 50, self.outcome()
            await self.poll(timeout=1.0)

    def outcome(self) -> dict[str, Any]:
        told = [each for each, _ in groupby(self.network.log) if not isinstance(each, Polled | Consumed | Commit)]
        return {
            "records": self.records,
            "lost": self.lost,
            "requested": self.requested,
            "heard": self.listener.heard,
            "told": told,
            "assigned": self.consumer.assignment() if not self.consumer._driver.closed else "closed",
        }


async def polling(scene: Cancelled) -> None:
    """Records that are there, and records that come; a revoke that is delayed, reassigned, completed; a loss."""
    consumer, loop = scene.consumer, scene._loop
    consumer.subscribe(["t"], listener=scene.listener)
    loop.call_later(0.1, scene.assigned, 0, 1, 2)
    loop.call_later(0.3, scene.fetched, 0, 0, 4)
    loop.call_later(0.3, scene.fetched, 1, 0, 3)
    await scene.poll_until(lambda: len(scene.records.get(tp(1), ())) == 3)
    scene.fetched(0, 4, 6)
    scene.holding = {tp(1), tp(2)}
    scene.up(RevocationRequested(partitions=epochs(1, 2), deadline=float("inf")))
    await scene.poll_until(lambda: scene.requested == {tp(1), tp(2)})
    await scene.call(lambda: consumer.commit({tp(0): 4}))
    scene.up(Lost(partitions=epochs(2)))
    await scene.poll_until(lambda: tp(2) in scene.lost)
    scene.up(Reassigned(partitions=epochs(1)), RevocationRequested(partitions=epochs(0), deadline=float("inf")))
    await scene.poll_until(lambda: tp(0) in scene.requested)
    scene.fetched(1, 3, 5, fetch_number=2)
    await scene.poll_until(lambda: len(scene.records[tp(1)]) == 5)
    await scene.poll_until(lambda: tp(0) not in consumer.assignment())
    await scene.call(consumer.commit)


async def one_by_one(scene: Cancelled) -> None:
    consumer = scene.consumer
    consumer.assign([tp(0), tp(1)])
    for number in (0, 1):
        scene.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=0))
        scene._loop.call_later(0.2 * number, scene.fetched, number, 0, 3)
    scene.fetched(1, 0, 3, epoch=2)
    while sum(map(len, scene.records.values())) < 6:
        record = await scene.call(lambda: anext(consumer))
        scene.records.setdefault(record.topic_partition, []).append(record.offset)
        scene.ends[record.topic_partition] = record.offset + 1
        await scene.call(consumer.commit)


def plays(story: Callable[[Cancelled], Coroutine[Any, Any, None]], **settings: Any) -> Iterator[tuple[int, Cancelled]]:
    """A run without a cancellation, then one for each turn of that."""
    turns = 1
    at = -1
    while at < turns:
        loop = VirtualLoop()
        with patched_clock(loop):
            scene = Cancelled(loop, at, **settings)

            async def told(scene: Cancelled = scene) -> dict[str, Any]:
                await story(scene)
                return scene.outcome()

            scene.seen = loop.play(told())
        turns = max(turns, loop.turns) if at < 0 else turns
        yield at, scene
        at += 1


@pytest.mark.rule("13")
@pytest.mark.parametrize("story", [polling, one_by_one])
def test_wherever_a_call_is_cancelled_all_goes_on_as_if_nothing_had_been(story: Any) -> None:
    runs = plays(story)
    _, quiet = next(runs)
    cancelled = 0
    for at, scene in runs:
        assert scene.seen == quiet.seen, at
        cancelled += scene.cancellations
    assert cancelled > 20, "most turns of the loop are within a call"


@pytest.mark.rule("13")
@pytest.mark.parametrize("verb", ["close", "unsubscribe"])
def test_wherever_an_end_is_cancelled_the_membership_ends(verb: str) -> None:
    async def ending(scene: Cancelled) -> None:
        scene.consumer.subscribe(["t"], listener=scene.listener)
        scene.assigned(0, 1)
        await scene.poll(timeout=0)
        await scene.once(getattr(scene.consumer, verb))
        await asyncio.sleep(1)

    for at, scene in plays(ending):
        left = [*scene.network.of(Close), *scene.network.of(Unsubscribe)]
        assert len(left) == scene.begun, at
        assert scene.listener.heard[0] == ("assigned", (0, 1))
        assert len(scene.listener.heard) == len(set(scene.listener.heard)), at


MOVES = st.one_of(
    st.tuples(st.just("fetched"), st.integers(0, 1), st.integers(1, 5)),
    st.tuples(st.just("poll"), st.sampled_from([-1, 1, 3]), st.sampled_from([0.0, 0.5])),
    st.tuples(st.sampled_from(["commit", "commit_async", "iterate"])),
    st.tuples(st.sampled_from(["pause", "resume"]), st.integers(0, 1)),
    st.tuples(st.just("sleep"), st.floats(0, 1)),
)


@pytest.mark.rule("13")
@given(moves=st.lists(MOVES, max_size=20), cancellations=st.sets(st.integers(0, 150), max_size=20))
def test_each_record_comes_once_and_in_order_whatever_is_cancelled(moves: list[Any], cancellations: set[int]) -> None:
    """And no commit covers what no completed poll returned: the network of these tests looks."""
    loop = VirtualLoop()
    with patched_clock(loop):
        scene = Cancelled(loop, -1)
        for at in cancellations:
            loop.before[at] = scene.cancel
        loop.play(_play(scene, moves))


async def _play(scene: Cancelled, moves: list[Any]) -> None:
    consumer, ends = scene.consumer, {0: 0, 1: 0}
    consumer.assign([tp(0), tp(1)])
    for number in (0, 1):
        scene.up(Positioned(partition=tp(number), epoch=number + 1, seek_number=0, offset=0))
    for name, *rest in moves:
        match name:
            case "fetched":
                number, count = rest
                scene.fetched(number, ends[number], ends[number] + count, epoch=number + 1)
                ends[number] += count
            case "poll":
                await scene.poll(max_records=rest[0], timeout=rest[1])
            case "commit":
                await scene.call(consumer.commit)
            case "commit_async":
                consumer.commit_async()
            case "iterate":
                scene.fetched(0, ends[0], ends[0] + 1, epoch=1)
                ends[0] += 1
                consumer.resume(tp(0))
                record = await scene.call(lambda: anext(consumer))
                scene.records.setdefault(record.topic_partition, []).append(record.offset)
                scene.ends[record.topic_partition] = record.offset + 1
            case "sleep":
                await asyncio.sleep(rest[0])
            case _:
                getattr(consumer, name)(tp(rest[0]))
    consumer.resume(tp(0), tp(1))
    wanted = {tp(number): list(range(end)) for number, end in ends.items() if end}
    await scene.poll(timeout=0)
    await scene.poll(timeout=0)
    assert scene.records == wanted
    await scene.call(consumer.close)
    assert consumer._driver.closed
