"""`OffsetLedger`, promise by promise, on one thread."""

from __future__ import annotations

import copy
import pickle
from asyncio import new_event_loop, sleep
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from weakref import ref

import pytest

from instride._core.application.partition import Delivery
from instride._core.network.ranges import RangeChunk
from instride.commits import CommitEntry, CommitSnapshot
from instride.consumer_records import ConsumerRecords, Stretch
from instride.errors import OffsetGapError
from instride.ledger import OffsetLedger, awaiting_commit
from instride.records import ConsumerRecord, OffsetAndMetadata, OffsetRange, TopicPartition

P0 = TopicPartition("flights", 0)
P1 = TopicPartition("flights", 1)


def record(offset: int, partition: int = 0, *, epoch: int = 1, seek: int = 0, leader_epoch: int = 5) -> ConsumerRecord:
    return ConsumerRecord("flights", partition, offset, epoch=epoch, seek_number=seek, leader_epoch=leader_epoch)


def records(*offsets: int, partition: int = 0, epoch: int = 1, seek: int = 0) -> list[ConsumerRecord]:
    return [record(each, partition, epoch=epoch, seek=seek) for each in offsets]


def offsets(snapshot: CommitSnapshot) -> dict[str, int]:
    return {str(partition): each.offset for partition, each in snapshot.items()}


def settle(snapshot: CommitSnapshot, *, committed: bool = True, stale: bool = False, refused: bool = False) -> None:
    for partition, entry in snapshot.entries.items():
        snapshot.settle(partition, entry, committed=committed, stale=stale, refused=refused)


@pytest.mark.requirement("KIP-983/8")
def test_the_next_commit_is_behind_the_unbroken_finished_stretch() -> None:
    ledger = OffsetLedger()
    first, second, third = ledger.track(records(0, 1, 2))
    ledger.done(third)
    assert not ledger.committable()
    ledger.done(first)
    assert offsets(ledger.committable()) == {"flights-0": 1}
    ledger.done(second)
    assert offsets(ledger.committable()) == {"flights-0": 3}


def test_offsets_may_have_gaps() -> None:
    ledger = OffsetLedger()
    tracked = ledger.track(records(15, 20, 30))
    ledger.done(tracked[1])
    ledger.done(tracked[0])
    assert offsets(ledger.committable()) == {"flights-0": 21}
    ledger.done(record(25))
    ledger.done(record(30))
    assert offsets(ledger.committable()) == {"flights-0": 31}


def test_a_range_finishes_to_its_end() -> None:
    ledger = OffsetLedger()
    ranges = [
        OffsetRange(topic="flights", partition=0, start=start, end=end, epoch=1, seek_number=0, leader_epoch=2)
        for start, end in ((0, 500), (500, 512), (600, 700))
    ]
    ledger.track(ranges[:2])
    ledger.track(ranges[2:])
    ledger.done(ranges[1])
    ledger.done(ranges[0])
    assert ledger.committable()[P0] == OffsetAndMetadata(offset=512, leader_epoch=2)
    ledger.done(ranges[2])
    assert offsets(ledger.committable()) == {"flights-0": 700}


def test_records_and_ranges_may_follow_each_other() -> None:
    ledger = OffsetLedger()
    piece = OffsetRange(topic="flights", partition=0, start=4, end=9, epoch=1, seek_number=0, leader_epoch=5)
    for batch in ([record(0)], [piece], [record(9)]):
        ledger.track(batch)
    ledger.done(record(0))
    ledger.done(piece)
    assert offsets(ledger.committable()) == {"flights-0": 9}
    ledger.done(record(9))
    assert offsets(ledger.committable()) == {"flights-0": 10}


def test_partitions_are_counted_apart() -> None:
    ledger = OffsetLedger()
    ledger.track([*records(0, 1), *records(7, partition=1), *records(2)])
    ledger.done(record(7, 1))
    ledger.done(record(0))
    assert offsets(ledger.committable()) == {"flights-0": 1, "flights-1": 8}
    assert ledger.in_progress() == 2
    assert (ledger.in_progress(P0), ledger.in_progress(P1), ledger.in_progress(TopicPartition("x", 0))) == (2, 0, 0)


