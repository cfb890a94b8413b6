"""What is started next, what a hand-over waits for, what is paused: each law of `PartitionQueues` by an example."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import pytest
from processing_help import P0, P1, commit, offsets, records, tp

from instride import ConsumerRecord, OffsetRange, TopicPartition
from instride._processing.partition_queues import PartitionQueues, Task
from instride.consumer_records import Stretch
from instride.errors import IllegalStateError, OffsetGapError

Queues = PartitionQueues[ConsumerRecord]
BAD = ValueError("bad")


def queues(max_records: int = 1000, max_bytes: int = 1000) -> Queues:
    return PartitionQueues(max_records=max_records, max_bytes=max_bytes, size=lambda record: len(record.value or b""))


def take(found: Queues, count: int = 1) -> list[Task[ConsumerRecord]]:
    tasks = [found.take() for _ in range(count)]
    assert None not in tasks
    return [task for task in tasks if task is not None]


def where(tasks: list[Task[ConsumerRecord]]) -> list[tuple[int, int]]:
    return offsets(task.record for task in tasks)


def failed(found: Queues, *numbers: int, then: int = 0) -> list[Task[ConsumerRecord]]:
    """Of 0, 1, 2, ... of P0 the first `then` are started, and these of them have failed."""
    found.submit(records(P0, *range(6)))
    tasks = take(found, then or max(numbers) + 1)
    for number in numbers:
        found.end(tasks[number], BAD)
    return tasks


@pytest.mark.rule("16")
def test_partitions_take_turns_and_of_each_the_lowest_offset_is_first() -> None:
    found = queues()
    found.submit(records(P0, *range(100)))
    found.submit(records(P1, 7, 9) + records(tp(2), 3))
    assert where(take(found, 6)) == [(0, 0), (1, 7), (2, 3), (0, 1), (1, 9), (0, 2)]
    found.submit(records(tp(2), 4))
    assert where(take(found, 2)) == [(0, 3), (2, 4)]


@pytest.mark.rule("16")
def test_nothing_is_started_nor_waited_for_while_the_owner_says_so() -> None:
    may_start = [True]
    found: Queues = PartitionQueues(max_records=9, max_bytes=9, size=lambda _: 0, may_start=lambda: may_start[0])
    found.submit(records(P0, 0, 1, 2))
    first, second = take(found, 2)
    found.end(first, BAD)
    found.retry(first.record)
    may_start[0] = False
    assert found.take() is None
    found.stop()
    assert not found.at_rest(), "the second is at work"
    found.end(second)
    assert found.at_rest(), "the first is below it, and may not be started"
    may_start[0] = True
    assert not found.at_rest()
    assert where(take(found)) == [(0, 0)]


@pytest.mark.rule("16")
def test_a_partition_with_nothing_started_is_released_and_its_queue_dropped() -> None:
    found = queues()
    found.submit(records(P0, 0, 1, value=b"abc") + records(P1, 0))
    assert found.hold([P0]) == set()
    assert (found.queued, found.records, found.bytes) == (1, 1, 0)
    assert where(take(found)) == [(1, 0)]
    assert found.take() is None


@pytest.mark.rule("16")
def test_a_hand_over_waits_for_started_records_and_their_commit_and_starts_no_more() -> None:
    found = queues()
    found.submit(records(P0, 0, 1, 2))
    one, two = take(found, 2)
    assert found.hold([P0]) == {P0}
    assert found.take() is None
    found.end(two)
    found.end(one)
    assert found.hold([P0]) == {P0}, "finished, and not committed"
    assert commit(found.ledger.committable()) == {P0: 2}
    assert found.hold([P0]) == set()
    assert found.queued == 0


@pytest.mark.rule("completing")
def test_a_hand_over_waits_for_no_commit_that_is_refused_for_good() -> None:
    found = queues()
    found.submit(records(P0, 0))
    (task,) = take(found)
    found.end(task)
    assert found.hold([P0]) == {P0}
    snapshot = found.ledger.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
    assert found.hold([P0]) == set()


def test_a_hand_over_tries_once_more_what_was_refused_before_it() -> None:
    """The permission may have been granted again since."""
    found = queues()
    found.submit(records(P0, 0))
    (task,) = take(found)
    found.end(task)
    for held in ({P0}, set[TopicPartition]()):
        snapshot = found.ledger.committable()
        snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
        assert found.hold([P0]) == held


def test_a_second_hand_over_tries_once_more_what_was_refused_in_the_first() -> None:
    """The group let this member keep the partition, whose permission may have been granted again since."""
    found = queues()
    found.submit(records(P0, 0, 1))
    one, two = take(found, 2)
    found.end(one)
    for _ in range(2):
        assert found.hold([P0]) == {P0}
        snapshot = found.ledger.committable()
        snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
    assert found.hold([]) == set()
    found.end(two, ValueError())
    assert found.hold([P0]) == {P0}


@pytest.mark.rule("16")
def test_a_hand_over_waits_for_the_gap_below_the_highest_started_record() -> None:
    found = queues()
    tasks = failed(found, 0, then=2)
    found.retry(tasks[0].record)
    found.end(tasks[1])
    assert found.hold([P0]) == {P0}, "a record that waits for another try is queued, below one that is finished"
    (again,) = take(found)
    assert again.offset == 0
    assert found.take() is None
    found.end(again)
    assert commit(found.ledger.committable()) == {P0: 2}
    assert found.hold([P0]) == set()


@pytest.mark.rule("16")
def test_what_is_reassigned_goes_on_in_the_same_epoch() -> None:
    found = queues()
    found.submit(records(P0, 0, 1, 2))
    (one,) = take(found)
    assert found.hold([P0]) == {P0}
    assert found.hold([]) == set()
    found.end(one)
    assert where(take(found, 2)) == [(0, 1), (0, 2)]
    found.submit(records(P0, 3))
    assert where(take(found)) == [(0, 3)]


@pytest.mark.rule("16")
def test_of_what_is_lost_the_queue_is_dropped_and_results_are_ignored() -> None:
    found = queues()
    found.submit(records(P0, 0, 1, value=b"x") + records(P1, 0))
    one, other = take(found, 2)
    found.submit([], lost=[P0])
    assert offsets(found.abandoned) == [(0, 0)]
    assert not found.is_current(one.record)
    assert found.is_current(other.record)
    found.end(one)
    assert (found.take(), found.started, found.records, found.bytes) == (None, 1, 1, 0)
    assert not found.ledger.committable()
    found.submit([])
    assert found.abandoned == []


@pytest.mark.rule("16")
def test_a_partition_that_is_lost_and_assigned_again_within_one_poll_begins_anew() -> None:
    found = queues()
    found.submit(records(P0, 0, 1))
    (old,) = take(found)
    found.submit(records(P0, 0, 1, epoch=2), lost=[P0])
    (new,) = take(found)
    found.end(old)
    assert not found.ledger.committable()
    found.end(new)
    assert commit(found.ledger.committable()) == {P0: 1}


def test_a_seek_begins_anew_and_names_what_nobody_reads_again() -> None:
    """Or a reset by the consumer, where nobody has asked for it."""
    found = queues()
    found.submit(records(P0, 0, 1))
    (old,) = take(found)
    found.submit(records(P0, 50, seek=1))
    assert offsets(found.abandoned) == [(0, 0), (0, 1)]
    found.end(old, BAD)
    assert found.next_error() is None
    found.submit(records(P0, 2))  # of before the seek
    assert where(take(found)) == [(0, 50)]
    assert found.take() is None


def test_of_what_comes_again_after_a_seek_only_what_was_at_work_is_named() -> None:
    found = queues()
    tasks = failed(found, 1, 2, then=4)
    found.retry(tasks[1].record)
    found.submit(records(P0, 2, 3, 4, seek=1))
    assert offsets(found.abandoned) == [(0, 0), (0, 1), (0, 3)]
    assert found.next_error() is None
    found.submit(records(P0, 7, epoch=2))
    assert found.abandoned == [], "that is another assignment, and another owner's may be between"


def test_what_was_released_and_goes_on_nevertheless_is_refused() -> None:
    """Its queue is gone: what comes next would be committed beyond it."""
    found = queues()
    found.submit(records(P0, 0, 1))
    found.hold([P0])
    assert found.hold([P0]) == set()
    with pytest.raises(IllegalStateError, match="t-0 was released by hold"):
        found.submit(records(P0, 2))
    found.submit(records(P0, 0, epoch=2))
    assert where(take(found)) == [(0, 0)]


def test_behind_a_failed_record_nothing_is_started_and_nothing_waited_for() -> None:
    found = queues()
    tasks = failed(found, 0, 1, then=3)
    assert found.take() is None
    found.retry(tasks[1].record)
    assert found.take() is None, "it is queued behind the first"
    assert found.hold([P0]) == {P0}
    found.end(tasks[2])
    assert found.hold([P0]) == set()
    assert found.next_error() is BAD, "it is raised though the partition is gone"
    assert found.failures() == []
    found.done(tasks[0].record)
    found.retry(tasks[0].record)
    assert found.queued == 0


def test_a_failed_record_is_settled_by_done() -> None:
    found = queues()
    tasks = failed(found, 0)
    assert offsets(record for record, _ in found.failures()) == [(0, 0)]
    found.done(tasks[0].record)
    assert commit(found.ledger.committable()) == {P0: 1}
    assert found.next_error() is None, "it was settled before it was raised"
    assert (found.failures(), found.records) == ([], 5)
    assert where(take(found)) == [(0, 1)]
    found.done(records(P0, 3)[0])
    found.done(records(P0, 0, epoch=7)[0])
    assert found.records == 5, "what has not failed cannot be settled"


def test_each_error_is_raised_once_the_oldest_first_with_its_record() -> None:
    found = queues()
    one, two = ValueError("one"), ValueError("two")
    found.submit(records(P0, 0) + records(P1, 0))
    for task, error in zip(take(found, 2), (one, two), strict=True):
        found.end(task, error)
    assert found.next_error() is one
    assert one.__notes__ == ["while handling t-0 at offset 0"]
    assert found.next_error() is two
    assert found.next_error() is None
    assert len(found.failures()) == 2


def test_an_error_that_takes_no_notes_is_raised_as_it_is() -> None:
    @dataclass(frozen=True)
    class FrozenError(Exception):
        pass

    found, error = queues(), FrozenError()
    found.submit(records(P0, 0))
    found.end(take(found)[0], error)
    assert found.next_error() is error


def test_an_error_is_kept_no_longer_than_its_record_has_failed() -> None:
    """A loop may look at `failures` and never ask for the errors."""

    class BadError(ValueError):
        pass

    error = BadError()
    told = weakref.ref(error)
    found = queues()
    found.submit(records(P0, 0))
    (task,) = take(found)
    found.end(task, error)
    found.retry(task.record)
    (task,) = take(found)
    found.end(task)
    del error
    gc.collect()
    assert told() is None


@pytest.mark.rule("16")
def test_a_stop_drops_what_is_queued_and_starts_only_the_gap() -> None:
    found = queues()
    tasks = failed(found, 0, then=2)
    found.submit(records(P1, 0, 1, value=b"x"))
    found.retry(tasks[0].record)
    found.stop()
    assert (found.queued, found.records, found.bytes) == (1, 2, 0)
    found.end(tasks[1])
    assert not found.at_rest()
    (again,) = take(found)
    assert not found.at_rest()
    found.end(again)
    assert found.at_rest()
    assert commit(found.ledger.committable()) == {P0: 2}


def test_what_is_given_up_is_named_and_its_gap_not_started() -> None:
    found = queues()
    tasks = failed(found, 0, 2, then=4)
    found.retry(tasks[0].record)
    found.stop()
    assert offsets(found.give_up()) == [(0, 0), (0, 1), (0, 3)]
    assert not found.is_current(tasks[1].record)
    found.retry(tasks[2].record)
    assert found.take() is None
    found.end(tasks[1])
    assert found.queued == 0


def test_what_drains_goes_on_draining_when_all_is_stopped() -> None:
    found = queues()
    found.submit(records(P0, 0, 1))
    take(found)
    found.hold([P0])
    found.stop()
    found.hold([])
    assert found.take() is None


@pytest.mark.parametrize(("limits", "value"), [({"max_records": 12}, None), ({"max_bytes": 120}, b"x" * 10)])
def test_a_queue_of_half_of_the_space_that_is_left_is_paused(limits: dict[str, int], value: bytes | None) -> None:
    found = queues(**limits)
    found.submit(records(P0, 0, 1, 2, value=value))
    assert (found.full(), found.ready()) == ([], [])
    found.submit(records(P0, 3, value=value))
    assert found.full() == [P0]
    assert found.full() == [], "each is named once"
    found.submit(records(P1, 0, 1, value=value))
    assert found.full() == [], "there is space for six, and these are two"
    found.submit(records(P1, 2, value=value))
    assert found.full() == [P1]


@pytest.mark.parametrize(("limits", "value"), [({"max_records": 12}, None), ({"max_bytes": 120}, b"x" * 10)])
def test_a_queue_of_a_quarter_of_that_or_none_is_resumed(limits: dict[str, int], value: bytes | None) -> None:
    found = queues(**limits)
    found.submit(records(P0, 0, 1, 2, 3, value=value))
    assert found.full() == [P0]
    take(found, 1)
    assert found.ready() == [], "three are queued, and there is space for eight"
    take(found, 1)
    assert found.ready() == [P0]
    assert found.ready() == []
    found.submit(records(P0, *range(4, 20), value=value))
    assert found.full() == [P0]
    found.submit(records(P1, 0, value=value))
    assert found.full() == [P1], "no space is left"
    take(found, 3)
    assert found.ready() == [P1], "it has nothing queued; so it is not starved by another's queue"


def test_one_that_stands_still_leaves_space_for_the_others() -> None:
    found = queues(max_records=100)
    found.submit(records(P0, *range(30)))
    assert found.full() == []
    found.submit(records(P0, *range(30, 60)))
    assert found.full() == [P0], "its workers are busy elsewhere, say"
    found.submit(records(P1, *range(10)))
    assert found.full() == []


def test_what_is_resumed_by_others_is_named_again() -> None:
    found = queues(max_records=2)
    found.submit(records(P0, 0, 1))
    assert found.full() == [P0]
    found.submit(records(P0, 2))
    assert found.full() == [P0]


def test_a_draining_partition_is_neither_paused_nor_resumed_before_it_is_reassigned() -> None:
    found = queues(max_records=4)
    found.submit(records(P0, 0, 1) + records(P1, 0, 1))
    (one, _) = take(found, 2)
    found.hold([P0])
    assert found.full() == [P1]
    assert found.hold([]) == set()
    assert found.full() == [P0]
    found.hold([P0])
    found.end(one)
    assert found.ready() == []
    found.hold([])
    take(found, 2)
    assert found.ready() == [P0, P1]


def test_what_is_lost_or_released_is_not_resumed() -> None:
    found = queues(max_records=2)
    found.submit(records(P0, 0) + records(P1, 0) + records(tp(2), 0))
    assert found.full() == [P0, P1, tp(2)]
    found.submit([], lost=[P0])
    found.hold([P1])
    assert found.ready() == []
    take(found, 1)
    assert found.ready() == [tp(2)]


def test_a_partition_with_a_failed_record_is_paused_until_it_is_settled() -> None:
    found = queues()
    tasks = failed(found, 0)
    assert found.full() == [P0]
    assert (found.full(), found.ready()) == ([], [])
    found.done(tasks[0].record)
    assert found.ready() == [P0]


def test_ranges_are_queued_by_their_start() -> None:
    found: PartitionQueues[OffsetRange] = PartitionQueues(max_records=9, max_bytes=9, size=lambda _: 0)
    pieces = [
        OffsetRange(topic="t", partition=0, start=start, end=start + 5, epoch=1, seek_number=0) for start in (0, 5)
    ]
    found.submit(pieces)
    task = found.take()
    assert task is not None
    assert task.record is pieces[0]
    found.end(task)
    assert commit(found.ledger.committable()) == {P0: 5}


def test_what_is_submitted_twice_is_refused_whole() -> None:
    found = queues()
    found.submit(records(P0, 0))
    with pytest.raises(ValueError, match="offset 0 was tracked before"):
        found.submit(records(P1, 0) + records(P0, 0))
    assert found.queued == 1


def test_what_comes_and_goes_while_all_workers_are_busy_leaves_nothing() -> None:
    """Found by the model: each lost epoch stayed in the list of turns until a worker was free."""
    found = queues()
    for epoch in range(1, 50):
        found.submit(records(P0, 0, epoch=epoch), lost=[P0])
    assert len(found._turns) == 1


@pytest.mark.rule("14")
def test_records_that_were_never_submitted_hold_the_commits_and_no_hand_over() -> None:
    found = queues()
    found.submit(records(P0, 0), stretches=[Stretch(0, 1, 1)])
    found.submit(records(P0, 5, 6), stretches=[Stretch(5, 7, 2)])
    for task in take(found, 3):
        found.end(task)
    assert commit(found.ledger.committable()) == {P0: 1}
    gap = found.next_error()
    assert isinstance(gap, OffsetGapError)
    assert (gap.start, gap.end) == (1, 5)
    assert found.next_error() is None, "once"
    assert found.hold([P0]) == set()
    assert found.ledger.gaps() == []


@pytest.mark.rule("14")
def test_a_gap_of_an_assignment_that_is_over_is_not_raised() -> None:
    found = queues()
    found.submit(records(P0, 0), stretches=[Stretch(0, 1, 1)])
    found.submit(records(P0, 5), stretches=[Stretch(5, 6, 1)])
    found.submit([], lost=[P0])
    assert found.next_error() is None
