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
from instride.spark._data_source.group_table import Committed, GroupTable
from instride.spark._data_source.offsets import BatchPlan, GroupMark, Span

MARK = GroupMark(group="g", subscribed="t", run="0123456789abcdef")
NOTHING = BatchPlan()


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def at(offset: int, run: str = "") -> Committed:
    """What the group has. run: that committed it."""
    return Committed(offset, run)


def owning(offsets: dict[int, tuple[int, int]]) -> GroupTable:
    """A table with these partitions: (committed, end of the log)."""
    table = GroupTable()
    table.assigned([tp(number) for number in offsets])
    for number, (committed, end) in offsets.items():
        table.place(tp(number), committed=at(committed), start=0)
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


def replay(table: GroupTable, end: BatchPlan, others: dict[int, Committed | None] | None = None) -> Any:
    """What it reads of the batch; "later": it cannot tell yet. others: what the group has of those it does not own."""
    reads = table.replay(NOTHING, end, {tp(number): found for number, found in (others or {}).items()})
    return "later" if reads is None else spans(reads)


def spans(plan: BatchPlan) -> dict[int, tuple[int, int]]:
    return {each.partition: (span.start, span.end) for each, span in plan.spans.items()}


# -- assigned and placed


def test_a_partition_begins_where_the_group_says() -> None:
    table = GroupTable()
    table.assigned([tp(1), tp(0)])
    assert table.unplaced == [tp(0), tp(1)]
    assert table.free() == {}
    assert table.place(tp(0), committed=at(7), start=99) == 7
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
    table.place(tp(0), committed=at(8), start=0)
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
    assert replay(table, first) == spans(first)


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
        table.replay(NOTHING, BatchPlan({tp(0): Span(1, 2)}, {}, MARK), {})


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
@pytest.mark.parametrize("committed", [at(6), at(2), at(5, "2" * 16)])
def test_a_lost_partition_that_was_touched_goes_on_where_the_group_says(committed: Committed) -> None:
    """Somebody has set the offset back, or another run's attempt at the batch, which the sink has, is without it."""
    table = owning({0: (5, 9)})
    first = take(table, NOTHING)
    table.gone([tp(0)])
    table.assigned([tp(0)])
    table.place(tp(0), committed=committed, start=0)
    commit(table)
    table.confirm(first)
    assert table.owed == {}
    assert table.free() == {tp(0): Span(committed.offset, committed.offset)}


def test_a_lost_partition_that_comes_back_goes_on_where_another_got_to() -> None:
    table = owning({0: (5, 9)})
    first = take(table, NOTHING)
    table.gone([tp(0)])
    table.assigned([tp(0)])
    table.confirm(first)
    assert table.owed == {}, "where the group is now is not known yet"
    table.place(tp(0), committed=at(30), start=0)
    assert table.free() == {tp(0): Span(30, 30)}


# -- replayed


PENDING = BatchPlan({tp(0): Span(5, 9), tp(1): Span(3, 6)}, {"t": "id"}, MARK)
RUN, NEW, OTHER = MARK.run, "1" * 16, "2" * 16
"""The run that planned this batch, the one that goes on with its checkpoint, and one of another application."""


def untouched(number: int) -> Committed:
    """What the group has of it while nobody has taken it over since the batch was planned."""
    return at(PENDING.spans[tp(number)].start, RUN)


def place(table: GroupTable, offsets: dict[int, Committed | None], topic_id: str = "id") -> None:
    """It is assigned these. offsets: what the group has of them."""
    table.assigned([tp(number) for number in offsets])
    for number, committed in offsets.items():
        table.place(tp(number), committed=committed, start=100, topic_id=topic_id)


def replaying(offsets: dict[int, Committed | None]) -> GroupTable:
    """After a restart, with a batch that Spark has not committed."""
    table = GroupTable()
    table.pending(PENDING)
    table.begins(NEW)
    place(table, offsets)
    return table


@pytest.mark.requirement("source/batch-0")
def test_a_pending_batch_is_read_again_as_planned() -> None:
    table = replaying({0: untouched(0), 1: untouched(1)})
    assert table.replay(NOTHING, PENDING, {}) == BatchPlan(PENDING.spans, {"t": "id"})
    assert table.kept([tp(0), tp(1)]) == {tp(0), tp(1)}
    assert commit(table) == {}, "what is untouched stays so: it may be replayed once more"
    table.confirm(PENDING)
    assert commit(table) == {0: 9, 1: 6}
    assert (table.run_of(tp(0)), table.run_of(tp(1))) == (NEW, NEW)


