"""Racks (KIP-881): partitions go to members beside their replicas, as far as even loads allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from assignor_group import Group, assert_valid, assignable, member, shown, sizes
from hypothesis import given
from hypothesis import strategies as st

from instride._core.assignors.assignor import Assignment, Assignor, ClusterView, MemberSubscription, Racks
from instride._core.assignors.range import RangeAssignor
from instride._core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor, write_sticky
from instride.records import TopicPartition
from step_counter import steps

BOTH = "t1 t2"
ALL = (RangeAssignor, StickyAssignor, CooperativeStickyAssignor)


def view(racks: Mapping[str, str], **counts: int) -> ClusterView:
    """racks: topic -> the rack of each partition's one replica, in turn; or more than one, joined by "+"."""
    found = {
        TopicPartition(topic, number): tuple(racks[topic].split()[number % len(racks[topic].split())].split("+"))
        for topic, count in counts.items()
        for number in range(count)
    }
    return ClusterView(partitions=counts, racks=found)


def at(rack: str | None, each: MemberSubscription) -> MemberSubscription:
    return replace(each, rack=rack)


def far(cluster: ClusterView, members: list[MemberSubscription], assignment: Assignment) -> int:
    racks = Racks(cluster, members)
    return sum(not racks.near(name, each) for name, given in assignment.items() for each in given)


@pytest.mark.requirement("surface/racks")
@pytest.mark.vector(5)
@pytest.mark.parametrize("assignor", ALL)
def test_topics_of_equal_size_in_two_racks(assignor: type[Assignor]) -> None:
    cluster = view({"t1": "x y", "t2": "x y"}, t1=6, t2=6)
    members = [at("x", member("a", BOTH)), at("y", member("b", BOTH))]
    assignment = assignor().assign(cluster, members)
    assert shown(assignment) == {"a": "1-0 1-2 1-4 2-0 2-2 2-4", "b": "1-1 1-3 1-5 2-1 2-3 2-5"}
    assert far(cluster, members, assignment) == 0


def test_range_keeps_equal_numbers_of_like_topics_together() -> None:
    """t2 alone would go otherwise: near in one topic is not near in both, so these wait and are dealt as ever."""
    cluster = view({"t1": "x x y y", "t2": "y y x x"}, t1=4, t2=4)
    members = [at("x", member("a", BOTH)), at("y", member("b", BOTH))]
    assignment = RangeAssignor().assign(cluster, members)
    assert shown(assignment) == {"a": "1-0 1-1 2-0 2-1", "b": "1-2 1-3 2-2 2-3"}


def test_range_of_one_topic_takes_near_ones_first_and_stays_even() -> None:
    cluster = view({"t1": "x x x y"}, t1=4)
    members = [at("x", member("a")), at("y", member("b"))]
    assert shown(RangeAssignor().assign(cluster, members)) == {"a": "1-0 1-1", "b": "1-2 1-3"}


@pytest.mark.parametrize("assignor", ALL)
@pytest.mark.parametrize("racks", ["x+y", "z", ""])
def test_racks_that_do_not_matter_change_nothing(assignor: type[Assignor], racks: str) -> None:
    """Every replica in every rack; or none where a member is."""
    cluster = view({"t1": racks or "x+y"}, t1=5)
    members = [member("a"), member("b")]
    racked = [at("x", members[0]), at("y", members[1])] if racks else members
    assert assignor().assign(cluster, racked) == assignor().assign(ClusterView(partitions={"t1": 5}), members)


def test_a_member_without_a_rack_is_near_everything() -> None:
    cluster = view({"t1": "x y"}, t1=4)
    members = [at("x", member("a")), member("b")]
    assignment = RangeAssignor().assign(cluster, members)
    assert shown(assignment) == {"a": "1-0 1-2", "b": "1-1 1-3"}


@pytest.mark.requirement("surface/racks")
def test_sticky_puts_nearness_before_what_is_owned() -> None:
    cluster = view({"t1": "x y"}, t1=4)
    a = at("x", replace(member("a"), userdata=write_sticky([TopicPartition("t1", p) for p in (0, 1)], 3)))
    b = at("y", replace(member("b"), userdata=write_sticky([TopicPartition("t1", p) for p in (2, 3)], 3)))
    assert shown(StickyAssignor().assign(cluster, [a, b])) == {"a": "1-0 1-2", "b": "1-1 1-3"}


