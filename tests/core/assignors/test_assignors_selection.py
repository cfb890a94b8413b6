"""Which assignors a consumer offers, and the rebalance protocol that follows (rebalance.md, "Protocols")."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest

from instride._core.assignors.assignor import Assignment, Assignor, ClusterView, MemberSubscription
from instride._core.assignors.selection import ASSIGNORS, common_protocol, pick_assignors
from instride._core.ownership import RebalanceProtocol
from instride.errors import ConfigError, NoAssignorInCommonError
from instride.records import TopicPartition


class Mine:
    """A user's own assignor: everything to the first member."""

    version = 3

    def __init__(self, name: str, *protocols: RebalanceProtocol) -> None:
        self.name = name
        self.protocols = protocols

    def subscription_userdata(
        self, topics: Collection[str], *, owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        return None

    def assign(self, cluster: ClusterView, members: Iterable[MemberSubscription]) -> Assignment:
        first, *others = sorted(each.member_id for each in members)
        everything = [each for topic in cluster.partitions for each in cluster.of_topic(topic)]
        return {first: tuple(everything), **dict.fromkeys(others, ())}

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        pass


def mode(*chosen: str | Assignor) -> RebalanceProtocol:
    return common_protocol(pick_assignors(chosen))


@pytest.mark.requirement("KIP-429/11")
@pytest.mark.vector(24)
@pytest.mark.rule("Protocols: the highest that all configured assignors support")
def test_the_mode_is_the_highest_that_all_support() -> None:
    assert mode("cooperative-sticky") is RebalanceProtocol.COOPERATIVE
    assert mode("range", "cooperative-sticky") is RebalanceProtocol.EAGER
    assert mode("cooperative-sticky", "range", "roundrobin", "sticky") is RebalanceProtocol.EAGER
    both = Mine("mine", RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)
    assert mode(both, "cooperative-sticky") is RebalanceProtocol.COOPERATIVE


@pytest.mark.requirement("KIP-429/11")
@pytest.mark.vector(24)
@pytest.mark.rule("Protocols: none in common is an error at construction")
def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(NoAssignorInCommonError, match="range: eager; mine: cooperative"):
        mode("range", Mine("mine", RebalanceProtocol.COOPERATIVE))
    with pytest.raises(NoAssignorInCommonError, match="mine: none"):
        mode(Mine("mine"))


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ([], "empty"),
        (["cooperative_sticky"], "none is called 'cooperative_sticky'; there are cooperative-sticky, range"),
        (["range", "range"], "'range' twice"),
        ([Mine("\ud800", RebalanceProtocol.EAGER)], "name of one has a character"),
        ([Mine("range", RebalanceProtocol.EAGER), "range"], "'range' twice"),
    ],
)
def test_a_wrong_setting_is_refused(chosen: list[str | Assignor], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        pick_assignors(chosen)


def test_the_order_is_the_users_and_instances_are_fresh() -> None:
    first, second = pick_assignors(["range", "sticky"]), pick_assignors(["range", "sticky"])
    assert [each.name for each in first] == ["range", "sticky"]
    assert first[1] is not second[1]


def test_the_name_of_each_built_in_is_its_own() -> None:
    assert [ASSIGNORS[name]().name for name in ASSIGNORS] == list(ASSIGNORS)
