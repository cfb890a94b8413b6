"""Every transition of a query in group mode: what it owns, plans, confirms, commits and releases. Nothing real here."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader

from instride.errors import ConfigError, IllegalStateError
from instride.records import TopicPartition
from instride.spark._data_source import source_schema, stream_reader
from instride.spark._data_source.group_table import GroupTable
from instride.spark._data_source.offsets import BatchPlan, GroupMark, Span

MARK = GroupMark(group="g", subscribed="t", run="0123456789abcdef")
NOTHING = BatchPlan()


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def owning(offsets: dict[int, tuple[int, int]]) -> GroupTable:
    """A table with these partitions: (committed, end of the log)."""
    table = GroupTable()
    table.assigned([tp(number) for number in offsets])
    for number, (committed, end) in offsets.items():
        table.place(tp(number), committed=committed, start=0)
        table.offered(tp(number), end)
    return table


def take(table: GroupTable, follows: BatchPlan) -> BatchPlan:
    """Plan everything that is free."""
    made = table.plan(follows, lambda free: BatchPlan(free, {"t": "id"}, MARK))
    assert made is not None
    return made


def commit(table: GroupTable) -> dict[int, int]:
    """What is owed, as committed."""
    owed = table.owed
    table.committed(owed)
    return {partition.partition: offset for partition, offset in owed.items()}


def spans(plan: BatchPlan) -> dict[int, tuple[int, int]]:
    return {each.partition: (span.start, span.end) for each, span in plan.spans.items()}


# -- assigned and placed


def test_a_partition_begins_where_the_group_says() -> None:
    table = GroupTable()
    table.assigned([tp(1), tp(0)])
    assert table.unplaced == [tp(0), tp(1)]
    assert table.free() == {}
    assert table.place(tp(0), committed=7, start=99) == 7
    assert table.unplaced == [tp(1)]
    assert table.free() == {tp(0): Span(7, 7)}
    assert table.owed == {}


def test_where_the_group_says_nothing_the_start_is_committed_before_the_first_plan() -> None:
    """A crash in the first batch would lose what came after "latest" else."""
    table = owning({1: (5, 9)})
    table.assigned([tp(0)])
    assert table.place(tp(0), committed=None, start=40) == 40
    assert table.plan(NOTHING, lambda free: pytest.fail("planned before the start was committed")) is None
    assert table.kept([tp(0)]) == {tp(0)}
    assert commit(table) == {0: 40}
    assert spans(take(table, NOTHING)) == {0: (40, 40), 1: (5, 9)}


@pytest.mark.requirement("source/regain")
def test_a_partition_that_comes_back_is_placed_anew() -> None:
    table = owning({0: (5, 9)})
    table.gone([tp(0)])
    assert table.free() == {}
    table.assigned([tp(0)])
    assert table.unplaced == [tp(0)]
    table.place(tp(0), committed=8, start=0)
    assert table.free() == {tp(0): Span(8, 8)}


def test_what_a_log_ends_at_never_goes_back() -> None:
    table = owning({0: (5, 9)})
    table.offered(tp(0), 7)
    assert table.free() == {tp(0): Span(5, 9)}


# -- planned


def test_nothing_is_planned_where_the_choice_is_nothing() -> None:
    table = owning({0: (5, 9)})
    assert table.plan(NOTHING, lambda free: None) is None
    assert table.settled


def test_one_batch_is_in_flight_and_the_same_request_has_the_same_response() -> None:
    table = owning({0: (5, 9)})
    first = take(table, NOTHING)
    table.offered(tp(0), 20)
    table.confirm(NOTHING)
    assert table.plan(NOTHING, lambda free: pytest.fail("planned twice")) == first
    assert table.plan(BatchPlan({tp(0): Span(1, 2)}), lambda free: pytest.fail("planned twice")) is None
    assert table.replay(NOTHING, first).spans == first.spans


def test_a_partition_to_be_revoked_is_in_no_new_plan() -> None:
    table = owning({0: (5, 9), 1: (3, 4)})
    table.requested([tp(0)])
    assert table.free() == {tp(1): Span(3, 4)}
    table.requested([])
    assert table.free() == {tp(0): Span(5, 9), tp(1): Span(3, 4)}


# -- confirmed and committed


def test_what_is_confirmed_is_committed_before_more_is_planned() -> None:
    table = owning({0: (5, 9), 1: (3, 3)})
    first = take(table, NOTHING)
    table.offered(tp(0), 12)
    table.confirm(first)
    assert not table.settled
    assert table.free() == {}
    assert table.plan(first, lambda free: pytest.fail("planned before the commit")) is None
    table.committed({tp(0): 8})
    assert table.owed == {tp(0): 9}, "an older commit does not count"
    assert commit(table) == {0: 9}
    assert spans(take(table, first)) == {0: (9, 12), 1: (3, 3)}


def test_a_batch_is_confirmed_once() -> None:
    table = owning({0: (5, 9)})
    first = take(table, NOTHING)
    table.confirm(first)
    commit(table)
    table.confirm(first)
    assert table.owed == {}


def test_a_request_about_a_batch_that_it_never_gave_is_refused() -> None:
    table = owning({0: (5, 9)})
    take(table, NOTHING)
    with pytest.raises(IllegalStateError, match="start the query anew"):
        table.confirm(BatchPlan({tp(0): Span(1, 2)}, {}, MARK))
    with pytest.raises(IllegalStateError, match="start the query anew"):
        table.replay(NOTHING, BatchPlan({tp(0): Span(1, 2)}, {}, MARK))


def test_before_the_first_batch_of_a_run_there_is_nothing_to_confirm() -> None:
    """The checkpoint claims what may have been left out of a replay: only the group's offset counts."""
    table = owning({0: (5, 9)})
    table.confirm(BatchPlan({tp(0): Span(5, 8)}, {}, MARK))
    assert table.owed == {}
    assert table.free() == {tp(0): Span(5, 9)}


