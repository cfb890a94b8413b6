"""What refuses us stays visible: it is tried again with a growing back-off, and raised again while it stands."""

from __future__ import annotations

import itertools
import traceback
from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assigned, ErrorRaised, Lost, PartitionsAssigned, Polled, Subscribe, Unsubscribe
from instride._core.network.actions import ConnectionKey, Role
from instride._core.ownership import RebalanceProtocol
from instride._wire import api
from instride._wire.consumer_protocol import Subscription, write_subscription
from instride.errors import AssignorError, BrokerResponseError, ErrorCode, TransportError

INCONSISTENT, INVALID_SESSION_TIMEOUT, GROUP_AUTHORIZATION_FAILED, GROUP_MAX_SIZE_REACHED = 23, 26, 30, 81
INVALID_GROUP_ID, FENCED_INSTANCE_ID = 24, 82
GROUP_ID_NOT_FOUND = 69
PASSING = [
    INCONSISTENT,
    INVALID_SESSION_TIMEOUT,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_MAX_SIZE_REACHED,
    GROUP_ID_NOT_FOUND,
    12345,
]

pytestmark = pytest.mark.rule("17")


class Refusing(NetworkScript):
    """A group that responds to each Join with `code`; the application polls each half second."""

    def __init__(self, code: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.code = code
        self.joins: list[float] = []
        self.raised: list[tuple[float, Exception]] = []

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.do(Polled(at=self.now))
            self.pass_time(0.5)
            if "JoinGroup" in self.waits() and self.code:
                self.joins.append(self.now)
                self.response(api.JoinGroup, api.JoinGroupResponse(error=self.code))
                if self.code == INCONSISTENT:
                    self.response(api.DescribeGroup, api.DescribeGroupResponse())
            self.raised += [(self.now, each.error) for each in self.take(ErrorRaised)]


@pytest.mark.parametrize("code", PASSING)
def test_a_group_that_refuses_us_is_joined_ever_more_seldom_and_stays_an_error(code: int) -> None:
    script = Refusing(code)
    script.subscribe()
    script.run(300.0)
    assert 7 <= len(script.joins) <= 12
    gaps = [later - earlier for earlier, later in itertools.pairwise(script.joins)]
    assert gaps[0] <= 2.0
    assert max(gaps) <= 60.0 * 1.2 + 1.0
    assert 6 <= len(script.raised) <= 10, "raised again while it stands"
    assert all(isinstance(error, BrokerResponseError) and error.code == code for _, error in script.raised)
    script.code = 0
    script.run(80.0)
    script.rebalance(1, 0)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0)}
    script.do(PartitionsAssigned(generation=1))
    script.raised.clear()
    script.run(5.0)
    assert script.raised == []


def test_after_it_has_taken_us_the_back_off_begins_anew() -> None:
    script = Refusing(GROUP_AUTHORIZATION_FAILED)
    script.subscribe()
    script.run(100.0)
    script.code = 0
    script.run(80.0)
    script.rebalance(1, 0)
    script.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(script.take(Lost)) == 1
    script.code, script.joins = GROUP_AUTHORIZATION_FAILED, []
    script.run(4.0)
    assert len(script.joins) >= 2


@pytest.mark.parametrize("code", [INVALID_GROUP_ID, FENCED_INSTANCE_ID])
def test_what_no_time_mends_is_not_tried_but_stays_visible(code: int) -> None:
    script = Refusing(code)
    script.subscribe()
    script.run(100.0)
    assert len(script.joins) == 1, "joining again would fence the one that has taken our place"
    assert 4 <= len(script.raised) <= 6


def test_what_the_user_gives_up_is_not_raised_any_more() -> None:
    script = Refusing(GROUP_AUTHORIZATION_FAILED)
    script.subscribe()
    script.run(10.0)
    script.do(Unsubscribe(call=1, deadline=script.now + 5.0))
    script.raised.clear()
    script.run(100.0)
    assert script.raised == []