def test_what_another_owns_now_is_left_out_and_never_committed() -> None:
    table = replaying({1: untouched(1)})
    assert replay(table, PENDING, {0: at(5, OTHER)}) == {1: (3, 6)}
    table.assigned([tp(0)])
    table.place(tp(0), committed=at(5, OTHER), start=0)
    table.confirm(PENDING)
    assert commit(table) == {0: 5, 1: 6}
    assert table.free()[tp(0)] == Span(5, 5)


@pytest.mark.parametrize(
    ("committed", "goes_on"),
    [
        (at(5, OTHER), 5),  # another owned it meanwhile, and read nothing
        (at(5), 5),  # somebody has set the group's offset
        (at(7, OTHER), 7),
        (at(9, OTHER), 9),
        (at(20), 20),
        (at(2), 2),
        (None, 5),  # the group has forgotten: the checkpoint has not
    ],
)
def test_what_is_touched_is_read_from_the_groups_offset_in_the_next_batch(
    committed: Committed | None, goes_on: int
) -> None:
    """An attempt that the sink has kept may have left it out: no later attempt may claim to have read it."""
    table = replaying({0: committed})
    assert replay(table, PENDING, {1: None}) == {}
    assert table.owed == {tp(0): goes_on}
    assert table.run_of(tp(0)) == NEW
    table.confirm(PENDING)
    assert commit(table) == {0: goes_on}
    assert table.free() == {tp(0): Span(goes_on, goes_on)}


@pytest.mark.parametrize(
    ("elsewhere", "read"),
    [
        ({}, "later"),  # not looked up yet
        ({0: at(5, RUN)}, "later"),  # between two owners
        ({0: at(5, OTHER)}, {1: (3, 6)}),
        ({0: at(5)}, {1: (3, 6)}),
        ({0: at(9, RUN)}, {1: (3, 6)}),
        ({0: None}, {1: (3, 6)}),
    ],
)
def test_a_replay_waits_until_what_it_leaves_out_is_taken_over(
    elsewhere: dict[int, Committed | None], read: Any
) -> None:
    """Spark's checkpoint will claim that the batch was read, with that partition."""
    table = replaying({1: untouched(1)})
    assert table.elsewhere(PENDING) == [tp(0)]
    assert replay(table, PENDING, elsewhere) == read


def test_a_replay_waits_for_what_is_assigned_and_not_placed_yet() -> None:
    table = replaying({1: untouched(1)})
    table.assigned([tp(0)])
    assert replay(table, PENDING, {0: untouched(0)}) == "later"
    table.place(tp(0), committed=untouched(0), start=0)
    assert replay(table, PENDING) == {0: (5, 9), 1: (3, 6)}
    table.gone([tp(0)])
    assert table.elsewhere(PENDING) == [], "what is in flight is decided"
    assert replay(table, PENDING) == {0: (5, 9), 1: (3, 6)}


def test_a_replay_of_nothing_holds_up_nothing() -> None:
    table = replaying({})
    assert replay(table, PENDING, {0: at(9), 1: None}) == {}
    assert table.settled
    table.confirm(PENDING)
    assert table.owed == {}


def test_a_replay_of_nothing_but_empty_spans_waits_for_nobody() -> None:
    table = GroupTable()
    assert replay(table, BatchPlan({tp(0): Span(5, 5)}, {"t": "id"}, MARK)) == {}


# -- taken over: the group knows who was the last


def test_what_is_assigned_is_taken_over_before_anything_of_it_is_planned() -> None:
    table = GroupTable()
    table.begins(NEW)
    place(table, {0: at(5, OTHER)})
    table.offered(tp(0), 9)
    assert table.plan(NOTHING, lambda free: pytest.fail("planned before it was taken over")) is None
    assert table.run_of(tp(0)) == NEW
    assert commit(table) == {0: 5}
    assert spans(take(table, NOTHING)) == {0: (5, 9)}


def test_what_comes_back_to_its_run_with_nobody_between_is_not_taken_over_again() -> None:
    table = GroupTable()
    table.begins(NEW)
    place(table, {0: at(5, NEW)})
    assert (table.owed, table.run_of(tp(0))) == ({}, NEW)


def planned_by(run: str) -> tuple[GroupTable, BatchPlan]:
    """A run with a batch in flight."""
    table = GroupTable()
    table.confirm(NOTHING)
    table.begins(run)
    place(table, {0: at(5, run)})
    table.offered(tp(0), 9)
    made = table.plan(NOTHING, lambda free: BatchPlan(free, {"t": "id"}, GroupMark(group="g", subscribed="t", run=run)))
    assert made is not None
    table.gone([tp(0)])
    return table, made


