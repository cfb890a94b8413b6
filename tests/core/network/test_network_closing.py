"""Leaving, as the network side does it: commits first, then the group; there is a result in any case."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    CALLER_WAITS,
    Assign,
    Assigned,
    CallCompleted,
    Close,
    CompleteRevoke,
    Subscribe,
    Unsubscribe,
)
from instride._core.network.actions import CloseConnection, Role
from instride._wire import api
from instride.errors import (
    ConsumerClosedError,
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    TransportError,
)


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


def close(script: NetworkScript, *, timeout: float = 30.0, leave: bool = True) -> None:
    script.do(Close(call=1, deadline=script.now + timeout, leave=leave))


def completions(script: NetworkScript) -> list[Exception | None]:
    return [each.error for each in script.take(CallCompleted) if each.call == 1]


@pytest.mark.rule("12")
def test_what_was_never_opened_ends_at_once(script: NetworkScript) -> None:
    script.reachable = False
    close(script)
    assert completions(script) == [None]
    assert script.stopped


@pytest.mark.rule("12")
def test_without_a_membership_nothing_is_left(script: NetworkScript) -> None:
    script.do(Assign(partitions={tp(0): 1}))
    close(script)
    assert "LeaveGroup" not in script.waits()
    assert completions(script) == [None]


@pytest.mark.requirement("surface/close-leaves")
@pytest.mark.rule("12")
def test_a_member_that_wants_to_stay_says_nothing(script: NetworkScript) -> None:
    script.member_of(1, 0)
    close(script, leave=False)
    assert completions(script) == [None]
    assert script.stopped
    assert script.waits() == [], "every connection is closed"


@pytest.mark.vector(72)
@pytest.mark.rule("12")
def test_with_no_time_at_all_the_group_is_told_still(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.machine.handle(Close(call=1, deadline=script.now), script.now)
    actions = script.machine.tick(script.now)
    kinds = [type(getattr(each, "request", each)).__name__ for each in actions]
    assert kinds.index("LeaveGroup") < kinds.index("CloseConnection")
    assert kinds[-1] == "Stop"


@pytest.mark.requirement("surface/close-bounded")
@pytest.mark.vector(72)
@pytest.mark.rule("12")
def test_a_coordinator_that_does_not_respond_costs_the_timeout_only(script: NetworkScript) -> None:
    script.member_of(1, 0)
    close(script, timeout=5.0)
    script.requested(api.LeaveGroup)
    script.pass_time(4.9)
    assert completions(script) == []
    script.pass_time(0.2)
    (error,) = completions(script)
    assert isinstance(error, KafkaError)
    assert script.stopped


@pytest.mark.rule("12")
@pytest.mark.rule("15")
def test_a_close_says_of_a_commit_in_flight_that_the_consumer_was_closed(script: NetworkScript) -> None:
    """It is on its way, and the broker may well accept it."""
    script.member_of(1, 0)
    call = script.commit({0: 5})
    close(script, timeout=0.0)
    (told,) = [each for each in script.take(CallCompleted) if each.call == call]
    assert isinstance(told.committed[tp(0)], ConsumerClosedError)
    assert not any("committed:" in line for line in script.logs)


@pytest.mark.requirement("surface/close-bounded")
@pytest.mark.vector(72)
@pytest.mark.rule("12")
def test_without_a_coordinator_the_caller_hears_that_the_group_was_not_left(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.coordinator_error = 15  # nobody knows another
    script.heartbeat(ErrorCode.NOT_COORDINATOR)
    close(script, timeout=5.0)
    script.pass_time(4.9)
    assert completions(script) == []
    script.pass_time(0.2)
    (error,) = completions(script)
    assert isinstance(error, KafkaTimeoutError)
    assert script.stopped
    assert any("not everything was done" in line for line in script.logs)


@pytest.mark.rule("12")
@pytest.mark.rule("19")
@pytest.mark.parametrize(
    "response",
    [TransportError("gone"), api.LeaveGroupResponse(error=ErrorCode.NOT_COORDINATOR)],
    ids=["broken", "moved"],
)
def test_a_group_is_left_through_a_move_of_the_coordinator(
    script: NetworkScript, response: api.Response | Exception
) -> None:
    script.nodes = (1, 2)
    script.member_of(1, 0)
    close(script)
    script.coordinator = 2
    script.response(api.LeaveGroup, response)
    assert completions(script) == []
    script.pass_time(1.0)
    (again,) = [each for each in script.waiting if isinstance(each.request, api.LeaveGroup)]
    assert again.key.node_id == 2
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert completions(script) == [None]
    assert script.stopped


@pytest.mark.rule("12")
def test_a_coordinator_that_loads_is_asked_again(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=1, deadline=script.now + 30))
    for _ in range(3):
        script.response(api.LeaveGroup, api.LeaveGroupResponse(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        assert "LeaveGroup" not in script.waits(), "not at once"
        script.pass_time(script.config.retry_backoff_max * 1.5)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert completions(script) == [None]


@pytest.mark.rule("12")
def test_a_member_that_is_unknown_has_left(script: NetworkScript) -> None:
    """What a broken connection took away may have arrived."""
    script.member_of(1, 0)
    close(script)
    script.response(api.LeaveGroup, api.LeaveGroupResponse(error=ErrorCode.UNKNOWN_MEMBER_ID))
    assert completions(script) == [None]


@pytest.mark.rule("12")
def test_a_refusal_for_good_is_told(script: NetworkScript) -> None:
    script.member_of(1, 0)
    close(script)
    script.response(api.LeaveGroup, api.LeaveGroupResponse(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    (error,) = completions(script)
    assert isinstance(error, GroupAuthorizationFailedError)
    assert script.stopped


@pytest.mark.rule("12")
def test_unsubscribe_is_told_truly_too(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=1, deadline=script.now + 1.0))
    script.pass_time(1.1)
    (error,) = completions(script)
    assert isinstance(error, KafkaTimeoutError)
    assert any(line.startswith("unsubscribed, but not everything") for line in script.logs)
    script.response(api.LeaveGroup, TransportError("gone"))
    script.pass_time(1.0)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())


@pytest.mark.rule("12")
@pytest.mark.parametrize("late", [False, True], ids=["no response", "a late response"])
def test_after_the_session_nobody_need_be_told(late: bool) -> None:
    """One that does not poll leaves, and nobody waits for the end of that."""
    script = NetworkScript(max_poll_interval=5.0, session_timeout=10.0, request_timeout=100.0)
    script.member_of(1, 0)
    script.pass_time(5.5)
    script.requested(api.LeaveGroup)
    script.pass_time(10.5)
    if late:
        script.response(api.LeaveGroup, TransportError("gone"))
    script.pass_time(20.0)
    assert script.waits().count("LeaveGroup") == (not late), "it is not sent again"


@pytest.mark.rule("12")
def test_after_unsubscribe_a_new_subscription_starts_afresh(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=1, deadline=script.now + 30))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert completions(script) == [None]
    assert not script.stopped
    script.do(Subscribe(topics=frozenset({"t"})))
    assert script.requested(api.JoinGroup).member_id == ""
    assert script.joining_with().owned == ()


@pytest.mark.rule("12")
@pytest.mark.parametrize("stage", ["committing", "leaving"])
def test_a_new_subscription_before_the_end_of_the_old_one_is_not_forgotten(script: NetworkScript, stage: str) -> None:
    script.member_of(1, 0)
    if stage == "committing":
        script.commit({0: 5})
    script.machine.handle(Unsubscribe(call=1, deadline=script.now + 30), script.now)
    if stage == "leaving":
        script.settle()
        script.requested(api.LeaveGroup)
    script.do(Subscribe(topics=frozenset({"t"})))
    assert len(completions(script)) == 1
    assert script.requested(api.JoinGroup).member_id == ""
    script.pass_time(31.0)
    assert script.joining_with().topics == ("t",)


@pytest.mark.rule("12")
def test_leaving_while_a_join_is_pending_does_not_wait_for_it(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.requested(api.JoinGroup)
    close(script)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert completions(script) == [None]


@pytest.mark.rule("12")
@pytest.mark.parametrize("timeout", [0.0, 3.0])
def test_what_was_sent_when_the_time_ends_is_not_taken_back(script: NetworkScript, timeout: float) -> None:
    """A connection that is reset forgets what has not arrived: the group would wait for the session to end."""
    script.member_of(1, 0)
    actions = []
    script.machine.handle(Close(call=1, deadline=script.now + timeout), script.now)
    for _ in range(3):
        actions += script.machine.tick(script.now)
        script.now += timeout
    assert any(isinstance(getattr(each, "request", None), api.LeaveGroup) for each in actions)
    closed = {each.key.role: each.abort for each in actions if isinstance(each, CloseConnection)}
    assert closed[Role.COORDINATOR] is False


@pytest.mark.rule("12")
@pytest.mark.parametrize("gone", [False, True], ids=["the caller waits", "the caller has gone"])
@pytest.mark.parametrize("heard", ["late", "in time"])
def test_once_the_caller_has_gone_nothing_is_sent_but_the_leaving(
    script: NetworkScript, gone: bool, heard: str
) -> None:
    """A listener's work, or a busy machine, may take all of the time: what waits to be committed goes only while the
    caller still waits."""
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    late = CALLER_WAITS + 1.0 if gone else CALLER_WAITS - 0.1
    event = Unsubscribe(call=1, deadline=script.now + 0.001)
    if heard == "in time":
        script.do(event)
    script.now += late
    script.do(*([event] if heard == "late" else []))
    assert script.waits().count("LeaveGroup") == 1
    assert script.waits().count("OffsetCommit") == (not gone)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    (error,) = completions(script)
    assert isinstance(error, KafkaTimeoutError)


@pytest.mark.rule("12")
@pytest.mark.parametrize("gone", [False, True], ids=["the caller waits", "the caller has gone"])
def test_while_a_listener_hears_of_the_loss_nothing_is_committed(script: NetworkScript, gone: bool) -> None:
    """The unsubscribe itself is told after the listener, which may work for long."""
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    script.do(CompleteRevoke(partitions={tp(0): script.epoch(0)}, leaving_by=script.now))
    script.now += CALLER_WAITS + 1.0 if gone else CALLER_WAITS - 0.1
    script.do()
    assert script.waits().count("OffsetCommit") == (not gone)
    script.do(Unsubscribe(call=1, deadline=script.now))
    assert script.waits().count("LeaveGroup") == 1


@pytest.mark.rule("12")
def test_the_response_to_an_earlier_leaving_does_not_end_a_later_one(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=1, deadline=script.now + 30))
    script.do(Subscribe(topics=frozenset({"t"})))
    script.rebalance(1, 0)
    script.do(Unsubscribe(call=2, deadline=script.now + 30))
    script.take(CallCompleted)
    assert script.waits().count("LeaveGroup") == 2
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.take(CallCompleted) == []
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert [each.call for each in script.take(CallCompleted)] == [2]


@pytest.mark.rule("13")
def test_what_is_assigned_says_which_unsubscribe_came_before_it(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.do(Unsubscribe(call=7, deadline=script.now + 30))
    script.do(Subscribe(topics=frozenset({"t"})))
    script.take(Assigned)
    script.rebalance(1, 0)
    (event,) = script.take(Assigned)
    assert (set(event.partitions), event.unsubscribed) == ({tp(0)}, 7)


@pytest.mark.rule("13")
@pytest.mark.parametrize("last", [Close, Unsubscribe])
def test_an_end_after_an_end_that_was_interrupted_waits_until_the_group_is_left(
    script: NetworkScript, last: type[Close | Unsubscribe]
) -> None:
    """Ctrl-C in an unsubscribe, and a close after it: the first LeaveGroup was not sent yet, and nobody shall wait."""
    script.member_of(1, 0)
    script.coordinator_error = 15
    script.heartbeat(ErrorCode.NOT_COORDINATOR)  # where the group's coordinator is nobody can tell for a while
    script.do(Unsubscribe(call=7, deadline=script.now + 5.0))
    script.do(last(call=1, deadline=script.now + 30.0))
    assert completions(script) == []
    assert not script.stopped
    script.coordinator_error = 0
    script.pass_time(1.0)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert completions(script) == [None]
    assert script.stopped == (last is Close)


@pytest.mark.rule("12")
def test_a_close_gives_no_more_time_to_the_commits_of_an_unsubscribe_that_is_late(script: NetworkScript) -> None:
    """It has returned, and said that the group is left all the same: the others do not wait for the close as well."""
    script.member_of(1, 0)
    script.commit({0: 5})
    script.machine.handle(Unsubscribe(call=7, deadline=script.now), script.now)
    script.do(Close(call=8, deadline=script.now + 30.0))
    assert "LeaveGroup" in script.waits()
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.stopped