def test_a_snapshot_carries_leader_epoch_assignment_epoch_and_seek_number() -> None:
    ledger = OffsetLedger()
    for each in ledger.track([record(0, epoch=4, seek=2), record(1, epoch=4, seek=2, leader_epoch=6)]):
        ledger.done(each)
    snapshot = ledger.committable()
    assert snapshot.entries[P0] == CommitEntry(offset=2, leader_epoch=6, epoch=4, seek_number=2)
    assert snapshot[P0] == OffsetAndMetadata(offset=2, leader_epoch=6)
    assert repr(snapshot) == "CommitSnapshot(flights-0: 2)"


def test_a_snapshot_goes_to_another_process_where_nobody_waits_to_hear_of_it() -> None:
    ledger = OffsetLedger()
    (only,) = ledger.track(records(0))
    ledger.done(only)
    snapshot = ledger.committable()
    with pytest.raises(TypeError, match=r"send dict\(snapshot\.entries\)"):
        pickle.dumps(snapshot)
    assert copy.copy(snapshot) is copy.deepcopy(snapshot) is snapshot, "it cannot change"
    sent = CommitSnapshot(pickle.loads(pickle.dumps(dict(snapshot.entries))))
    again = pickle.loads(pickle.dumps(sent))
    assert again == sent == snapshot
    assert again.entries == snapshot.entries


def test_a_snapshot_does_not_change() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    ledger.done(first)
    snapshot = ledger.committable()
    ledger.done(second)
    assert offsets(snapshot) == {"flights-0": 1}
    with pytest.raises(TypeError):
        snapshot.entries[P0] = snapshot.entries[P0]  # type: ignore[index]


def test_an_offset_is_offered_until_it_is_committed() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    ledger.done(first)
    early = ledger.committable()
    assert offsets(ledger.committable()) == {"flights-0": 1}
    settle(early, committed=False)
    assert offsets(ledger.committable()) == {"flights-0": 1}
    ledger.done(second)
    settle(early)
    assert offsets(ledger.committable()) == {"flights-0": 2}
    settle(ledger.committable())
    assert not ledger.committable()


def test_a_late_response_to_an_old_commit_takes_nothing_back() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    ledger.done(first)
    old = ledger.committable()
    ledger.done(second)
    settle(ledger.committable())
    settle(old)
    settle(old, committed=False)
    assert not ledger.committable()
    assert ledger.uncommitted([P0]) == set()


@pytest.mark.requirement("KIP-983/7")
@pytest.mark.requirement("KIP-983/14")
def test_uncommitted_asks_for_committed_and_not_only_finished() -> None:
    ledger = OffsetLedger()
    (only,) = ledger.track(records(0))
    assert ledger.uncommitted([P0, P1]) == {P0}
    ledger.done(only)
    assert ledger.uncommitted([P0, P1]) == {P0}
    settle(ledger.committable(), committed=False)
    assert ledger.uncommitted([P0]) == {P0}
    settle(ledger.committable())
    assert ledger.uncommitted([P0]) == set()


def test_a_commit_that_is_refused_for_good_is_worth_no_delay_and_is_offered_again() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    ledger.done(first)
    refused = ledger.committable()
    settle(refused, committed=False, refused=True)
    assert ledger.uncommitted([P0]) == {P0}, "one is in progress"
    ledger.done(second)
    assert ledger.uncommitted([P0]) == {P0}, "another commit may be accepted"
    assert awaiting_commit(ledger, [P0, ("gone", 0)]) == {P0}
    settle(ledger.committable(), committed=False, refused=True)
    settle(refused, committed=False, refused=True)
    assert ledger.uncommitted([P0]) == awaiting_commit(ledger, [P0]) == set()
    assert offsets(ledger.committable()) == {"flights-0": 2}
    settle(ledger.committable())
    assert not ledger.committable()


