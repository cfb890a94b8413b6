"""A close by another task at every turn of the loop, whatever call is under way.

It takes as long as the listener does, and no longer; the call that it meets ends at once; what is owned is revoked, not
lost. As in test_async_cancelled, the loop's time is virtual, so that each run is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aio_help import Scene, VirtualLoop, epochs, patched_clock, tp

from instride._core.events import RevocationRequested
from instride.errors import ConsumerClosedError
from instride.observers import Observer

LONGEST = 0.5
"""Seconds: the listener may take 0.05 twice, and a response 0.01."""


class Closes(Observer):
    def __init__(self) -> None:
        self.clean: list[bool] = []

    def on_close(self, *, clean: bool) -> None:
        self.clean.append(clean)


async def one_by_one(scene: Scene, loop: VirtualLoop) -> None:
    scene.consumer.subscribe(["t"], listener=scene.listener)
    loop.call_later(0.1, scene.assigned, 0, 1)
    loop.call_later(0.3, scene.fetched, 0, 0, 2)
    loop.call_later(0.6, scene.fetched, 0, 2, 3)
    for _ in range(3):
        await anext(scene.consumer)
        await scene.consumer.commit()


async def rebalancing(scene: Scene, loop: VirtualLoop) -> None:
    scene.consumer.subscribe(["t"], listener=scene.listener)
    scene.assigned(0, 1, 2)
    await scene.consumer.poll(timeout=1.0)
    scene.up(RevocationRequested(partitions=epochs(1, 2), deadline=float("inf")))
    for _ in range(3):
        await scene.consumer.poll(timeout=1.0)
        scene.consumer.delay_revoke(scene.consumer.to_be_revoked_partitions() & {tp(2)})
    await scene.consumer.poll_changes(timeout=1.0)
    await scene.consumer.unsubscribe()
    scene.consumer.subscribe(["t"], listener=scene.listener)
    loop.call_later(0.1, scene.up)
    await scene.consumer.poll(timeout=1.0)


def play(story: Callable[[Scene, VirtualLoop], Coroutine[Any, Any, None]], at: int) -> int:
    """How many turns it took. at: before which one another task closes; -1 is never."""
    loop = VirtualLoop()

    async def told() -> None:
        scene, closes = Scene(), Closes()
        scene.consumer.observe(closes)
        user = asyncio.create_task(story(scene, loop))
        closing: list[tuple[asyncio.Task[None], float]] = []
        loop.before[at] = lambda: closing.append((loop.create_task(scene.consumer.close()), loop.at))
        await asyncio.wait([user])
        loop.before.clear()
        if not closing:  # the story was over before
            assert user.exception() is None
            return
        close, began = closing[0]
        assert isinstance(user.exception(), ConsumerClosedError | None), at
        await close
        assert loop.at - began <= LONGEST, at
        assert closes.clean == ([True] if scene.network.log else []), at
        assert "lost" not in [what for what, _ in scene.listener.heard], at

    with patched_clock(loop):
        loop.play(told())
    return loop.turns


@pytest.mark.rule("12")
@pytest.mark.parametrize("story", [one_by_one, rebalancing])
def test_wherever_another_task_closes_all_ends_at_once(story: Any) -> None:
    turns = play(story, -1)
    for at in range(1, turns):
        play(story, at)
    assert turns > 20