# -- kept and released


@pytest.mark.requirement("source/revoke")
def test_a_partition_is_kept_until_its_batch_is_committed_and_no_longer() -> None:
    table = owning({0: (5, 9), 1: (3, 3)})
    first = table.plan(NOTHING, lambda free: BatchPlan({tp(0): free[tp(0)]}, {"t": "id"}, MARK))
    assert first is not None
    both = [tp(0), tp(1)]
    table.requested(both)
    assert table.kept(both) == {tp(0)}, "what the batch does not read is released at once"
    table.confirm(first)
    assert table.kept(both) == {tp(0)}, "its offset is not committed yet"
    commit(table)
    assert table.kept(both) == set()
    table.gone(both)
    assert table.free() == {}


@pytest.mark.requirement("source/revoke")
def test_the_others_flow_on_while_one_is_handed_over() -> None:
    table = owning({0: (5, 9), 1: (3, 6)})
    first = take(table, NOTHING)
    table.requested([tp(0)])
    table.offered(tp(0), 20)
    table.offered(tp(1), 10)
    table.confirm(first)
    commit(table)
    assert spans(take(table, first)) == {1: (6, 10)}


def test_of_a_lost_partition_nothing_is_committed() -> None:
    table = owning({0: (5, 9), 1: (3, 6)})
    first = take(table, NOTHING)
    table.gone([tp(0)])
    assert table.kept([tp(0)]) == set()
    table.confirm(first)
    assert table.owed == {tp(1): 6}
    table.gone([tp(1)])
    assert table.owed == {}


@pytest.mark.requirement("source/regain")
def test_a_lost_partition_that_comes_back_goes_on_behind_what_its_batch_read() -> None:
    table = owning({0: (5, 9)})
    first = take(table, NOTHING)
    table.gone([tp(0)])
    table.assigned([tp(0)])
    table.place(tp(0), committed=6, start=0)
    table.confirm(first)
    assert commit(table) == {0: 9}
    assert table.free() == {tp(0): Span(9, 9)}


def test_a_lost_partition_that_comes_back_goes_on_where_another_got_to() -> None:
    table = owning({0: (5, 9)})
    first = take(table, NOTHING)
    table.gone([tp(0)])
    table.assigned([tp(0)])
    table.confirm(first)
    assert table.owed == {}, "where the group is now is not known yet"
    table.place(tp(0), committed=30, start=0)
    assert table.free() == {tp(0): Span(30, 30)}


# -- replayed