def test_a_hand_over_tries_once_more_what_was_refused_before_it() -> None:
    """The permission may have been granted again since. Here it is, is revoked again, and so on."""
    ledger = OffsetLedger()
    for offset in (0, 1):
        ledger.done(*ledger.track(records(offset)))
        for held in ({P0}, set[TopicPartition]()):
            settle(ledger.committable(), committed=False, refused=True)
            assert ledger.uncommitted([P0]) == awaiting_commit(ledger, [P0]) == held
        settle(ledger.committable())


Asks = Callable[[OffsetLedger, list[TopicPartition]], set[TopicPartition]]


@pytest.mark.parametrize("asks", [OffsetLedger.uncommitted, awaiting_commit])
@pytest.mark.parametrize("between", [[[]], [[P1], [P1]]])
def test_a_second_hand_over_tries_once_more_what_was_refused_in_the_first(
    asks: Asks, between: list[list[TopicPartition]]
) -> None:
    """The group let us keep it, and the right may have been given back since. between: what is asked meanwhile."""
    ledger = OffsetLedger()
    ledger.done(*ledger.track(records(0)))
    for _ in range(3):
        for held in ({P0}, set[TopicPartition]()):
            assert asks(ledger, [P0]) == held
            settle(ledger.committable(), committed=False, refused=True)
        for others in between:
            asks(ledger, others)
        settle(ledger.committable(), committed=False, refused=True)


def test_of_hand_overs_that_are_asked_about_one_by_one_a_refusal_is_believed() -> None:
    ledger = OffsetLedger()
    for number in (0, 1):
        ledger.done(*ledger.track(records(0, partition=number)))
    nobody = set[TopicPartition]()
    for held in ([{P0}, {P1}], [nobody, nobody], [nobody, nobody]):
        assert [ledger.uncommitted([each]) for each in (P0, P1)] == held
        settle(ledger.committable(), committed=False, refused=True)


def test_uncommitted_leaves_out_what_waiting_cannot_mend() -> None:
    ledger = OffsetLedger()
    failed, finished, cancelled, under_way = ledger.track(records(0, 1, 2, 3))
    ledger.fail(failed, ValueError())
    ledger.done(finished)
    ledger.watch(cancelled, _cancelled())
    assert ledger.uncommitted([P0]) == {P0}
    ledger.done(under_way)
    assert ledger.uncommitted([P0]) == set()
    ledger.done(failed)
    assert ledger.uncommitted([P0]) == {P0}
    settle(ledger.committable())
    assert ledger.uncommitted([P0]) == set()


def _cancelled() -> Future[None]:
    future: Future[None] = Future()
    future.cancel()
    return future


def test_watch_settles_on_success_only() -> None:
    ledger = OffsetLedger()
    good, bad, gone = ledger.track(records(0, 1, 2))
    futures: list[Future[None]] = [Future(), Future(), Future()]
    for each, future in zip((good, bad, gone), futures, strict=True):
        ledger.watch(each, future)
    assert not ledger.committable()
    futures[2].cancel()
    futures[1].set_exception(ValueError("bad"))
    futures[0].set_result(None)
    assert offsets(ledger.committable()) == {"flights-0": 1}
    assert ledger.in_progress() == 0
    assert ledger.oldest(P0) == bad


def test_a_future_whose_result_has_not_run_has_failed() -> None:
    async def handle() -> None: ...

    ledger = OffsetLedger()
    with ThreadPoolExecutor(1) as pool:
        for each in ledger.track(records(0)):
            ledger.watch(each, pool.submit(handle))
    assert not ledger.committable()
    with pytest.raises(TypeError, match="returned a coroutine, of which nothing has run"):
        ledger.check()


class FalsyError(Exception):
    """Of several lines, of which there may be none."""

    def __len__(self) -> int:
        return 0


def test_a_future_has_failed_by_an_error_whose_class_says_that_it_is_false() -> None:
    ledger = OffsetLedger()
    loop = new_event_loop()
    futures: list[Any] = [Future[None](), loop.create_future()]
    for each, future in zip(ledger.track(records(0, 1)), futures, strict=True):
        ledger.watch(each, future)
        future.set_exception(FalsyError())
    loop.run_until_complete(sleep(0))  # a future of asyncio calls back in the loop's next turn
    loop.close()
    assert not ledger.committable()
    assert [type(error) for _, error in ledger.failures()] == [FalsyError, FalsyError]


