"""Rule 21 in virtual time: what is kept during a hold flows as without one, and what is measured is the machines' own
time. Each number has a mutant that only slows something down (`tools/mutants/catalogue/slowness.toml`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import pytest

from instride.records import TopicPartition
from instride.testing._simulation.member import Loop, Member
from instride.testing._simulation.plan import MemberPlan, Plan
from instride.testing._simulation.process import Sleep, UserLoop
from instride.testing.simulation import SimulatedCluster

PARTITIONS = 8
JOINS_AT, SPAN = 3.0, 8.0
ONE_WAY = 0.01
ROUND_TRIP = 2 * ONE_WAY
EVERY = 0.05
"""Seconds from one record of a partition to its next, where records trickle."""
TURN = 0.002
"""Seconds at most until a thread of the simulation has its turn."""
POLL = 1.0
BACKLOG = 20_000
"""Records of each partition: more than anybody reads here."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the first member's loop saw: when each poll returned how many records of which partition."""

    returned: dict[TopicPartition, list[tuple[float, int]]] = field(default_factory=dict)
    requested_at: float = float("inf")
    kept: frozenset[TopicPartition] = frozenset()

    def records(self, start: float, end: float) -> int:
        """Of what is kept, returned in this time."""
        return sum(count for tp in self.kept for at, count in self.returned[tp] if start <= at < end)

    def longest_gap(self, start: float, end: float) -> float:
        """Seconds in which one of those that are kept had nothing."""
        times = [[start, *(at for at, _ in self.returned[tp] if start <= at < end), end] for tp in self.kept]
        return max(after - before for each in times for before, after in pairwise(each))


def holding(seen: Seen, hold: float) -> Loop:
    """A loop that delays what is to be revoked for so many seconds after the first request."""

    def loop(member: Member) -> UserLoop:
        consumer, clock = member.consumer, member.process.scheduler
        first = member.plan.name == "holds"
        consumer.subscribe(member.topics)
        while not member.stopping:
            records = yield from consumer.poll(timeout=POLL)
            requested = consumer.to_be_revoked_partitions()
            if first:
                for record_set in records.partitions():
                    seen.returned.setdefault(record_set, []).append((clock.now, len(records.records(record_set))))
                if requested:
                    seen.requested_at = min(seen.requested_at, clock.now)
                    seen.kept = consumer.assignment() - requested
            if requested and clock.now < seen.requested_at + hold:
                consumer.delay_revoke(requested)
            consumer.commit_async()
            yield Sleep(0.001)
        yield from consumer.close(timeout=5.0)

    return loop


def plan(*, backlog: int = 0) -> Plan:
    """One member, then another. Records trickle, or all are there from the beginning."""
    end = JOINS_AT + SPAN + 4.0
    trickle = [(n * EVERY, number, 1) for n in range(int(end / EVERY)) for number in range(PARTITIONS)]
    return Plan(
        members=(MemberPlan(name="holds"), MemberPlan(name="joins", joins_at=JOINS_AT)),
        # With some seeds (1 is one) a fetch ends once or twice between the records of one moment. The others come with
        # the next one, 0.07 s after those before them. That happens without a hold, too, and is not what is judged.
        seed=2,
        kind="slow",
        partitions=PARTITIONS,
        produced=tuple((0.0, number, backlog) for number in range(PARTITIONS)) if backlog else tuple(trickle),
        quiet_after=end,
        ends_at=end,
        latency=(ONE_WAY, ONE_WAY),
        max_poll_interval=60.0,
        session_timeout=10.0,
        heartbeat_interval=1.0,
        request_timeout=10.0,
    )


@cache
def played(*, hold: float, backlog: int = 0) -> Seen:
    seen = Seen()
    SimulatedCluster(plan(backlog=backlog), loop=holding(seen, hold)).run()
    return seen


@pytest.mark.requirement("KIP-983/1")
@pytest.mark.rule("21")
def test_a_hold_costs_what_is_kept_nothing() -> None:
    """A record comes every 50 ms; each is returned as soon as with a hold as without one."""
    with_hold, without = played(hold=SPAN), played(hold=0.0)
    start = max(with_hold.requested_at, without.requested_at)
    end = min(with_hold.requested_at, without.requested_at) + SPAN - 1.0
    assert len(with_hold.kept) == len(without.kept) == PARTITIONS // 2
    assert with_hold.records(start, end) >= 0.97 * without.records(start, end)
    assert with_hold.longest_gap(start, end) <= without.longest_gap(start, end) + 2 * TURN
    assert with_hold.longest_gap(start, end) <= EVERY + ROUND_TRIP


@pytest.mark.requirement("KIP-983/1")
@pytest.mark.rule("21")
def test_a_hold_takes_no_capacity_from_what_is_kept() -> None:
    """With more records than there is room for: what is delayed has no share of it."""
    with_hold, without = played(hold=SPAN, backlog=BACKLOG), played(hold=0.0, backlog=BACKLOG)
    start = max(with_hold.requested_at, without.requested_at)
    assert with_hold.records(start, start + SPAN - 1) >= 0.97 * without.records(start, start + SPAN - 1)
    assert with_hold.longest_gap(start, start + SPAN - 1) <= without.longest_gap(start, start + SPAN - 1) + 2 * TURN
