"""Plans by chance: what a history is to be, all from one number.

Laws
1. `plan_for` of a seed is the same in every process.
2. Most histories are short: some ten seconds, two rebalances or more, and a fault where the kind has faults.
"""

from __future__ import annotations

import random
from dataclasses import replace

from instride._core.network.actions import Role
from instride.testing._simulation.plan import Fault, FaultKind, HistoryKind, LoopKind, MemberPlan, Plan
from instride.testing._simulation.planning_logs import with_holes
from instride.testing._simulation.planning_sessions import with_long_sessions
from instride.testing._simulation.planning_statics import with_statics
from instride.testing._simulation.planning_users import with_users
from instride.testing._simulation.planning_work import with_work_for_others

__all__ = ["plan_for"]

_LONG_ONES = 100
"""One history of so many is long."""

_LOOPS: tuple[LoopKind, ...] = ("flagship", "changes", "wait", "synchronous", "auto-commit", "immediate")
_ONE_BY_ONE = ("synchronous", "auto-commit", "immediate")
_COOPERATIVE = ("cooperative-sticky",)
_PROTOCOLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "cooperative": (_COOPERATIVE,),
    "eager": (("range",), ("range", "roundrobin"), ("sticky", "range")),
    "bounce": (_COOPERATIVE, ("cooperative-sticky", "range"), ("range", "cooperative-sticky")),
}
_ROLES = (Role.COORDINATOR, Role.JOIN, Role.DATA, Role.TAIL)


def plan_for(seed: int) -> Plan:
    """The plan of a history.

    kind: "calm": no faults, and nothing that takes longer than the group allows; "storm": the same, with many members
    that come and go; "slow": no faults, but handlers that may take too long; "faults".
    """
    plan = _short(seed, random.Random(seed * 2 + 1))  # noqa: S311 - not for secrets: it must be repeatable
    extra = random.Random(seed * 2)  # noqa: S311 - the same
    if seed % _LONG_ONES == _LONG_ONES - 1:
        plan = _long(extra, plan)
    elif plan.kind == "faults":
        plan = extra.choices((_plain, _troubled, _visited, _crowded, _stormy), (5, 4, 2, 2, 1))[0](extra, plan)
        plan = _framed(extra, plan) if extra.random() < 0.2 else plan
    plan = replace(plan, members=_with_protocols(seed, plan.members))
    for more in (with_statics, with_long_sessions, with_work_for_others, with_holes, with_users, _with_slow_assignors):
        plan = more(seed, plan)
    return plan


def _short(seed: int, rng: random.Random) -> Plan:
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


