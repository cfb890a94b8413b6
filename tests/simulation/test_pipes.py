"""Connections of the simulation: what arrives, in which order, and what a break within a frame leaves of a message."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from instride._core.network.actions import Role
from instride.testing._simulation.pipes import FramedPipe, WholePipe
from instride.testing._simulation.plan import Fault, MemberPlan
from instride.testing._simulation.scheduler import Scheduler
from instride.testing.simulation import Plan, SimulatedCluster, check

SEEDS = range(40)


class Ends:
    """Both ends of one way."""

    def __init__(self, kind: Callable[..., WholePipe], seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.came: list[tuple[int, Any]] = []
        self.blocked_until = 0.0
        self.broken = False
        kind = partial(kind, partly=self._came_in_part) if kind is FramedPipe else kind
        self.breaks_after = math.inf
        self.way = kind(
            self.scheduler, self._latency, lambda: self.blocked_until, lambda: not self.broken, self._arrived
        )

    def _came_in_part(self) -> None:
        self.broken = len(self.came) >= self.breaks_after

    def _latency(self) -> float:
        return self.scheduler.jitter(0.1)

    def _arrived(self, number: int, message: Any) -> None:
        self.came.append((number, message))

    def send(self, count: int) -> list[tuple[int, Any]]:
        sent = [(number, f"message {number}") for number in range(count)]
        for number, message in sent:
            self.way.send(number, message)
        return sent

    def run(self, until: float = 100.0) -> None:
        self.scheduler.run(until, lambda: self.broken)


@pytest.mark.parametrize("kind", [WholePipe, FramedPipe])
def test_all_arrives_in_order(kind: type[WholePipe]) -> None:
    for seed in SEEDS:
        ends = Ends(kind, seed)
        sent = ends.send(20)
        ends.run()
        assert ends.came == sent


@pytest.mark.parametrize("kind", [WholePipe, FramedPipe])
def test_what_is_blocked_arrives_when_it_is_let_through(kind: type[WholePipe]) -> None:
    for seed in SEEDS:
        ends = Ends(kind, seed)
        ends.blocked_until = 5.0
        sent = ends.send(5)
        ends.run(4.9)
        assert ends.came == []
        ends.run()
        assert ends.came == sent


@pytest.mark.parametrize("kind", [WholePipe, FramedPipe])
def test_what_is_sent_when_a_partition_heals_does_not_overtake(kind: type[WholePipe]) -> None:
    """A long run found it, at seed 1010627: two came at the very time of the healing, the later one first."""
    for seed in SEEDS:
        ends = Ends(kind, seed)
        ends.blocked_until = 0.2
        for number in range(40):
            ends.scheduler.at(0.01 * number, partial(ends.way.send, number, number))
        ends.run()
        assert ends.came == [(number, number) for number in range(40)]


def test_a_break_within_a_frame_leaves_whole_messages_only() -> None:
    """And of these the first ones."""
    within = 0
    for seed in SEEDS:
        ends = Ends(FramedPipe, seed)
        ends.breaks_after = 3
        sent = ends.send(20)
        ends.run()
        assert ends.came == sent[: len(ends.came)]
        within += ends.broken and len(ends.came) < 20
    assert within > len(SEEDS) / 2


def test_connections_that_break_within_frames_lose_no_record() -> None:
    faults = tuple(
        Fault(time=0.5 * at, kind="cut within a frame", member=at % 2, role=Role.TAIL) for at in range(2, 12)
    )
    for seed in range(10):
        plan = Plan(
            seed=seed,
            framed=True,
            members=(MemberPlan(name="A"), MemberPlan(name="B", joins_at=1.0)),
            produced=tuple((0.1 * at, at % 4, 2) for at in range(60)),
            faults=faults,
        )
        history = SimulatedCluster(plan).run()
        assert not check(history)
        assert sum(event.what == "cut" and "within a frame" in event.detail for event in history) > 2