def test_a_coordinator_that_nobody_names_is_told_again_while_it_lasts() -> None:
    script = Refusing(0)
    script.coordinator_error = GROUP_AUTHORIZATION_FAILED
    script.subscribe()
    script.run(60.0)
    assert 3 <= len(script.raised) <= 5
    script.coordinator_error = 0
    script.run(3.0)
    script.rebalance(1, 0)
    script.do(PartitionsAssigned(generation=1))
    script.raised.clear()
    script.run(5.0)
    assert script.raised == []


# --- what a user's assignor returns ---------------------------------------------------------------------------


class Garbage:
    """A user's assignor that returns what it is told to."""

    name, version = "garbage", 0

    def __init__(self, made: Any) -> None:
        self.protocols = [RebalanceProtocol.EAGER]
        self.made = made

    def subscription_userdata(self, topics: Any, *, owned: Any, generation: int) -> bytes | None:
        return None

    def assign(self, cluster: Any, members: Any) -> Any:
        return self.made

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returned None (a NoneType)"),
        ([("me", ())], "return member id -> partitions"),
        ({7: ()}, "assigns to 7 (a int), which is no member id of this group"),
        ({b"me": ()}, "b'me'"),
        ({"somebody": ()}, "'somebody'"),
        ({"\udcff": ()}, "no member id"),
        ({"me": 3}, "gives 3 (a int) to 'me'"),
        ({"me": [("t", "0")]}, "give TopicPartitions"),
        ({"me": [("t", 1 << 40)]}, "give TopicPartitions"),
        ({"me": [(7, 0)]}, "give TopicPartitions"),
        ({"me": ["t-0"]}, "give TopicPartitions"),
        ({"me": [("t", 0), ("t", 0)]}, "assigns t-0 to 'me' and to 'me'"),
        ({"me": [("\udcff", 0)]}, "give TopicPartitions"),
    ],
)
def test_what_is_no_assignment_is_a_clear_error_and_kills_nothing(made: Any, said: str) -> None:
    script = NetworkScript(assignors=[Garbage(made)])
    script.subscribe()
    script.join(1, leader=True)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, AssignorError)
    assert said in str(told.error)
    assert "'garbage'" in str(told.error)
    assert "SyncGroup" not in script.waits()
    assert "LeaveGroup" in script.waits(), "nobody shall wait for us"


class Beating(Refusing):
    """A member of generation 1 whose heartbeats have this response."""

    def __init__(self, code: int, **settings: Any) -> None:
        super().__init__(0, **settings)
        self.heartbeats, self.searches = code, 0
        self.member_of(1, 0)

    def _respond_at_once(self, action: Any) -> None:
        self.searches += isinstance(action.request, api.FindCoordinator)
        super()._respond_at_once(action)
        if isinstance(action.request, api.Heartbeat):
            self.response(api.Heartbeat, api.HeartbeatResponse(error=self.heartbeats), settle=False)


@pytest.mark.rule("fence yourself")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, 12345])
def test_heartbeats_refused_for_a_whole_session_are_told_while_that_lasts(code: int) -> None:
    """Without a lease no poll returns a record, so the user must hear why."""
    script = Beating(0)
    script.heartbeats, before = code, script.searches
    script.run(script.config.session_timeout - 5.0)
    assert (script.raised, script.searches) == ([], before), "while the lease holds it costs nothing"
    script.run(300.0)
    assert script.searches > before, "another broker may be the coordinator by now"
    assert 5 <= len(script.raised) <= 10
    error = script.raised[0][1]
    assert isinstance(error, BrokerResponseError)
    assert error.code == code
    assert "'g'" in str(error)
    assert "no records are returned" in str(error)
    assert script.take(Lost) == [], "the next response decides"
    script.heartbeats = 0
    script.run(4.0)
    script.raised.clear()
    script.run(100.0)
    assert (script.raised, script.take(Lost)) == ([], [])
    assert script.lease.holds(script.now)


def test_one_refused_heartbeat_during_the_first_sync_is_none_of_the_users() -> None:
    """There is no lease yet, and no heartbeat was accepted: that says nothing of this one."""
    script = Refusing(0)
    script.subscribe()
    script.join(1)
    while "Heartbeat" not in script.waits():
        script.run(0.5)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    script.run(2.0)
    assert script.raised == []
    assert any("it is tried again" in line for line in script.logs)
    assert "SyncGroup" in script.waits(), "the coordinator is not thrown away"