def test_watch_takes_futures_that_are_done_and_those_of_asyncio() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    done: Future[int] = Future()
    done.set_result(1)
    ledger.watch(first, done)
    loop = new_event_loop()
    future = loop.create_future()
    ledger.watch(second, future)
    future.set_result(None)
    loop.run_until_complete(future)
    loop.close()
    assert offsets(ledger.committable()) == {"flights-0": 2}


def test_what_is_no_future_changes_nothing() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    error = ValueError("before")
    ledger.fail(first, error)
    watched = Future[None]()
    ledger.watch(second, watched)
    not_a_future: Any = print
    for each in (first, second):
        with pytest.raises(TypeError, match=r"watch takes a future .* not builtin_function_or_method"):
            ledger.watch(each, not_a_future)
    assert ledger.failures() == [(first, error)]
    assert ledger.in_progress() == 1
    watched.set_result(None)
    assert ledger.in_progress() == 0


def test_what_cannot_be_watched_leaves_a_failure_and_nothing_in_progress() -> None:
    """A future that is done, of a loop that is closed."""
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    error = ValueError("before")
    ledger.fail(first, error)
    loop = new_event_loop()
    future = loop.create_future()
    future.set_result(None)
    loop.close()
    for each in (first, second):
        with pytest.raises(RuntimeError, match="closed"):
            ledger.watch(each, future)
    assert ledger.failures() == [(first, error)]
    assert ledger.in_progress() == 0
    with pytest.raises(ValueError, match="before"):
        ledger.check()


def test_an_error_that_takes_no_note_is_raised_all_the_same() -> None:
    @dataclass(frozen=True)
    class FrozenError(Exception):
        what: str

    ledger = OffsetLedger()
    (only,) = ledger.track(records(0))
    error = FrozenError("a handler's")
    ledger.fail(only, error)
    with pytest.raises(FrozenError) as raised:
        ledger.check()
    assert raised.value is error


def test_check_raises_each_error_once_and_names_the_record() -> None:
    ledger = OffsetLedger()
    first, second, third = ledger.track(records(0, 1, 2))
    errors = [ValueError("one"), KeyError("two")]
    ledger.fail(first, errors[0])
    ledger.fail(third, errors[1])
    ledger.done(second)
    with pytest.raises(ValueError, match="one") as raised:
        ledger.check()
    assert raised.value.__notes__ == ["while handling flights-0 at offset 0"]
    with pytest.raises(KeyError, match="two"):
        ledger.check()
    ledger.check()
    assert ledger.failures() == [(first, errors[0]), (third, errors[1])]


def test_a_failed_record_holds_its_partition_until_the_user_settles_it() -> None:
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    ledger.fail(first, ValueError())
    ledger.done(second)
    assert not ledger.committable()
    ledger.done(first)
    ledger.check()
    assert offsets(ledger.committable()) == {"flights-0": 2}
    assert ledger.failures() == []


def test_a_failed_record_may_be_tried_again() -> None:
    ledger = OffsetLedger()
    (only,) = ledger.track(records(0))
    ledger.fail(only, ValueError())
    again: Future[None] = Future()
    ledger.watch(only, again)
    assert ledger.uncommitted([P0]) == {P0}
    assert ledger.in_progress() == 1
    ledger.check()
    again.set_result(None)
    assert offsets(ledger.committable()) == {"flights-0": 1}


def test_a_finished_record_stays_finished() -> None:
    ledger = OffsetLedger()
    (only,) = ledger.track(records(0))
    ledger.done(only)
    ledger.fail(only, ValueError())
    ledger.watch(only, _cancelled())
    ledger.done(only)
    ledger.check()
    assert (ledger.in_progress(), offsets(ledger.committable())) == (0, {"flights-0": 1})


def test_a_second_attempt_that_is_cancelled_hides_no_failure() -> None:
    ledger = OffsetLedger()
    (only,) = ledger.track(records(0))
    attempts: list[Future[None]] = [Future(), Future()]
    for each in attempts:
        ledger.watch(only, each)
    attempts[0].set_exception(ValueError("first"))
    attempts[1].cancel()
    with pytest.raises(ValueError, match="first"):
        ledger.check()