def test_what_finds_no_room_in_its_rack_stays_where_it_is() -> None:
    cluster = view({"t1": "x x x x y y"}, t1=6)
    a = at("x", member("a", owned="1-0 1-1 1-4", generation=1))
    b = at("y", member("b", owned="1-2 1-3 1-5", generation=1))
    group = Group(view=cluster)
    group.join(a, b)
    group.settle()
    assert far(cluster, [a, b], group.owned()) == 1
    before = group.owned()
    assert not group.round()
    assert group.owned() == before


RACKS = st.sampled_from(["x", "y", "z"])
GROUPS = st.lists(st.tuples(st.sampled_from(["t1", "t1 t2", "t2"]), st.none() | RACKS), min_size=1, max_size=6)
REPLICAS = st.lists(st.sampled_from(["x", "y", "z", "x+y", "y+z"]), min_size=1, max_size=4).map(" ".join)


@pytest.mark.parametrize("assignor", ALL)
@given(group=GROUPS, replicas=st.tuples(REPLICAS, REPLICAS), counts=st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_every_partition_goes_to_one_subscriber(
    assignor: type[Assignor], group: list[tuple[str, str | None]], replicas: tuple[str, str], counts: tuple[int, int]
) -> None:
    cluster = view({"t1": replicas[0], "t2": replicas[1]}, t1=counts[0], t2=counts[1])
    members = [at(rack, member(f"m{n}", topics)) for n, (topics, rack) in enumerate(group)]
    assignment = assignor().assign(cluster, members)
    assert_valid(cluster, members, assignment)
    assert {each for given in assignment.values() for each in given} == assignable(cluster, members)
    if len({each.topics for each in members}) == 1 and assignor is not RangeAssignor:
        assert max(sizes(assignment)) - min(sizes(assignment)) <= 1


@given(racks=st.lists(st.none() | RACKS, min_size=1, max_size=5), replicas=REPLICAS, count=st.integers(0, 12))
def test_a_group_in_racks_settles(racks: list[str | None], replicas: str, count: int) -> None:
    group = Group(view=view({"t1": replicas}, t1=count))
    for n, rack in enumerate(racks):
        group.join(at(rack, member(f"m{n}")))
        assert group.settle() <= 3
    group.leave("m0")
    if group.members:
        assert group.settle() <= 3
    assert sum(sizes(group.owned())) == (count if group.members else 0)


def test_what_is_in_no_members_rack_goes_to_whoever_has_least() -> None:
    """Near for a are four of six, near for b is one: a has room for three, and the last two go where there is room."""
    cluster = view({"t1": "x x x x y z"}, t1=6)
    members = [at("x", member("a")), at("y", member("b"))]
    for assignor in (StickyAssignor, CooperativeStickyAssignor):
        assert shown(assignor().assign(cluster, members)) == {"a": "1-0 1-1 1-2", "b": "1-3 1-4 1-5"}


def test_a_topic_that_every_rack_has_is_cut_as_ever_beside_one_that_is_not() -> None:
    cluster = view({"t1": "x y", "t2": "x+y"}, t1=4, t2=3)
    members = [at("x", member("a", BOTH)), at("y", member("b", BOTH))]
    assignment = RangeAssignor().assign(cluster, members)
    assert shown(assignment) == {"a": "1-0 1-2 2-0 2-1", "b": "1-1 1-3 2-2"}


@pytest.mark.parametrize("assignor", ALL)
def test_twice_the_group_with_racks_takes_about_twice_the_steps(assignor: type[Assignor]) -> None:
    def work(many: int) -> int:
        cluster = view({"t": "x y z"}, t=20 * many)
        members = [
            MemberSubscription(member_id=f"m{number:03}", topics=("t",), rack="xyz"[number % 3])
            for number in range(many)
        ]
        return steps(lambda: assignor().assign(cluster, members))

    few, many = work(15), work(30)
    assert many <= 2.3 * few, f"{few} steps with 15 members, {many} with twice as many"


def test_members_of_different_subscriptions_get_what_is_near_first() -> None:
    cluster = view({"t1": "x y", "t2": "x y"}, t1=4, t2=2)
    members = [
        MemberSubscription(member_id="a", topics=("t1",), rack="y"),
        MemberSubscription(member_id="b", topics=("t1", "t2"), rack="x"),
    ]
    assignment = StickyAssignor().assign(cluster, members)
    assert {name: len(given) for name, given in assignment.items()} == {"a": 3, "b": 3}
    assert far(cluster, members, assignment) == 2, "one more than a has near, and one of t2"
