"""What the threading refactor asks of the group's states and of time: they are gone through in order, it is kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assigned,
    CallCompleted,
    Close,
    FetchCommitted,
    FetchMetadata,
    FetchOffsets,
    Noticed,
    PartitionsAssigned,
    Polled,
)
from instride._core.network.actions import Action, Transmit
from instride._wire import api
from instride.errors import KafkaError
from instride.telemetry import RebalanceEnded, RebalanceOutcome

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, REBALANCE_IN_PROGRESS = 14, 15, 16, 27


class Timed(NetworkScript):
    """Notes what was sent, and when. without_response: kinds of requests that the test responds to itself."""

    def __init__(self, *without_response: type[api.Request], **settings: Any) -> None:
        self.sent: list[tuple[float, type]] = []
        self.without_response = without_response
        super().__init__(**settings)

    def _act(self, action: Action) -> None:
        super()._act(action)
        if isinstance(action, Transmit):
            self.sent.append((self.now, type(action.request)))

    def _respond_at_once(self, action: Transmit) -> None:
        if not isinstance(action.request, self.without_response):
            super()._respond_at_once(action)

    def times(self, kind: type[api.Request]) -> list[float]:
        return [time for time, sent in self.sent if sent is kind]

    def ended(self) -> list[tuple[RebalanceOutcome, int]]:
        """The rebalances that have ended so far."""
        events = [event.event for event in self.delivered if isinstance(event, Noticed)]
        return [(each.outcome, each.generation) for each in events if isinstance(each, RebalanceEnded)]


# --- states -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("threading/18")
@pytest.mark.requirement("threading/19")
def test_a_rebalance_is_over_when_the_application_has_taken_the_assignment() -> None:
    script = Timed()
    script.subscribe()
    assert "JoinGroup" in script.waits(), "preparing"
    script.join(1)
    assert "SyncGroup" in script.waits(), "completing"
    assert script.take(Assigned) == []
    script.sync(0)
    assert [event.partitions.keys() for event in script.take(Assigned)] == [{tp(0)}], "assigning"
    script.pass_time(1.0)
    assert script.ended() == [], "nobody has responded"
    script.do(PartitionsAssigned(generation=1))
    assert script.ended() == [(RebalanceOutcome.TAKEN, 1)], "stable"


@pytest.mark.requirement("threading/18")
def test_a_response_to_an_older_assignment_ends_no_newer_rebalance() -> None:
    script = Timed()
    script.subscribe()
    script.rebalance(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    script.do(PartitionsAssigned(generation=1))
    assert [outcome for outcome, _ in script.ended()] == [RebalanceOutcome.SUPERSEDED]
    script.do(PartitionsAssigned(generation=2))
    assert script.ended()[1:] == [(RebalanceOutcome.TAKEN, 2)]


# --- the coordinator ----------------------------------------------------------------------------------------


@pytest.mark.requirement("threading/9")
def test_what_needs_no_coordinator_is_done_without_one() -> None:
    script = Timed()
    script.do(FetchMetadata(call=1, deadline=script.now + 60, topics=None))
    script.do(FetchOffsets(call=2, deadline=script.now + 60, timestamps={tp(0): 5}))
    script.pass_time(1.0)
    script.response(api.ListOffsets, api.ListOffsetsResponse(offsets={tp(0): api.ListedOffset(offset=3)}))
    assert {each.call: each.error for each in script.take(CallCompleted)} == {1: None, 2: None}
    assert script.times(api.FindCoordinator) == []
    script.do(FetchCommitted(call=3, deadline=script.now + 60, partitions=(tp(0),)))
    assert len(script.times(api.FindCoordinator)) == 1


@pytest.mark.requirement("threading/25")
def test_a_search_is_given_up_after_the_requests_timeout_and_no_sooner() -> None:
    script = Timed(api.FindCoordinator)
    script.subscribe()
    (searched,) = script.times(api.FindCoordinator)
    limit = script.config.request_timeout
    script.pass_time(limit - 0.5)
    assert len(script.times(api.FindCoordinator)) == 1, "one at a time"
    script.pass_time(2.5)
    first, second = script.times(api.FindCoordinator)
    assert first == searched
    assert limit <= second - first <= limit + 2.0


@pytest.mark.vector(72)
@pytest.mark.requirement("surface/close-bounded")
def test_commits_that_find_no_coordinator_hold_up_a_close_until_its_timeout() -> None:
    script = NetworkScript()
    script.member_of(1, 0)
    script.coordinator_error = NOT_AVAILABLE
    script.heartbeat(NOT_COORDINATOR)
    script.commit({0: 3})
    script.do(Close(call=1, deadline=script.now + 1.0))
    script.pass_time(0.9)
    assert [each for each in script.take(CallCompleted) if each.call == 1] == []
    assert not script.stopped
    script.pass_time(0.2)
    (response,) = [each for each in script.take(CallCompleted) if each.call == 1]
    assert isinstance(response.error, KafkaError)
    assert script.stopped


# --- heartbeats ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("threading/27")
@pytest.mark.requirement("KIP-41/5")
def test_heartbeats_come_at_their_interval_and_no_sooner() -> None:
    """While the application polls all the time, and while it does not."""
    script = Timed(heartbeat_interval=2.0, session_timeout=12.0, max_poll_interval=60.0)
    script.member_of(1, 0)
    joined = script.now
    for turn in range(200):
        if turn < 80:
            script.do(Polled(at=script.now))
        script.pass_time(0.25)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    pauses = [later - earlier for earlier, later in itertools.pairwise([joined, *script.times(api.Heartbeat)])]
    assert len(pauses) >= 20
    assert min(pauses) >= 2.0
    assert max(pauses) <= 2.25, "what has its response in time is requested again an interval later"


# --- back-off -----------------------------------------------------------------------------------------------


def pauses_of_joins(script: Timed, count: int) -> list[float]:
    """How long each refusal of a join is waited for."""
    found = []
    for _ in range(count):
        script.response(api.JoinGroup, api.JoinGroupResponse(error=LOADING))
        refused = script.now
        while "JoinGroup" not in script.waits():
            script.pass_time(0.25)
            script.do(Polled(at=script.now))
        found.append(script.times(api.JoinGroup)[-1] - refused)
    return found


def retrying(chance: float = 0.5) -> Timed:
    settings: dict[str, Any] = {"retry_backoff": 1.0, "retry_backoff_max": 8.0, "max_poll_interval": 9000.0}
    script = Timed(random=lambda: chance, session_timeout=60.0, **settings)
    script.subscribe()
    return script


@pytest.mark.requirement("surface/back-off")
@pytest.mark.requirement("threading/13")
def test_pauses_double_up_to_their_bound() -> None:
    assert pauses_of_joins(retrying(), 6) == pytest.approx([1, 2, 4, 8, 8, 8])
    assert pauses_of_joins(retrying(), 60)[-1] == pytest.approx(8), "however often it failed"


@pytest.mark.requirement("surface/back-off")
@pytest.mark.parametrize(("chance", "factor"), [(0.0, 0.8), (0.75, 1.1), (1.0, 1.2)])
def test_chance_makes_a_pause_up_to_a_fifth_shorter_or_longer(chance: float, factor: float) -> None:
    """Members that failed together do not try again together."""
    assert pauses_of_joins(retrying(chance), 5) == pytest.approx([each * factor for each in (1, 2, 4, 8, 8)])


def test_a_rebalance_that_went_well_ends_the_growth_of_the_pauses() -> None:
    script = retrying()
    pauses_of_joins(script, 3)
    script.rebalance(1, 0)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    assert pauses_of_joins(script, 1) == pytest.approx([1])
