"""The rules of docs/rebalance.md that the network side decides: what is owned, requested, reassigned, lost, told."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assigned,
    CallCompleted,
    Close,
    CommitsSettled,
    Lost,
    PartitionsRevoked,
    Polled,
    Reassigned,
    RevocationRequested,
    Revoked,
    Subscribe,
    Unsubscribe,
)
from instride._wire import api
from instride.errors import (
    CommitFailedError,
    CommitOvertakenError,
    CommitRewindError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)

ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, NOT_COORDINATOR = 22, 25, 27, 16
LOADING, NOT_AUTHORIZED = 14, 30


@pytest.fixture
def script() -> NetworkScript:
    return NetworkScript()


def revocation_requested(script: NetworkScript, *partitions: int, generation: int = 2, keeps: tuple[int, ...]) -> None:
    """A rebalance takes partitions away from a stable member."""
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(generation, *keeps)
    (event,) = script.take(RevocationRequested)
    assert {each.partition for each in event.partitions} == set(partitions)


@pytest.mark.requirement("threading/21")
@pytest.mark.requirement("KIP-429/7")
@pytest.mark.rule("C")
def test_a_cooperative_join_does_not_wait_and_lists_what_is_owned(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    said = script.joining_with()
    assert said.owned == (tp(0), tp(1))
    assert (said.generation, said.version) == (1, 3)
    assert said.userdata == (1).to_bytes(4, "big"), "older Java leaders read the generation there"


@pytest.mark.requirement("KIP-983/31")
@pytest.mark.requirement("KIP-983/13")
@pytest.mark.requirement("threading/16")
@pytest.mark.rule("deadline")
def test_a_delayed_partition_is_listed_as_owned_in_every_later_join(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    revocation_requested(script, 1, keeps=(0,))
    for generation in (3, 4, 5):
        script.heartbeat(REBALANCE_IN_PROGRESS)
        assert script.joining_with().owned == (tp(0), tp(1))
        script.rebalance(generation, 0)
        assert script.take(RevocationRequested) == [], "it is requested once"
    script.complete(1)
    assert script.joining_with().owned == (tp(0),), "told at once, without a heartbeat"


@pytest.mark.requirement("KIP-983/11")
@pytest.mark.requirement("KIP-983/16")
@pytest.mark.rule("deadline")
def test_the_deadline_counts_from_the_first_sync_that_asked(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    (event,) = script.take(RevocationRequested)
    assert event.deadline == script.now + script.config.max_poll_interval - script.config.commit_budget
    requested_at = script.now
    for generation in range(3, 60):
        script.do(Polled(at=script.now))
        script.heartbeat(REBALANCE_IN_PROGRESS)
        script.rebalance(generation, 0)
    while script.now < event.deadline - 2:
        script.do(Polled(at=script.now))
        script.pass_time(1.0)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.take(Lost) == []
    script.do(Polled(at=script.now))
    script.pass_time(event.deadline - script.now)
    (lost,) = script.take(Lost)
    assert list(lost.partitions) == [tp(1)]
    assert script.joining_with().owned == (tp(0),)
    assert script.now - requested_at == pytest.approx(script.config.max_poll_interval - script.config.commit_budget)


@pytest.mark.rule("8")
def test_reassigned_while_pending_keeps_the_epoch(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    epoch = script.epoch(1)
    revocation_requested(script, 1, keeps=(0,))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0, 1)
    (event,) = script.take(Reassigned)
    assert event.partitions == {tp(1): epoch}


@pytest.mark.rule("8")
@pytest.mark.rule("deadline")
def test_a_revocation_of_what_was_reassigned_may_be_requested_again(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    epoch = script.epoch(1)
    revocation_requested(script, 1, keeps=(0,))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0, 1)
    script.take(Reassigned)
    for _ in range(3):
        script.heartbeat()
    script.do(Polled(at=script.now))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(4, 0)
    (event,) = script.take(RevocationRequested)
    assert event.partitions == {tp(1): epoch}
    budget = script.config.commit_budget
    assert event.deadline == script.now + script.config.max_poll_interval - budget, "a time of its own"
    script.complete(1)
    assert script.take(Revoked)[0].partitions == {tp(1): epoch}


@pytest.mark.rule("8")
def test_reassigned_while_completing_is_assigned_in_a_new_epoch(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    epoch = script.epoch(1)
    revocation_requested(script, 1, keeps=(0,))
    script.commit({1: 7})
    script.complete(1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0, 1)
    assert script.take(Reassigned) == []
    script.committed()
    (revoked,) = script.take(Revoked)
    assert revoked.partitions == {tp(1): epoch}
    newest = script.take(Assigned)[-1]
    assert newest.partitions == {tp(1): epoch + 1}
    assert "JoinGroup" not in script.waits(), "the group has it with us already"


@pytest.mark.rule("8")
def test_a_completion_that_crosses_a_gift_finishes_and_is_assigned_anew(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    epoch = script.epoch(1)
    revocation_requested(script, 1, keeps=(0,))
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0, 1)
    script.complete(1)  # the application posted it before it saw the reassignment
    assert script.take(Revoked)[0].partitions == {tp(1): epoch}
    assert script.take(Assigned)[-1].partitions == {tp(1): epoch + 1}


@pytest.mark.requirement("KIP-983/19")
@pytest.mark.requirement("threading/26")
@pytest.mark.requirement("KIP-983/2")
@pytest.mark.rule("completing")
def test_a_revoke_completes_when_every_commit_of_it_has_its_response(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    revocation_requested(script, 1, keeps=(0,))
    script.commit({1: 5})
    script.commit({1: 9})
    script.complete(1)
    assert script.committed() == {1: 5}
    assert script.take(Revoked) == []
    assert script.committed() == {1: 9}
    assert len(script.take(Revoked)) == 1
    assert script.joining_with().owned == (tp(0),)


@pytest.mark.requirement("KIP-983/30")
@pytest.mark.requirement("threading/16")
@pytest.mark.requirement("threading/17")
@pytest.mark.requirement("threading/26")
@pytest.mark.rule("completing")
def test_the_listener_comes_between_the_commits_and_the_group(script: NetworkScript) -> None:
    script.member_of(1, 0, 1, listener=True)
    revocation_requested(script, 1, keeps=(0,))
    script.commit({1: 5})
    script.complete(1)
    assert script.take(CommitsSettled) == []
    script.committed()
    assert len(script.take(CommitsSettled)) == 1
    assert "JoinGroup" not in script.waits()
    script.commit({1: 6})  # the listener's own
    script.do(PartitionsRevoked(partitions={tp(1): script.epoch(1)}))
    assert "JoinGroup" not in script.waits(), "its commit is awaited too"
    script.committed()
    assert script.joining_with().owned == (tp(0),)


@pytest.mark.requirement("KIP-429/8")
@pytest.mark.rule("completing")
def test_completions_while_a_join_is_pending_share_one_rejoin(script: NetworkScript) -> None:
    script.member_of(1, 0, 1, 2)
    revocation_requested(script, 1, 2, keeps=(0,))
    script.complete(1)
    script.pass_time(0.4)
    assert script.joining_with().owned == (tp(0), tp(2))
    script.complete(2)
    script.rebalance(3, 0)
    assert script.joining_with().owned == (tp(0),)
    script.rebalance(4, 0)
    assert "JoinGroup" not in script.waits()


@pytest.mark.rule("deadline")
def test_past_the_deadline_the_group_is_told_when_the_commit_ends(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    revocation_requested(script, 1, keeps=(0,))
    delayed_until = script.now + script.config.max_poll_interval - script.config.commit_budget
    while script.now < delayed_until - 0.5:
        script.do(Polled(at=script.now))
        script.pass_time(min(2.0, delayed_until - 0.5 - script.now))
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    script.commit({1: 5})
    script.pass_time(0.6)
    assert len(script.take(Lost)) == 1
    assert "JoinGroup" not in script.waits(), "its commit could rewind the next owner"
    script.committed()
    assert script.joining_with().owned == (tp(0),)


@pytest.mark.rule("completing")
@pytest.mark.rule("deadline")
def test_a_commits_response_just_after_the_deadline_makes_it_a_revoke_and_no_loss(script: NetworkScript) -> None:
    """What the commit budget is for."""
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    (requested,) = script.take(RevocationRequested)
    while script.now < requested.deadline - 0.5:
        script.do(Polled(at=script.now))
        script.pass_time(min(2.0, requested.deadline - 0.5 - script.now))
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    script.commit({1: 5})
    script.complete(1)
    script.pass_time(0.6)
    assert script.now > requested.deadline
    assert (script.take(Lost), script.take(Revoked)) == ([], [])
    script.committed()
    assert [each.partitions for each in script.take(Revoked)] == [requested.partitions]
    assert script.take(Lost) == []


def revocation_requested_in_a_commit_outage(script: NetworkScript, code: int) -> RevocationRequested:
    """The broker refuses the last commit of a partition to be revoked; whoever called commit has given up waiting."""
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0)
    (requested,) = script.take(RevocationRequested)
    call = script.commit({1: 5}, timeout=2.0)
    script.complete(1)
    for _ in range(4):
        script.committed(code)
        script.pass_time(1.0)
        script.response(api.Heartbeat, api.HeartbeatResponse()) if "Heartbeat" in script.waits() else None
    (told,) = (each for each in script.take(CallCompleted) if each.call == call)
    assert isinstance(told.error, KafkaTimeoutError)
    return requested


@pytest.mark.rule("completing")
@pytest.mark.parametrize("code", [LOADING, REBALANCE_IN_PROGRESS])
def test_the_last_commit_is_tried_until_the_deadline_not_until_its_caller_gives_up(code: int) -> None:
    script = NetworkScript(retry_backoff=0.1, retry_backoff_max=0.1, heartbeat_interval=1.0)
    requested = revocation_requested_in_a_commit_outage(script, LOADING)
    assert script.take(Revoked) == [], "the next owner would repeat what was finished"
    if code == REBALANCE_IN_PROGRESS:
        script.committed(code)
        script.rebalance(3, 0)
        script.pass_time(0.2)
    assert script.committed() == {1: 5}
    assert [each.partitions for each in script.take(Revoked)] == [requested.partitions]


@pytest.mark.rule("completing")
def test_the_last_commit_is_refused_for_good_and_the_revoke_completes() -> None:
    script = NetworkScript(retry_backoff=0.1, retry_backoff_max=0.1, heartbeat_interval=1.0)
    requested = revocation_requested_in_a_commit_outage(script, LOADING)
    script.committed(NOT_AUTHORIZED)
    assert [each.partitions for each in script.take(Revoked)] == [requested.partitions]
    assert any("offset 5 of t-1 was not committed" in line for line in script.logs)


@pytest.mark.rule("deadline")
def test_what_no_broker_took_until_the_deadline_is_lost_though_nobody_waits_for_it() -> None:
    script = NetworkScript(
        retry_backoff=0.1, retry_backoff_max=0.1, heartbeat_interval=1.0, session_timeout=5.0, max_poll_interval=8.0
    )
    requested = revocation_requested_in_a_commit_outage(script, LOADING)
    while script.now < requested.deadline + script.config.commit_budget:
        script.do(Polled(at=script.now))
        if "OffsetCommit" in script.waits():
            script.committed(LOADING)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
        script.pass_time(0.5)
    assert [each.partitions for each in script.take(Lost)] == [requested.partitions]
    assert script.take(Revoked) == []


# --- memberships -------------------------------------------------------------------------------------------


@pytest.mark.requirement("KIP-429/1")
@pytest.mark.rule("membership")
@pytest.mark.parametrize(("code", "member_id"), [(UNKNOWN_MEMBER_ID, ""), (ILLEGAL_GENERATION, "me")])
def test_a_membership_lost_in_a_stable_group_loses_everything(script: NetworkScript, code: int, member_id: str) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(code)
    (lost,) = script.take(Lost)
    assert set(lost.partitions) == {tp(0), tp(1)}
    assert script.requested(api.JoinGroup).member_id == member_id
    assert script.joining_with().owned == ()
    assert script.joining_with().generation == -1


@pytest.mark.rule("membership")
def test_illegal_generation_during_a_rebalance_is_no_loss(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.heartbeat(ILLEGAL_GENERATION)
    assert script.take(Lost) == []
    script.rebalance(2, 0, 1)
    assert script.take(Lost) == []


@pytest.mark.requirement("threading/28")
@pytest.mark.rule("membership")
def test_poll_interval_exceeded_leaves_and_loses_and_rejoins_at_the_next_poll() -> None:
    script = NetworkScript(max_poll_interval=10.0, session_timeout=6.0, heartbeat_interval=1.0)
    script.member_of(1, 0)
    for _ in range(12):
        script.pass_time(1.0)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert len(script.take(Lost)) == 1
    script.requested(api.LeaveGroup)
    assert "JoinGroup" not in script.waits()
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.do(Polled(at=script.now))
    assert script.requested(api.JoinGroup).member_id == ""


@pytest.mark.rule("membership")
def test_a_process_suspended_beyond_its_poll_interval_returns_nothing() -> None:
    """Its session is longer, so that the group may have dealt out anew without it, and still takes it for a member."""
    script = NetworkScript(max_poll_interval=10.0, session_timeout=60.0, heartbeat_interval=3.0)
    script.member_of(1, 0)
    polled = script.now
    script.do(Polled(at=polled))
    script.heartbeat()
    script.now = polled + 10.0
    assert script.lease.holds(script.now)
    script.now += 0.5
    assert not script.lease.holds(script.now), "its application may run before this side does"
    script.do(Polled(at=script.now))  # this poll came too late, though nobody has said so before
    assert len(script.take(Lost)) == 1
    script.requested(api.LeaveGroup)
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.requested(api.JoinGroup).member_id == "", "for the poll that is waiting"


@pytest.mark.rule("membership")
def test_the_lease_ends_a_session_after_the_last_heartbeat_with_a_response_was_sent(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.pass_time(script.config.heartbeat_interval)
    sent = script.now
    script.now += 1.5
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.lease.expires == sent + script.config.session_timeout
    script.commit({0: 5})
    script.committed()
    script.now = script.lease.expires + 1
    script.commit({0: 6})
    assert "OffsetCommit" not in script.waits(), "nothing is committed without a lease"
    script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.committed() == {0: 6}


@pytest.mark.rule("membership")
def test_who_is_no_member_has_no_lease_until_it_joined_again_or_left_the_group(script: NetworkScript) -> None:
    """Its loss may still be on its way to the application; a lease would vouch for the records that it holds."""
    script.member_of(1, 0)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    assert len(script.take(Lost)) == 1
    assert not script.lease.holds(script.now)
    script.join(2)
    script.sync(0)
    assert script.lease.holds(script.now)
    script.do(Unsubscribe(call=1, deadline=script.now + 5))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.lease.holds(script.now), "partitions of one's own choice need none"


@pytest.mark.rule("membership")
def test_a_pending_join_or_sync_counts_as_a_response() -> None:
    script = NetworkScript(session_timeout=6.0, heartbeat_interval=1.0)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    heard = script.now
    script.pass_time(2.0)
    assert script.lease.expires > heard + script.config.session_timeout, "the join is pending"
    script.response(api.Heartbeat, api.HeartbeatResponse(error=REBALANCE_IN_PROGRESS))
    script.join(2)
    heard = script.now
    script.pass_time(2.5)
    assert script.lease.expires > heard + script.config.session_timeout, "the sync is pending"
    script.sync(0)
    assert script.lease.expires <= script.now + script.config.session_timeout


@pytest.mark.requirement("threading/2")
def test_a_join_that_ends_between_two_polls_is_not_thrown_away(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2, 0, 3)
    assert script.take(Assigned)[-1].partitions.keys() == {tp(3)}


@pytest.mark.vector(34)
@pytest.mark.requirement("threading/11")
@pytest.mark.parametrize("what", [api.JoinGroup, api.SyncGroup])
def test_the_member_id_is_kept_when_the_coordinator_moves(script: NetworkScript, what: type[api.Request]) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    if what is api.SyncGroup:
        script.join(2)
        script.response(api.SyncGroup, api.SyncGroupResponse(error=NOT_COORDINATOR))
    else:
        script.response(api.JoinGroup, api.JoinGroupResponse(error=NOT_COORDINATOR))
    script.pass_time(1.0)
    assert script.requested(api.JoinGroup).member_id == "me"
    assert script.joining_with().owned == (tp(0),)
    assert script.take(Lost) == []


@pytest.mark.vector(28)
def test_unknown_member_id_on_sync_starts_with_a_new_id(script: NetworkScript) -> None:
    script.subscribe()
    script.join(1)
    script.response(api.SyncGroup, api.SyncGroupResponse(error=UNKNOWN_MEMBER_ID))
    assert script.requested(api.JoinGroup).member_id == ""


@pytest.mark.vector(25)
def test_the_subscription_that_changed_mid_join_is_joined_again_and_assigned_once(script: NetworkScript) -> None:
    script.topics["u"] = 2
    script.subscribe("t")
    script.join(1)
    script.do(Subscribe(topics=frozenset({"u"})))
    script.sync(0, 1)
    assert script.take(Assigned) == []
    assert script.joining_with().topics == ("u",)


@pytest.mark.requirement("KIP-429/4")
@pytest.mark.rule("11")
def test_partitions_of_topics_that_left_the_subscription_are_to_be_revoked(script: NetworkScript) -> None:
    script.topics["u"] = 2
    script.member_of(1, 0, 1)
    script.do(Subscribe(topics=frozenset({"u"})))
    (event,) = script.take(RevocationRequested)
    assert set(event.partitions) == {tp(0), tp(1)}
    said = script.joining_with()
    assert (said.topics, said.owned) == (("u",), (tp(0), tp(1))), "joined at once, still listed as owned"


# --- commits -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("surface/commit-phases")
@pytest.mark.requirement("threading/2")
@pytest.mark.vector(40)
@pytest.mark.rule("full-speed")
def test_while_joining_the_broker_accepts_the_present_generation(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    call = script.commit({0: 5})
    assert script.requested(api.OffsetCommit).generation == 1
    script.committed()
    assert script.take(CallCompleted)[-1].call == call


@pytest.mark.vector(40)
@pytest.mark.requirement("surface/commit-phases")
@pytest.mark.vector(69)
@pytest.mark.rule("full-speed")
def test_between_join_and_sync_a_commit_waits_and_is_sent_with_the_new_generation(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.commit({0: 5})
    assert "OffsetCommit" not in script.waits()
    script.sync(0)
    assert script.requested(api.OffsetCommit).generation == 2
    assert script.committed() == {0: 5}


@pytest.mark.requirement("surface/commit-phases")
@pytest.mark.vector(67)
@pytest.mark.rule("full-speed")
@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS])
def test_a_commit_refused_by_a_rebalance_is_carried_over(script: NetworkScript, code: int) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    call = script.commit({0: 5})
    script.committed(code)
    assert script.take(Lost) == []
    assert "OffsetCommit" not in script.waits()
    script.rebalance(2, 0)
    script.pass_time(1.0)
    assert script.committed() == {0: 5}
    (response,) = script.take(CallCompleted)
    assert (response.call, response.committed) == (call, {tp(0): None})


@pytest.mark.rule("full-speed")
def test_a_refusal_that_arrives_after_the_sync_is_sent_again_at_once(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.commit({0: 5})
    script.rebalance(2, 0)
    script.committed(ILLEGAL_GENERATION)
    script.pass_time(1.0)
    assert script.take(Lost) == []
    assert script.requested(api.OffsetCommit).generation == 2


@pytest.mark.vector(68)
def test_illegal_generation_on_a_commit_in_a_stable_group_is_a_loss(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(ILLEGAL_GENERATION)
    assert len(script.take(Lost)) == 1
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], CommitFailedError)


@pytest.mark.requirement("KIP-429/16")
@pytest.mark.rule("full-speed")
def test_a_commit_that_may_not_wait_is_refused_at_once(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.commit({0: 5}, carry_over=False)
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], RebalanceInProgressError)
    script.sync(0)
    assert "OffsetCommit" not in script.waits()
    again = script.commit({0: 5}, carry_over=False)
    assert script.committed() == {0: 5}, "it can be tried again after the rebalance"
    response = script.take(CallCompleted)[-1]
    assert (response.call, response.committed) == (again, {tp(0): None})


@pytest.mark.requirement("KIP-429/16")
@pytest.mark.requirement("threading/4")
@pytest.mark.rule("full-speed")
def test_a_commit_that_waits_raises_rebalance_in_progress_when_its_time_ends_first(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.commit({0: 5}, timeout=3.0)
    script.pass_time(2.9)
    assert script.take(CallCompleted) == []
    script.pass_time(0.2)
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], RebalanceInProgressError)


@pytest.mark.requirement("KIP-983/9")
@pytest.mark.rule("full-speed")
def test_one_commit_is_under_way_and_the_newest_offset_wins(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    calls = [script.commit({0: 1}), script.commit({0: 5, 1: 2}), script.commit({0: 3}), script.commit({0: 7})]
    assert script.committed() == {0: 1}
    assert script.committed() == {0: 7, 1: 2}
    completed = {response.call: response for response in script.take(CallCompleted)}
    assert sorted(completed) == calls
    kinds = [{at.partition: type(error) for at, error in completed[call].committed.items()} for call in calls]
    nothing = type(None)
    assert kinds == [{0: nothing}, {0: CommitOvertakenError, 1: nothing}, {0: CommitRewindError}, {0: nothing}]
    assert "OffsetCommit" not in script.waits()


@pytest.mark.rule("full-speed")
def test_a_commit_never_goes_back_within_an_epoch_and_seek_number(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 9})
    script.committed()
    script.commit({0: 4})
    assert "OffsetCommit" not in script.waits()
    script.commit({0: 2}, seek_number=1)
    assert script.committed() == {0: 2}, "a seek says that going back is meant"


@pytest.mark.requirement("KIP-983/15")
@pytest.mark.rule("full-speed")
def test_what_was_finished_in_an_earlier_epoch_never_becomes_a_commit(script: NetworkScript) -> None:
    script.member_of(1, 0)
    old = script.epoch(0)
    script.heartbeat(UNKNOWN_MEMBER_ID)
    script.rebalance(2, 0)
    script.commit({0: 5}, epoch=old)
    assert "OffsetCommit" not in script.waits()
    (response,) = script.take(CallCompleted)
    assert isinstance(response.committed[tp(0)], CommitFailedError)


# --- leaving -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("surface/close-commits")
@pytest.mark.requirement("threading/12")
@pytest.mark.rule("12")
@pytest.mark.parametrize("kind", [Close, Unsubscribe])
def test_leaving_sends_what_was_handed_over_then_leaves(script: NetworkScript, kind: type[Close]) -> None:
    script.member_of(1, 0, 1)
    revocation_requested(script, 1, keeps=(0,))
    script.commit({0: 3, 1: 4})
    script.complete(0, 1)
    script.do(kind(call=1, deadline=script.now + 30))
    assert "LeaveGroup" not in script.waits()
    assert script.committed() == {0: 3, 1: 4}
    assert "JoinGroup" not in script.waits()
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    assert script.take(CallCompleted)[-1] == CallCompleted(call=1)
    assert script.stopped == (kind is Close)


@pytest.mark.rule("12")
def test_a_pending_sync_is_awaited_for_a_commit_that_waits_for_it(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.commit({0: 3})
    script.complete(0)
    script.do(Close(call=1, deadline=script.now + 30))
    assert "LeaveGroup" not in script.waits()
    script.sync(0)
    assert script.committed() == {0: 3}
    script.requested(api.LeaveGroup)


@pytest.mark.rule("13")
def test_one_that_leaves_joins_for_its_commits_and_is_assigned_nothing(script: NetworkScript) -> None:
    """Who subscribes anew after Ctrl-C in an unsubscribe would hear of partitions that the member does not keep."""
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.commit({0: 3})
    script.complete(0)
    script.do(Unsubscribe(call=1, deadline=script.now + 30))
    script.take(Assigned)
    script.sync(0, 1)
    assert [each.partitions for each in script.take(Assigned)] == [{}]
    assert script.committed() == {0: 3}
    script.requested(api.LeaveGroup)


@pytest.mark.vector(72)
@pytest.mark.rule("12")
def test_close_ends_at_its_deadline(script: NetworkScript) -> None:
    script.member_of(1, 0)
    script.commit({0: 3})
    script.complete(0)
    script.do(Close(call=1, deadline=script.now + 5))
    script.pass_time(5.1)
    assert script.stopped
    response = next(each for each in script.take(CallCompleted) if each.call == 1)
    assert "commits had no response" in str(response.error)


@pytest.mark.rule("full-speed")
def test_a_commit_offered_again_while_it_is_on_its_way_is_sent_once(script: NetworkScript) -> None:
    script.member_of(1, 0)
    calls = [script.commit({0: 5}), script.commit({0: 5})]
    assert script.committed() == {0: 5}
    assert "OffsetCommit" not in script.waits()
    assert sorted(response.call for response in script.take(CallCompleted)) == calls


@pytest.mark.requirement("surface/busy")
@pytest.mark.requirement("KIP-983/12")
@pytest.mark.requirement("threading/3")
@pytest.mark.requirement("KIP-41/5")
@pytest.mark.rule("7")
def test_an_application_that_does_not_poll_until_its_work_is_done_harms_nobody(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    polled = script.now
    revocation_requested(script, 1, keeps=(0,))
    generation = 2
    while script.now < polled + script.config.max_poll_interval - 20:
        generation += 1
        script.heartbeat(REBALANCE_IN_PROGRESS)  # others come and go meanwhile
        assert script.joining_with().owned == (tp(0), tp(1))
        script.rebalance(generation, 0)
        script.commit({0: generation, 1: generation})
        assert script.committed() == {0: generation, 1: generation}
    assert script.take(Lost) == []
    script.do(Polled(at=script.now))
    script.complete(1)
    assert script.joining_with().owned == (tp(0),)
    assert script.take(Lost) == []


@pytest.mark.requirement("KIP-983/12")
@pytest.mark.requirement("threading/28")
@pytest.mark.rule("7")
def test_only_the_poll_interval_bounds_it(script: NetworkScript) -> None:
    script.member_of(1, 0, 1)
    revocation_requested(script, 1, keeps=(0,))
    while not script.take(Lost):
        script.pass_time(1.0)
        if "Heartbeat" in script.waits():
            script.response(api.Heartbeat, api.HeartbeatResponse())
    assert script.now - 100.0 >= script.config.max_poll_interval - script.config.commit_budget


@pytest.mark.rule("membership")
def test_a_sync_that_was_long_pending_takes_back_no_lease() -> None:
    """Its sending is long ago, but heartbeats had their responses since."""
    script = NetworkScript(session_timeout=6.0, heartbeat_interval=1.0)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    for _ in range(10):
        script.heartbeat()
    heard = script.now
    script.sync(0)
    assert script.lease.expires >= heard + script.config.session_timeout - script.config.heartbeat_interval


@pytest.mark.rule("8")
@pytest.mark.rule("deadline")
def test_one_that_completes_though_reassigned_has_a_deadline_at_the_next_request() -> None:
    """Reassigned, while the application had released it already: so it completes without a deadline, until it is
    requested once more."""
    script = NetworkScript(max_poll_interval=60.0)
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(2)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0)
    script.commit({0: 5}, timeout=5000.0)
    script.complete(0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(4)
    script.take(Lost)
    for _ in range(25):
        script.do(Polled(at=script.now))
        script.heartbeat()
        if "OffsetCommit" in script.waits():
            script.committed(LOADING)
    assert [set(event.partitions) for event in script.take(Lost)] == [{tp(0)}]


@pytest.mark.rule("16")
def test_the_lease_of_the_next_membership_has_another_number(script: NetworkScript) -> None:
    """Who works on records of the former one tells them apart by it, before a poll tells of the loss."""
    script.member_of(1, 0)
    former = script.lease.number
    script.heartbeat(UNKNOWN_MEMBER_ID)
    assert len(script.take(Lost)) == 1
    assert not script.lease.holds(script.now)
    script.rebalance(2, 0)
    assert script.lease.holds(script.now)
    assert script.lease.number == former + 1
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(3, 0)
    assert script.lease.number == former + 1, "a rebalance ends no membership"
