"""What is remembered of commits is of the present assignments alone, however often partitions come and go."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    Assigned,
    CallCompleted,
    PartitionsAssigned,
    RevocationRequested,
    Unsubscribe,
)
from instride._wire import api
from instride.commits import CommitEntry
from instride.errors import CommitOvertakenError, TransportError

UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
MANY = 50
ROUNDS = 6


def remembered() -> int:
    gc.collect()
    return sum(isinstance(each, CommitEntry) for each in gc.get_objects())


def member(script: NetworkScript, generation: int) -> range:
    """Of other partitions in each generation."""
    numbers = range(generation // 2 * MANY, (generation // 2 + 1) * MANY)
    script.rebalance(generation, *numbers)
    script.do(PartitionsAssigned(generation=generation))
    return numbers


def revoked(script: NetworkScript, generation: int) -> None:
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.rebalance(generation)
    (requested,) = script.take(RevocationRequested)
    script.complete(*(each.partition for each in requested.partitions))
    script.pass_time(1.0)


def lost(script: NetworkScript, _generation: int) -> None:
    script.heartbeat(UNKNOWN_MEMBER_ID)


def unsubscribed(script: NetworkScript, _generation: int) -> None:
    script.do(Unsubscribe(call=1, deadline=script.now + 5.0))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.subscribe()


@pytest.mark.rule("20")
@pytest.mark.parametrize("end", [revoked, lost, unsubscribed], ids=lambda end: end.__name__)
def test_what_is_known_of_commits_goes_with_the_assignment(end: Callable[[NetworkScript, int], None]) -> None:
    script = NetworkScript(topics={"t": ROUNDS * MANY})
    script.subscribe()
    counts = []
    for generation in range(1, 2 * ROUNDS, 2):
        script.commit(dict.fromkeys(member(script, generation), 5))
        script.committed()
        end(script, generation + 1)
        script.delivered = [each for each in script.delivered if isinstance(each, Assigned)]
        script.waiting = [each for each in script.waiting if not isinstance(each.request, api.Fetch)]
        counts.append(remembered())
    assert counts[-1] <= counts[0] + MANY // 2, "nothing is owned any more"


def test_what_a_broker_may_have_accepted_goes_with_the_assignment_too() -> None:
    script = NetworkScript(topics={"t": MANY})
    script.subscribe()
    before = remembered()
    script.commit(dict.fromkeys(member(script, 1), 5))
    script.response(api.OffsetCommit, TransportError("gone"))
    lost(script, 2)
    script.waiting.clear()
    script.take(CallCompleted)
    script.pass_time(61.0)
    assert remembered() <= before


@pytest.mark.rule("15")
def test_a_commit_of_an_assignment_by_hand_that_ended_is_sent_and_then_forgotten() -> None:
    script = NetworkScript(topics={"t": MANY})
    before = remembered()
    for epoch in range(1, 5):
        script.do(Assign(partitions={tp(number): epoch * 10 for number in range(MANY)}))
        script.commit(dict.fromkeys(range(MANY), 5), epoch=epoch * 10)
        script.do(Assign(partitions={}))
        for _ in range(2):  # the first is refused, and sent again
            script.response(api.OffsetCommit, TransportError("gone"))
            script.pass_time(2.0)
        assert script.requested(api.OffsetCommit).offsets.keys() == {tp(number) for number in range(MANY)}
        script.committed()
        assert script.take(CallCompleted)[-1].error is None
        script.commit({0: 9}, epoch=epoch * 10)
        assert "OffsetCommit" not in script.waits(), "only what was handed over before"
        script.take(CallCompleted)
    script.pass_time(1.0)
    assert remembered() <= before


def test_a_commit_by_hand_that_an_unsubscribe_gave_up_is_forgotten_too() -> None:
    script = NetworkScript(topics={"t": MANY})
    before = remembered()
    script.do(Assign(partitions={tp(number): 10 for number in range(MANY)}))
    script.commit(dict.fromkeys(range(MANY), 5), epoch=10, timeout=3.0)
    script.do(Assign(partitions={}))
    script.do(Unsubscribe(call=1, deadline=script.now + 5.0))
    script.pass_time(6.0)
    script.take(CallCompleted)
    script.response(api.OffsetCommit, TransportError("gone"))
    script.waiting.clear()
    script.pass_time(1.0)
    assert remembered() <= before


@pytest.mark.rule("15")
def test_a_call_that_ends_after_the_assignment_still_says_what_the_group_has() -> None:
    script = NetworkScript()
    script.member_of(1, 0, 1)
    epoch = script.epoch(0)
    first = script.commit({0: 5, 1: 5})
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={tp(0): 0, tp(1): 14}))
    second = script.commit({0: 7}, epoch=epoch)
    script.pass_time(2.0)
    script.response(api.OffsetCommit, api.OffsetCommitResponse(errors={tp(0): 0, tp(1): 14}))
    assert [each.call for each in script.take(CallCompleted)] == [second]
    script.heartbeat(REBALANCE_IN_PROGRESS)
    script.join(2)
    script.sync(1)
    script.complete(0)
    script.pass_time(2.0)
    script.committed()
    (ended,) = script.take(CallCompleted)
    assert ended.call == first
    assert isinstance(ended.committed[tp(0)], CommitOvertakenError), "the group has 7"
    assert ended.committed[tp(1)] is None