@pytest.mark.requirement("KIP-983/15")
def test_forget_gives_back_what_is_under_way_and_ignores_how_it_ends() -> None:
    ledger = OffsetLedger()
    tracked = ledger.track([*records(0, 1, 2, 3), *records(0, partition=1)])
    ledger.done(tracked[1])
    ledger.fail(tracked[2], ValueError())
    assert ledger.forget([P0, TopicPartition("unknown", 3)]) == [tracked[0], tracked[3]]
    ledger.done(tracked[0])
    ledger.fail(tracked[3], ValueError())
    ledger.check()
    assert ledger.in_progress() == 1
    assert ledger.forget([P0]) == []
    assert not ledger.committable()
    assert (ledger.uncommitted([P0]), ledger.failures()) == (set(), [])


def test_a_new_epoch_starts_anew_and_old_endings_are_ignored() -> None:
    ledger = OffsetLedger()
    old = ledger.track(records(10, 11, epoch=1))
    new = ledger.track(records(10, 11, epoch=2))
    ledger.done(old[0])
    ledger.fail(old[1], ValueError())
    ledger.check()
    assert not ledger.committable()
    assert ledger.in_progress() == 2
    ledger.done(new[0])
    assert ledger.committable().entries[P0].epoch == 2
    assert ledger.forget([P0]) == [new[1]]


def test_a_seek_starts_anew_backwards_and_forwards() -> None:
    ledger = OffsetLedger()
    ledger.track(records(10, 11, seek=0))
    (back,) = ledger.track(records(5, seek=1))
    ledger.done(back)
    assert ledger.committable().entries[P0] == CommitEntry(offset=6, epoch=1, seek_number=1, leader_epoch=5)
    (ahead,) = ledger.track(records(90, seek=2))
    assert not ledger.committable()
    ledger.done(ahead)
    assert offsets(ledger.committable()) == {"flights-0": 91}


def test_a_response_to_a_commit_of_an_older_epoch_or_seek_commits_nothing() -> None:
    ledger = OffsetLedger()
    snapshots = []
    for epoch, seek in ((1, 0), (1, 1), (2, 0)):
        for each in ledger.track(records(7, epoch=epoch, seek=seek)):
            ledger.done(each)
        snapshots.append(ledger.committable())
    settle(snapshots[0])
    settle(snapshots[1])
    assert ledger.uncommitted([P0]) == {P0}
    settle(snapshots[2])
    assert ledger.uncommitted([P0]) == set()


def test_what_the_consumer_drops_as_stale_is_not_offered_again() -> None:
    """A seek to the end with nothing new to read: the finished records before it must not delay a revoke for ever."""
    ledger = OffsetLedger()
    first, second = ledger.track(records(0, 1))
    ledger.done(first)
    settle(ledger.committable(), committed=False, stale=True)
    assert ledger.uncommitted([P0]) == {P0}
    ledger.done(second)
    assert not ledger.committable()
    assert ledger.uncommitted([P0]) == set()


def test_records_of_an_older_epoch_are_given_back_and_not_counted() -> None:
    ledger = OffsetLedger()
    ledger.track(records(0, epoch=2))
    late = records(5, epoch=1)
    assert ledger.track(late) == late
    assert ledger.in_progress() == 1


def test_forget_before_track_keeps_the_new_epoch() -> None:
    """One poll lost the partition and got it again: the loop's order forgets the old epoch only."""
    ledger = OffsetLedger()
    old = ledger.track(records(3, epoch=1))
    assert ledger.forget([P0]) == old
    (new,) = ledger.track(records(3, epoch=2))
    ledger.done(old[0])
    assert not ledger.committable()
    ledger.done(new)
    assert offsets(ledger.committable()) == {"flights-0": 4}


