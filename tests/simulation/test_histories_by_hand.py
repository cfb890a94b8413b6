"""Members that assign partitions instead of subscribing: what a history tells of them, and what is found by it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

import pytest

from instride._core.application import machine
from instride._core.application.revoke_lists import RevokeLists
from instride.records import TopicPartition
from instride.testing import SimulatedCluster
from instride.testing._simulation.planning_unruly import with_unruly_users
from instride.testing.check import Event
from instride.testing.simulation import (
    History,
    Member,
    MemberPlan,
    Plan,
    Sleep,
    UserLoop,
    check,
    plan_for,
    run,
    transcript,
)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
HAND = frozenset({"hand"})
BY_HAND = Plan(
    members=tuple(MemberPlan(name=name, loop="unruly", by_hand=0.5) for name in "AB"),
    partitions=5,
    produced=tuple((0.0, number, 3) for number in range(5)),
)


def one_after_the_other(member: Member) -> UserLoop:
    """Both partitions, then one, then both, then as a member of the group."""
    consumer = member.consumer
    for wanted in ([ZERO, ONE], [ONE], [ZERO, ONE]):
        consumer.assign(wanted)
        yield from reads(member)
    yield from consumer.unsubscribe(timeout=1.0)
    member.did("unsubscribed")
    consumer.subscribe(member.topics)
    while not member.stopping:
        yield from reads(member)
    yield from consumer.close()


def reads(member: Member) -> UserLoop:
    for record in (yield from member.consumer.poll(timeout=0.3)):
        member.did("done", record.topic_partition, record.offset, record.epoch)
    yield from member.consumer.commit()
    yield Sleep(0.1)


TOLD = """\
A       assigned in generation None: t-0 (epoch 1), t-1 (epoch 2)
A       poll: t-0 0-2 (epoch 1), t-1 0-2 (epoch 2)
A       commit in generation -1: t-0 at 3, t-1 at 3
A       revoked: t-0 (epoch 1)
A       poll: t-1 3-4 (epoch 2)
A       commit in generation -1: t-1 at 5
A       assigned in generation None: t-0 (epoch 3)
A       poll: t-0 3-4 (epoch 3)
A       commit in generation -1: t-0 at 5, t-1 at 5
A       unsubscribed
A       assigned in generation 1: t-0 (epoch 4), t-1 (epoch 5)
"""


def test_each_assignment_by_hand_is_told_with_its_epochs() -> None:
    """What stays keeps its epoch; what is assigned anew has a higher one, and goes on where the group is."""
    plan = Plan(
        members=(MemberPlan(name="A"),),
        partitions=2,
        produced=((0.0, 0, 3), (0.0, 1, 3), (0.25, 0, 2), (0.25, 1, 2)),
        latency=(0.01, 0.01),
        quiet_after=3.0,
    )
    history = SimulatedCluster(plan, loop=one_after_the_other).run()
    assert check(history) == []
    kinds = ("assigned", "revoked", "poll", "commit", "unsubscribed")
    shown = [event for event in history if event.what in kinds and event.who == "A"]
    assert "".join(f"{transcript([each])[10:]}\n" for each in shown[: TOLD.count("\n")]) == TOLD


def assigned(history: History) -> list[Event]:
    return [event for event in history if event.what == "assigned"]


def test_members_by_hand_share_all_partitions_among_them() -> None:
    """No partition is two members', and none is nobody's."""
    history = run(BY_HAND)
    assert check(history) == []
    owners = {(tp, event.who) for event in assigned(history) for tp, _ in event.detail[1]}
    assert sorted(tp for tp, _ in owners) == sorted(BY_HAND.partition(number) for number in range(5))


def test_one_that_is_left_out_leaves_its_share_to_the_others() -> None:
    """So that a wrong history can be shrunk."""
    history = run(Plan(members=BY_HAND.members[1:], partitions=5, produced=BY_HAND.produced))
    assert check(history) == []
    assert len({tp for event in assigned(history) for tp, _ in event.detail[1]}) == 5


def test_who_is_alone_goes_over_to_the_group_and_back() -> None:
    for seed in range(20):
        history = run(with_unruly_users(seed, plan_for(seed), HAND))
        assert check(history) == []
        ways = [event.detail[0] is None for event in assigned(history)]
        if (True, False, True) in zip(ways, ways[1:], ways[2:], strict=False):
            return
    pytest.fail("nobody went over and back")


@pytest.mark.parametrize("means", [{"verbs"}, {"verbs", "hand"}])
def test_it_is_one_history_of_four_beside_other_means_and_none_without(means: set[str]) -> None:
    plans = [with_unruly_users(seed, plan_for(seed), frozenset(means)) for seed in range(100)]
    by_hand = [plan for plan in plans if any(each.by_hand for each in plan.members)]
    assert 10 < len(by_hand) < 40 if "hand" in means else not by_hand
    for plan in by_hand:
        assert all(each.by_hand for each in plan.members)
        assert not plan.faults


Fault = Callable[[pytest.MonkeyPatch], None]


def _an_epoch_is_given_again(patch: pytest.MonkeyPatch) -> None:
    """So a commit of an older assignment counts in the next one."""
    patch.setattr(machine, "count", lambda start: repeat(1))


def _what_is_assigned_no_more_is_returned_still(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RevokeLists, "leaving_by_hand", lambda lists, partitions: [])


FAULTS: dict[str, Fault] = {
    name.removeprefix("_").replace("_", " "): fault
    for name, fault in list(globals().items())
    if getattr(fault, "__annotations__", {}).get("patch") == "pytest.MonkeyPatch"
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_assign_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    for seed in range(60):
        if found := check(run(with_unruly_users(seed, plan_for(seed), HAND))):
            print(f"{name}: seed {seed}: {found[0]}")  # shown by pytest -s
            return
    pytest.fail("60 histories did not show it")