PENDING = BatchPlan({tp(0): Span(5, 9), tp(1): Span(3, 6)}, {"t": "id"}, MARK)


def replaying(offsets: dict[int, int | None]) -> GroupTable:
    """After a restart: these partitions are assigned, with the group's offsets."""
    table = GroupTable()
    table.pending(PENDING)
    table.assigned([tp(number) for number in offsets])
    for number, committed in offsets.items():
        table.place(tp(number), committed=committed, start=100)
    return table


@pytest.mark.requirement("source/batch-0")
def test_a_pending_batch_is_read_again_as_planned() -> None:
    table = replaying({0: 5, 1: 3})
    assert table.replay(NOTHING, PENDING).spans == PENDING.spans
    assert table.replay(NOTHING, PENDING).topic_ids == {"t": "id"}
    assert table.kept([tp(0), tp(1)]) == {tp(0), tp(1)}
    table.confirm(PENDING)
    assert commit(table) == {0: 9, 1: 6}


def test_what_another_owns_now_is_left_out_and_never_committed() -> None:
    table = replaying({1: 3})
    assert spans(table.replay(NOTHING, PENDING)) == {1: (3, 6)}
    table.assigned([tp(0)])
    table.place(tp(0), committed=5, start=0)
    table.confirm(PENDING)
    assert commit(table) == {1: 6}
    assert table.free()[tp(0)] == Span(5, 5)


@pytest.mark.parametrize(
    ("committed", "read"),
    [
        (5, {0: (5, 9)}),
        (7, {0: (7, 9)}),  # another owned it meanwhile, and got so far
        (9, {}),  # and so far: all of it
        (20, {}),
        (2, {}),  # the group was moved back: it is read from there on
        (None, {0: (5, 9)}),  # the group has forgotten: the checkpoint has not
    ],
)
def test_what_the_group_has_already_is_not_read_again(committed: int | None, read: dict[int, tuple[int, int]]) -> None:
    table = replaying({0: committed})
    assert spans(table.replay(NOTHING, PENDING)) == read


def test_a_replay_of_nothing_holds_up_nothing() -> None:
    table = replaying({})
    table.replay(NOTHING, PENDING)
    assert table.settled
    table.confirm(PENDING)
    assert table.owed == {}


# -- checkpoints


def end_of(**given: str) -> dict[str, Any]:
    mark = GroupMark(**{"group": "g", "subscribed": "t", "run": "0123456789abcdef", **given})
    return BatchPlan({tp(0): Span(1, 2)}, {"t": "id"}, mark).to_json()


def reader(**given: str) -> DataSourceStreamReader:
    options = {"kafka.bootstrap.servers": "nowhere:1", **given}
    return stream_reader(options, source_schema(options))


def test_an_end_offset_comes_back_as_it_was() -> None:
    data = end_of()
    assert BatchPlan.from_json(json.loads(json.dumps(data))).to_json() == data


@pytest.mark.parametrize(
    ("given", "end", "message"),
    [
        ({"subscribe": "t", "consumerGroup": "g"}, end_of(group="h"), "the checkpoint is of the group 'h'"),
        ({"subscribe": "t", "consumerGroup": "g"}, end_of(subscribed="u"), "of a query that reads u"),
        ({"subscribePattern": "t", "consumerGroup": "g"}, end_of(), "and this one reads pattern t"),
        (
            {"subscribe": "t", "consumerGroup": "g"},
            BatchPlan({tp(0): Span(1, 2)}, {"t": "id"}).to_json(),
            "of a query without consumerGroup",
        ),
        ({"subscribe": "t"}, end_of(), "this one has no consumerGroup"),
    ],
)
def test_a_checkpoint_of_another_kind_is_refused_before_anything_else(
    given: dict[str, str], end: dict[str, Any], message: str
) -> None:
    made = reader(**given)
    with pytest.raises(ConfigError, match=message):
        made.partitions(made.initialOffset(), end)
    if "consumerGroup" in given:
        with pytest.raises(ConfigError, match=message):
            made.latestOffset(end, made.getDefaultReadLimit())


def test_a_reader_is_pickled_before_it_is_asked() -> None:
    assert pickle.loads(pickle.dumps(reader(subscribe="t", consumerGroup="g"))).initialOffset() == NOTHING.to_json()
