"""The coordinator's search: on demand, one at a time, again after a back-off, refusals told once."""

from __future__ import annotations

import itertools

import pytest
from network_script import NetworkScript, tp

from instride.core.events import Answered, Assign, ErrorRaised, FetchCommitted
from instride.core.network.actions import ConnectionKey, Role
from instride.core.network.coordinator import TRANSITIONS, Coordinator, CoordinatorInput, CoordinatorState
from instride.errors import InvalidGroupIdError, TransportError
from instride.wire import api

NOT_AVAILABLE, INVALID_GROUP_ID = 15, 24


class Searching(NetworkScript):
    """FindCoordinator waits for the test."""

    def _answer_at_once(self, action: object) -> None:
        request = getattr(action, "request", None)
        if not isinstance(request, api.FindCoordinator):
            super()._answer_at_once(action)  # type: ignore[arg-type]

    @property
    def coordinator_connection(self) -> Coordinator:
        return self.machine._coordinator

    def state(self) -> CoordinatorState:
        return self.coordinator_connection.state

    def found(self, node_id: int = 1) -> None:
        self.answer(api.FindCoordinator, api.FindCoordinatorAnswer(node_id=node_id, host="b", port=1))


@pytest.fixture
def script() -> Searching:
    return Searching()


@pytest.mark.requirement("threading/9")
@pytest.mark.rule("T")
def test_it_stays_initialized_until_an_event_needs_a_coordinator() -> None:
    script = Searching(group_id=None)
    assert script.state() is CoordinatorState.INITIALIZED
    script.do(Assign(partitions={tp(0): 1}))
    assert script.state() is CoordinatorState.INITIALIZED
    assert "FindCoordinator" not in script.waits()


@pytest.mark.requirement("threading/10")
@pytest.mark.requirement("threading/11")
@pytest.mark.requirement("threading/26")
@pytest.mark.rule("T")
def test_a_subscription_starts_the_search_and_the_answer_ends_it(script: Searching) -> None:
    script.subscribe()
    assert script.state() is CoordinatorState.COORDINATOR_DISCOVERY
    assert script.asked(api.FindCoordinator).group_id == "g"
    assert "JoinGroup" not in script.waits()
    script.found()
    assert script.state() is CoordinatorState.STABLE
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
        script.answer(api.FindCoordinator, api.FindCoordinatorAnswer(error=NOT_AVAILABLE))
    elif how == "a broken connection":
        script.answer(api.FindCoordinator, TransportError("gone"))
    else:
        script.now += script.config.request_timeout
        script.settle()
    assert script.state() is CoordinatorState.INITIALIZED
    assert "FindCoordinator" not in script.waits()
    script.pass_time(2.0)
    script.found()
    assert script.state() is CoordinatorState.STABLE
    assert script.take(ErrorRaised) == []


@pytest.mark.requirement("threading/13")
@pytest.mark.requirement("surface/back-off")
def test_failures_are_spaced_ever_further(script: Searching) -> None:
    script.subscribe()
    searches = []
    for _ in range(6):
        searches.append(script.now)
        script.answer(api.FindCoordinator, api.FindCoordinatorAnswer(error=NOT_AVAILABLE))
        while "FindCoordinator" not in script.waits():
            script.pass_time(0.05)
    pauses = [later - earlier for earlier, later in itertools.pairwise(searches)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= script.config.retry_backoff * 0.8
    assert pauses[-1] <= script.config.retry_backoff_max * 1.2 + 0.05


def test_a_group_that_is_refused_is_told_once_and_searched_on(script: Searching) -> None:
    script.subscribe()
    for _ in range(3):
        refused = api.FindCoordinatorAnswer(error=INVALID_GROUP_ID, error_message="too odd")
        script.answer(api.FindCoordinator, refused)
        script.pass_time(2.0)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, InvalidGroupIdError)
    assert "too odd" in str(told.error)
    script.do(FetchCommitted(call=1, deadline=script.now + 60, partitions=(tp(0),)))
    (answer,) = script.take(Answered)
    assert isinstance(answer.error, InvalidGroupIdError)
    script.found()
    script.do(FetchCommitted(call=2, deadline=script.now + 60, partitions=(tp(0),)))
    script.pass_time(1.0)
    assert script.take(Answered)[-1].error is None


@pytest.mark.requirement("threading/11")
def test_being_lost_is_told_to_nobody_and_searched_when_needed(script: Searching) -> None:
    script.subscribe()
    script.found()
    script.coordinator_connection.lost("a test says so")
    assert script.state() is CoordinatorState.INITIALIZED
    script.coordinator_connection.lost("again")
    assert script.state() is CoordinatorState.INITIALIZED
    script.settle()
    assert script.state() is CoordinatorState.COORDINATOR_DISCOVERY
    assert script.take(ErrorRaised) == []


def test_an_answer_to_a_search_that_is_over_is_ignored(script: Searching) -> None:
    script.subscribe()
    script.found()
    script.coordinator_connection._answered(ConnectionKey(Role.DATA, 1), TransportError("late"), script.now)
    assert script.state() is CoordinatorState.STABLE


def test_a_dead_bootstrap_server_is_not_asked_for_ever() -> None:
    script = Searching(bootstrap_servers="s0:1,s1:1")
    script.subscribe()
    machine = script.machine
    before = machine._cluster._next_bootstrap
    machine._coordinator._answered(ConnectionKey(Role.BOOTSTRAP, 0), TransportError("refused"), script.now)
    assert machine._cluster._next_bootstrap == before + 1


@pytest.mark.rule("T")
def test_every_state_but_the_end_can_be_closed() -> None:
    for state in set(CoordinatorState) - {CoordinatorState.DOWN}:
        assert TRANSITIONS[state, CoordinatorInput.CLOSED] is CoordinatorState.DOWN
