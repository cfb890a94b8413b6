"""What a refused commit means for the membership and for the commits after it (vectors 67 to 70)."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride._core.events import Assign, CallCompleted, Lost, PartitionsAssigned, Unsubscribe
from instride._wire import api
from instride.errors import CommitFailedError, CommitOvertakenError, KafkaTimeoutError, RebalanceInProgressError

ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
NOT_COORDINATOR = 16


@pytest.fixture
def script() -> NetworkScript:
    made = NetworkScript()
    made.member_of(1, 0)
    return made


def outcome(script: NetworkScript, call: int) -> Exception | None:
    (response,) = (each for each in script.take(CallCompleted) if each.call == call)
    return response.committed[tp(0)]


@pytest.mark.vector(67)
def test_an_old_generation_that_a_new_one_overtook_is_a_rebalance_and_no_loss(script: NetworkScript) -> None:
    script.heartbeat(REBALANCE_IN_PROGRESS)
    call = script.commit({0: 5})
    impatient = script.commit({0: 6}, carry_over=False)
    script.join(2)
    script.sync(0)
    script.do(PartitionsAssigned(generation=2))
    script.committed(ILLEGAL_GENERATION)
    script.pass_time(1.0)
    assert script.take(Lost) == []
    assert script.requested(api.OffsetCommit).generation == 2
    assert script.committed() == {0: 5}
    completed = {each.call: each.committed[tp(0)] for each in script.take(CallCompleted)}
    assert completed[call] is None
    assert isinstance(completed[impatient], RebalanceInProgressError), "it did not want to wait for the sync"


@pytest.mark.vector(68)
@pytest.mark.parametrize(("code", "member_id"), [(ILLEGAL_GENERATION, "me"), (UNKNOWN_MEMBER_ID, "")])
def test_in_a_stable_group_only_an_unknown_member_loses_its_id(
    script: NetworkScript, code: int, member_id: str
) -> None:
    call = script.commit({0: 5})
    script.committed(code)
    assert len(script.take(Lost)) == 1
    assert isinstance(outcome(script, call), CommitFailedError)
    request = script.requested(api.JoinGroup)
    assert request.member_id == member_id
    said = script.joining_with()
    assert (said.generation, said.owned) == (-1, ()), "what is lost is not claimed"


@pytest.mark.vector(69)
def test_between_join_and_sync_no_commit_is_sent(script: NetworkScript) -> None:
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.commit({0: 5})
    script.pass_time(3.0)
    assert "OffsetCommit" not in script.waits()
    script.sync(0)
    assert script.requested(api.OffsetCommit).generation == 2


@pytest.mark.vector(69)
def test_a_rebalance_that_a_commit_tells_of_starts_a_join_and_keeps_the_generation(script: NetworkScript) -> None:
    call = script.commit({0: 5})
    script.committed(REBALANCE_IN_PROGRESS)
    assert script.joining_with().generation == 1
    assert script.joining_with().owned == (tp(0),)
    script.rebalance(2, 0)
    script.pass_time(1.0)
    script.committed()
    assert outcome(script, call) is None


@pytest.mark.vector(70)
def test_after_a_failure_a_commit_waits_for_the_back_off() -> None:
    script = NetworkScript(retry_backoff=4.0, retry_backoff_max=4.0)
    script.member_of(1, 0)
    script.commit({0: 5})
    script.committed(14)  # the coordinator loads the group
    script.pass_time(2.9)
    assert "OffsetCommit" not in script.waits()
    script.pass_time(2.0)
    script.requested(api.OffsetCommit)


def test_a_moved_coordinator_is_looked_for_before_the_commit_is_sent_again(script: NetworkScript) -> None:
    script.commit({0: 5})
    script.coordinator = 2
    script.committed(NOT_COORDINATOR)
    script.pass_time(1.0)
    (waiting,) = (each for each in script.waiting if isinstance(each.request, api.OffsetCommit))
    assert waiting.key.node_id == 2


# --- held until the next sync -------------------------------------------------------------------------------


@pytest.mark.rule("full-speed")
def test_a_commit_that_does_not_wait_for_a_rebalance_is_refused_while_others_wait(script: NetworkScript) -> None:
    patient = script.commit({0: 5})
    script.committed(REBALANCE_IN_PROGRESS)
    call = script.commit({0: 6}, carry_over=False)
    assert isinstance(outcome(script, call), RebalanceInProgressError)
    script.rebalance(2, 0)
    script.pass_time(1.0)
    assert script.committed() == {0: 6}, "for who waits; the newest offset goes with it, since it is as true"
    assert isinstance(outcome(script, patient), CommitOvertakenError)


@pytest.mark.rule("full-speed")
def test_who_waits_behind_another_commit_is_refused_when_the_join_ends(script: NetworkScript) -> None:
    script.heartbeat(REBALANCE_IN_PROGRESS)
    first = script.commit({0: 5}, carry_over=False)
    second = script.commit({0: 6}, carry_over=False)
    script.join(2)
    assert isinstance(outcome(script, second), RebalanceInProgressError)
    script.committed()
    assert outcome(script, first) is None, "it was sent before"


def test_what_a_group_held_up_holds_up_no_commit_without_a_group(script: NetworkScript) -> None:
    """A sync that never came, since the group was left, is waited for by nobody."""
    script.commit({0: 5}, timeout=5.0)
    script.committed(REBALANCE_IN_PROGRESS)
    script.do(Unsubscribe(call=1, deadline=script.now + 3.0))
    script.pass_time(4.0)
    script.do(Assign(partitions={tp(0): 9}))
    call = script.commit({0: 7}, epoch=9)
    script.pass_time(1.0)
    assert script.committed() == {0: 7}
    assert outcome(script, call) is None


@pytest.mark.rule("T")
def test_a_commit_without_any_time_is_sent_and_not_awaited(script: NetworkScript) -> None:
    call = script.commit({0: 5}, timeout=0.0)
    assert isinstance(outcome(script, call), KafkaTimeoutError)
    assert script.committed() == {0: 5}
    assert script.take(CallCompleted) == [], "once"
