"""The coordinator's search: on demand, one at a time, again after a back-off, refusals told once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, CallCompleted, Close, ErrorRaised, FetchCommitted, PartitionsAssigned
from instride._core.network.actions import Action, CloseConnection, ConnectionKey, Role
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


class Closing(NetworkScript):
    """closed: connections that were closed, in order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.closed: list[CloseConnection] = []

    def _act(self, action: Action) -> None:
        super()._act(action)
        if isinstance(action, CloseConnection):
            self.closed.append(action)

    def closings(self, role: Role) -> list[CloseConnection]:
        return [each for each in self.closed if each.key.role is role]


class Searching(Closing):
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


# --- a connection that leads to the wrong machine ---------------------------------------------------------------


class Denying(Closing):
    """A member whose connections to the coordinator may lead to another machine, which denies all.

    Between two heartbeats is more than the 5 s after which such a connection is doubted.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"heartbeat_interval": 6.0, **settings})

    def denies(self) -> None:
        """A heartbeat is denied, the coordinator is found again, and the next heartbeat is sent."""
        if "Heartbeat" not in self.waits():
            self.pass_time(self.config.heartbeat_interval)
        self.attempts.clear()
        self.response(api.Heartbeat, api.HeartbeatResponse(error=NOT_COORDINATOR))
        self.pass_time(self.config.heartbeat_interval)

    def storm(self, seconds: float, error: int) -> list[float]:
        """All that is requested of the coordinator has this response. When connections were opened to it."""
        opened, end = [], self.now + seconds
        while self.now < end:
            self.attempts.clear()
            self._deny(error)
            self.pass_time(0.05)
            opened += [self.now] * len(self.attempts)
        return opened

    def _deny(self, error: int) -> None:
        if "Heartbeat" in self.waits():
            self.response(api.Heartbeat, api.HeartbeatResponse(error=error))
        if "OffsetCommit" in self.waits():
            self.committed(error)


def test_a_coordinator_that_denies_twice_is_connected_to_anew() -> None:
    """Its name led to another broker's machine when the connection was opened."""
    script = Denying()
    script.member_of(1, 0)
    script.denies()
    assert script.attempts == [], "it may have just started"
    script.denies()
    assert script.attempts == [("b", 1)]
    script.heartbeat()
    script.denies()
    assert script.attempts == [], "the next two count anew"
    assert script.take(ErrorRaised) == []


def test_a_coordinator_with_another_address_is_not_spoken_to_at_the_old_one() -> None:
    script = Denying()
    script.member_of(1, 0)
    script.commit({0: 5})
    script.coordinator_host = "elsewhere"
    script.denies()
    assert script.attempts == [("elsewhere", 1)]
    aborted = CloseConnection(key=ConnectionKey(Role.COORDINATOR, 1), abort=True)
    assert aborted in script.closed, "it must not reach the broker behind a later one"
    assert script.committed() == {0: 5}, "what waited at the old one is sent to the new one"


def test_a_coordinator_that_comes_back_has_another_address() -> None:
    script = Denying()
    script.member_of(1, 0)
    script.coordinator = 2
    script.denies()
    script.coordinator, script.coordinator_host = 1, "elsewhere"
    script.denies()
    assert script.attempts == [("elsewhere", 1)]


def test_a_join_that_waits_for_its_connection_has_no_old_address_dialled() -> None:
    """Its connection has broken, and the back-off has not ended when the coordinator is found elsewhere."""
    script = Denying(heartbeat_interval=3.0, reconnect_backoff=10.0, reconnect_backoff_max=10.0)
    script.member_of(1, 0)
    script.machine.closed(ConnectionKey(Role.JOIN, 1), TransportError("gone"), script.now)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert "JoinGroup" not in script.waits()
    script.coordinator_host = "elsewhere"
    script.denies()
    script.pass_time(10.0)
    assert script.attempts == [("elsewhere", 1)] * 2
    assert "JoinGroup" in script.waits()


def test_a_join_that_is_denied_twice_is_sent_on_another_connection(script: Searching) -> None:
    script.subscribe()
    script.found()
    script.closed.clear()
    for closed in ([], [CloseConnection(key=ConnectionKey(Role.JOIN, 1))]):
        script.response(api.JoinGroup, api.JoinGroupResponse(error=NOT_COORDINATOR))
        script.found()
        assert script.closed == closed
        script.pass_time(5.0)
        assert script.joins()


def test_a_join_that_is_in_flight_is_left_where_heartbeats_are_denied() -> None:
    """A machine that is not the coordinator would respond to it at once."""
    script = Denying()
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    pending = next(each for each in script.waiting if isinstance(each.request, api.JoinGroup))
    script.denies()
    script.denies()
    assert script.attempts == [("b", 1)]
    assert pending in script.waiting