def test_heartbeats_refused_for_a_session_from_the_first_join_on_are_told() -> None:
    script = Refusing(0)
    script.subscribe()
    script.join(1)
    since = script.now
    while not script.raised:
        script.run(0.5)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR))
            script.run(0.5)
        assert script.now < since + script.config.session_timeout + 5.0
    assert script.now >= since + script.config.session_timeout


def test_who_unsubscribes_hears_no_more_of_refused_heartbeats() -> None:
    script = Beating(ErrorCode.UNKNOWN_SERVER_ERROR)
    script.run(script.config.session_timeout + 5.0)
    assert script.raised != []
    script.do(Unsubscribe(call=1, deadline=script.now + 5.0))
    script.raised.clear()
    script.run(100.0)
    assert script.raised == []


@pytest.mark.parametrize("leads", [True, False])
def test_a_sync_that_the_coordinator_cannot_write_says_what_may_be_too_large(leads: bool) -> None:
    """To a group whose record is larger than a batch may be Kafka says UNKNOWN_SERVER_ERROR, and nothing else."""
    script = Refusing(0)
    script.subscribe()
    mine = script.requested(api.JoinGroup).protocols[0]
    wanted = [write_subscription(Subscription(topics=("t",), userdata=bytes(size))) for size in (300_000, 400_000)]
    said_by = {"me": mine.metadata, "m1": wanted[0], "m2": wanted[1]}
    members = tuple(api.GroupMember(member_id=name, metadata=said) for name, said in said_by.items())
    joined = api.JoinGroupResponse(
        generation=1,
        protocol=mine.name,
        leader="me" if leads else "another",
        member_id="me",
        members=members if leads else (),
    )
    script.response(api.JoinGroup, joined)
    sync = script.requested(api.SyncGroup)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR))
    (raised,) = script.take(ErrorRaised)
    said = str(raised.error)
    assert "UNKNOWN_SERVER_ERROR (error code -1)" in said
    assert "message.max.bytes" in said
    if leads:
        assert f"3 members have {sum(map(len, said_by.values()))} bytes" in said
        assert f"assignments {sum(map(len, sync.assignments.values()))}" in said
    assert isinstance(raised.error, BrokerResponseError)
    assert raised.error.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_another_error_of_a_sync_is_told_by_its_name() -> None:
    script = Refusing(0)
    script.subscribe()
    script.join(1)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=ErrorCode.INVALID_REQUEST))
    assert "InvalidRequestError (error code 42)" in str(script.take(ErrorRaised)[0].error)


# --- what fellow members may do to us -------------------------------------------------------------------------


def leading(script: NetworkScript, *topics: str) -> None:
    """We lead, and another member subscribes to these."""
    request = script.requested(api.JoinGroup)
    mine = api.GroupMember(member_id="me", metadata=request.protocols[0].metadata)
    other = api.GroupMember(member_id="other", metadata=write_subscription(Subscription(topics=topics)))
    script.response(
        api.JoinGroup,
        api.JoinGroupResponse(
            generation=1, protocol=request.protocols[0].name, leader="me", member_id="me", members=(mine, other)
        ),
    )


