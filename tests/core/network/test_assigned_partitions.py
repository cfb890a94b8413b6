"""The table of assigned partitions, by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instride._core.network.assigned_partitions import Arrival, AssignedPartition, AssignedPartitions, Phase
from instride._core.network.connections import Backoff
from instride._core.ownership import Ownership
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


class Came:
    """What a fetch brought: three offsets, in so many bytes."""

    def __init__(self, start: int, length: int) -> None:
        self.length, self.next_offset = length, start + 3


def change(table: AssignedPartitions, number: int, what: str) -> None:
    partition = TopicPartition("t", number)
    if what == "assigned":
        if partition not in table:
            add(table, partition)
        return
    assigned = table.get(partition)
    if assigned is None:
        return
    if what == "removed":
        table.remove(partition)
    elif what == "came":
        came: Any = Came(assigned.fetch_offset, 10 ** len(assigned.undecoded))
        assigned.arrived(came, Arrival(), None)
    elif what == "decoded" and assigned.undecoded:
        assigned.offset = assigned.undecoded[0].end
        assigned.decoded()
    elif what == "fetching":
        assigned.phase, assigned.paused, assigned.state = Phase.FETCHING, False, Ownership.OWNED
    elif what == "paused":
        assigned.paused = True
    elif what == "to be revoked":
        assigned.state = Ownership.REVOKE_NEXT
    elif what == "void":
        assigned.undecoded = ()


CHANGES = ["assigned", "removed", "came", "decoded", "fetching", "paused", "to be revoked", "void", "nothing"]


@pytest.mark.rule("20")
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(CHANGES), st.booleans()), max_size=60))
def test_what_is_counted_of_undecoded_ones_is_what_a_walk_over_all_would_find(
    changes: list[tuple[int, str, bool]],
) -> None:
    """Whenever it is asked for; and who looks at those alone that have changed knows all."""
    table = AssignedPartitions()
    known: set[AssignedPartition] = set()
    for number, what, looks in [*((each, "assigned", False) for each in range(3)), *changes, (0, "nothing", True)]:
        change(table, number, what)
        if not looks:
            continue
        changed = set(table.take_undecoded_changed())
        waiting = {each for each in table.values() if each.undecoded}
        known = (known - changed) | (waiting & changed)
        assert known == waiting == set(table.undecoded())
        assert table.any_undecoded == bool(waiting)
        assert table.undecoded_bytes == sum(each.undecoded_bytes for each in waiting)
        assert set(table.held_back()) == {each for each in waiting if not each.fetchable}