@pytest.mark.parametrize("error", [NOT_COORDINATOR, NOT_AVAILABLE])
def test_a_coordinator_that_denies_for_long_is_connected_to_at_most_each_5_s(error: int) -> None:
    """A failover of which others know before the new coordinator does: handshakes would keep it from loading."""
    script = Denying(heartbeat_interval=3.0)
    script.member_of(1, 0)
    script.commit({0: 5})
    began = script.now
    opened = script.storm(30.0, error)
    assert len(opened) > 1
    assert min(after - before for before, after in itertools.pairwise([began, *opened])) >= 5.0


def test_one_moment_of_denial_closes_no_connection() -> None:
    script = Denying()
    script.member_of(1, 0)
    script.commit({0: 5})
    script.pass_time(script.config.heartbeat_interval)
    assert script.storm(4.5, NOT_COORDINATOR) == []
    assert script.closings(Role.COORDINATOR) == []


@pytest.mark.parametrize("role", [Role.COORDINATOR, Role.JOIN])
def test_denials_on_a_connection_that_broke_say_nothing_of_the_next_one(role: Role) -> None:
    script = Denying()
    script.member_of(1, 0)
    script.denies()
    script.waiting = [each for each in script.waiting if each.key.role is not role]
    script.machine.closed(ConnectionKey(role, 1), TransportError("gone"), script.now)
    script.settle()
    script.denies()
    assert script.closings(Role.COORDINATOR) == []
    script.denies()
    assert len(script.closings(Role.COORDINATOR)) == 1


def test_denials_count_together_though_heartbeats_are_rare() -> None:
    script = Denying(heartbeat_interval=31.0)
    script.member_of(1, 0)
    script.denies()
    script.denies()
    assert len(script.closings(Role.COORDINATOR)) == 1


def committing_alone() -> Denying:
    """Without a group's heartbeats, nothing but commits is requested of the coordinator."""
    script = Denying()
    script.do(Assign(partitions={tp(0): 1}))
    script.commit({0: 5}, epoch=1, timeout=300.0)
    return script


def test_two_denials_far_apart_close_no_connection() -> None:
    script = committing_alone()
    for _ in range(3):
        script.committed(NOT_COORDINATOR)
        script.pass_time(2.0)
        script.committed()
        script.pass_time(40.0)
        script.commit({0: 5}, epoch=1)
    assert script.closings(Role.COORDINATOR) == []


@pytest.mark.parametrize(
    ("error", "denies"), [(ErrorCode.REQUEST_TIMED_OUT, False), (NOT_AVAILABLE, True), (NOT_COORDINATOR, True)]
)
def test_a_code_that_denies_nothing_closes_no_connection(error: int, denies: bool) -> None:
    """A commit that the group's replicas did not write in time has reached the coordinator."""
    script = committing_alone()
    for _ in range(4):
        script.committed(error)
        script.pass_time(2.0)
    assert bool(script.closings(Role.COORDINATOR)) is denies


def test_a_look_at_what_was_committed_may_be_denied() -> None:
    """Where partitions began is committed only if the group has no offset of them."""
    script = Denying()
    script.committed_offset = None
    script.do(Assign(partitions={tp(0): 1}))
    script.response(api.OffsetFetch, api.OffsetFetchResponse(offsets={tp(0): api.CommittedOffset(offset=-1)}))
    script.commit({0: 5}, epoch=1, starts=True)
    for _ in range(4):
        script.response(api.OffsetFetch, api.OffsetFetchResponse(error=NOT_COORDINATOR))
        script.pass_time(2.0)
    assert len(script.closings(Role.COORDINATOR)) == 1


def test_an_error_without_a_code_denies_nothing() -> None:
    script = committing_alone()
    for _ in range(4):
        script.response(api.OffsetCommit, TransportError("gone"))
        script.pass_time(2.0)
    assert script.closings(Role.COORDINATOR) == []


def test_a_denial_before_a_good_heartbeat_does_not_count() -> None:
    script = Denying()
    script.member_of(1, 0)
    script.denies()
    script.response(api.Heartbeat, api.HeartbeatResponse())
    script.denies()
    assert script.closings(Role.COORDINATOR) == []


def test_a_good_heartbeat_is_no_word_of_a_join_that_is_denied(script: Searching) -> None:
    """Each of the two has a connection of its own, and one alone may lead to the wrong machine."""
    script.subscribe()
    script.found()
    script.rebalance(1, 0)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    for closings in (0, 0, 1):
        script.response(api.JoinGroup, api.JoinGroupResponse(error=NOT_COORDINATOR))
        script.found()
        assert len(script.closings(Role.JOIN)) == closings
        script.heartbeat()


def test_denials_of_a_cluster_that_was_left_do_not_count() -> None:
    script = Denying(bootstrap_servers="s0:1")
    script.member_of(1, 0)
    denied = api.FetchedPartition(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    script.hold_metadata = True
    script.response(api.Fetch, api.FetchResponse(partitions={tp(0): denied}))
    script.denies()
    script.response(api.Metadata, api.MetadataResponse(error=ErrorCode.REBOOTSTRAP_REQUIRED))
    script.hold_metadata = False
    script.pass_time(2.0)
    script.closed.clear()
    script.denies()
    assert script.closings(Role.COORDINATOR) == []
