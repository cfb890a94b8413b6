"""From a wrong history to a short one that is wrong in the same way.

Laws
1. What is tried has less than what is known to be wrong: a member, faults, records, time, a kind of trouble less.
2. All chance of a history is one stream, so with anything less the rest comes otherwise. Each plan is therefore tried
   with several numbers for its chance; one wrong history is enough.
3. The same plan shrinks to the same one. It ends after `most` histories at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from instride.testing._simulation.cluster import run
from instride.testing._simulation.plan import Fault, Plan
from instride.testing.check import Violation, check

__all__ = ["shrink"]

T = TypeVar("T")
_CHANCES: Final = 12
"""Law 2: how many numbers."""
_OF_NODES: Final = (
    "move coordinator",
    "move leader",
    "down",
    "slow node",
    "refuse leaves",
    "refuse commits",
    "refuse group",
    "refuse joins",
    "refuse partition",
    "refuse topic",
)


def shrink(plan: Plan, *, most: int = 1500, judge: Callable[[Plan], Sequence[Violation]] | None = None) -> Plan:
    """A plan whose history breaks the law that the history of `plan` breaks first.

    most: how many histories to try. Raises ValueError where nothing is wrong with it.
    """
    return _Shrinking(plan, most, judge or (lambda each: check(run(each)))).shrink()


class _Shrinking:
    def __init__(self, plan: Plan, most: int, judge: Callable[[Plan], Sequence[Violation]]) -> None:
        self._judge = judge
        self._left = most
        found = judge(plan)
        if not found:
            raise ValueError("nothing is wrong with the history of this plan")
        self._law = found[0].number, found[0].law
        self._best = self._cut_off(plan, found[0].time)

    def shrink(self) -> Plan:
        while self._left > 0:
            if not any(self._fails(smaller) for smaller in _smaller(self._best)):
                break
        return self._best

    def _cut_off(self, plan: Plan, time: float) -> Plan:
        """What comes after the violation is not needed, if it is wrong without."""
        short = _until(plan, time + 0.1)
        return short if any(self._is_it(each) for each in self._judge(short)) else plan

    def _fails(self, plan: Plan) -> bool:
        for chance in (plan.seed, *range(_CHANCES)):
            if self._left <= 0:
                return False
            self._left -= 1
            tried = replace(plan, seed=chance)
            if any(self._is_it(each) for each in self._judge(tried)):
                self._best = tried
                return True
        return False

    def _is_it(self, violation: Violation) -> bool:
        return (violation.number, violation.law) == self._law


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Law 1, the greatest steps first."""
    yield from (_without_member(plan, place) for place in range(len(plan.members)) if len(plan.members) > 1)
    yield from (replace(plan, faults=some) for some in _less(plan.faults))
    yield from (replace(plan, produced=some) for some in _less(plan.produced))
    yield from (replace(plan, transactions=some) for some in _less(plan.transactions))
    yield from (replace(plan, compactions=some) for some in _less(plan.compactions))
    yield from (replace(plan, retentions=some) for some in _less(plan.retentions))
    yield from (replace(plan, truncations=some) for some in _less(plan.truncations))
    yield from (replace(plan, recreations=some) for some in _less(plan.recreations))
    if plan.quiet_after > 2.0:
        yield _until(plan, 0.7 * plan.quiet_after)
    yield from (each for each in _plainer(plan) if each != plan)


def _less(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Without a half, a quarter, and so on, down to without one."""
    size = len(items) // 2
    while size:
        for first in range(0, len(items), size):
            yield items[:first] + items[first + size :]
        size //= 2
    if len(items) == 1:
        yield ()


def _without_member(plan: Plan, gone: int) -> Plan:
    kept = [each for each in plan.faults if each.kind in _OF_NODES or each.member != gone]
    faults = tuple(_moved_up(each, gone) for each in kept)
    return replace(plan, members=plan.members[:gone] + plan.members[gone + 1 :], faults=faults)


def _moved_up(fault: Fault, gone: int) -> Fault:
    """A fault of a member names its place; of a node or partition, that one's."""
    if fault.kind in _OF_NODES or fault.member < gone:
        return fault
    return replace(fault, member=fault.member - 1)


def _until(plan: Plan, end: float) -> Plan:
    """Nothing begins after that."""
    for place in range(len(plan.members) - 1, 0, -1):
        if plan.members[place].joins_at >= end:
            plan = _without_member(plan, place)
    return replace(
        plan,
        produced=tuple(each for each in plan.produced if each[0] < end),
        transactions=tuple(each for each in plan.transactions if each[0] + each[3] < end),
        compactions=tuple(each for each in plan.compactions if each[0] < end),
        retentions=tuple(each for each in plan.retentions if each[0] < end),
        truncations=tuple(each for each in plan.truncations if each[0] < end),
        recreations=tuple(each for each in plan.recreations if each[0] + each[2] < end),
        faults=tuple(each for each in plan.faults if each.time < end),
        quiet_after=min(plan.quiet_after, end),
    )


def _without_a_partition(plan: Plan) -> Plan:
    last = plan.partitions - 1
    return replace(
        plan,
        partitions=last,
        produced=tuple(each for each in plan.produced if each[1] < last),
        transactions=tuple(each for each in plan.transactions if each[1] < last),
        compactions=tuple(each for each in plan.compactions if each[1] < last),
        retentions=tuple(each for each in plan.retentions if each[1] < last),
        truncations=tuple(each for each in plan.truncations if each[1] < last),
        recreations=tuple(each for each in plan.recreations if each[1] < last),
    )


def _plainer(plan: Plan) -> Iterator[Plan]:
    yield replace(plan, framed=False)
    yield replace(plan, failing=0.0)
    yield replace(plan, nodes=1)
    yield replace(plan, initial_delay=0.0)
    yield replace(plan, latency=(0.001, 0.005))
    yield replace(plan, handler=(0.001, 0.01, 0.01, 0.0))
    yield replace(plan, prefetch="bytes", fairness="greedy")
    if plan.partitions > 1 and plan.topics == 1:
        yield _without_a_partition(plan)
    for place, member in enumerate(plan.members):
        usual = replace(member, flickers=0.0, gives_up_round=False, most_in_flight=1_000_000, limit=500, workers=4)
        patient = replace(member, pauses=0.0, seeks=0.0, rewinds=False)
        dynamic = replace(member, instance=None)
        for simpler in (
            usual,
            patient,
            dynamic,
            # Commits by hand are taken of a group without members only.
            member if member.by_hand else replace(member, loop="flagship"),
            replace(member, leaves_at=float("inf")),
        ):
            yield replace(plan, members=(*plan.members[:place], simpler, *plan.members[place + 1 :]))
