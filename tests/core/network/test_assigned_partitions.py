"""The table of assigned partitions, by itself."""

from __future__ import annotations

import pytest

from instride._core.network.assigned_partitions import AssignedPartition, AssignedPartitions
from instride._core.network.connections import Backoff
from instride.records import TopicPartition

pytestmark = pytest.mark.part


def no_backoff() -> Backoff:
    raise AssertionError("nothing failed")


def add(table: AssignedPartitions, partition: TopicPartition) -> None:
    table.add(AssignedPartition(partition, 1, no_backoff, table.changed, table.unchecked))


@pytest.mark.rule("20")
def test_the_set_of_topics_is_made_anew_only_where_a_topic_comes_or_goes() -> None:
    """And only when somebody asks for it: made for each topic, it took 20,000 of them a second, in one turn."""
    table = AssignedPartitions()
    for number in range(10):
        add(table, TopicPartition(f"t{number}", 0))
    kept = table.topics
    assert kept == {f"t{number}" for number in range(10)}
    for number in range(10):
        add(table, TopicPartition(f"t{number}", 1))
        assert table.topics is kept
    for number in range(10):
        table.remove(TopicPartition(f"t{number}", 0))
        assert table.topics is kept, "each has a partition left"
    table.remove(TopicPartition("t0", 1))
    assert table.topics == kept - {"t0"}
    table.clear()
    assert table.topics == frozenset()
