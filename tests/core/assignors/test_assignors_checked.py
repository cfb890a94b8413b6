"""What an assignor returns is checked: it may be the user's own code."""

from __future__ import annotations

import pytest
from assignor_group import member

from instride._core.assignors.assignor import ClusterView, checked
from instride.assignors import RangeAssignor
from instride.errors import AssignorError
from instride.records import TopicPartition


class GivesTwice(RangeAssignor):
    """Each member is given all partitions."""

    def assign(self, cluster, members):  # type: ignore[no-untyped-def]
        return {each.member_id: cluster.of_topic("t") for each in members}


def test_a_partition_for_two_members_is_an_error_that_names_all_three() -> None:
    view, members = ClusterView(partitions={"t": 1}), [member("a", "t"), member("b", "t")]
    with pytest.raises(AssignorError, match="'range' assigns t-0 to 'a' and to 'b'"):
        checked(GivesTwice(), view, members)
    assert checked(RangeAssignor(), view, members) == {"a": (TopicPartition("t", 0),), "b": ()}


class GivesNumbers(RangeAssignor):
    """All partitions of a topic in one."""

    def assign(self, cluster, members):  # type: ignore[no-untyped-def]
        return {each.member_id: [("t", [0, 1])] for each in members}


def test_what_is_no_partition_is_an_error_that_names_assignor_and_member() -> None:
    with pytest.raises(AssignorError, match=r"'range' gives \[\('t', \[0, 1\]\)\].* to 'a': give TopicPartitions"):
        checked(GivesNumbers(), ClusterView(partitions={"t": 2}), [member("a", "t")])