def _with_protocols(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """Cooperative, eager, or on the way from one to the other. By numbers of its own, so that all else stays.

    In an eager group a delay is bounded by the last heartbeat before it, so who polls seldom might miss it.
    """
    rng = random.Random(f"protocols {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    choices = _PROTOCOLS[rng.choices(("cooperative", "eager", "bounce"), (5, 2, 1))[0]]
    chosen = [replace(each, assignors=rng.choice(choices)) for each in members]
    return tuple(
        each if each.assignors == _COOPERATIVE else replace(each, poll_timeout=min(0.3, each.poll_timeout))
        for each in chosen
    )


def _with_slow_assignors(seed: int, plan: Plan) -> Plan:
    """In every fourth history with faults a leader's assignor may take as long as a session, and longer."""
    rng = random.Random(f"assignors {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if plan.kind != "faults" or rng.random() >= 0.25:
        return plan
    return replace(plan, assigning=(0.0, rng.choice((0.05, 0.5, 2.0, 5.0))))


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


_DIVISIONS: tuple[FaultKind, ...] = ("part from coordinator", "part from all", "slow node")


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
        **dict.fromkeys(_DIVISIONS, rng.choice((0.5, 1.5, 3.0, 6.0))),
    }.get(kind, 0.0)
    return Fault(time=rng.uniform(0.3, span), kind=kind, member=member, seconds=seconds, role=rng.choice(_ROLES))


# -- shapes: other faults, and rare things that they make less so


def _plain(_rng: random.Random, plan: Plan) -> Plan:
    return plan


def _troubled(rng: random.Random, plan: Plan) -> Plan:
    """Besides, the network is divided and heals, or a node is slow."""
    more = tuple(_fault(rng, _DIVISIONS, plan.members, plan.quiet_after) for _ in range(rng.choice((1, 2, 3))))
    return replace(plan, faults=plan.faults[: rng.randint(0, 3)] + more)


def _framed(rng: random.Random, plan: Plan) -> Plan:
    """What connections carry are bytes, and some of these break within a frame."""
    cuts = tuple(
        _fault(rng, ("cut within a frame",), plan.members, plan.quiet_after) for _ in range(rng.choice((1, 2, 4)))
    )
    return replace(plan, framed=True, faults=plan.faults + cuts)


def _stormy(rng: random.Random, plan: Plan) -> Plan:
    """A storm with faults."""
    members = _storm(rng, plan.quiet_after)
    return replace(plan, members=members, faults=_faults(rng, "faults", members, plan.quiet_after))


def _long(rng: random.Random, plan: Plan) -> Plan:
    """Five minutes with the time-outs that users have, and faults and handlers to match."""
    span = 300.0
    stretched = span / plan.quiet_after
    members = tuple(
        replace(
            each,
            joins_at=each.joins_at * stretched,
            leaves_at=each.leaves_at * stretched,
            poll_timeout=1.0,
        )
        for each in plan.members
    )
    faults = tuple(
        replace(each, time=each.time * stretched, seconds=min(each.seconds * rng.uniform(1.0, 25.0), 0.5 * span))
        for each in (plan.faults or (_fault(rng, _KINDS, members, plan.quiet_after),))
    )
    return replace(
        plan,
        kind="faults",
        produced=tuple((time * stretched, number, 2 * count) for time, number, count in plan.produced),
        members=members,
        faults=faults,
        quiet_after=span,
        ends_at=span + 1500.0,
        handler=(0.001, 0.05, 30.0, rng.choice((0.0, 0.02, 0.1))),
        initial_delay=3.0,
        session_timeout=45.0,
        heartbeat_interval=3.0,
        max_poll_interval=300.0,
        commit_budget=1.0,
        request_timeout=30.0,
        fetch_max_wait=0.5,
        default_api_timeout=60.0,
        auto_commit_interval=5.0,
    )


def _visited(rng: random.Random, plan: Plan) -> Plan:
    """Members come for a moment while others delay what is requested, and are woken: it is reassigned to them."""
    visitors = []
    for name in "VW":
        joins_at = rng.uniform(1.0, plan.quiet_after - 2.5)
        visitor = replace(_member(rng, 1, plan.quiet_after), name=name, joins_at=joins_at, loop="synchronous", limit=3)
        visitors.append(replace(visitor, leaves_at=joins_at + rng.uniform(0.2, 1.5)))
    stay = [replace(each, joins_at=0.1 * place, leaves_at=float("inf")) for place, each in enumerate(plan.members)]
    stay = [replace(each, loop=rng.choice(("flagship", "changes")), gives_up_round=False) for each in stay]
    nervous = [Fault(time=0.5, kind="nervous", member=place) for place in range(len(stay))]
    return replace(
        plan,
        members=(*stay, *visitors),
        faults=(*nervous, *plan.faults[:1]),
        handler=(0.001, 0.3, rng.choice((1.0, 3.0)), 0.3),
        max_poll_interval=6.0,
    )


def _crowded(rng: random.Random, plan: Plan) -> Plan:
    """More members than partitions, far away. One more comes, and the coordinator moves to a node that does not know of
    it: who joins there again has the generation that it had, of which its application has not heard yet."""
    members = [replace(_member(rng, place, 1.0), joins_at=rng.uniform(0.0, 0.3)) for place in range(5)]
    members = [replace(each, loop="flagship", poll_timeout=0.1, leaves_at=float("inf")) for each in members]
    joins = [rng.uniform(1.0, 4.5) for _ in range(3)]
    late = [replace(members[0], name=name, joins_at=time) for name, time in zip("FGH", joins, strict=True)]
    pauses = tuple(
        Fault(time=rng.uniform(0.5, plan.quiet_after), kind="pause", seconds=rng.uniform(0.3, 2.0), member=place)
        for place in range(1, 5)
        for _ in range(5)
    )
    moves = tuple(Fault(time=time + rng.uniform(0.2, 0.8), kind="move coordinator") for time in joins)
    return replace(
        plan,
        members=(*members, *late),
        nodes=3,
        topics=1,
        partitions=2,
        produced=tuple(each for each in plan.produced if each[1] < 2),
        faults=pauses + moves,
        latency=(0.02, 0.15),
        max_poll_interval=6.0,
    )
