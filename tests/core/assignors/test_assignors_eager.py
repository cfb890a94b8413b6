"""`range` and `roundrobin`: what Kafka's own clients do with the same groups."""

from __future__ import annotations

import pytest
from assignor_group import assert_valid, assignable, cluster, member, shown, sizes
from hypothesis import given
from hypothesis import strategies as st

from instride._core.assignors.assignor import MemberSubscription
from instride._core.assignors.range import RangeAssignor
from instride._core.assignors.roundrobin import RoundRobinAssignor

BOTH = "t1 t2"


@pytest.mark.vector(1)
def test_range_cuts_each_topic_into_contiguous_pieces() -> None:
    view = cluster(t1=3, t2=3)
    assignment = RangeAssignor().assign(view, [member("a", BOTH), member("b", BOTH)])
    assert shown(assignment) == {"a": "1-0 1-1 2-0 2-1", "b": "1-2 2-2"}


@pytest.mark.vector(2)
def test_range_cuts_a_topic_for_its_subscribers_only() -> None:
    members = [member("a", "t1"), member("b", BOTH), member("c", "t1")]
    assignment = RangeAssignor().assign(cluster(t1=3, t2=2), members)
    assert shown(assignment) == {"a": "1-0", "b": "1-1 2-0 2-1", "c": "1-2"}


@pytest.mark.vector(3)
def test_range_puts_static_members_first() -> None:
    members = [member("consumer-a", BOTH), member("consumer-b", BOTH, instance="instance-b")]
    assignment = RangeAssignor().assign(cluster(t1=3, t2=3), members)
    assert shown(assignment) == {"consumer-b": "1-0 1-1 2-0 2-1", "consumer-a": "1-2 2-2"}


@pytest.mark.vector(4)
def test_range_follows_the_instance_ids_when_member_ids_change() -> None:
    def of(*ids: str) -> list[MemberSubscription]:
        return [member(each, "t1", instance=f"i{n}") for n, each in enumerate(ids)]

    before = RangeAssignor().assign(cluster(t1=5), of("x", "y", "z"))
    after = RangeAssignor().assign(cluster(t1=5), of("z", "y", "x"))
    assert [before[each] for each in "xyz"] == [after[each] for each in "zyx"]


def test_range_has_nothing_for_members_beyond_the_partitions() -> None:
    assignment = RangeAssignor().assign(cluster(t1=1), [member("a"), member("b")])
    assert shown(assignment) == {"a": "1-0", "b": ""}


@pytest.mark.vector(6)
def test_roundrobin_deals_over_topic_borders() -> None:
    assignment = RoundRobinAssignor().assign(cluster(t1=3, t2=3), [member("a", BOTH), member("b", BOTH)])
    assert shown(assignment) == {"a": "1-0 1-2 2-1", "b": "1-1 2-0 2-2"}


def test_roundrobin_passes_over_members_without_the_topic() -> None:
    members = [member("a", "t1"), member("b", BOTH), member("c", "t1")]
    assignment = RoundRobinAssignor().assign(cluster(t1=3, t2=2), members)
    assert shown(assignment) == {"a": "1-0", "b": "1-1 2-0 2-1", "c": "1-2"}


@pytest.mark.vector(7)
def test_roundrobin_leaves_static_members_alone_when_a_dynamic_one_is_replaced() -> None:
    static = [member("s1", BOTH, instance="i1"), member("s2", BOTH, instance="i2")]
    before = RoundRobinAssignor().assign(cluster(t1=3, t2=3), [*static, member("d", BOTH)])
    after = RoundRobinAssignor().assign(cluster(t1=3, t2=3), [member("a", BOTH), *static])
    assert [before["s1"], before["s2"], before["d"]] == [after["s1"], after["s2"], after["a"]]


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()])
def test_a_topic_that_the_cluster_lacks_is_nobodys(assignor: RangeAssignor | RoundRobinAssignor) -> None:
    members = [member("a", "t1 t9"), member("b", "t9")]
    assert shown(assignor.assign(cluster(t1=1, t2=1), members)) == {"a": "1-0", "b": ""}
    assert assignor.assign(cluster(t1=1), []) == {}
    assert assignor.subscription_userdata(["t1"], owned=(), generation=3) is None


GROUPS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.tuples(st.sets(st.sampled_from(["t1", "t2", "t3"])), st.none() | st.text("xyz", min_size=1, max_size=2)),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()])
@given(group=GROUPS, counts=st.lists(st.integers(0, 7), min_size=3, max_size=3))
def test_every_partition_goes_to_one_subscriber(
    assignor: RangeAssignor | RoundRobinAssignor,
    group: dict[str, tuple[set[str], str | None]],
    counts: list[int],
) -> None:
    view = cluster(t1=counts[0], t2=counts[1], t3=counts[2])
    members = [
        member(member_id, " ".join(sorted(topics)), instance=instance and f"{instance}-{member_id}")
        for member_id, (topics, instance) in group.items()
    ]
    assignment = assignor.assign(view, members)
    assert_valid(view, members, assignment)
    assert {each for partitions in assignment.values() for each in partitions} == assignable(view, members)
    assert assignor.assign(view, members[::-1]) == assignment


@given(members=st.integers(1, 9), counts=st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_roundrobin_is_even_where_subscriptions_are_identical(members: int, counts: list[int]) -> None:
    group = [member(f"m{n}", BOTH) for n in range(members)]
    dealt = sizes(RoundRobinAssignor().assign(cluster(t1=counts[0], t2=counts[1]), group))
    assert dealt[-1] - dealt[0] <= 1