@pytest.mark.parametrize("wrong", [[0], [2], [3, 3], [5, 4], [3, 4, 2]])
def test_a_batch_out_of_order_is_refused_whole(wrong: list[int]) -> None:
    ledger = OffsetLedger()
    ledger.track(records(0, 1, 2))
    with pytest.raises(ValueError, match=r"offset|tracked before"):
        ledger.track([*records(9, partition=1), *records(*wrong)])
    assert ledger.in_progress() == 3
    assert ledger.in_progress(P1) == 0


def test_records_of_one_partition_may_be_spread_over_a_batch() -> None:
    ledger = OffsetLedger()
    batch = [record(0), record(0, 1), record(1), record(1, 1), record(2)]
    assert ledger.track(iter(batch)) == batch
    with pytest.raises(ValueError, match="flights-0: offset 4 was tracked before"):
        ledger.track([record(4), record(2, 1), record(4)])
    assert ledger.in_progress() == 5


def test_a_finished_record_is_let_go_of() -> None:
    ledger = OffsetLedger()

    class Large:
        topic, partition, epoch, seek_number, leader_epoch = "flights", 0, 1, 0, -1

        def __init__(self, offset: int) -> None:
            self.offset = offset

    first, second = ledger.track([Large(0), Large(1)])
    ledger.done(second)
    gone = ref(second)
    del second
    assert gone() is None
    assert ledger.oldest(P0) is first


def test_nothing_is_harmless() -> None:
    ledger = OffsetLedger()
    assert ledger.track([]) == []
    assert ledger.forget([]) == []
    assert ledger.uncommitted([]) == set()
    assert (ledger.in_progress(), ledger.oldest(P0), ledger.failures()) == (0, None, [])
    assert not ledger.committable()
    ledger.check()
    ledger.done(record(0))
    assert repr(ledger) == "OffsetLedger(0 in progress in 0 partitions)"
    CommitSnapshot().settle(P0, CommitEntry(offset=1, epoch=1, seek_number=0), committed=True)


def test_oldest_is_what_the_next_commit_waits_for() -> None:
    ledger = OffsetLedger()
    first, second, third = ledger.track(records(0, 1, 2))
    ledger.done(second)
    assert ledger.oldest(P0) == first
    ledger.done(first)
    assert ledger.oldest(P0) == third


def test_many_small_batches_behind_one_slow_record() -> None:
    ledger = OffsetLedger()
    for offset in range(0, 30_000, 3):
        ledger.track(records(offset))
    for offset in range(29_997, 0, -3):
        ledger.done(record(offset))
    assert not ledger.committable()
    ledger.done(record(0))
    assert offsets(ledger.committable()) == {"flights-0": 29_998}
    assert ledger.in_progress() == 0


def test_a_pool_that_is_shut_down_leaves_its_queue_uncommitted() -> None:
    ledger = OffsetLedger()
    go: Future[None] = Future()
    pool = ThreadPoolExecutor(1)
    for each in ledger.track(records(0, 1, 2)):
        ledger.watch(each, pool.submit(go.result, 60))
    pool.shutdown(wait=False, cancel_futures=True)
    go.set_result(None)
    pool.shutdown(wait=True)
    assert offsets(ledger.committable()) == {"flights-0": 1}
    settle(ledger.committable())
    assert ledger.uncommitted([P0]) == set()


def tracked(
    ledger: OffsetLedger, start: int, *numbers: int, until: int = -1, epoch: int = 1, seek: int = 0
) -> list[ConsumerRecord]:
    """Track one stretch, which ends right behind its last record unless `until` says more."""
    stretch = Stretch(start, max(until, numbers[-1] + 1), len(numbers))
    return ledger.track(records(*numbers, epoch=epoch, seek=seek), stretches=[stretch])


def finish(ledger: OffsetLedger, batch: list[ConsumerRecord]) -> None:
    for each in batch:
        ledger.done(each)


@pytest.mark.rule("14")
def test_nothing_is_committed_beyond_records_that_were_polled_and_never_tracked() -> None:
    ledger = OffsetLedger()
    before = tracked(ledger, 0, 0, 1, 2)
    behind = tracked(ledger, 8, 8, 9)
    finish(ledger, behind + before)
    assert offsets(ledger.committable()) == {"flights-0": 3}
    finish(ledger, tracked(ledger, 10, 10, 11))
    assert offsets(ledger.committable()) == {"flights-0": 3}
    (gap,) = ledger.gaps()
    assert (gap.topic, gap.partition, gap.start, gap.end) == ("flights", 0, 3, 8)


