"""The coordinator's search: on demand, one at a time, again after a back-off, refusals told once."""

from __future__ import annotations

import itertools

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, CallCompleted, Close, ErrorRaised, FetchCommitted, PartitionsAssigned
from instride._core.network.actions import ConnectionKey, Role
from instride._core.network.coordinator import TRANSITIONS, CoordinatorInput, CoordinatorState
from instride._wire import api
from instride.errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidGroupIdError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
)

NOT_AVAILABLE, NOT_COORDINATOR, INVALID_GROUP_ID = 15, 16, 24


class Searching(NetworkScript):
    """FindCoordinator waits for the test."""

    def _respond_at_once(self, action: object) -> None:
        request = getattr(action, "request", None)
        if not isinstance(request, api.FindCoordinator):
            super()._respond_at_once(action)  # type: ignore[arg-type]

    def searches(self) -> bool:
        return "FindCoordinator" in self.waits()

    def joins(self) -> bool:
        """The first thing that a member asks the coordinator."""
        return "JoinGroup" in self.waits()

    def found(self, node_id: int = 1) -> None:
        self.response(api.FindCoordinator, api.FindCoordinatorResponse(node_id=node_id, host="b", port=1))


@pytest.fixture
def script() -> Searching:
    return Searching()


@pytest.mark.requirement("threading/9")
@pytest.mark.rule("T")
def test_it_stays_initialized_until_an_event_needs_a_coordinator() -> None:
    script = Searching(group_id=None)
    script.settle()
    assert not script.searches()
    script.do(Assign(partitions={tp(0): 1}))
    script.pass_time(5.0)
    assert not script.searches()


@pytest.mark.requirement("threading/10")
@pytest.mark.requirement("threading/11")
@pytest.mark.requirement("threading/26")
@pytest.mark.rule("T")
def test_a_subscription_starts_the_search_and_the_response_ends_it(script: Searching) -> None:
    script.subscribe()
    assert script.requested(api.FindCoordinator).group_id == "g"
    assert not script.joins()
    script.found()
    assert not script.searches()
    key = next(each.key for each in script.waiting if isinstance(each.request, api.JoinGroup))
    assert key == ConnectionKey(Role.JOIN, 1)


@pytest.mark.requirement("threading/10")
@pytest.mark.requirement("threading/13")
@pytest.mark.requirement("threading/25")
@pytest.mark.rule("T")
@pytest.mark.parametrize("how", ["an error code", "a broken connection", "the time-out"])
def test_a_search_that_fails_goes_back_and_starts_again_after_a_back_off(script: Searching, how: str) -> None:
    script.subscribe()
    if how == "an error code":
        script.response(api.FindCoordinator, api.FindCoordinatorResponse(error=NOT_AVAILABLE))
    elif how == "a broken connection":
        script.response(api.FindCoordinator, TransportError("gone"))
    else:
        script.now += script.config.request_timeout
        script.settle()
    assert not script.searches()
    script.pass_time(2.0)
    script.found()
    assert script.joins()
    assert script.take(ErrorRaised) == []


@pytest.mark.requirement("threading/13")
@pytest.mark.requirement("surface/back-off")
def test_failures_are_spaced_ever_further(script: Searching) -> None:
    script.subscribe()
    searches = []
    for _ in range(6):
        searches.append(script.now)
        script.response(api.FindCoordinator, api.FindCoordinatorResponse(error=NOT_AVAILABLE))
        while "FindCoordinator" not in script.waits():
            script.pass_time(0.05)
    pauses = [later - earlier for earlier, later in itertools.pairwise(searches)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= script.config.retry_backoff * 0.8
    assert pauses[-1] <= script.config.retry_backoff_max * 1.2 + 0.05


def test_a_group_that_is_refused_is_told_once_and_searched_on(script: Searching) -> None:
    script.subscribe()
    for _ in range(3):
        refused = api.FindCoordinatorResponse(error=INVALID_GROUP_ID, error_message="too odd")
        script.response(api.FindCoordinator, refused)
        script.pass_time(2.0)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, InvalidGroupIdError)
    assert "too odd" in str(told.error)
    script.do(FetchCommitted(call=1, deadline=script.now + 60, partitions=(tp(0),)))
    (response,) = script.take(CallCompleted)
    assert isinstance(response.error, InvalidGroupIdError)
    script.found()
    script.do(FetchCommitted(call=2, deadline=script.now + 60, partitions=(tp(0),)))
    script.pass_time(1.0)
    assert script.take(CallCompleted)[-1].error is None