@pytest.mark.parametrize("between", [OTHER, ""])
def test_a_run_does_not_undo_that_its_batch_was_touched(between: str) -> None:
    """Its driver may be gone, and the next run's replay may have left the partition out."""
    table, batch = planned_by(RUN)
    place(table, {0: at(5, between)})
    assert (table.owed, table.run_of(tp(0))) == ({tp(0): 5} if between else {}, "")
    commit(table)
    table.confirm(batch)
    assert (table.owed, table.run_of(tp(0))) == ({}, "")


def test_nor_does_it_once_the_batch_is_confirmed() -> None:
    table, batch = planned_by(RUN)
    table.confirm(batch)
    place(table, {0: at(5)})
    assert (table.owed, table.run_of(tp(0))) == ({}, ""), "somebody wants it to be read again"


def test_what_comes_back_elsewhere_or_untouched_is_in_the_runs_name() -> None:
    table, _ = planned_by(RUN)
    place(table, {0: at(7, OTHER)})
    assert (table.owed, table.run_of(tp(0))) == ({tp(0): 7}, RUN)
    table.gone([tp(0)])
    place(table, {0: at(5, RUN)})
    assert (table.owed, table.run_of(tp(0))) == ({}, RUN)


# -- finished: Spark has committed the last batch, and the group never heard of it


def test_what_was_lost_while_spark_read_it_and_nobody_touched_is_not_read_again() -> None:
    """The coordinator was away for longer than a session."""
    table, batch = planned_by(RUN)
    table.confirm(batch)
    place(table, {0: at(5, RUN)})
    assert commit(table) == {0: 9}
    assert table.free() == {tp(0): Span(9, 9)}


def test_nor_where_it_is_back_before_spark_is_done_placed_or_not() -> None:
    for is_placed in (False, True):
        table, batch = planned_by(RUN)
        table.assigned([tp(0)])
        if is_placed:
            table.place(tp(0), committed=at(5, RUN), start=0, topic_id="id")
        table.confirm(batch)
        if not is_placed:
            table.place(tp(0), committed=at(5, RUN), start=0, topic_id="id")
        assert commit(table) == {0: 9}


def test_nor_of_a_batch_that_was_replayed() -> None:
    table = replaying({0: untouched(0)})
    assert replay(table, PENDING, {1: at(3, OTHER)}) == {0: (5, 9)}
    table.gone([tp(0)])
    table.confirm(PENDING)
    place(table, {0: untouched(0)})
    assert (table.owed, table.run_of(tp(0))) == ({tp(0): 9}, NEW)


def test_what_was_set_back_is_read_anew_though_it_stands_there_in_the_runs_name() -> None:
    """Behind a batch that this run has planned since, it takes the partition over where somebody has set it."""
    table, batch = planned_by(RUN)
    table.confirm(batch)
    table.assigned([tp(1)])
    table.place(tp(1), committed=at(0, RUN), start=0)
    table.offered(tp(1), 4)
    table.confirm(second := take(table, batch))
    commit(table)
    place(table, {0: at(5)})
    assert (commit(table), table.run_of(tp(0))) == ({0: 5}, RUN)
    table.gone([tp(0)])
    place(table, {0: at(5, RUN)})
    assert (table.owed, table.free()[tp(0)]) == ({}, Span(5, 5)), second


def test_what_was_touched_is_not_claimed_by_a_batch_that_a_sink_may_lack() -> None:
    """Two drivers of one checkpoint: the second one's replay is in the sink, and the first one's batch is ignored."""
    one, batch = planned_by(RUN)
    place(one, {0: at(5, OTHER)})
    assert (commit(one), one.run_of(tp(0))) == ({0: 5}, "")
    two = GroupTable()
    two.pending(batch)
    two.begins(NEW)
    assert replay(two, batch, {0: at(5)}) == {}
    one.confirm(batch)
    assert one.owed == {}


def finished(offsets: dict[int, Committed | None], topic_id: str = "id", done: BatchPlan = PENDING) -> GroupTable:
    """After a restart, with a last batch that Spark has committed."""
    table = GroupTable()
    table.confirm(done)
    table.begins(NEW)
    place(table, offsets, topic_id)
    return table


