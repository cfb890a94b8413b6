"""What a history is to be: members, records, timings and faults, all from one number.

Laws
1. A plan is a value; `plan_for` of a seed is the same in every process.
2. Faults end before `quiet_after`; from then on the group has time to finish all its work.
3. The first member stays to the end, so that somebody can.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from instride.core.network.actions import Role
from instride.records import TopicPartition

__all__ = ["Fault", "LoopKind", "MemberPlan", "Plan", "plan_for"]

LoopKind = Literal["flagship", "changes", "wait", "synchronous", "auto-commit", "immediate"]
FaultKind = Literal[
    "cut",
    "stall",
    "suspend",
    "pause",
    "crash",
    "wakeup",
    "wakeups",
    "move coordinator",
    "move leader",
    "down",
    "isolate",
    "absent",
    "nervous",
    "narrow",
    "resubscribe",
    "resubscribe in haste",
]
HistoryKind = Literal["calm", "storm", "slow", "faults"]
_LOOPS: tuple[LoopKind, ...] = ("flagship", "changes", "wait", "synchronous", "auto-commit", "immediate")
_ONE_BY_ONE = ("synchronous", "auto-commit", "immediate")
_ROLES = (Role.COORDINATOR, Role.JOIN, Role.DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """Times are virtual seconds. leaves_at: infinite for one that stays. limit: most records of a poll.

    most_in_flight: above it, it pauses. gives_up_round: a wakeup ends its round, instead of going on without records.
    flickers: how likely it pauses and resumes everything in one breath.
    """

    name: str
    joins_at: float
    leaves_at: float
    loop: LoopKind
    poll_timeout: float
    workers: int
    limit: int
    most_in_flight: int
    gives_up_round: bool
    flickers: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """member: its place in the plan. seconds: how long it lasts. role: of the connection concerned."""

    time: float
    kind: FaultKind
    member: int = 0
    seconds: float = 0.0
    role: Role = Role.DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """topics: "t" or "t" and "u". partitions: of all topics together; they are numbered through.

    produced: (time, number of the partition, records). handler: (shortest, longest, longest of a slow one, chance of
    that).
    """

    seed: int
    kind: HistoryKind
    nodes: int
    topics: int
    partitions: int
    produced: tuple[tuple[float, int, int], ...]
    members: tuple[MemberPlan, ...]
    faults: tuple[Fault, ...]
    quiet_after: float
    ends_at: float
    latency: tuple[float, float]
    handler: tuple[float, float, float, float]
    failing: float
    initial_delay: float
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    commit_budget: float
    request_timeout: float
    fetch_max_wait: float
    prefetch: Literal["bytes", "total", "partition"]
    fairness: Literal["greedy", "proportional"]

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition("tu"[number % self.topics], number // self.topics)

    def topic_sizes(self) -> dict[str, int]:
        sizes = Counter(self.partition(number).topic for number in range(self.partitions))
        return dict(sorted(sizes.items()))


def plan_for(seed: int) -> Plan:
    """A short history: two to four members, about ten seconds.

    kind: "calm": no faults, and nothing that takes longer than the group allows; "storm": the same, with many members
    that come and go; "slow": no faults, but handlers that
    may take too long; "faults".
    """
    rng = random.Random(seed * 2 + 1)  # noqa: S311 - not for secrets: it must be repeatable
    span = rng.uniform(5.0, 9.0)
    partitions = rng.randint(2, 7)
    kind: HistoryKind = rng.choices(("calm", "storm", "slow", "faults"), (4, 2, 3, 11))[0]
    members = _storm(rng, span) if kind == "storm" else _members(rng, span)
    interval = rng.choice((3.0, 4.0, 6.0))
    return Plan(
        seed=seed,
        kind=kind,
        nodes=rng.choice((1, 2, 2, 3)),
        topics=rng.choice((1, 1, 2)),
        partitions=partitions,
        produced=_produced(rng, partitions, span),
        members=members,
        faults=_faults(rng, kind, members, span),
        quiet_after=span,
        ends_at=span + 90.0,
        latency=rng.choice(((0.001, 0.005), (0.001, 0.03), (0.02, 0.1))),
        handler=_handler(rng, kind, interval),
        failing=0.02 if kind == "faults" and rng.random() < 0.4 else 0.0,
        initial_delay=rng.choice((0.0, 0.3)),
        session_timeout=2.0,
        heartbeat_interval=rng.choice((0.4, 0.6)),
        max_poll_interval=interval,
        commit_budget=rng.choice((0.3, 0.6, 1.0)),
        request_timeout=rng.choice((1.0, 1.5, 3.0)),
        fetch_max_wait=rng.choice((0.3, 0.5, 1.0)),
        prefetch=rng.choice(("bytes", "bytes", "total", "partition")),
        fairness=rng.choice(("greedy", "greedy", "proportional")),
    )


def _handler(rng: random.Random, kind: HistoryKind, interval: float) -> tuple[float, float, float, float]:
    """A calm history has no handler, and no queue of them, that outlasts the deadline of a delay."""
    if kind in ("calm", "storm"):
        return (0.001, rng.choice((0.002, 0.02)), 0.2 * interval, rng.choice((0.0, 0.01)))
    slow = rng.choice((0.1, 0.3, 1.0, 2.0, interval, 1.5 * interval, 30.0))
    return (0.001, rng.choice((0.005, 0.05, 0.3)), slow, rng.choice((0.0, 0.02, 0.1)))


def _members(rng: random.Random, span: float) -> tuple[MemberPlan, ...]:
    count = rng.choice((2, 2, 3, 3, 4))
    return tuple(_member(rng, place, span) for place in range(count))


def _storm(rng: random.Random, span: float) -> tuple[MemberPlan, ...]:
    """One that stays, and up to seven that stay for a moment."""
    stays = _member(rng, 0, span)
    others = [_member(rng, place, span) for place in range(1, rng.randint(4, 8))]
    return (stays, *(replace(each, leaves_at=each.joins_at + rng.uniform(0.0, 2.5)) for each in others))


def _member(rng: random.Random, place: int, span: float) -> MemberPlan:
    joins_at = rng.uniform(0.0, 0.2 if place == 0 else span * 0.7)
    loop: LoopKind = "flagship" if rng.random() < 0.4 else rng.choice(_LOOPS)
    leaves = place > 0 and rng.random() < 0.5
    return MemberPlan(
        name="ABCDEFGH"[place],
        joins_at=joins_at,
        leaves_at=rng.uniform(joins_at + 0.05, span) if leaves else float("inf"),
        loop=loop,
        poll_timeout=rng.choice((0.1, 0.3, 0.3, 1.0)),
        workers=rng.choice((4, 32)),
        limit=rng.choice((1, 3) if loop in _ONE_BY_ONE else (1, 3, 10, 500, -1)),
        most_in_flight=rng.choice((5, 20, 1_000_000)),
        gives_up_round=rng.random() < 0.5,
        flickers=rng.choice((0.0, 0.0, 0.2)),
    )


def _produced(rng: random.Random, partitions: int, span: float) -> tuple[tuple[float, int, int], ...]:
    found = [(0.0, number, rng.randint(0, 25)) for number in range(partitions)]
    for _ in range(rng.randint(3, 14)):
        found.append((rng.uniform(0.0, span), rng.randrange(partitions), rng.randint(1, 6)))
    return tuple(sorted(found))


def _faults(rng: random.Random, kind: HistoryKind, members: tuple[MemberPlan, ...], span: float) -> tuple[Fault, ...]:
    """What users do to themselves (_MOODS) is no fault, and may happen in every kind of history."""
    moods = [_fault(rng, _MOODS, members, span) for _ in range(rng.choice((0, 0, 1, 2)))]
    faults = [_fault(rng, _KINDS, members, span) for _ in range(rng.choice((1, 1, 2, 3, 5)))]
    return tuple(moods + faults if kind == "faults" else moods)


_MOODS: tuple[FaultKind, ...] = ("narrow", "resubscribe")
_KINDS: tuple[FaultKind, ...] = (
    "cut",
    "cut",
    "cut",
    "stall",
    "suspend",
    "suspend",
    "pause",
    "crash",
    "wakeup",
    "wakeups",
    "move coordinator",
    "move coordinator",
    "move leader",
    "down",
    "isolate",
    "absent",
    "nervous",
    "resubscribe in haste",
)


def _fault(rng: random.Random, kinds: tuple[FaultKind, ...], members: tuple[MemberPlan, ...], span: float) -> Fault:
    kind = rng.choice(kinds)
    member = rng.randrange(len(members))
    if kind == "crash" and member == 0:
        kind = "suspend"
    seconds = {
        "suspend": rng.choice((0.5, 1.8, 2.5, 5.0)),
        "pause": rng.choice((0.5, 2.0, 4.0, 8.0)),
        "move coordinator": rng.choice((0.0, 0.2, 1.0)),
        "down": rng.choice((0.3, 1.0, 2.5)),
        "wakeups": rng.choice((1.0, 3.0)),
        "isolate": rng.choice((1.0, 3.0, 6.0)),
        "absent": 2.1,
        "narrow": rng.choice((0.1, 1.0, 3.0)),
    }.get(kind, 0.0)
    return Fault(time=rng.uniform(0.3, span), kind=kind, member=member, seconds=seconds, role=rng.choice(_ROLES))
