"""Plans of unruly users (`unruly`): the usual plan of a seed, in which some members call any verb at any moment.

Laws
1. By numbers of its own, so that all else of a seed's plan stays as it is; but where a history is by hand.
2. One member at least stays as the usual plan has it, where there are two or more; but by hand: a coordinator takes
   such commits only while its group has no members.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Final

from instride.testing._simulation.plan import MemberPlan, Plan

__all__ = ["MEANS", "with_unruly_users"]

MEANS: Final = (
    *("verbs", "listeners", "ends", "pairs", "interrupts"),
    *("lines", "modes", "looks", "signals", "rewinds", "hand"),
)
"""verbs: called in any order. listeners: called there too, and time passes. ends: unsubscribe and close among them.
pairs: two certain verbs in a certain state of partitions, which he brings about.
interrupts: an exception at a wait of any call, in listeners and deserializers. lines: at any line of any call.
modes: auto-commit, and revokes that are completed at once, or both; and listeners that raise.
looks: at positions, lag and what is assigned, within a poll, after what has come since it began.
signals: whose handlers call verbs, at any line of any call, which then goes on.
rewinds: commits that may go back. Where there are no verbs he commits with each of his rounds.
hand: in one history of four all members assign partitions instead of subscribing; in each, if it is the only means."""
_SHORT: Final = 3.0
"""Seconds between two polls, where somebody brings about losses by being away: a short history has room for several."""
_BY_HAND: Final = 0.25
"""How many histories."""
_MORE: Final = 20.0
"""Seconds."""


def with_unruly_users(seed: int, plan: Plan, means: frozenset[str] = frozenset(MEANS)) -> Plan:
    """means: of MEANS, those that are used."""
    rng = random.Random(f"unruly {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    kind = "slow" if plan.kind in ("calm", "storm") else plan.kind
    chosen = rng.sample(range(len(plan.members)), max(1, len(plan.members) - 1))
    members = tuple(
        _unruly(rng, each, means) if place in chosen and each.instance is None else each
        for place, each in enumerate(plan.members)
    )
    if "modes" in means:
        members = _with_modes(seed, members)
    if "signals" in means:
        members = _with_signals(seed, members)
    if "looks" in means:
        members = _with_looks(seed, members)
    if "rewinds" in means:
        members = _with_rewinds(seed, members)
    plan = replace(plan, kind=kind, members=members)
    if "hand" in means:
        plan = _with_hand(seed, plan, always=len(means) == 1)
    return _with_room_for_pairs(rng, plan) if any(each.pairs for each in plan.members) else plan


def _with_modes(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    rng = random.Random(f"modes {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    drawn = (
        replace(
            each,
            raises=rng.choice((0.0, 0.1, 0.3)),
            immediate=rng.random() < 0.5,
            auto_commits=rng.random() < 0.5,
        )
        for each in members
    )
    return tuple(new if new.loop == "unruly" else old for old, new in zip(members, drawn, strict=True))


def _with_looks(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """Small polls too: what one leaves of a chunk is for the next."""
    rng = random.Random(f"looks {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    drawn = (replace(each, looks=rng.choice((0.1, 0.5)), limit=rng.choice((1, 3, 10, 500))) for each in members)
    return tuple(new if new.loop == "unruly" else old for old, new in zip(members, drawn, strict=True))


def _with_rewinds(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    rng = random.Random(f"rewinds {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    drawn = (replace(each, commits_back=rng.choice((0.1, 0.3, 0.7))) for each in members)
    return tuple(
        new if new.loop == "unruly" and not new.stays else old for old, new in zip(members, drawn, strict=True)
    )


def _with_signals(seed: int, members: tuple[MemberPlan, ...]) -> tuple[MemberPlan, ...]:
    """Small polls too: they take what is left of a chunk in a way of their own."""
    rng = random.Random(f"signals {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    drawn = (replace(each, signals=rng.choice((0.5, 1.0)), limit=rng.choice((1, 1, 3, 500))) for each in members)
    return tuple(new if new.loop == "unruly" else old for old, new in zip(members, drawn, strict=True))


def _with_hand(seed: int, plan: Plan, *, always: bool) -> Plan:
    """Up to three, each with its own share of the partitions, and nothing that fails. One alone may subscribe, too."""
    rng = random.Random(f"hand {seed}")  # noqa: S311 - not for secrets: it must be repeatable
    if rng.random() >= _BY_HAND and not always:
        return plan
    users = [each for each in plan.members if each.loop == "unruly"] or plan.members
    users = users[: rng.choice((1, 1, 2, 3))]
    alone = len(users) == 1
    members = tuple(
        replace(
            each,
            loop="unruly",
            leaves_at=float("inf"),
            instance=None,
            pauses=0.0,
            seeks=0.0,
            ends=0.0,
            pairs=0.0,
            by_hand=rng.choice((0.1, 0.3, 0.7)),
            goes_over=alone and rng.random() < 0.5,
            hasty=1.0 if each.signals else rng.choice((0.0, 0.0, 0.3)),  # a handler commits whenever it runs
        )
        for each in users
    )
    return replace(plan, members=members, faults=())


def _with_room_for_pairs(rng: random.Random, plan: Plan) -> Plan:
    """Everybody has something of two topics, more often than not, and time; and may close, but the first. Some more
    come, since each closes once only."""
    end = plan.quiet_after + _MORE
    members = tuple(
        replace(each, leaves_at=min(each.leaves_at + _MORE, end)) if each.pairs and place else each
        for place, each in enumerate(plan.members)
    )
    user = rng.choice([each for each in members if each.pairs])
    names = islice(_names_like(user, members), rng.choice((0, 1, 3)))
    members += tuple(replace(user, name=name, joins_at=rng.uniform(0.0, end - 5.0), leaves_at=end) for name in names)
    return replace(
        plan,
        kind="faults",
        members=members,
        topics=2,
        partitions=max(plan.partitions, 2 * len(members)),
        max_poll_interval=min(plan.max_poll_interval, _SHORT),
        quiet_after=end,
        ends_at=plan.ends_at + _MORE,
    )


def _names_like(user: MemberPlan, members: tuple[MemberPlan, ...]) -> Iterator[str]:
    """His with a number, without those that somebody has: a visitor of static members is called so too."""
    taken = {each.name for each in members}
    return (name for number in count() if (name := f"{user.name}{number}") not in taken)


def _unruly(rng: random.Random, member: MemberPlan, means: frozenset[str]) -> MemberPlan:
    drawn = MemberPlan(
        name=member.name,
        verbs=rng.choice((0.3, 0.7, 1.0)),
        listens=rng.random() < 0.7,
        ends=rng.choice((0.0, 0.0, 0.05)),
        pairs=rng.choice((0.0, 1.0, 1.0)),
        interrupts=rng.choice((0.0, 0.02, 0.1)),
        line_interrupts=rng.choice((0.0, 0.05, 0.2)),
    )
    return replace(
        member,
        loop="unruly",
        seeks=0.0,
        pauses=0.0,
        verbs=drawn.verbs if "verbs" in means else 0.0,
        listens=drawn.listens and not means.isdisjoint({"listeners", "modes"}),
        ends=drawn.ends if "ends" in means else 0.0,
        pairs=drawn.pairs if "pairs" in means else 0.0,
        interrupts=drawn.interrupts if "interrupts" in means else 0.0,
        line_interrupts=drawn.line_interrupts if "lines" in means else 0.0,
    )