@pytest.mark.parametrize("code", [0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_that_only_a_fellow_member_requested_is_told_to_that_member(code: int) -> None:
    script = Refusing(0)
    script.topic_errors = {"tpyo": code} if code else {}
    script.subscribe()
    leading(script, "t", "tpyo")
    script.sync(0)
    script.do(PartitionsAssigned(generation=1))
    script.run(60.0)
    assert script.raised == []


def test_partitions_that_do_not_exist_are_one_line_and_a_thousand_are_taken_on() -> None:
    script = Refusing(0)
    script.subscribe()
    script.join(1)
    script.sync(*range(100_000))
    (assigned,) = script.take(Assigned)
    assert len(assigned.partitions) == 4 + 1000
    script.do(PartitionsAssigned(generation=1))
    fetch = script.requested(api.Fetch)
    assert {each.partition for each in fetch.partitions} == {0, 1, 2, 3}, "what exists is read"
    script.run(20.0)
    (line,) = [each for each in script.logs if "not known to exist" in each]
    named = ", ".join(f"t-{p}" for p in range(4, 24))
    assert line == (
        f"99996 of the partitions that the group assigned are not known to exist: {named} and 99976 more; "
        "98996 of them are left out"
    )
    assert 1 <= len(script.raised) <= 3
    assert "1000 partitions do not exist" in str(script.raised[0][1])
    assert "JoinGroup" not in script.waits()
    script.topics["t"] = 100_000
    script.run(3.0)
    assert script.joining_with().owned == tuple(tp(p) for p in range(1004))


def test_a_few_that_are_younger_than_our_metadata_cost_no_rebalance() -> None:
    script = Refusing(0)
    script.subscribe()
    script.join(1)
    script.topics["t"] = 6
    script.sync(0, 5)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(0), tp(5)}
    script.do(PartitionsAssigned(generation=1))
    script.run(1.5)
    assert script.raised == []
    assert "JoinGroup" not in script.waits()
    fetched = {
        p.partition for each in script.waiting if isinstance(each.request, api.Fetch) for p in each.request.partitions
    }
    assert fetched == {0, 5}


# --- a coordinator that comes back ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["its connection broke", "it has another address"])
def test_a_join_does_not_wait_on_a_dead_connection_of_a_coordinator_that_restarted(how: str) -> None:
    script = Refusing(0)
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.requested(api.JoinGroup)
    pending = next(each for each in script.waiting if isinstance(each.request, api.JoinGroup))
    if how == "its connection broke":
        coordinator = ConnectionKey(Role.COORDINATOR, 1)
        script.machine.closed(coordinator, TransportError("reset by peer"), script.now)
        script.settle()
    else:
        script.coordinator_host = "elsewhere"
        script.pass_time(script.config.heartbeat_interval)
        script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.NOT_COORDINATOR))
    assert pending not in script.waiting, "its end is noticed"
    script.run(3.0)
    again = next(each for each in script.waiting if isinstance(each.request, api.JoinGroup))
    assert again.request_id != pending.request_id
    assert script.take(Lost) == []


def test_a_join_goes_on_where_the_same_coordinator_only_said_no_for_a_moment() -> None:
    script = Refusing(0)
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    pending = next(each for each in script.waiting if isinstance(each.request, api.JoinGroup))
    script.pass_time(script.config.heartbeat_interval)
    script.response(api.Heartbeat, api.HeartbeatResponse(error=ErrorCode.NOT_COORDINATOR))
    script.run(1.0)
    assert pending in script.waiting


def test_a_response_says_nothing_of_a_topic_that_its_request_did_not_name() -> None:
    """The subscription comes while a request for other topics is under way, and then nobody responds for a while."""
    script = NetworkScript(topics={"t": 4, "u": 1})
    script.hold_metadata = True
    script.do(Subscribe(topics=frozenset({"t"})))
    named = script.requested(api.Metadata)
    script.do(Subscribe(topics=frozenset({"t", "u"})))
    script.response(api.Metadata, script.metadata(named))
    script.pass_time(5.0)
    assert [each.error for each in script.take(ErrorRaised)] == []
    assert set(script.requested(api.Metadata).topics or ()) == {"t", "u"}


def test_an_error_that_is_raised_again_and_again_grows_by_no_raise() -> None:
    """It is the same object, which stands for as long as the member was fenced."""
    script, depths = Refusing(FENCED_INSTANCE_ID, group_instance_id="a"), list[int]()
    script.subscribe()
    for _ in range(600):
        script.run(0.5)
        for _, error in script.raised:
            try:
                raise error
            except BrokerResponseError:
                depths.append(len(traceback.extract_tb(error.__traceback__)))
        script.raised.clear()
    assert len(depths) > 3
    assert set(depths) == {1}