def test_what_spark_committed_and_nobody_touched_is_not_read_again() -> None:
    table = finished({0: untouched(0), 1: at(3, OTHER)})
    assert table.owed == {tp(0): 9, tp(1): 3}
    assert (table.run_of(tp(0)), table.run_of(tp(1))) == (NEW, NEW)
    assert table.plan(PENDING, lambda free: pytest.fail("planned before the group has it")) is None
    commit(table)
    assert table.free() == {tp(0): Span(9, 9), tp(1): Span(3, 3)}


def test_a_partition_that_comes_later_goes_on_behind_what_spark_committed_too() -> None:
    """A member that was killed owned it until its session ended."""
    table = finished({})
    table.confirm(PENDING)
    first = table.plan(PENDING, lambda free: BatchPlan({}, {}, GroupMark(group="g", subscribed="t", run=NEW)))
    assert first is not None
    table.confirm(first)
    place(table, {0: untouched(0)})
    assert table.owed == {tp(0): 9}


@pytest.mark.parametrize(
    "committed",
    [
        at(5, OTHER),  # another application owned it meanwhile, and may have read it
        at(5, NEW),
        at(5),  # somebody has set the group's offset back: to be read again
        at(7, RUN),
        at(9, RUN),  # the group had heard of it
        at(2, RUN),
        None,  # the group has forgotten: the batch may have left it out, so it is read from where that began
    ],
)
def test_what_was_touched_since_goes_on_where_the_group_says(committed: Committed | None) -> None:
    table = finished({0: committed})
    position = 5 if committed is None else committed.offset
    assert commit(table) == ({} if committed == at(5, NEW) else {0: position})
    assert table.free() == {tp(0): Span(position, position)}


@pytest.mark.parametrize(("topic_id", "position"), [("another", 5), ("", 9), ("id", 9)])
def test_a_topic_that_was_made_again_is_not_behind_its_batch(topic_id: str, position: int) -> None:
    table = finished({0: untouched(0)}, topic_id)
    commit(table)
    assert table.free() == {tp(0): Span(position, position)}


def test_of_what_no_run_is_named_in_nothing_is_known() -> None:
    """A checkpoint and a group of before runs were named."""
    for mark in (None, GroupMark(group="g", subscribed="t", run="")):
        table = finished({0: at(5)}, done=BatchPlan(PENDING.spans, {"t": "id"}, mark))
        commit(table)
        assert table.free() == {tp(0): Span(5, 5)}


def test_what_this_run_has_replayed_proves_nothing_of_what_it_left_out() -> None:
    table = replaying({})
    assert replay(table, PENDING, {0: at(5, OTHER), 1: at(3, OTHER)}) == {}
    for _ in range(2):
        table.confirm(PENDING)
    place(table, {0: untouched(0)})
    assert (commit(table), table.run_of(tp(0))) == ({0: 5}, NEW)
    assert table.free() == {tp(0): Span(5, 5)}


def test_where_a_batch_began_says_nothing_of_a_topic_that_was_made_again() -> None:
    for table in (replaying({}), finished({})):
        place(table, {0: None}, topic_id="another")
        assert commit(table) == {0: 100}


# -- reset: the consumer found that the log does not have what followed, and goes on elsewhere


def led(table: GroupTable, offset: int, *, made_again: bool = False, topic_id: str = "") -> Any:
    """The consumer goes on there, and the partition is placed anew. Where it stands then; "later": it is not yet.

    topic_id: "": as it was.
    """
    table.reset(tp(0), offset, made_again=made_again)
    return placed(table, topic_id)


def placed(table: GroupTable, topic_id: str = "") -> Any:
    if table.unplaced != [tp(0)]:
        return "later"
    return table.place(tp(0), committed=at(5, RUN), start=77, topic_id=topic_id or "id")


def at_9(end: int = 20) -> tuple[GroupTable, BatchPlan]:
    """It has read up to 9 in its last batch, of a log that ends there."""
    table = GroupTable()
    table.begins(RUN)
    place(table, {0: at(5, RUN)})
    table.offered(tp(0), 9)
    table.confirm(batch := take(table, NOTHING))
    commit(table)
    table.offered(tp(0), end)
    return table, batch


@pytest.mark.requirement("source/22")
def test_a_log_that_ends_before_the_position_is_read_where_the_consumer_goes_on() -> None:
    """The group's offset goes back first: nothing of the log that grows is passed over, whoever reads it."""
    table, batch = at_9(9)
    assert led(table, 7) == 7
    table.offered(tp(0), 8)
    assert table.plan(batch, lambda free: pytest.fail("planned before the group has it")) is None
    assert table.kept([tp(0)]) == {tp(0)}
    assert (commit(table), table.run_of(tp(0))) == ({0: 7}, RUN)
    assert spans(take(table, batch)) == {0: (7, 8)}


