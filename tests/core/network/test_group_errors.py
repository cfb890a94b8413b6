"""Every error of Join, Sync, heartbeats and commits, and what a leader does (Kafka's tables)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from network_script import NetworkScript, tp

from instride._core.assignors.assignor import Assignment, ClusterView, MemberSubscription
from instride._core.assignors.roundrobin import RoundRobinAssignor
from instride._core.assignors.sticky import CooperativeStickyAssignor
from instride._core.events import (
    Assigned,
    CallCompleted,
    EnforceRebalance,
    ErrorRaised,
    Lost,
    Noticed,
    PartitionsAssigned,
    Polled,
    RevocationRequested,
    Subscribe,
    Unsubscribe,
)
from instride._wire import api
from instride._wire.consumer_protocol import Subscription, read_assignment, write_subscription
from instride.errors import (
    BrokerResponseError,
    CommitFailedError,
    ErrorCode,
    InconsistentGroupProtocolError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
)
from instride.records import TopicPartition
from instride.telemetry import RebalanceEnded, RebalanceOutcome

UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 25, 22, 27, 79
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
INCONSISTENT = 23
FATAL = [INCONSISTENT, 24, 26, 30, 81, 82]
FINAL = [24, 82]


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


def refuse(script: NetworkScript, what: str, code: int) -> None:
    kinds: dict[str, tuple[Any, Any]] = {
        "join": (api.JoinGroup, api.JoinGroupResponse(error=code, member_id="given")),
        "sync": (api.SyncGroup, api.SyncGroupResponse(error=code)),
        "heartbeat": (api.Heartbeat, api.HeartbeatResponse(error=code)),
    }
    kind, response = kinds[what]
    script.response(kind, response)


def rebalancing(what: str, **settings: Any) -> NetworkScript:
    """A member of generation 1 that owns t-0; a Join, or then a Sync, is under way."""
    script = NetworkScript(**settings)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    if what == "sync":
        script.join(2)
    return script


# --- Join and Sync ------------------------------------------------------------------------------------------


def test_the_broker_gives_the_member_id_and_the_join_is_sent_again_with_it(script: NetworkScript) -> None:
    script.subscribe()
    assert script.requested(api.JoinGroup).member_id == ""
    refuse(script, "join", MEMBER_ID_REQUIRED)
    assert script.requested(api.JoinGroup).member_id == "given"


@pytest.mark.parametrize("what", ["join", "sync"])
@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_coordinator_in_trouble_is_asked_again_and_nothing_is_lost(what: str, code: int) -> None:
    script = rebalancing(what)
    refuse(script, what, code)
    assert "JoinGroup" not in script.waits(), "after a back-off"
    script.pass_time(2.0)
    assert script.requested(api.JoinGroup).member_id == "me"
    assert script.joining_with().owned == (tp(0),)
    assert script.take(Lost) == []


@pytest.mark.vector(34)
@pytest.mark.parametrize("what", ["join", "sync"])
@pytest.mark.parametrize("error", [TransportError("gone"), KafkaTimeoutError("late")])
def test_a_connection_that_breaks_restarts_at_join(what: str, error: Exception) -> None:
    script = rebalancing(what)
    script.response(api.JoinGroup if what == "join" else api.SyncGroup, error)
    script.pass_time(2.0)
    assert script.requested(api.JoinGroup).member_id == "me"
    assert script.joining_with().owned == (tp(0),)
    assert script.take(Lost) == []


@pytest.mark.vector(26)
@pytest.mark.vector(27)
@pytest.mark.rule("membership")
@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_a_sync_refused_by_a_newer_rebalance_joins_again_and_keeps_all(code: int) -> None:
    script = rebalancing("sync")
    refuse(script, "sync", code)
    assert script.requested(api.JoinGroup).member_id == "me"
    assert script.joining_with().generation == 2, "the joined generation"
    assert script.take(Lost) == []


@pytest.mark.rule("membership")
@pytest.mark.parametrize("what", ["join", "sync"])
def test_an_unknown_member_has_lost_all(what: str) -> None:
    script = rebalancing(what)
    refuse(script, what, UNKNOWN_MEMBER_ID)
    assert [list(event.partitions) for event in script.take(Lost)] == [[tp(0)]]
    assert script.requested(api.JoinGroup).member_id == ""
    assert script.joining_with().owned == ()


@pytest.mark.parametrize("what", ["join", "sync"])
@pytest.mark.parametrize("code", FATAL)
def test_a_group_that_cannot_be_joined_is_told_and_joined_by_a_new_subscription(what: str, code: int) -> None:
    script = rebalancing(what)
    refuse(script, what, code)
    if (what, code) == ("join", INCONSISTENT):
        assert script.take(ErrorRaised) == []
        script.pass_time(0.01)
        assert "JoinGroup" not in script.waits(), "not while the group is asked what it uses"
        script.response(api.DescribeGroup, api.DescribeGroupResponse())
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, BrokerResponseError)
    assert told.error.code == code
    assert len(script.take(Lost)) == 1
    script.pass_time(30.0 if code in FINAL else 0.7)
    assert "JoinGroup" not in script.waits()
    script.do(Subscribe(topics=frozenset({"t"})))
    assert script.joining_with().owned == ()


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            api.DescribeGroupResponse(protocol_type="consumer", protocol="range", clients=("old", "old", "older")),
            "offers cooperative-sticky. The group (members: old, older) uses 'range': set assignors to a list with it,"
            " as ['cooperative-sticky', 'range'], or choose another group_id.",
        ),
        (
            api.DescribeGroupResponse(protocol_type="consumer", clients=tuple(map(str, range(27)))),
            "16, 17, 18, 19 and 7 more) has not chosen its assignor yet",
        ),
        (api.DescribeGroupResponse(protocol_type="connect", protocol="x"), "of 'connect': choose another group_id"),
        (
            api.DescribeGroupResponse(error=ErrorCode.GROUP_AUTHORIZATION_FAILED),
            "could not be learnt (GroupAuthorizationFailedError (error code 30)). Set assignors to what",
        ),
        (api.DescribeGroupResponse(error=ErrorCode.GROUP_ID_NOT_FOUND), "may be of another type (a share or streams"),
        (api.DescribeGroupResponse(), "may be of another type (a share or streams group, or one of"),
        (KafkaTimeoutError("too late"), "could not be learnt (too late). Set assignors to what"),
        (UnsupportedVersionError("too old"), "could not be learnt (too old). Set assignors to what"),
    ],
)
def test_a_group_without_an_assignor_in_common_is_told_with_what_it_uses(
    script: NetworkScript, found: Any, told: str
) -> None:
    script.subscribe()
    refuse(script, "join", INCONSISTENT)
    assert script.requested(api.DescribeGroup).group_id == "g"
    script.response(api.DescribeGroup, found)
    (raised,) = script.take(ErrorRaised)
    assert isinstance(raised.error, InconsistentGroupProtocolError)
    assert told in str(raised.error)


def test_a_group_that_is_not_found_by_a_first_join_is_told_as_one_of_another_type(script: NetworkScript) -> None:
    """Without a member id there is no membership to lose: it joined for ever, and nobody heard why."""
    script.subscribe()
    refuse(script, "join", ErrorCode.GROUP_ID_NOT_FOUND)
    (raised,) = script.take(ErrorRaised)
    assert isinstance(raised.error, BrokerResponseError)
    assert raised.error.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "may be of another type (a share or streams" in str(raised.error)


def test_who_unsubscribes_meanwhile_is_not_told(script: NetworkScript) -> None:
    script.subscribe()
    refuse(script, "join", INCONSISTENT)
    script.do(Unsubscribe(call=1, deadline=script.now + 30.0))
    script.response(api.DescribeGroup, api.DescribeGroupResponse(protocol="range"))
    assert script.take(ErrorRaised) == []


def test_what_cannot_be_spoken_with_is_told(script: NetworkScript) -> None:
    script.subscribe()
    script.response(api.JoinGroup, UnsupportedVersionError("no common version of JoinGroup"))
    assert isinstance(script.take(ErrorRaised)[0].error, UnsupportedVersionError)


@pytest.mark.vector(36)
def test_a_join_without_any_response_is_given_up_after_the_rebalance_timeout() -> None:
    script = NetworkScript(max_poll_interval=20.0, request_timeout=5.0, session_timeout=10.0)
    script.subscribe()
    first = script.requested(api.JoinGroup)
    for _ in range(24):
        script.do(Polled(at=script.now))
        script.pass_time(1.0)
    assert script.requested(api.JoinGroup) is first
    for _ in range(4):
        script.do(Polled(at=script.now))
        script.pass_time(1.0)
    assert script.requested(api.JoinGroup) is not first


@pytest.mark.parametrize(("generation", "member_id"), [(-1, "me"), (1, "")])
def test_a_join_that_makes_no_member_is_told_and_tried_again(
    script: NetworkScript, generation: int, member_id: str
) -> None:
    """It would send no heartbeat, and so have no lease and no record, without a word."""
    script.subscribe()
    script.response(api.JoinGroup, api.JoinGroupResponse(generation=generation, member_id=member_id, leader="other"))
    assert isinstance(script.take(ErrorRaised)[0].error, ProtocolError)
    script.pass_time(5.0)
    script.join(1)
    script.response(api.SyncGroup, api.SyncGroupResponse(assignment=b""))
    assert script.take(Assigned) != []


def test_an_assignment_that_cannot_be_read_is_told(script: NetworkScript) -> None:
    script.subscribe()
    script.join(1)
    script.response(api.SyncGroup, api.SyncGroupResponse(assignment=b"\x00"))
    assert isinstance(script.take(ErrorRaised)[0].error, ProtocolError)
    assert script.take(Assigned) == []


def test_an_empty_assignment_is_one(script: NetworkScript) -> None:
    script.subscribe()
    script.join(1)
    script.response(api.SyncGroup, api.SyncGroupResponse(assignment=b""))
    assert [event.partitions for event in script.take(Assigned)] == [{}]
    script.do(PartitionsAssigned(generation=1))
    (ended,) = (each.event for each in script.take(Noticed) if isinstance(each.event, RebalanceEnded))
    assert ended.outcome is RebalanceOutcome.TAKEN


# --- heartbeats ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [NOT_AVAILABLE, NOT_COORDINATOR])
def test_a_heartbeat_to_the_wrong_broker_finds_the_right_one(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0)
    script.coordinator = 2
    script.heartbeat(code)
    script.pass_time(script.config.heartbeat_interval + 1)
    keys = [each.key.node_id for each in script.waiting if isinstance(each.request, api.Heartbeat)]
    assert keys == [2]
    assert script.take(Lost) == []
    assert "JoinGroup" not in script.waits()


def test_a_fenced_heartbeat_is_told_at_once(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, BrokerResponseError)
    assert len(script.take(Lost)) == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_a_refusal_of_heartbeats_that_is_taken_back_in_time_costs_nothing(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0)
    for _ in range(5):
        script.heartbeat(code)
    assert any(f"error code {code}" in line for line in script.logs)
    for _ in range(20):
        script.heartbeat()
    assert (script.take(ErrorRaised), script.take(Lost)) == ([], [])


@pytest.mark.parametrize("code", [ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_a_refusal_of_heartbeats_that_lasts_as_long_as_the_session_is_told(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0)
    since = script.now
    while not (told := script.take(ErrorRaised)):
        script.heartbeat(code)
        assert script.now < since + script.config.session_timeout + 2 * script.config.heartbeat_interval
    assert script.now >= since + script.config.session_timeout
    assert isinstance(told[0].error, BrokerResponseError)
    assert told[0].error.code == code
    assert len(script.take(Lost)) == 1


def test_a_heartbeat_code_that_means_nothing_here_is_let_pass(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(12345)
    assert script.take(Lost) == []
    assert script.take(ErrorRaised) == []
    script.heartbeat()


@pytest.mark.vector(35)
@pytest.mark.requirement("threading/3")
@pytest.mark.requirement("threading/27")
@pytest.mark.rule("full-speed")
def test_heartbeats_go_on_while_a_join_and_a_sync_are_pending() -> None:
    script = rebalancing("join")
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.heartbeat()
    script.heartbeat()
    assert script.requested(api.SyncGroup).generation == 2


@pytest.mark.rule("deadline")
def test_in_a_mixed_group_joins_are_well_spaced_while_anything_is_pending() -> None:
    """A Sync followed by REBALANCE_IN_PROGRESS, and a rejoin with the same generation: following it would spin."""
    script = NetworkScript(max_poll_interval=60.0, session_timeout=10.0)
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    joined_at = []
    for _ in range(18):
        script.do(Polled(at=script.now))
        script.heartbeat(REBALANCE_IN_PROGRESS)
        if "JoinGroup" in script.waits():
            joined_at.append(script.now)
            script.rebalance(2, 0)
    assert len(joined_at) == 3, "of eighteen heartbeats that ask for it"
    assert all(later - earlier >= 20 for earlier, later in itertools.pairwise(joined_at))


# --- commits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR]
)
def test_a_commit_that_fails_retriably_is_sent_again(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(code)
    assert script.take(CallCompleted) == []
    script.pass_time(2.0)
    assert script.committed() == {0: 5}
    assert script.take(CallCompleted)[0].committed == {tp(0): None}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        12345,
    ],
)
def test_a_commit_that_fails_for_good_is_raised_and_logged_with_its_partition(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0, 1)
    script.commit({0: 5, 1: 6})
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={("t", 0): code, ("t", 1): 0}))
    (response,) = script.take(CallCompleted)
    error = response.committed[tp(0)]
    assert isinstance(error, BrokerResponseError)
    assert error.code == code
    assert response.committed[tp(1)] is None
    assert any("t-0" in line and "5" in line for line in script.logs)


def test_a_fenced_member_that_commits_is_told(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(82)
    assert len(script.take(ErrorRaised)) == 1
    assert len(script.take(Lost)) == 1


@pytest.mark.vector(68)
@pytest.mark.rule("membership")
@pytest.mark.parametrize(
    ("code", "joins_as"), [(UNKNOWN_MEMBER_ID, ""), (ErrorCode.GROUP_ID_NOT_FOUND, ""), (ILLEGAL_GENERATION, "me")]
)
def test_a_member_that_the_group_does_not_know_and_that_commits_has_lost_all(
    script: NetworkScript, code: int, joins_as: str
) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(code)
    assert len(script.take(Lost)) == 1
    error = script.take(CallCompleted)[0].committed[tp(0)]
    assert isinstance(error, CommitFailedError)
    assert "raise max_poll_interval" in str(error)
    assert script.requested(api.JoinGroup).member_id == joins_as


@pytest.mark.vector(69)
def test_a_commit_tells_of_a_rebalance_before_a_heartbeat_does(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(REBALANCE_IN_PROGRESS)
    script.requested(api.JoinGroup)
    script.rebalance(2, 0)
    script.pass_time(1.0)
    assert script.committed() == {0: 5}


@pytest.mark.parametrize("error", [TransportError("gone"), KafkaTimeoutError("late")])
def test_a_commit_whose_response_is_lost_is_sent_again_with_the_newest(
    script: NetworkScript, error: KafkaError
) -> None:
    script.member_of(1, 0, 1)
    first, second = script.commit({0: 5, 1: 1}), script.commit({0: 9})
    script.response(api.OffsetCommit, error)
    script.pass_time(2.0)
    assert script.committed() == {0: 9, 1: 1}
    assert {response.call for response in script.take(CallCompleted)} == {first, second}


def test_a_response_that_leaves_a_partition_out_is_no_success(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={}))
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], BrokerResponseError)


def test_a_commit_that_cannot_be_sent_at_all_is_raised(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.response(api.OffsetCommit, UnsupportedVersionError("no common version"))
    assert isinstance(script.take(CallCompleted)[0].committed[tp(0)], UnsupportedVersionError)


@pytest.mark.rule("T")
def test_a_commit_whose_response_never_comes_ends_at_its_deadline(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5}, timeout=5.0)
    script.pass_time(4.9)
    assert script.take(CallCompleted) == []
    script.pass_time(0.2)
    assert isinstance(script.take(CallCompleted)[0].committed[tp(0)], KafkaTimeoutError)
    script.committed()
    assert script.take(CallCompleted) == [], "once"


def test_what_its_caller_gave_up_is_not_sent_again(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5}, timeout=5.0)
    script.pass_time(5.1)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.pass_time(3.0)
    assert "OffsetCommit" not in script.waits()


def test_an_empty_commit_succeeds_and_nothing_is_sent(script: NetworkScript) -> None:
    script.member_of(1, 0)
    call = script.commit({})
    assert [response.call for response in script.take(CallCompleted)] == [call]
    assert "OffsetCommit" not in script.waits()


@pytest.mark.rule("full-speed")
def test_a_commit_that_may_not_wait_is_refused_when_the_broker_refuses_it(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5}, carry_over=False)
    script.committed(REBALANCE_IN_PROGRESS)
    error = script.take(CallCompleted)[0].committed[tp(0)]
    assert isinstance(error, BrokerResponseError)
    assert error.code == REBALANCE_IN_PROGRESS
    script.rebalance(2, 0)
    script.pass_time(1.0)
    assert "OffsetCommit" not in script.waits()


# --- leading ------------------------------------------------------------------------------------------------


def leads(script: NetworkScript, *others: bytes, generation: int = 1, protocol: str = "cooperative-sticky") -> None:
    """The pending join gets its response: we lead, with these members beside us."""
    mine = api.GroupMember(member_id="me", metadata=script.requested(api.JoinGroup).protocols[0].metadata)
    members = (mine, *(api.GroupMember(member_id=f"m{i}", metadata=each) for i, each in enumerate(others)))
    response = api.JoinGroupResponse(
        generation=generation, protocol=protocol, leader="me", member_id="me", members=members
    )
    script.response(api.JoinGroup, response)


def dealt(script: NetworkScript) -> dict[str, list[str]]:
    made = script.requested(api.SyncGroup).assignments
    return {member: sorted(str(each) for each in read_assignment(part).partitions) for member, part in made.items()}


def grow(script: NetworkScript, partitions: int) -> None:
    """The topic gets more partitions, and the metadata of it comes."""
    script.topics["t"] = partitions
    script.fresh_metadata()


def test_metadata_that_come_again_and_again_hold_up_no_join_that_waits_for_a_revoke() -> None:
    """One of the partitions has no leader: that is asked about over and over."""
    script = NetworkScript(assignors=["range"])
    script.subscribe()
    leads(script, protocol="range")
    script.sync(0, 1, 2, 3)
    script.do(PartitionsAssigned(generation=1))
    script.leaders = {3: -1}
    grow(script, 6)
    assert script.take(RevocationRequested)
    before = script.metadata_responses
    script.pass_time(20.0)
    assert script.metadata_responses > before + 5
    script.complete(0, 1, 2, 3)
    assert "JoinGroup" in script.waits(), "at this moment"


def wants(*topics: str) -> bytes:
    return write_subscription(Subscription(topics=topics))


@pytest.mark.requirement("KIP-429/6")
@pytest.mark.requirement("KIP-429/7")
def test_a_leader_deals_out_every_partition_once(script: NetworkScript) -> None:
    script.subscribe()
    leads(script, wants("t"))
    made = dealt(script)
    assert sorted(made["me"] + made["m0"]) == ["t-0", "t-1", "t-2", "t-3"]
    assert len(made["me"]) == len(made["m0"]) == 2


@pytest.mark.requirement("KIP-429/6")
def test_a_follower_deals_out_nothing(script: NetworkScript) -> None:
    script.subscribe()
    script.join(1)
    assert script.requested(api.SyncGroup).assignments == {}


def test_a_leader_waits_for_the_metadata_of_the_others_topics() -> None:
    script = NetworkScript(topics={"t": 1, "theirs": 2})
    script.subscribe()
    leads(script, wants("theirs"))
    assert dealt(script) == {"me": ["t-0"], "m0": ["theirs-0", "theirs-1"]}


def test_a_topic_that_does_not_exist_holds_up_no_group(script: NetworkScript) -> None:
    script.subscribe()
    leads(script, wants("nowhere"))
    assert dealt(script)["me"] == ["t-0", "t-1", "t-2", "t-3"]


def test_a_fellow_of_very_many_topics_gets_nothing_and_costs_little(script: NetworkScript) -> None:
    """Of each topic a leader keeps the metadata."""
    script.subscribe()
    many = [f"other-{number}" for number in range(30_000)]
    leads(script, wants("t"), wants(*many[1:]), wants("t", "other-0", "other-1", "one more"))
    made = dealt(script)
    assert sorted(made["me"] + made["m0"] + made["m2"]) == ["t-0", "t-1", "t-2", "t-3"]
    assert made.get("m1", []) == []
    (told,) = [line for line in script.logs if "get nothing" in line]
    assert "'m1' and 0 more" in told


@functools.cache
def many(letter: str) -> bytes:
    """More topics than a leader keeps the metadata of; with those of another letter more names than it reads."""
    return wants(*(f"{letter}{number}" for number in range(150_001)))


def owns(*partitions: int, userdata: bytes = b"") -> bytes:
    return write_subscription(Subscription(topics=("t",), owned=tuple(map(tp, partitions)), userdata=userdata))


LONG = owns(0, userdata=bytes(3 << 20))
"""Those who say least are heard first."""


def test_what_a_fellow_that_is_not_heard_may_own_is_given_to_nobody(script: NetworkScript) -> None:
    """Each name takes two hundred bytes in the leader. And a partition would have two owners until it is released."""
    script.subscribe()
    leads(script, LONG, many("a"), many("b"), owns(3), wants("t"))
    (told,) = [line for line in script.logs if "get nothing" in line]
    assert "member 'm1' and 2 more get nothing; meanwhile no member of a cooperative group is given what it" in told
    assert dealt(script) == {"me": [], "m0": [], "m1": [], "m2": [], "m3": ["t-3"], "m4": []}
    script.sync()
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    leads(script, wants("t"), wants(), wants(), owns(3), wants("t"), generation=2)
    assert sorted(itertools.chain(*dealt(script).values())) == ["t-0", "t-1", "t-2", "t-3"]


@pytest.mark.parametrize("owned", [False, True])
def test_a_fellow_that_alone_names_too_much_may_own_what_it_does_not_say(script: NetworkScript, owned: bool) -> None:
    script.subscribe()
    others = [TopicPartition("other", number) for number in range(200_001)]
    named = [f"x{number}" for number in range(0 if owned else 200_001)]
    much = write_subscription(Subscription(topics=("t", *named), owned=(tp(0), *others[: 200_001 * owned])))
    leads(script, much, owns(3))
    assert len([line for line in script.logs if "'m0' and 0 more get nothing; meanwhile" in line]) == 1
    assert dealt(script) == {"me": [], "m0": [], "m1": ["t-3"]}


def test_eager_members_own_nothing_when_they_join() -> None:
    script = NetworkScript(assignors=[RoundRobinAssignor()])
    script.subscribe()
    leads(script, LONG, many("a"), many("b"), protocol="roundrobin")
    assert dealt(script)["me"] == ["t-0", "t-1", "t-2", "t-3"]


def test_a_large_group_whose_members_subscribe_alike_is_heard_whole(script: NetworkScript) -> None:
    """As by a pattern: thirty-one members with ten thousand topics each."""
    script.subscribe()
    alike = wants("t", *(f"other-{number}" for number in range(10_000)))
    leads(script, *([alike] * 31))
    assert not [line for line in script.logs if "get nothing" in line]
    assert sorted(itertools.chain(*dealt(script).values())) == ["t-0", "t-1", "t-2", "t-3"]


def test_a_member_that_cannot_be_understood_gets_nothing_and_stops_nobody(script: NetworkScript) -> None:
    script.subscribe()
    leads(script, b"\x00", b"")
    made = dealt(script)
    assert made["me"] == ["t-0", "t-1", "t-2", "t-3"]
    assert made.get("m0", []) == made.get("m1", []) == []


@pytest.mark.requirement("surface/added-partitions")
@pytest.mark.vector(29)
def test_a_leader_joins_again_when_the_number_of_partitions_changes(script: NetworkScript) -> None:
    script.subscribe()
    leads(script)
    script.sync(0, 1, 2, 3)
    script.do(PartitionsAssigned(generation=1))
    grow(script, 6)
    script.requested(api.JoinGroup)
    leads(script, generation=2)
    assert dealt(script)["me"] == [f"t-{p}" for p in range(6)]


def test_a_topic_whose_partitions_come_and_go_makes_no_leader_spin(script: NetworkScript) -> None:
    """Each join is a rebalance of the whole group. The topic is made anew each time, so what it has is believed."""
    script.subscribe()
    joins = 0
    for generation in range(1, 31):
        leads(script, generation=generation)
        script.sync(0, 1, 2)
        script.do(PartitionsAssigned(generation=generation))
        script.topic_ids = {"t": UUID(int=generation)}
        grow(script, 4 + generation % 2)
        began = script.now
        while "JoinGroup" not in script.waits():
            script.pass_time(0.05)
        joins += script.now < began + 0.5
    assert 1 <= joins <= 6, "the first one at once, the others after a back-off that grows"


def test_a_change_between_the_deal_and_the_sync_is_seen_when_the_sync_ends(script: NetworkScript) -> None:
    script.subscribe()
    leads(script)
    script.requested(api.SyncGroup)
    grow(script, 6)
    script.sync(0, 1, 2, 3)
    script.requested(api.JoinGroup)


def test_an_assignor_of_the_users_that_fails_is_told_with_its_own_error() -> None:
    class Broken(CooperativeStickyAssignor):
        def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
            raise LookupError("the user's bug")

    script = NetworkScript(assignors=[Broken()])
    script.subscribe()
    leads(script)
    (told,) = script.take(ErrorRaised)
    assert isinstance(told.error, LookupError)
    script.requested(api.LeaveGroup)


def test_an_assignment_that_does_not_fit_the_subscription_is_not_taken(script: NetworkScript) -> None:
    script.topics["u"] = 1
    script.subscribe("u")
    script.join(1)
    script.sync(0)
    assert script.take(Assigned) == []
    assert "JoinGroup" not in script.waits(), "a leader that errs each time makes nobody spin"
    script.pass_time(1.0)
    script.requested(api.JoinGroup)


def test_of_an_assignment_that_never_fits_what_fits_is_taken_and_it_is_told_once(script: NetworkScript) -> None:
    """Any leader could keep a member joining, and its group rebalancing, for ever."""
    script.topics["u"] = 1
    script.subscribe("u")
    for generation in range(1, 5):
        script.join(generation)
        script.sync(0)
        script.pass_time(1.0)
        if generation > 1:
            (assigned,) = script.take(Assigned)
            assert not assigned.partitions
            script.do(EnforceRebalance(reason="again"))
            script.pass_time(1.0)
    told = [line for line in script.logs if "does not subscribe to" in line]
    assert len(told) == 1