@pytest.mark.parametrize(
    "code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST, 12345]
)
def test_an_error_that_no_search_will_mend_is_told_once(script: Searching, code: int) -> None:
    script.subscribe()
    for _ in range(3):
        script.response(api.FindCoordinator, api.FindCoordinatorResponse(error=code))
        script.pass_time(2.0)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, BrokerResponseError)
    assert told.error.code == code
    script.found()
    assert "JoinGroup" in script.waits(), "the search went on"


def test_a_broker_that_cannot_be_requested_the_coordinator_is_told_of(script: Searching) -> None:
    script.subscribe()
    script.response(api.FindCoordinator, UnsupportedVersionError("no common version of FindCoordinator"))
    assert isinstance(script.take(ErrorRaised)[0].error, UnsupportedVersionError)


@pytest.mark.parametrize("code", [-1, 7, 14, 15])
def test_an_error_that_may_pass_is_told_to_nobody(script: Searching, code: int) -> None:
    script.subscribe()
    for _ in range(3):
        script.response(api.FindCoordinator, api.FindCoordinatorResponse(error=code))
        script.pass_time(2.0)
    assert script.take(ErrorRaised) == []


@pytest.mark.requirement("threading/11")
def test_being_lost_is_told_to_nobody_and_searched_once_however_many_say_so() -> None:
    script = Searching()
    script.subscribe()
    script.found()
    script.rebalance(1, 0)
    script.do(PartitionsAssigned(generation=1))
    script.commit({0: 5})
    script.pass_time(script.config.heartbeat_interval)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=NOT_COORDINATOR))
    script.committed(NOT_COORDINATOR)
    script.requested(api.FindCoordinator)
    script.found(node_id=2)
    script.pass_time(1.0)
    assert {each.key.node_id for each in script.waiting if isinstance(each.request, api.OffsetCommit)} == {2}
    assert script.take(ErrorRaised) == []


def test_a_search_that_a_close_ends_is_told_to_nobody(script: Searching) -> None:
    script.subscribe()
    script.requested(api.FindCoordinator)
    script.do(Close(call=1, deadline=script.now + 5.0, leave=True))
    assert [(each.call, each.error) for each in script.take(CallCompleted)] == [(1, None)]
    assert script.stopped
    assert script.take(ErrorRaised) == []


def test_a_dead_bootstrap_server_is_not_requested_ever() -> None:
    """Two requests wait for its connection, metadata and this search; the next server is that after it all the same."""
    script = Searching(bootstrap_servers="s0:1,s1:1")
    script.subscribe()
    script.reachable = False
    script.attempts.clear()
    script.response(api.FindCoordinator, TransportError("gone"))
    script.pass_time(10.0)
    assert {("s0", 1), ("s1", 1)} <= set(script.attempts)


@pytest.mark.rule("T")
def test_every_state_but_the_end_can_be_closed() -> None:
    for state in set(CoordinatorState) - {CoordinatorState.DOWN}:
        assert TRANSITIONS[state, CoordinatorInput.CLOSED] is CoordinatorState.DOWN


@pytest.mark.parametrize("failure", [ProtocolError("not to be understood"), TransportError("gone")])
def test_a_broker_that_gives_no_response_is_not_asked_again_where_there_is_another(
    script: Searching, failure: Exception
) -> None:
    script.nodes = (1, 2)
    script.subscribe()
    requested = []
    for _ in range(2):
        (node,) = (each.key.node_id for each in script.waiting if isinstance(each.request, api.FindCoordinator))
        requested.append(node)
        script.hold_metadata = True  # fresh metadata would clear the first of suspicion
        script.response(api.FindCoordinator, failure)
        script.pass_time(2.0)
    assert sorted(requested) == [1, 2]