def test_what_was_to_be_read_before_the_cut_is_read_still() -> None:
    table, batch = at_9()
    assert led(table, 15) == 9
    assert commit(table) == {0: 9}
    table.offered(tp(0), 16)
    assert spans(take(table, batch)) == {0: (9, 16)}


@pytest.mark.parametrize(("cuts", "goes_on"), [([15, 8], 8), ([8, 15], 8), ([30], 9)])
def test_of_several_cuts_before_it_is_placed_the_lowest_counts(cuts: list[int], goes_on: int) -> None:
    table, _ = at_9()
    for cut in cuts[:-1]:
        table.reset(tp(0), cut, made_again=False)
    assert led(table, cuts[-1]) == goes_on


@pytest.mark.parametrize("offset", [0, 40])
def test_a_topic_that_was_made_again_is_read_from_where_the_consumer_goes_on(offset: int) -> None:
    table, batch = at_9()
    assert led(table, offset, made_again=True, topic_id="another") == offset
    assert commit(table) == {0: offset}
    table.offered(tp(0), 50)
    assert spans(take(table, batch)) == {0: (offset, 50)}


def test_a_topic_that_is_the_one_that_was_placed_is_not_begun_again() -> None:
    """The consumer alone had known an older one."""
    table, _ = at_9()
    assert led(table, 40, made_again=True) == 9


@pytest.mark.parametrize(("begins", "cut", "goes_on"), [(0, 3, 0), (40, 30, 30)])
def test_a_cut_in_a_topic_that_was_made_again_counts_in_the_new_one(begins: int, cut: int, goes_on: int) -> None:
    table, _ = at_9()
    table.reset(tp(0), begins, made_again=True)
    assert led(table, cut, topic_id="another") == goes_on


def test_a_topic_that_is_made_again_after_a_cut_is_another_all_the_same() -> None:
    table, _ = at_9()
    table.reset(tp(0), 3, made_again=False)
    assert led(table, 40, made_again=True, topic_id="another") == 40


@pytest.mark.parametrize(("cut", "goes_on"), [(20, 9), (7, 7), (5, 5), (2, 2)])
def test_what_the_batch_in_flight_reads_is_placed_anew_once_spark_has_committed_it(cut: int, goes_on: int) -> None:
    """Nothing behind the group's offset is committed unread."""
    table = GroupTable()
    table.begins(RUN)
    place(table, {0: at(5, RUN)})
    table.offered(tp(0), 9)
    batch = take(table, NOTHING)
    assert led(table, cut) == "later"
    assert table.owed == {}
    assert table.kept([tp(0)]) == {tp(0)}
    table.confirm(batch)
    assert table.owed == {}, "its end may be behind the end of the log"
    assert table.free() == {}
    assert (table.kept([tp(0)]), table.settled) == ({tp(0)}, False)
    assert placed(table) == goes_on
    assert commit(table) == {0: goes_on}
    assert (table.kept([tp(0)]), table.settled) == (set(), True)
    assert table.free() == {tp(0): Span(goes_on, goes_on)}


def test_what_is_owed_of_a_partition_that_is_reset_waits_until_it_is_placed() -> None:
    """It may be an offset of another topic."""
    table, _ = at_9()
    table.gone([tp(0)])
    place(table, {0: at(5, OTHER)})
    assert table.owed == {tp(0): 5}
    table.reset(tp(0), 0, made_again=True)
    assert (table.owed, table.settled, table.kept([tp(0)])) == ({}, False, {tp(0)})
    assert placed(table, "another") == 0
    assert commit(table) == {0: 0}


def test_where_its_last_batch_began_it_is_committed_in_nobodys_name() -> None:
    """It was touched: a run whose replay has left it out would else find it untouched."""
    table, _ = at_9()
    assert led(table, 5) == 5
    assert (commit(table), table.run_of(tp(0))) == ({0: 5}, "")


def test_a_batch_that_was_pending_is_replayed_without_what_was_reset() -> None:
    table = replaying({0: untouched(0)})
    table.offered(tp(0), 20)
    table.reset(tp(0), 7, made_again=False)
    assert placed(table) == 5
    assert replay(table, PENDING, {1: at(3, OTHER)}) == {}
    assert (commit(table), table.run_of(tp(0))) == ({0: 5}, NEW)


