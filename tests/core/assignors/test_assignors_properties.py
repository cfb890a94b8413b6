"""What the cooperative assignor promises of every group: validity, safety, balance, stickiness, convergence."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from assignor_group import Group, assert_valid, assignable, cluster, member, sizes
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from instride._core.assignors.assignor import Assignment, ClusterView, MemberSubscription
from instride._core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor, write_sticky
from instride.records import TopicPartition

TOPICS = ["t1", "t2", "t3", "t4"]
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in TOPICS})
IDS = st.sampled_from("abcdefgh")
SUBSCRIPTION = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda topics: " ".join(sorted(topics)))
LISTED = st.sets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 7)), max_size=12)

# Members that list whatever they like, in whatever generation: an assignor must survive every group.
CHAOS = st.dictionaries(IDS, st.tuples(SUBSCRIPTION, LISTED, st.integers(-1, 3)), min_size=1).map(
    lambda group: [
        replace(member(name, topics, generation=generation), owned=tuple(sorted(listed)))
        for name, (topics, listed, generation) in group.items()
    ]
)
# A step of a group's life: who is there afterwards, with which subscription.
LIFE = st.lists(st.dictionaries(IDS, SUBSCRIPTION, min_size=1), min_size=1, max_size=4)
EQUAL_LIFE = st.lists(st.sets(IDS, min_size=1), min_size=1, max_size=5).map(
    lambda steps: [dict.fromkeys(sorted(step), "t1 t2 t3 t4") for step in steps]
)


def assign(view: ClusterView, members: list[MemberSubscription]) -> Assignment:
    return CooperativeStickyAssignor().assign(view, members)


def step(group: Group, wanted: dict[str, str]) -> None:
    for gone in group.members.keys() - wanted.keys():
        group.leave(gone)
    for name, topics in wanted.items():
        known = group.members.get(name, member(name))
        group.join(replace(known, topics=tuple(topics.split())))


@given(counts=COUNTS, members=CHAOS)
def test_every_group_gets_a_valid_assignment(counts: dict[str, int], members: list[MemberSubscription]) -> None:
    view = cluster(**counts)
    assignment = assign(view, members)
    assert_valid(view, members, assignment)
    granted = {each for partitions in assignment.values() for each in partitions}
    listed = {each for one in members for each in one.owned}
    assert assignable(view, members) - granted <= listed


@pytest.mark.requirement("KIP-429/13")
@given(counts=COUNTS, members=CHAOS)
def test_nothing_is_granted_that_another_claimant_holds(
    counts: dict[str, int], members: list[MemberSubscription]
) -> None:
    for member_id, partitions in assign(cluster(**counts), members).items():
        own = {each: one.generation for one in members if one.member_id == member_id for each in one.owned}
        for other in members:
            for partition in set(partitions) & set(other.owned):
                assert other.member_id == member_id or own.get(partition, -2) > other.generation


@given(counts=COUNTS, members=CHAOS, order=st.randoms(use_true_random=False))
def test_the_members_order_makes_no_difference(
    counts: dict[str, int], members: list[MemberSubscription], order: Random
) -> None:
    view = cluster(**counts)
    assert assign(view, members) == assign(view, order.sample(members, len(members)))


@given(counts=COUNTS, life=LIFE)
def test_two_rounds_settle_any_change(counts: dict[str, int], life: list[dict[str, str]]) -> None:
    group = Group(view=cluster(**counts))
    for wanted in life:
        step(group, wanted)
        assert group.settle() <= 2
        owned = {each for partitions in group.owned().values() for each in partitions}
        assert owned == assignable(group.view, group.members.values())


@given(counts=COUNTS, life=LIFE)
def test_a_settled_group_stays_as_it_is(counts: dict[str, int], life: list[dict[str, str]]) -> None:
    group = Group(view=cluster(**counts))
    for wanted in life:
        step(group, wanted)
        group.settle()
    before = group.owned()
    assert group.settle() == 1
    assert group.owned() == before


@given(counts=COUNTS, life=EQUAL_LIFE)
def test_identical_subscriptions_differ_by_one_at_most(counts: dict[str, int], life: list[dict[str, str]]) -> None:
    group = Group(view=cluster(**counts))
    for wanted in life:
        step(group, wanted)
        group.settle()
        dealt = sizes(group.owned())
        assert dealt[-1] - dealt[0] <= 1


@given(counts=COUNTS, life=EQUAL_LIFE)
def test_identical_subscriptions_move_no_more_than_the_quotas_ask(
    counts: dict[str, int], life: list[dict[str, str]]
) -> None:
    """A member gives up only what it has above its quota; the larger quotas go to those that can use them."""
    group = Group(view=cluster(**counts))
    for wanted in life:
        step(group, wanted)
        before = group.owned()
        group.settle()
        after = group.owned()
        quota, longer = divmod(sum(counts.values()), len(after))
        surplus = [max(0, len(before[each]) - quota) for each in before]
        needed = sum(surplus) - min(longer, sum(each > 0 for each in surplus))
        assert sum(len(set(before[each]) - set(after[each])) for each in before) == needed


def loads_are_optimal(members: list[MemberSubscription], assignment: Assignment) -> bool:
    """No chain of moves leads from a member to one with two fewer: tried by brute force over all chains."""
    topics = {each.member_id: set(each.topics) for each in members}
    passes_to = {
        (giver, taker)
        for giver, own in assignment.items()
        for taker in topics
        if giver != taker and any(each.topic in topics[taker] for each in own)
    }
    reach = {(one, one) for one in topics} | passes_to
    for middle in topics:
        reach |= {(a, b) for a in topics for b in topics if (a, middle) in reach and (middle, b) in reach}
    return all(len(assignment[a]) - len(assignment[b]) < 2 for a, b in reach)


@given(counts=COUNTS, life=LIFE)
def test_different_subscriptions_are_as_even_as_can_be(counts: dict[str, int], life: list[dict[str, str]]) -> None:
    group = Group(view=cluster(**counts))
    for wanted in life:
        step(group, wanted)
        group.settle()
        assert loads_are_optimal(list(group.members.values()), group.owned())


@given(counts=COUNTS, wanted=st.dictionaries(IDS, SUBSCRIPTION, min_size=2, max_size=4))
def test_different_subscriptions_move_nothing_that_is_even_already(
    counts: dict[str, int], wanted: dict[str, str]
) -> None:
    """Two equally loaded groups that differ in who owns what: each keeps its own."""
    view = cluster(**counts)
    group = Group(view=view)
    step(group, wanted)
    group.settle()
    members = list(group.members.values())
    for one, two in combinations(range(len(members)), 2):
        swapped = [*members]
        a, b = members[one], members[two]
        mine = [each for each in a.owned if each.topic in b.topics]
        yours = [each for each in b.owned if each.topic in a.topics]
        assume(bool(mine) and bool(yours))
        swapped[one] = replace(a, owned=tuple(sorted({*a.owned, yours[0]} - {mine[0]})))
        swapped[two] = replace(b, owned=tuple(sorted({*b.owned, mine[0]} - {yours[0]})))
        assert assign(view, swapped) == {each.member_id: each.owned for each in swapped}


@given(counts=COUNTS, members=CHAOS)
def test_sticky_grants_everything_at_once(counts: dict[str, int], members: list[MemberSubscription]) -> None:
    view = cluster(**counts)
    told = [replace(each, owned=(), userdata=write_sticky(each.owned, each.generation)) for each in members]
    assignment = StickyAssignor().assign(view, told)
    assert_valid(view, told, assignment)
    assert {each for own in assignment.values() for each in own} == assignable(view, told)
    assert loads_are_optimal(told, assignment)


@settings(max_examples=25)
@given(
    counts=COUNTS,
    wanted=st.dictionaries(IDS, SUBSCRIPTION, min_size=2, max_size=5),
    late=st.sets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 5)), max_size=5),
    rounds=st.integers(1, 4),
)
def test_whoever_delays_whatever_no_partition_has_two_owners(
    counts: dict[str, int], wanted: dict[str, str], late: set[TopicPartition], rounds: int
) -> None:
    """`Group` checks after every round that no partition is owned twice; afterwards all settles as ever."""
    first, *others = wanted
    group = Group(view=cluster(**counts))
    step(group, {first: " ".join(TOPICS)})
    group.settle()
    group.delayed = {first: frozenset(late)}
    for count in range(len(others) + 1):
        step(group, {name: wanted[name] for name in [first, *others[:count]]})
        for _ in range(rounds):
            group.round()
    group.delayed = {}
    assert group.settle() <= 2


def test_a_thousand_members_and_ten_thousand_partitions() -> None:
    """Speed is the benchmark's to judge; here the assignment has to be right, and to come at all."""
    view = ClusterView(partitions={f"t{n}": 100 for n in range(100)})
    everything = " ".join(view.partitions)
    group = Group(view=view)
    group.join(*(member(f"m{n:04}", everything) for n in range(999)))
    group.settle()
    group.join(member("m0999", everything))
    before = group.owned()
    assert group.settle() <= 2
    after = group.owned()
    assert sizes(after) == [10] * 1000
    assert sum(len(set(before[each]) - set(after[each])) for each in before) == 10


def test_a_thousand_members_with_different_subscriptions() -> None:
    """KAFKA-15106: such a group made the search go on for ever."""
    view = ClusterView(partitions={f"t{n}": 100 for n in range(100)})
    group = Group(view=view)
    for n in range(1000):
        group.join(member(f"m{n:04}", " ".join(f"t{topic}" for topic in range(100) if (topic * 7 + n) % 3)))
    group.settle()
    group.leave("m0500")
    assert group.settle() <= 2
    assert loads_are_optimal_by_topics(group)


def loads_are_optimal_by_topics(group: Group) -> bool:
    """No single move helps. (All chains of 1,000 members would take too long.)"""
    owned = group.owned()
    lightest = {
        topic: min(len(owned[one.member_id]) for one in group.members.values() if topic in one.topics)
        for topic in group.view.partitions
    }
    return all(len(own) - lightest[each.topic] < 2 for own in owned.values() for each in own)