@pytest.mark.rule("14")
def test_a_gap_that_the_log_has_holds_nothing() -> None:
    ledger = OffsetLedger()
    finish(ledger, tracked(ledger, 0, 2, 3, until=6))  # 4 and 5 are a control batch
    finish(ledger, tracked(ledger, 6, 9, 12))
    assert offsets(ledger.committable()) == {"flights-0": 13}
    assert ledger.gaps() == []
    ledger.check()


@pytest.mark.rule("14")
def test_check_names_a_gap_once_and_says_what_to_do() -> None:
    ledger = OffsetLedger()
    tracked(ledger, 0, 0)
    tracked(ledger, 5, 5)
    tracked(ledger, 9, 9)
    with pytest.raises(OffsetGapError, match=r"^flights-0: offsets 1 to 4 .* seek to 1 .* `forget`") as caught:
        ledger.check()
    assert not caught.value.retriable
    assert not hasattr(caught.value, "__notes__")
    ledger.check()
    assert ledger.gaps() == [caught.value]


@pytest.mark.rule("14")
@pytest.mark.parametrize("how", ["forget", "epoch", "seek"])
def test_a_gap_ends_with_a_newer_epoch_or_seek_number_or_when_it_is_forgotten(how: str) -> None:
    ledger = OffsetLedger()
    tracked(ledger, 0, 0)
    tracked(ledger, 5, 5)
    if how == "forget":
        ledger.forget([P0])
    after = tracked(ledger, 9, 9, epoch=1 + (how == "epoch"), seek=int(how == "seek"))
    finish(ledger, after)
    assert offsets(ledger.committable()) == {"flights-0": 10}
    assert ledger.gaps() == []
    ledger.check()


@pytest.mark.rule("14")
def test_a_partition_is_worth_a_delay_only_for_what_is_before_a_gap() -> None:
    ledger = OffsetLedger()
    before = tracked(ledger, 0, 0, 1)
    behind = tracked(ledger, 5, 5, 6)
    assert ledger.uncommitted([P0]) == {P0}
    assert ledger.oldest(P0) is before[0]
    finish(ledger, before)
    assert ledger.uncommitted([P0]) == {P0}, "finished, and not committed"
    settle(ledger.committable())
    assert ledger.in_progress(P0) == 2
    assert ledger.uncommitted([P0]) == set(), "waiting commits nothing more"
    assert ledger.oldest(P0) is None
    ledger.fail(behind[0], ValueError("bad"))
    assert [each for each, _ in ledger.failures()] == [behind[0]]


@pytest.mark.rule("14")
def test_what_is_not_known_to_be_missing_holds_nothing() -> None:
    ledger = OffsetLedger()
    finish(ledger, tracked(ledger, 0, 0))
    finish(ledger, ledger.track(records(7)))
    finish(ledger, tracked(ledger, 20, 20))
    assert offsets(ledger.committable()) == {"flights-0": 21}


def test_stretches_must_tell_of_the_records() -> None:
    ledger = OffsetLedger()
    with pytest.raises(ValueError, match="they do not tell of the 2 records given"):
        ledger.track(records(0, 1), stretches=[Stretch(0, 1, 1)])
    assert ledger.in_progress() == 0


@pytest.mark.rule("14")
def test_what_a_poll_returns_says_by_itself_where_its_stretches_begin() -> None:
    ledger = OffsetLedger()
    for start, end in ((0, 1), (4, 5)):
        chunk = RangeChunk(topic="flights", partition=0, first_offset=start, next_offset=end)
        delivery = Delivery(partition=P0, chunk=chunk, epoch=1, seek_number=0, start=start)  # type: ignore[arg-type]
        for each in ledger.track(ConsumerRecords([delivery])):
            ledger.done(each)
    assert offsets(ledger.committable()) == {"flights-0": 1}
    assert [(each.start, each.end) for each in ledger.gaps()] == [(1, 4)]
