"""Rule 19 in virtual time: at default settings a handed-over partition soon has an owner again, and the brokers do not
suffer for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest

from instride._core.events import Subscribe
from instride._core.network import assignment, group
from instride._core.network.actions import Deliver, OpenConnection, Transmit
from instride._core.network.machine import NetworkMachine
from instride._core.session_lease import Lease
from instride._wire import api
from instride._wire.consumer_protocol import Assignment, write_assignment
from instride._wire.group_notice import GroupNotice, write_notice
from instride.config import ConsumerConfig
from instride.testing._check.ownerless import percentile, without_owner
from instride.testing._simulation.plan import MemberPlan, Plan
from instride.testing.simulation import History, SimulatedCluster

PARTITIONS = 24
MEMBERS = 6
SPAN = 12.0
DEFAULTS = ConsumerConfig(bootstrap_servers="test:9092", group_id="g")


QUICK = (0.001, 0.01, 0.01, 0.0)
SLOW = (0.01, 0.05, 1.5, 0.02)


def growing(seed: int, assignor: str, handler: tuple[float, float, float, float]) -> Plan:
    """One member more every twelve seconds, at default settings."""
    rng = Random(seed)
    members = tuple(
        MemberPlan(name=f"m{n}", joins_at=n * (SPAN + rng.uniform(0.0, 3.0)), assignors=(assignor,))
        for n in range(MEMBERS)
    )
    end = MEMBERS * (SPAN + 3.0)
    return Plan(
        members=members,
        seed=seed,
        kind="slow",
        handler=handler,
        partitions=PARTITIONS,
        produced=tuple((second * 1.0, number, 3) for number in range(PARTITIONS) for second in range(int(end))),
        quiet_after=end,
        ends_at=end + 60.0,
        session_timeout=DEFAULTS.session_timeout,
        heartbeat_interval=DEFAULTS.heartbeat_interval,
        max_poll_interval=DEFAULTS.max_poll_interval,
        commit_budget=DEFAULTS.commit_budget,
        request_timeout=DEFAULTS.request_timeout,
    )


def rebalances(history: History) -> int:
    """That were completed."""
    return sum(event.what == "group" and event.detail[0] == "CompletingRebalance" for event in history)


def before_the_end(history: History) -> History:
    end = next(place for place, event in enumerate(history.events) if event.what == "leaving")
    del history.events[end:]
    return history


@pytest.mark.drawn(1)
@pytest.mark.rule("19")
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_a_group_of_ours_leaves_a_partition_without_an_owner_for_a_moment_only(assignor: str) -> None:
    """And not by more rebalances: one for each member that joins, and one after the releases."""
    seconds = []
    for seed in range(2):
        history = before_the_end(SimulatedCluster(growing(seed, assignor, QUICK)).run())
        seconds += [each.seconds for each in without_owner(history)]
        assert rebalances(history) <= 2 * MEMBERS - 1, f"seed {seed}"
    assert len(seconds) > 2 * PARTITIONS
    assert percentile(seconds, 0.95) <= 0.8


@pytest.mark.rule("19")
def test_releases_that_lie_apart_are_each_taken_over_in_a_moment() -> None:
    """Handlers of up to 1.5 s hold partitions for different times."""
    history = before_the_end(SimulatedCluster(growing(1, "cooperative-sticky", SLOW)).run())
    seconds = [each.seconds for each in without_owner(history)]
    assert len(seconds) >= PARTITIONS
    assert percentile(seconds, 0.95) <= 0.8


@pytest.mark.drawn(1)
@pytest.mark.rule("19")
@pytest.mark.parametrize(("handler", "more", "seeds"), [(QUICK, 0, [1]), (SLOW, 1, range(4))], ids=["quick", "slow"])
def test_fast_heartbeats_do_not_mean_more_rebalances(
    handler: tuple[float, float, float, float], more: int, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same plans as members played them that heartbeat every three seconds and gather nothing. Where releases lie
    more than a moment apart, one of them may have a round of its own that came too late for it before: one a plan, on
    the average of a few plans, since chance decides which releases fall together."""
    plans = [growing(seed, "cooperative-sticky", handler) for seed in seeds]
    now = sum(rebalances(before_the_end(SimulatedCluster(plan).run())) for plan in plans)
    monkeypatch.setattr(group, "_FAST", DEFAULTS.heartbeat_interval)
    monkeypatch.setattr(assignment, "_GATHERED_FOR", 0.0)
    before = [before_the_end(SimulatedCluster(plan).run()) for plan in plans]
    for history in before:
        assert percentile([each.seconds for each in without_owner(history)], 0.95) > 2.0, "as it was before"
    assert now <= sum(map(rebalances, before)) + more * len(plans)


SIZE = 1000
MOST_A_SECOND = 500


@dataclass(slots=True, kw_only=True)
class Beating:
    """One network machine of a large group, with a broker that responds at once."""

    machine: NetworkMachine
    beats: list[float]
    responses: dict[type, api.Response]
    at: float = 0.0

    def run(self, until: float) -> None:
        while self.at < until:
            self._settle()
            self.at = min(max(self.machine.deadline(), self.at + 0.0005), until)

    def _settle(self) -> None:
        while actions := self.machine.tick(self.at):
            for action in actions:
                match action:
                    case OpenConnection():
                        self.machine.opened(action.key, self.at)
                    case Transmit():
                        self._respond(action)
                    case Deliver() | _:
                        pass

    def _respond(self, action: Transmit) -> None:
        if isinstance(action.request, api.Heartbeat):
            self.beats.append(self.at)
        response = self.responses.get(type(action.request))
        if response is not None:
            self.machine.response_received(action.request_id, response, self.at)


def member(place: int, assigned: bytes, beats: list[float], random: Random) -> Beating:
    machine = NetworkMachine(DEFAULTS, lease=Lease(), random=random.random, wall_clock=lambda: 0.0)
    join = api.JoinGroupResponse(
        generation=1, protocol="cooperative-sticky", leader="leader", member_id=f"m{place}", members=()
    )
    responses: dict[type, api.Response] = {
        api.Metadata: api.MetadataResponse(
            brokers=(api.Broker(node_id=1, host="b", port=1),), topics=(api.MetadataTopic(name="t", partitions=()),)
        ),
        api.FindCoordinator: api.FindCoordinatorResponse(node_id=1, host="b", port=1),
        api.JoinGroup: join,
        api.SyncGroup: api.SyncGroupResponse(assignment=assigned),
        api.Heartbeat: api.HeartbeatResponse(),
    }
    made = Beating(machine=machine, beats=beats, responses=responses, at=random.uniform(0.0, 0.02))
    machine.handle(Subscribe(topics=frozenset({"t"}), listener=False), made.at)
    return made


def most_in_a_second(times: list[float]) -> int:
    times = sorted(times)
    return max(place + 1 - bisect_left(times, at - 1.0) for place, at in enumerate(times))


@pytest.mark.rule("19")
def test_a_group_of_a_thousand_sends_at_most_500_heartbeats_a_second() -> None:
    random = Random(1)
    beats: list[float] = []
    for place in range(SIZE):
        notice = write_notice(GroupNotice(members=SIZE, place=place, withheld=3))
        member(place, write_assignment(Assignment(userdata=notice)), beats, random).run(45.0)
    assert len(beats) > 13 * SIZE, "faster than the default of one in three seconds, at first"
    assert most_in_a_second(beats) <= MOST_A_SECOND