def test_a_reset_before_it_is_placed_changes_nothing() -> None:
    """Its seek follows; and what is not ours is nobody's concern."""
    table = GroupTable()
    table.assigned([tp(0)])
    table.reset(tp(0), 3, made_again=False)
    table.reset(tp(1), 3, made_again=False)
    table.place(tp(0), committed=at(8), start=0)
    assert table.free() == {tp(0): Span(8, 8)}


def test_what_comes_back_after_a_reset_is_placed_by_the_group() -> None:
    table, _ = at_9()
    table.reset(tp(0), 7, made_again=False)
    table.gone([tp(0)])
    place(table, {0: at(9, OTHER)})
    assert commit(table) == {0: 9}
    assert table.free() == {tp(0): Span(9, 9)}


@pytest.mark.parametrize(
    ("offset", "made_again", "topic_id", "ends"),
    [
        (7, False, "id", {tp(0): 7}),
        (15, False, "id", {tp(0): 15}),  # beyond where it stood
        (3, True, "another", {tp(0): 3}),
        (40, True, "another", {tp(0): 40}),
        (3, True, "id", {}),  # the consumer alone had known an older topic
    ],
)
def test_where_a_log_may_never_have_more_is_known(
    offset: int, topic_id: str, ends: dict[TopicPartition, int], *, made_again: bool
) -> None:
    table, _ = at_9()
    led(table, offset, made_again=made_again, topic_id=topic_id)
    assert table.short == ends


def test_the_consumer_is_sent_to_the_end_of_a_replay_that_it_has_not_reached() -> None:
    """Only from there it finds that the log was cut below it. It is sent once; and not where it has been."""
    table = replaying({0: untouched(0), 1: untouched(1)})
    table.offered(tp(0), 7)  # of a batch up to 9
    table.offered(tp(1), 6)  # its end
    assert replay(table, PENDING) == {0: (5, 9), 1: (3, 6)}
    assert table.passed() == {}
    table.confirm(PENDING)
    assert (table.passed(), table.passed()) == ({tp(0): 9}, {})
    assert led(table, 7) == 7, "not behind what is written there now"
    assert commit(table) == {0: 7, 1: 6}


def test_so_it_is_where_the_partition_went_and_came_back_meanwhile() -> None:
    table = replaying({0: untouched(0), 1: untouched(1)})
    replay(table, PENDING)
    table.gone([tp(0)])
    table.assigned([tp(0)])
    place(table, {0: untouched(0)})
    table.confirm(PENDING)
    assert table.passed() == {tp(0): 9, tp(1): 6}


def test_where_it_is_placed_it_is_sent_in_any_case() -> None:
    table = replaying({0: untouched(0), 1: untouched(1)})
    replay(table, PENDING)
    table.confirm(PENDING)
    assert led(table, 7) == 7
    assert table.passed() == {tp(1): 6}
    table.gone([tp(0)])
    table.assigned([tp(0)])
    place(table, {0: untouched(0)})
    assert table.passed() == {}, "it is placed behind the batch"


def test_a_revocation_that_is_requested_stays_so() -> None:
    table, _ = at_9()
    table.requested([tp(0)])
    assert led(table, 7) == 7
    commit(table)
    assert table.free() == {}


# -- checkpoints


def end_of(**given: str) -> dict[str, Any]:
    mark = GroupMark(**{"group": "g", "subscribed": "t", "run": "0123456789abcdef", **given})
    return BatchPlan({tp(0): Span(1, 2)}, {"t": "id"}, mark).to_json()


def reader(**given: str) -> DataSourceStreamReader:
    options = {"kafka.bootstrap.servers": "nowhere:1", **given}
    return stream_reader(options, source_schema(options))


def test_the_ids_of_topics_that_are_not_read_come_back_too() -> None:
    plan = BatchPlan({tp(0): Span(1, 2)}, {"t": "id", "s": "other", "u": ""}, MARK)
    data = json.loads(json.dumps(plan.to_json()))
    assert BatchPlan.from_json(data) == plan
    assert [*data["topics"]] == ["s", "t", "u"]
    assert data["topics"]["s"] == {"id": "other", "partitions": {}}


def test_an_end_offset_comes_back_as_it_was() -> None:
    data = end_of()
    assert BatchPlan.from_json(json.loads(json.dumps(data))).to_json() == data
    assert data["version"] == 2
    assert BatchPlan.from_json({**data, "version": 1}).to_json() == data, "of before runs were named in commits"


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
