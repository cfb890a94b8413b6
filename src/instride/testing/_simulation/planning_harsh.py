"""Plans of harsh brokers (`refusals`): the usual plan of a seed, in which brokers refuse for a while, or have a lot.

Laws
1. By numbers of its own, so that all else of a seed's plan stays as it is.
2. A history has one or two of the means, chosen by chance.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from instride.errors.codes import ErrorCode
from instride.testing._simulation.plan import Fault, FaultKind, MemberPlan, Plan
from instride.testing._simulation.refusals import CORRUPT, NO_RESPONSE, RESPONSE_LOST

__all__ = ["HARSH", "with_harsh_brokers"]

HARSH: Final = ("leaves", "commits", "errors", "many", "batches")
"""leaves: LeaveGroup is refused, or its response is lost. commits: for one to three minutes no commit is taken. errors:
an error of a partition, a topic, the group or its joins passes, of each kind that may; a batch is corrupt for a while.
many: 1,000 partitions. batches: records come in batches that are decoded when there is capacity for them."""

_LOADING, _TIMED_OUT = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT
_NOT_AVAILABLE, _NOT_COORDINATOR = ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR
_NO_SUCH_CODE: Final = 12345
_UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_TOPIC_FORBIDDEN, _GROUP_FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
_OF_PARTITIONS: Final = (
    _UNKNOWN_TOPIC,
    _TOPIC_FORBIDDEN,
    CORRUPT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    _NO_SUCH_CODE,
)
_OF_TOPICS: Final = (_UNKNOWN_TOPIC, _TOPIC_FORBIDDEN, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
_OF_JOINS: Final = (
    _GROUP_FORBIDDEN,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)
_ONE_OF_SO_MANY: Final = 8
"""A plan of 1,000 partitions costs as much as many others."""
_MANY: Final = 1000


def with_harsh_brokers(seed: int, plan: Plan, means: frozenset[str] = frozenset(HARSH)) -> Plan:
    """means: of HARSH, those that are used."""
    rng = random.Random(f"harsh {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    usual = sorted(means - {"many", "batches"})
    chosen = rng.sample(usual, min(len(usual), rng.choice((1, 1, 2))))
    if "many" in means and (not usual or rng.randrange(_ONE_OF_SO_MANY) == 0):
        plan = _many(rng, plan)
    for each in sorted(chosen):
        plan = {"leaves": _leaves, "commits": _commits, "errors": _errors}[each](rng, plan)
    if "batches" in means and (means == {"batches"} or rng.random() < 0.5):
        plan = replace(plan, batches=True, framed=False)
    return plan if means == {"batches"} else replace(plan, kind="faults", framed=False)


def _leaves(rng: random.Random, plan: Plan) -> Plan:
    """Most leave, and each is refused, or hears nothing, for a moment or for as long as it has."""
    members = (plan.members[0], *(_leaver(rng, each, plan.quiet_after) for each in plan.members[1:]))
    times = [each.leaves_at for each in members if each.leaves_at < plan.quiet_after]
    faults = tuple(
        Fault(
            time=max(0.0, time - 0.05),
            kind="refuse leaves",
            seconds=rng.choice((0.1, 0.5, 2.0, 6.0)),
            code=rng.choice((_LOADING, _NOT_COORDINATOR, NO_RESPONSE, RESPONSE_LOST)),
        )
        for time in times
    )
    return replace(plan, members=members, faults=plan.faults + faults)


def _leaver(rng: random.Random, member: MemberPlan, span: float) -> MemberPlan:
    time = rng.uniform(member.joins_at + 0.5, max(span, member.joins_at + 1.0))
    return replace(member, leaves_at=min(time, member.leaves_at)) if rng.random() < 0.8 else member


def _commits(rng: random.Random, plan: Plan) -> Plan:
    """Minutes in which records are written, and read, and nothing of it can be committed."""
    begin, seconds = rng.uniform(0.5, plan.quiet_after), rng.uniform(60.0, 180.0)
    code = rng.choice((_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR, _TIMED_OUT, NO_RESPONSE, RESPONSE_LOST))
    span = begin + seconds + rng.uniform(1.0, 5.0)
    more = tuple((rng.uniform(begin, span), rng.randrange(plan.partitions), rng.randint(1, 6)) for _ in range(30))
    return replace(
        plan,
        produced=tuple(sorted((*plan.produced, *more))),
        faults=(*plan.faults, Fault(time=begin, kind="refuse commits", seconds=seconds, code=code)),
        quiet_after=span,
        ends_at=span + 90.0,
        session_timeout=10.0,
        heartbeat_interval=1.0,
        max_poll_interval=20.0,
        request_timeout=3.0,
    )


def _errors(rng: random.Random, plan: Plan) -> Plan:
    """Users go on after an error."""
    kinds: tuple[FaultKind, ...] = (
        "refuse partition",
        "refuse partition",
        "refuse topic",
        "refuse group",
        "refuse joins",
    )
    faults = tuple(_error(rng, rng.choice(kinds), plan) for _ in range(rng.choice((1, 2, 3))))
    members = tuple(replace(each, loop="unruly", instance=None) for each in plan.members)
    return replace(plan, members=members, faults=plan.faults + faults)


def _error(rng: random.Random, kind: FaultKind, plan: Plan) -> Fault:
    code = {
        "refuse partition": rng.choice(_OF_PARTITIONS),
        "refuse topic": rng.choice(_OF_TOPICS),
        "refuse joins": rng.choice(_OF_JOINS),
    }.get(kind, _GROUP_FORBIDDEN)
    return Fault(
        time=rng.uniform(0.0, plan.quiet_after),
        kind=kind,
        member=rng.randrange(plan.partitions),
        seconds=rng.choice((0.3, 1.0, 3.0, 6.0)),
        code=code,
    )


def _many(rng: random.Random, plan: Plan) -> Plan:
    """Of 1,000 partitions some have records. Nobody pauses all of them: he resumes one a round, and would never end."""
    produced = tuple((rng.uniform(0.0, plan.quiet_after), rng.randrange(_MANY), rng.randint(1, 6)) for _ in range(60))
    return replace(
        plan,
        partitions=_MANY,
        produced=tuple(sorted((*plan.produced, *produced))),
        members=tuple(replace(each, most_in_flight=1_000_000) for each in plan.members[:3]),
        faults=tuple(each for each in plan.faults if each.member < 3),
    )
