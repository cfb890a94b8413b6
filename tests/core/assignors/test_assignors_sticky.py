"""The sticky assignors on groups with a known assignment: those of the Java client's behaviour, in our own
words."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from assignor_group import Group, assert_valid, cluster, member, shown, sizes, tps

from instride._core.assignors.assignor import Assignment, MemberSubscription
from instride._core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor, generation_userdata, write_sticky
from instride.records import TopicPartition

BOTH = "t1 t2"


def cooperative(partitions: dict[str, int], *members: MemberSubscription) -> Assignment:
    view = cluster(**partitions)
    assignment = CooperativeStickyAssignor().assign(view, members)
    assert_valid(view, members, assignment)
    return assignment


def eager(partitions: dict[str, int], *members: MemberSubscription) -> Assignment:
    """The same members under `sticky`: what they list is put into their userdata, as eager members do."""
    view = cluster(**partitions)
    told = [
        replace(each, owned=(), generation=-1, userdata=write_sticky(each.owned, each.generation)) for each in members
    ]
    assignment = StickyAssignor().assign(view, told)
    assert_valid(view, members, assignment)
    return assignment


@pytest.mark.vector(8)
def test_a_partition_waits_for_its_owner_when_a_member_joins() -> None:
    a, b = member("a", owned="1-0 1-1 1-2", generation=1), member("b")
    assert shown(cooperative({"t1": 3}, a, b)) == {"a": "1-0 1-1", "b": ""}
    assert shown(eager({"t1": 3}, a, b)) == {"a": "1-0 1-1", "b": "1-2"}


@pytest.mark.vector(8)
def test_what_a_leaving_member_owned_is_granted_at_once() -> None:
    assert shown(cooperative({"t1": 3}, member("b", owned="1-2", generation=2))) == {"b": "1-0 1-1 1-2"}


@pytest.mark.vector(9)
def test_a_member_at_the_lower_quota_takes_the_free_partition() -> None:
    a = member("a", BOTH, "1-0 2-1", generation=1)
    b = member("b", BOTH, "1-1 2-2", generation=1)
    assert shown(cooperative({"t1": 2, "t2": 3}, a, b)) == {"a": "1-0 2-0 2-1", "b": "1-1 2-2"}


@pytest.mark.vector(10)
def test_a_newcomer_costs_the_two_owners_one_partition_between_them() -> None:
    a = member("a", BOTH, "1-0 2-0", generation=1)
    b = member("b", BOTH, "1-1 2-1", generation=1)
    assert sizes(eager({"t1": 2, "t2": 2}, a, b, member("c", BOTH))) == [1, 1, 2]
    assert sizes(cooperative({"t1": 2, "t2": 2}, a, b, member("c", BOTH))) == [0, 1, 2]


@pytest.mark.vector(11)
def test_members_under_the_quota_are_filled_first() -> None:
    a, b = member("a", BOTH, "1-0", generation=1), member("b", BOTH, "1-1", generation=1)
    assignment = cooperative({"t1": 2, "t2": 3}, a, b, member("c", BOTH))
    assert shown(assignment) == {"a": "1-0 2-1", "b": "1-1 2-2", "c": "2-0"}


@pytest.mark.vector(12)
def test_each_topic_stays_evenly_spread_while_members_come_and_go() -> None:
    group = Group(view=cluster(t1=12, t2=12))
    for joining, leaving, each in (("a", "", 12), ("b", "", 6), ("cd", "", 3), ("", "cd", 6)):
        group.join(*(member(name, BOTH) for name in joining))
        for name in leaving:
            group.leave(name)
        group.settle()
        per_topic = [sum(p.topic == t for p in own) for own in group.owned().values() for t in ("t1", "t2")]
        assert per_topic == [each] * len(per_topic)


@pytest.mark.vector(13)
def test_the_higher_generation_keeps_what_two_members_claim() -> None:
    a = member("a", BOTH, "1-0 1-1", generation=10)
    b = member("b", BOTH, "1-0 1-1 2-0", generation=9)
    assert shown(cooperative({"t1": 2, "t2": 2}, a, b)) == {"a": "1-0 1-1", "b": "2-0 2-1"}


@pytest.mark.vector(14)
@pytest.mark.parametrize("generation", [-1, 4])
def test_neither_of_two_equal_claimants_keeps_a_partition(generation: int) -> None:
    a = member("a", owned="1-0 1-1", generation=generation)
    b = member("b", owned="1-0 1-2", generation=generation)
    assignment = cooperative({"t1": 4}, a, b, member("c"))
    assert shown(assignment) == {"a": "1-1 1-3", "b": "1-2", "c": ""}
    assert shown(eager({"t1": 3}, a, b, member("c"))) == {"a": "1-1", "b": "1-2", "c": "1-0"}


@pytest.mark.vector(14)
def test_a_partition_of_two_equal_claimants_waits_even_for_one_of_them() -> None:
    group = Group(view=cluster(t1=2))
    group.join(member("a", owned="1-0", generation=4), member("b", owned="1-0", generation=4))
    assert group.round()
    assert shown(group.owned()) == {"a": "", "b": "1-1"} or shown(group.owned()) == {"a": "1-1", "b": ""}
    assert not group.round()
    assert sizes(group.owned()) == [1, 1]


@pytest.mark.vector(15)
def test_losers_of_a_dispute_keep_what_nobody_disputes() -> None:
    members = [
        member("a", owned="1-0 1-1 1-2", generation=10),
        member("b", owned="1-0 1-1 1-3", generation=9),
        member("c", owned="1-2 1-3 1-4", generation=8),
    ]
    assert shown(cooperative({"t1": 6}, *members)) == {"a": "1-0 1-1", "b": "1-3", "c": "1-4 1-5"}
    assert shown(eager({"t1": 6}, *members)) == {"a": "1-0 1-1", "b": "1-2 1-3", "c": "1-4 1-5"}


@pytest.mark.vector(16)
def test_undisputed_owners_of_any_generation_count() -> None:
    members = [
        member("a", owned="1-0 1-1 1-2", generation=9),
        member("b", owned="1-3 1-4 1-5", generation=8),
        member("c", owned="1-6 1-7 1-8", generation=7),
    ]
    assignment = cooperative({"t1": 12}, *members, member("d"))
    assert shown(assignment) == {
        "a": "1-0 1-1 1-2",
        "b": "1-3 1-4 1-5",
        "c": "1-6 1-7 1-8",
        "d": "1-9 1-10 1-11",
    }


@pytest.mark.vector(17)
@pytest.mark.parametrize("generations", list(permutations([6, 7, 8])))
def test_three_claimants_with_different_subscriptions(generations: tuple[int, int, int]) -> None:
    topics = ("t1 t2 t3", "t1 t2 t3 t4", "t2 t3 t4")
    members = [
        member(name, of, "2-0 3-0", generation=generation)
        for name, of, generation in zip("abc", topics, generations, strict=True)
    ]
    group = Group(view=cluster(t1=1, t2=1, t3=1, t4=1))
    group.join(*members)
    first = cooperative(dict(group.view.partitions), *members)
    winner = "abc"[generations.index(8)]
    losers = [own for name, own in first.items() if name != winner]
    assert not [each for own in losers for each in own if each in tps("2-0 3-0")]
    group.settle()
    assert set(sizes(group.owned())) == {1, 2}


@pytest.mark.vector(18)
def test_an_unlucky_mix_of_subscriptions_is_balanced() -> None:
    everything, some = "t1 t2 t3 t4 t5", "t1 t3 t5"
    members = [member("a", everything), member("b", some), member("c", some), member("d", everything)]
    partitions = {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2}
    assert sizes(cooperative(partitions, *members)) == [2, 2, 2, 2]


@pytest.mark.vector(18)
def test_owned_partitions_move_where_the_balance_needs_it() -> None:
    members = [
        member("a", "t1 t2", "1-0", generation=1),
        member("b", "t1 t2 t3 t4", "2-0 2-1 3-0 4-0", generation=1),
        member("c", "t2 t3 t4", "", generation=1),
    ]
    partitions = {"t1": 1, "t2": 2, "t3": 1, "t4": 1}
    assert sizes(eager(partitions, *members)) == [1, 2, 2]
    kept = cooperative(partitions, *members)
    assert kept["a"] == tps("1-0")
    assert sizes(kept) == [0, 1, 2]


def test_a_chain_of_moves_is_found_where_no_single_move_helps() -> None:
    """a may pass only to b, and b only to c: b is full, c is empty."""
    members = [
        member("a", "t1", "1-0 1-1 1-2", generation=1),
        member("b", "t1 t2", "2-0 2-1", generation=1),
        member("c", "t2", "", generation=1),
    ]
    assert shown(eager({"t1": 3, "t2": 2}, *members)) == {"a": "1-0 1-1", "b": "1-2 2-0", "c": "2-1"}


def test_free_partitions_move_before_owned_ones() -> None:
    """Dealt in order, a would get all of t1 and t2; then one must go to b: the free one of t1, not one of t4."""
    members = [
        member("a", "t1 t2 t4", "4-0 4-1", generation=1),
        member("b", "t1 t4 t5", "5-0 5-1", generation=1),
        member("c", "t2 t3", "3-0 3-1 3-2 3-3", generation=1),
    ]
    assignment = cooperative({"t1": 1, "t2": 2, "t3": 4, "t4": 2, "t5": 2}, *members)
    assert shown(assignment) == {"a": "2-0 2-1 4-0 4-1", "b": "1-0 5-0 5-1", "c": "3-0 3-1 3-2 3-3"}


@pytest.mark.vector(19)
def test_the_generation_is_the_field_and_userdata_only_without_it() -> None:
    a = replace(member("a", owned="1-0", generation=5), userdata=generation_userdata(99))
    b = replace(member("b", owned="1-0"), userdata=generation_userdata(7))
    c = replace(member("c", owned="1-0"), userdata=b"\0\0\1")
    assert shown(cooperative({"t1": 3}, a, b, c))["b"] == "1-0"
    assert shown(cooperative({"t1": 3}, a, c))["a"].startswith("1-0")


@pytest.mark.vector(19)
def test_ownership_is_never_read_from_cooperative_userdata() -> None:
    a = replace(member("a", owned="1-0", generation=3), userdata=write_sticky(tps("1-1 1-2"), 3))
    b = member("b", owned="1-1", generation=3)
    assert shown(cooperative({"t1": 2}, a, b)) == {"a": "1-0", "b": "1-1"}


def test_librdkafkas_userdata_is_not_taken_for_a_generation() -> None:
    """Its first four bytes count topics. Read as a generation, 300 topics would beat generation 12."""
    owned = [*tps("1-0"), *(TopicPartition(f"u{n}", 0) for n in range(299))]
    b = replace(member("b", owned="1-0"), userdata=write_sticky(owned, 11))
    newer, older = (member("a", owned="1-0", generation=each) for each in (12, 10))
    assert shown(cooperative({"t1": 2}, newer, b)) == {"a": "1-0", "b": "1-1"}
    assert shown(cooperative({"t1": 2}, older, b)) == {"a": "1-1", "b": "1-0"}


@pytest.mark.vector(20)
def test_sticky_reads_its_userdata_and_not_the_owned_list() -> None:
    a = replace(member("a", owned="1-1", generation=9), userdata=write_sticky(tps("1-0"), 3))
    b = replace(member("b"), userdata=write_sticky(tps("1-1"), 3))
    assert shown(StickyAssignor().assign(cluster(t1=2), [b, a])) == {"a": "1-0", "b": "1-1"}


def test_sticky_remembers_its_last_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_userdata(["t1"], owned=(), generation=-1) is None
    assignor.on_assignment(tps("1-1 2-0"), 6)
    assert assignor.subscription_userdata(["t1"], owned=(), generation=6) == write_sticky(tps("1-1 2-0"), 6)


def test_cooperative_userdata_is_the_generation_as_java_writes_it() -> None:
    said = CooperativeStickyAssignor().subscription_userdata(["t1"], owned=tps("1-0"), generation=258)
    assert said == b"\x00\x00\x01\x02"


def test_what_a_member_lists_without_subscribing_is_withheld_until_it_is_revoked() -> None:
    group = Group(view=cluster(t1=1, t2=1))
    group.join(member("a", "t2", owned="1-0", generation=3), member("b", "t1"))
    assert group.round()
    assert shown(group.owned()) == {"a": "2-0", "b": ""}
    assert not group.round()
    assert shown(group.owned()) == {"a": "2-0", "b": "1-0"}


@pytest.mark.requirement("KIP-983/31")
def test_a_delayed_partition_is_withheld_for_as_long_as_it_is_listed() -> None:
    group = Group(view=cluster(t1=4), delayed={"a": frozenset(tps("1-2"))})
    group.join(member("a"))
    group.settle()
    group.join(member("b"))
    for _ in range(5):
        group.round()
        assert shown(group.owned()) in ({"a": "1-0 1-1 1-2", "b": "1-3"}, {"a": "1-0 1-1 1-2", "b": ""})
    group.delayed = {}
    group.settle()
    assert shown(group.owned()) == {"a": "1-0 1-1", "b": "1-2 1-3"}


def test_a_delayed_partition_is_reassigned_when_the_newcomer_leaves() -> None:
    group = Group(view=cluster(t1=4), delayed={"a": frozenset(tps("1-2"))})
    group.join(member("a", owned="1-0 1-1 1-2 1-3", generation=1), member("b"))
    group.round()
    group.leave("b")
    assert group.settle() == 1
    assert shown(group.owned()) == {"a": "1-0 1-1 1-2 1-3"}


def test_a_member_that_lists_a_partition_twice_is_in_no_dispute() -> None:
    assignment = cooperative({"t1": 2}, member("a", owned="1-1 1-1", generation=1), member("b"))
    assert shown(assignment) == {"a": "1-1", "b": "1-0"}


def test_partitions_that_vanished_are_not_kept() -> None:
    assert shown(cooperative({"t1": 1}, member("a", owned="1-0 1-5", generation=1))) == {"a": "1-0"}


def test_no_members_no_assignment() -> None:
    assert CooperativeStickyAssignor().assign(cluster(t1=3), []) == {}
    assert shown(cooperative({}, member("a"), member("b"))) == {"a": "", "b": ""}
