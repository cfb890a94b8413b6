"""`Engine`: what a processor decides, in virtual time."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from engine_help import TOPIC_ID, Bench, keyed
from processing_help import P0, P1, commit, tp

from instride import ConsumerRecord, DeadLetterRecord, OffsetAndMetadata, Retry, RetryRecord, SkipRecord, TopicPartition
from instride._processing.commit_metadata import Remembered, decode, encode
from instride._processing.engine import Task
from instride._processing.retries import Step
from instride.commits import CommitSnapshot
from instride.consumer_records import Stretch
from instride.errors import DeserializationError, HandlerDiedError

OTHER_ID = UUID(int=7)


def offsets(tasks: list[Task]) -> list[int]:
    return [task.offset for task in tasks]


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [("partition", [0], [1]), ("key", [0, 2, 4, 5], [1]), ("none", [0, 1, 2, 3, 4, 5], [])],
)
def test_what_may_start_at_once_and_when_the_first_has_ended(order: Any, first: list[int], second: list[int]) -> None:
    """Keys a a b a - -: of a key one at a time, in their order; without a key, at once."""
    bench = Bench(order=order)
    bench.submit(keyed(P0, "aaba--"))
    tasks = bench.takes()
    assert offsets(tasks) == first
    bench.end(tasks[0])
    assert offsets(bench.takes()) == second


def test_keys_are_of_one_partition() -> None:
    bench = Bench(order="key")
    bench.submit(keyed(P0, "a") + keyed(P1, "a"))
    assert len(bench.takes()) == 2


def test_no_more_of_a_partition_than_allowed_and_partitions_take_turns() -> None:
    bench = Bench(order="none", per_partition=2)
    bench.submit(keyed(P0, "aaaa") + keyed(P1, "aaaa"))
    tasks = bench.takes()
    assert [(task.record.partition, task.offset) for task in tasks] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    bench.end(tasks[1])
    assert [(task.record.partition, task.offset) for task in bench.takes()] == [(1, 2)]


def test_a_commit_has_the_first_unfinished_and_remembers_what_is_beyond() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "aaa.aa"))
    tasks = {task.offset: task for task in bench.takes()}
    bench.end(tasks[1])
    bench.end(tasks[4])
    assert bench.commit() == {P0: (0, ((1, 2), (4, 5)), {})}
    assert bench.commit() == {}
    bench.end(tasks[2])
    assert bench.commit() == {P0: (0, ((1, 5),), {})}, "no record can be at the offset that the log does not have"
    bench.end(tasks[0])
    assert bench.commit() == {P0: (5, (), {})}
    bench.end(tasks[5])
    assert bench.commit() == {P0: (6, (), {})}


def test_a_commit_has_the_leader_epoch_of_its_last_record() -> None:
    """With an older one the next owner's broker would call the log truncated where that epoch ended."""
    bench = Bench(order="partition")
    records = [ConsumerRecord("t", 0, at, epoch=1, leader_epoch=leader) for at, leader in enumerate([0, 0, 1, 1, 1, 2])]
    told = []
    bench.engine.submit(records, stretches=[Stretch(0, 6, 6)])
    bench.engine.locate(P0, OffsetAndMetadata(offset=0))
    for _ in records:
        bench.end(bench.take())
        told.append(next(iter(bench.engine.committable().entries.values())).leader_epoch)
    assert told == [0, 0, 1, 1, 1, 2]


def test_a_commit_of_which_only_the_memory_changed_is_due() -> None:
    """Its offset is the same: what was finished beyond it, or tried, is new."""
    bench = Bench(order="none", retry=Retry(attempts=3, backoff=0.0))
    bench.submit(keyed(P0, "abc"))
    first, second, third = bench.takes()
    bench.end(second)
    assert bench.commit() == {P0: (0, ((1, 2),), {})}
    assert bench.commit() == {}
    bench.end(third)
    assert bench.commit() == {P0: (0, ((1, 3),), {})}
    assert bench.commit() == {}
    bench.end(first, ValueError())
    assert bench.commit() == {P0: (0, ((1, 3),), {0: 1})}
    assert bench.commit() == {}


@pytest.mark.rule("16")
def test_what_was_finished_beyond_the_gap_is_not_started_by_the_next_owner() -> None:
    bench, heir = Bench(order="key", retry=Retry(attempts=3)), Bench(located=False, order="key")
    bench.submit(keyed(P0, "abcab"))
    tasks = {task.offset: task for task in bench.takes()}
    bench.end(tasks[1])
    bench.end(tasks[2])
    bench.end(tasks[0], ValueError())
    assert bench.engine.hold([P0]) == {P0}, "it is not committed yet"
    snapshot = bench.engine.committable()
    commit(snapshot)
    assert bench.engine.hold([P0]) == set(), "what waits for its next attempt is not waited for"

    heir.submit(keyed(P0, "abc", epoch=2))
    assert heir.takes() == []
    assert heir.engine.unlocated() == [P0]
    heir.engine.locate(P0, snapshot[P0], TOPIC_ID)
    heir.submit(keyed(P0, "ab", start=3, epoch=2))
    found = heir.takes()
    assert [(task.offset, task.attempts) for task in found] == [(0, 1), (4, 0)], "3 waits for 0, of its key"
    assert heir.engine.tally.remembered == 2
    assert heir.commit() == {P0: (0, ((1, 3),), {0: 1})}


def test_what_is_remembered_of_records_that_did_not_come_yet_is_committed_again() -> None:
    first, heir = Bench(order="none"), Bench(located=False, order="none")
    first.submit(keyed(P0, "a" * 10))
    tasks = first.takes()
    for place in (1, 2, 5, 6, 9):
        first.end(tasks[place])
    snapshot = first.engine.committable()
    heir.submit(keyed(P0, "aa"))
    heir.engine.locate(P0, snapshot[P0], TOPIC_ID)
    assert heir.commit() == {P0: (0, ((1, 3), (5, 7), (9, 10)), {})}
    heir.end(heir.take())
    assert heir.commit() == {P0: (2, ((2, 3), (5, 7), (9, 10)), {})}
    heir.submit(keyed(P0, "a" * 4, start=2))
    assert heir.commit() == {P0: (3, ((5, 7), (9, 10)), {})}


@pytest.mark.parametrize(
    "metadata",
    ["", "somebody's", "instride:1:", "instride:1:AAAA", "instride:2:AAAA", "instride:1:\u00e9", "instride:1:A"],
)
def test_a_foreign_or_damaged_memory_is_none(metadata: str) -> None:
    bench = Bench(located=False)
    bench.submit(keyed(P0, "ab"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0, metadata=metadata), TOPIC_ID)
    assert offsets(bench.takes()) == [0, 1]


@pytest.mark.rule("18")
def test_where_it_begins_is_committed_before_the_first_record_is_started() -> None:
    bench = Bench(located=False)
    bench.engine.submit(keyed(P0, "ab", start=7), (), [Stretch(5, 9, 2)])
    bench.engine.locate(P0, None)
    assert bench.takes() == []
    assert bench.engine.has_starts()
    assert bench.engine.unlocated() == [], "it is requested once"
    snapshot = bench.engine.committable()
    assert snapshot[P0].offset == 5
    snapshot.settle(P0, snapshot.entries[P0], committed=False)
    assert bench.takes() == []
    assert bench.commit() == {P0: (5, (), {})}
    assert not bench.engine.has_starts()
    assert offsets(bench.takes()) == [7, 8]


def test_what_was_located_before_its_records_came_is_known() -> None:
    bench = Bench(located=False)
    bench.engine.locate(P0, OffsetAndMetadata(offset=0))
    bench.submit(keyed(P0, "a"))
    assert len(bench.takes()) == 1
    bench.submit([], lost=[P0])
    bench.engine.locate(P0, OffsetAndMetadata(offset=0))
    bench.engine.assigned([P0])
    bench.submit(keyed(P0, "a", epoch=2))
    assert bench.takes() == [], "that was of another assignment"


@pytest.mark.parametrize(("reset_to", "left", "held_at"), [(3, [0, 2], 0), (50, [0, 2, 3, 4], 50)])
def test_a_reset_of_the_position_loses_no_unfinished_record(reset_to: int, left: list[int], held_at: int) -> None:
    """The log was cut, or retention has deleted what it had: nobody reads again what lies below."""
    bench = Bench(located=False, order="none", per_partition=3, retry=Retry(attempts=3, backoff=0.0))
    bench.submit(keyed(P0, "-----"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    first, second, third = bench.takes()
    bench.end(second)
    bench.end(third, ValueError())
    told = bench.engine.committable()
    commit(told)
    assert bench.submit(keyed(P0, "--", start=reset_to, seek=1)) == [0]
    assert bench.takes() == [], "where it begins is asked for"
    bench.engine.locate(P0, told[P0], TOPIC_ID, log_begin=reset_to if reset_to == 50 else 0)
    bench.end(first)
    tasks = bench.takes()
    assert bench.engine.tally.finished == 1, "what was given up is ignored"
    for task in tasks[1:]:
        bench.end(task)
    assert bench.commit()[P0][0] == held_at, "no commit covers a record that is not finished, and that the log has"
    bench.end(tasks[0])
    for task in (later := bench.takes()):
        bench.end(task)
    handled = [(task.offset, task.attempts) for task in tasks + later]
    assert handled == [(at, int(at == 2)) for at in [*left, reset_to, reset_to + 1]]
    assert bench.commit() == {P0: (reset_to + 2, (), {})}


@pytest.mark.rule("18")
def test_where_a_reset_led_forward_is_committed_before_a_record_is_started() -> None:
    """From what the log has lost the next owner would be reset again, to a later end. Nobody reads the records between.

    What is left of before is handled, and holds no commit back: no owner could read it.
    """
    bench = Bench(located=False, order="none", window=4, retry=Retry(attempts=3))
    bench.submit(keyed(P0, "--"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "--", start=50, seek=1))
    assert bench.engine.left_before_resets() == [P0]
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID, log_begin=50)
    assert bench.takes() == []
    assert bench.commit() == {P0: (50, (), {})}
    left = bench.takes()
    assert offsets(left) == [0, 1]
    assert bench.commit() == {P0: (50, (), {})}
    new = bench.takes()
    assert offsets(new) == [50, 51]
    bench.end(left[0], ValueError())
    bench.end(new[1])
    assert bench.commit() == {P0: (50, ((51, 52),), {})}
    bench.end(new[0])
    assert bench.commit() == {P0: (52, (), {})}
    bench.end(left[1])
    assert offsets(bench.takes()) == []
    bench.now = 60.0
    assert offsets(bench.takes()) == [0]


@pytest.mark.parametrize(("log_begin", "held_at"), [(-1, 0), (0, 0), (1, 1), (2, 50), (50, 50), (60, 50)])
def test_after_a_reset_commits_wait_for_what_the_log_still_has(log_begin: int, held_at: int) -> None:
    """It led beyond all that polls returned: by retention, or since the log was cut and has grown again. Where nobody
    tells where the log begins, it may have all that is left."""
    bench = Bench(located=False, order="none")
    bench.engine.submit(keyed(P0, "--"), (), [Stretch(0, 2, 2)])
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    assert bench.engine.left_before_resets() == []
    bench.submit(keyed(P0, "--", start=50, seek=1))
    assert bench.engine.left_before_resets() == [P0]
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID, log_begin=log_begin)
    tasks = bench.takes()
    assert offsets(tasks) == [0, 1, 50, 51], "all are handled"
    bench.end(tasks[3])
    assert bench.commit() == {P0: (held_at, ((51, 52),), {})}
    for task in tasks[:3]:
        bench.end(task)
    assert bench.commit() == {P0: (52, (), {})}


def test_what_the_log_has_lost_stays_lost_in_the_next_reset() -> None:
    """The rest of its poll is not lost with it. What nobody has handled, and no owner can read, is told."""
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "--"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "-", start=50, seek=1))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID, log_begin=1)
    bench.submit(keyed(P0, "-", start=60, seek=2))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    tasks = bench.takes()
    assert offsets(tasks) == [0, 1, 50, 60]
    bench.end(tasks[3])
    assert bench.commit() == {P0: (1, ((60, 61),), {})}
    assert bench.engine.missed == []
    bench.submit([], lost=[P0])
    assert [each.offset for each in bench.engine.missed] == [0]


@pytest.mark.rule("18")
def test_after_a_reset_a_commit_is_not_before_the_beginning_of_the_log() -> None:
    """Though nothing is lost: between the committed offset and what is unfinished the log was compacted."""
    bench = Bench(located=False, order="none")
    bench.engine.submit(keyed(P0, "-", start=40), (), [Stretch(10, 41, 1)])
    bench.engine.locate(P0, OffsetAndMetadata(offset=10), TOPIC_ID)
    bench.submit(keyed(P0, "--", start=41, seek=1))
    bench.engine.locate(P0, OffsetAndMetadata(offset=10), TOPIC_ID, log_begin=20)
    tasks = bench.takes()
    bench.end(tasks[1])
    assert bench.commit() == {P0: (40, ((41, 42),), {})}
    bench.end(tasks[0])
    assert bench.commit() == {P0: (42, (), {})}


def test_what_a_later_leader_has_is_not_lost() -> None:
    """Its log begins before that of the leader before, which had deleted more."""
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "--"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "-", start=50, seek=1))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID, log_begin=50)
    bench.submit(keyed(P0, "-", start=60, seek=2))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID, log_begin=1)
    tasks = bench.takes()
    bench.end(tasks[3])
    assert bench.commit() == {P0: (1, ((60, 61),), {})}
    bench.submit([], lost=[P0])
    assert [each.offset for each in bench.engine.missed] == [0]


def test_a_topic_id_that_is_not_told_once_is_not_forgotten() -> None:
    """So that a topic that was made again is seen at the next reset."""
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "--"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "--", start=10, seek=1))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), None)
    bench.submit(keyed(P0, "--", start=20, seek=2))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), OTHER_ID)
    assert offsets(bench.takes()) == [10, 11, 20, 21]


def test_what_the_log_has_lost_is_started_though_the_metadata_is_full() -> None:
    """No commit remembers it. All others would wait for it."""
    bench = Bench(order="none", log_begin=10, metadata_limit=16, retry=Retry(attempts=9, backoff=1.0, jitter=0.0))
    bench.submit(keyed(P0, "-"))
    bench.submit(keyed(P0, "-----", start=10, seek=1))
    for offset in (0, 10, 11, 12, 13):
        task = bench.take()
        assert task.offset == offset
        bench.end(task, None if offset in (11, 13) else ValueError())
    assert bench.takes() == [], "two ranges are all that it takes"
    bench.now = 1.0
    assert offsets(bench.takes()) == [0, 10]


@pytest.mark.parametrize("reset_to", [2, 50])
def test_a_letter_that_is_written_is_not_written_again_after_a_reset(reset_to: int) -> None:
    """Its database is still to be told: at once, or at the next try. Nor is its record handled again."""
    bench, error = Bench(order="none", after="dead-letter", has_store=True, retry=Retry(attempts=1)), ValueError()
    bench.submit(keyed(P0, "--"))
    tasks = bench.takes()
    for task in tasks:
        bench.end(task, error)
        task.letter_written = True
    bench.engine.wrote(tasks[0], ConnectionError(), bench.now, 0.5)
    bench.submit(keyed(P0, "-", start=reset_to, seek=1))
    again = bench.takes()
    assert offsets(again) == [0, 1, reset_to]
    assert [(each.error, each.writes_dead_letter, each.letter_written) for each in again] == [
        (error, True, True),
        (error, True, True),
        (None, False, False),
    ]
    assert bench.engine.untold() == again[:1]


@pytest.mark.parametrize("order", ["none", "partition"])
@pytest.mark.parametrize("after", ["skip", "dead-letter"])
def test_what_waits_to_be_told_to_the_store_is_not_handled_again_after_a_reset(after: str, order: str) -> None:
    """Also what waits for its next try, or for its key, and is not started."""
    bench, error = Bench(order=order, after=after, has_store=True, max_batch=3, retry=Retry(attempts=1)), ValueError()
    bench.submit(keyed(P0, "----"))
    bench.end(bench.take_batch(), error)
    bench.engine.wrote(bench.take(), ConnectionError(), bench.now, 0.5)
    bench.submit(keyed(P0, "-", start=50, seek=1))
    for offset in (0, 1, 2):
        task = bench.take()
        assert (task.offset, task.writes_dead_letter, task.is_skipped) == (offset, True, after == "skip")
        bench.engine.wrote(task, None, bench.now, 0.5)
    assert offsets(bench.take_batch().tasks) == [3, 50]


def test_what_two_resets_leave_is_handled_too() -> None:
    """The second one before it is known where the partition begins."""
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "--"))
    bench.submit(keyed(P0, "--", start=10, seek=1))
    bench.submit(keyed(P0, "--", start=11, seek=2))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    assert offsets(bench.takes()) == [0, 1, 10, 11, 12]


@pytest.mark.parametrize("topic_id", [OTHER_ID, None])
def test_after_a_reset_what_came_of_a_deleted_topic_is_dropped(topic_id: UUID | None) -> None:
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "----"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "--", start=2, seek=1))
    bench.engine.locate(P0, None, topic_id)
    assert bench.commit() == {P0: (2 if topic_id else 0, (), {})}
    assert offsets(bench.takes()) == ([2, 3] if topic_id else [0, 1, 2, 3])
    assert bench.engine.records == (2 if topic_id else 4)


@pytest.mark.parametrize(
    ("first", "second", "expected", "begin"),
    [(0, 20, [0, 1, 20, 21], 20), (0, 20, [0, 1, 20, 21], 0), (10, 11, [10, 11, 12], 10), (2, 3, [2, 3, 4], 2)],
)
def test_what_two_resets_leave_of_a_topic_that_was_made_again_is_handled(
    first: int, second: int, expected: list[int], begin: int
) -> None:
    """The first reset came since it was. Both came before it is known where the partition begins."""
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "----"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "--", start=first, seek=1))
    bench.submit(keyed(P0, "--", start=second, seek=2))
    bench.engine.locate(P0, None, OTHER_ID, log_begin=second if begin == second else 0)
    assert bench.commit() == {P0: (begin, (), {})}
    assert offsets(bench.takes()) == expected


def test_a_paused_partition_whose_topic_was_made_again_is_resumed() -> None:
    """It was paused before anybody knew where it begins."""
    bench = Bench(located=False, order="none", max_records=8)
    bench.submit(keyed(P0, "--"))
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), TOPIC_ID)
    bench.submit(keyed(P0, "----", seek=1))
    assert bench.engine.full() == [P0]
    bench.engine.locate(P0, OffsetAndMetadata(offset=0), OTHER_ID)
    assert offsets(bench.takes()) == [0, 1, 2, 3]
    assert bench.engine.ready() == [P0]


@pytest.mark.parametrize("is_known_before", [False, True])
@pytest.mark.parametrize("base", [98, 100, 102])
def test_what_is_remembered_of_a_log_that_was_cut_counts_no_more(base: int, *, is_known_before: bool) -> None:
    """A retention may delete what was committed, and then all of the rest is as it was."""
    told = Remembered(finished=((105, 110),), attempts={104: 1}, due={104})
    committed = OffsetAndMetadata(offset=100, metadata=encode(100, told, topic_id=TOPIC_ID, limit=4_000))
    bench = Bench(located=False, order="none", after="dead-letter")
    if is_known_before:
        bench.engine.locate(P0, committed, TOPIC_ID)
    bench.submit(keyed(P0, "-" * (110 - base), start=base, seek=int(base != 100)))
    if not is_known_before:
        bench.engine.locate(P0, committed, TOPIC_ID)
    tasks = bench.takes()
    is_cut = base < 100
    assert offsets(tasks) == list(range(base, 110 if is_cut else 105))
    assert [task.offset for task in tasks if task.attempts or task.writes_dead_letter] == ([] if is_cut else [104])
    assert {task.lane.reset_to for task in tasks} == {98 if is_cut else -1}


def test_what_this_owner_has_finished_beyond_the_cut_is_handled_again() -> None:
    """Other records are there now."""
    bench = Bench(located=False, order="none", retry=Retry(attempts=3, backoff=9.0))
    bench.submit(keyed(P0, "-" * 10, start=100))
    bench.engine.locate(P0, OffsetAndMetadata(offset=100), TOPIC_ID)
    tasks = bench.takes()
    bench.end(tasks[4], ValueError())
    for task in tasks[5:]:
        bench.end(task)
    told = bench.engine.committable()
    commit(told)
    bench.submit(keyed(P0, "-" * 7, start=103, seek=1))
    bench.engine.locate(P0, told[P0], TOPIC_ID)
    assert [(task.offset, task.attempts) for task in bench.takes()] == [(at, 0) for at in range(100, 110)]


def test_a_seek_to_where_the_database_says_is_no_reset() -> None:
    """What came from elsewhere is not handled: the database has it."""
    bench = Bench(located=False, order="none")
    bench.submit(keyed(P0, "---"))
    bench.engine.relocate(P0, OffsetAndMetadata(offset=2), TOPIC_ID)
    bench.submit(keyed(P0, "--", start=2, seek=1))
    tasks = bench.takes()
    assert offsets(tasks) == [2, 3]
    assert tasks[0].lane.reset_to == -1


def test_a_retry_waits_and_holds_up_its_key_only() -> None:
    bench = Bench(order="key", retry=Retry(attempts=3, backoff=2.0, jitter=0.0))
    bench.submit(keyed(P0, "aab"))
    first, other = bench.takes()
    verdict = bench.end(first, ValueError())
    assert verdict is not None
    assert (verdict.step, verdict.after) == (Step.RETRY, 2.0)
    bench.end(other)
    assert bench.takes() == []
    assert bench.engine.next_due() == 2.0
    bench.now = 2.0
    assert offsets(bench.takes()) == [0]
    bench.end(first, ValueError())
    assert bench.engine.next_due() == 6.0, "doubled"
    bench.now = 6.0
    assert bench.take() is first
    assert bench.end(first) is None
    assert offsets(bench.takes()) == [1]
    assert bench.engine.tally.retried == 2


def test_in_order_of_the_partition_a_retry_holds_up_the_partition() -> None:
    bench = Bench(order="partition", retry=Retry(attempts=2, backoff=1.0))
    bench.submit(keyed(P0, "ab") + keyed(P1, "ab"))
    first, other = bench.takes()
    bench.end(first, ValueError())
    bench.end(other)
    assert [task.record.topic_partition for task in bench.takes()] == [P1]


def test_a_record_that_fails_for_good_stops_the_processing() -> None:
    bench = Bench(order="none", retry=Retry(attempts=2, backoff=0.0))
    bench.submit(keyed(P0, "aaa"))
    first = bench.take()
    bench.end(first, ValueError())
    assert bench.take() is first
    error = ValueError("no such order")
    verdict = bench.end(first, error)
    assert verdict is not None
    assert verdict.step is Step.STOP
    assert bench.engine.failure is error
    assert error.__notes__ == ["while handling t-0 at offset 0, attempt 2"]
    assert bench.takes() == []
    assert bench.commit() == {P0: (0, (), {})}, "whoever starts it again has all attempts"


@pytest.mark.parametrize("after", ["skip", "dead-letter"])
def test_a_poisonous_record_stalls_nobody(after: Any) -> None:
    bench = Bench(order="key", after=after)
    bench.submit(keyed(P0, "aab"))
    first, other = bench.takes()
    verdict = bench.end(first, ValueError())
    assert verdict is not None
    if after == "dead-letter":
        assert verdict.step is Step.DEAD_LETTER
        bench.end(other)
        assert bench.takes() == [], "its key waits until the dead letter is acknowledged"
        assert bench.engine.hold([P0]) == {P0}, "it is started as long as it is not acknowledged"
        bench.engine.hold([])
        assert bench.commit() == {P0: (0, ((2, 3),), {})}
        assert bench.engine.wrote(first, None, bench.now, 0.5) is None
    assert offsets(bench.takes())[:1] == [1]
    assert (bench.engine.tally.skipped, bench.engine.tally.dead_lettered) == ((1, 0) if after == "skip" else (0, 1))


def test_a_dead_letter_that_was_not_written_is_written_later_and_not_handled_again() -> None:
    bench = Bench(after="dead-letter", retry=Retry(attempts=1, backoff=1.0, jitter=0.0))
    bench.submit(keyed(P0, "a"))
    task = bench.take()
    bench.end(task, ValueError())
    assert bench.engine.wrote(task, ConnectionError(), bench.now, 0.5) == 1.0
    assert bench.engine.started == 0
    assert bench.commit() == {P0: (0, (), {0: 1})}
    bench.now = 1.0
    assert bench.take() is task
    assert task.writes_dead_letter
    bench.engine.wrote(task, None, bench.now, 0.5)
    assert bench.commit() == {P0: (1, (), {})}


def test_the_next_owner_writes_the_dead_letter_of_a_record_without_attempts_left() -> None:
    heir = Bench(located=False, after="dead-letter", retry=Retry(attempts=2))
    heir.submit(keyed(P0, "ab"))
    first = Bench(after="dead-letter", retry=Retry(attempts=2, backoff=0.0))
    first.submit(keyed(P0, "ab"))
    task = first.take()
    first.end(task, ValueError())
    first.end(first.take(), ValueError())
    first.engine.wrote(task, ConnectionError(), first.now, 0.5)
    heir.engine.locate(P0, first.engine.committable()[P0], TOPIC_ID)
    assert [(task.offset, task.writes_dead_letter) for task in heir.takes()] == [(0, True), (1, False)]


@pytest.mark.parametrize(("attempts", "error"), [(5, ValueError()), (5, RetryRecord()), (None, ValueError())])
def test_who_allows_fewer_attempts_makes_one_before_the_letter(attempts: int | None, error: Exception) -> None:
    """A deployment may lower them, and mend what the records fail by: they have not been tried by it."""
    first = Bench(after="dead-letter", retry=Retry(attempts=attempts, backoff=0.0))
    heir = Bench(located=False, after="dead-letter", retry=Retry(attempts=3))
    first.submit(keyed(P0, "a"))
    for _ in range(3):
        first.end(first.take(), error)
    heir.submit(keyed(P0, "a"))
    heir.engine.locate(P0, first.engine.committable()[P0], TOPIC_ID)
    task = heir.take()
    assert (task.attempts, task.writes_dead_letter) == (3, False)
    verdict = heir.end(task, error)
    assert verdict is not None
    assert (verdict.step, task.attempts) == (Step.DEAD_LETTER, 4)


@pytest.mark.parametrize("after", ["dead-letter", "stop"])
def test_the_next_owner_writes_the_letter_that_a_handler_asked_for(after: Any) -> None:
    """Whatever attempts are left; unless it has no topic for it: then it is handled, and its letter due no more."""
    first, heir = Bench(after="dead-letter", retry=Retry(attempts=5)), Bench(located=False, after=after)
    first.submit(keyed(P0, "a"))
    task = first.take()
    first.end(task, DeadLetterRecord())
    first.engine.wrote(task, ConnectionError(), first.now, 0.5)
    heir.submit(keyed(P0, "a"))
    heir.engine.locate(P0, first.engine.committable()[P0], TOPIC_ID)
    task = heir.take()
    assert task.writes_dead_letter == (after == "dead-letter")
    assert (0 in task.lane.due) == (after == "dead-letter")


@pytest.mark.parametrize("deaths", [1, 2])
def test_the_next_owner_tries_what_a_process_died_under(deaths: int) -> None:
    """That gives attempts beyond those of `retry`: that these are used up does not say that a letter is due."""
    first, heir = (
        Bench(located=located, after="dead-letter", retry=Retry(attempts=deaths, backoff=0.0))
        for located in (True, False)
    )
    first.submit(keyed(P0, "a"))
    for _ in range(deaths):
        first.end(first.take(), HandlerDiedError("died"))
    told = first.engine.committable().get(P0, OffsetAndMetadata(offset=0))
    remembered = decode(told.metadata, 0, TOPIC_ID) or Remembered()
    assert remembered.attempts.get(0, 0) < deaths, "an heir of an older version would take the letter for due"
    heir.submit(keyed(P0, "a"))
    heir.engine.locate(P0, told, TOPIC_ID)
    assert not heir.take().writes_dead_letter


def test_the_next_owner_writes_no_dead_letter_of_what_was_skipped() -> None:
    """Though no attempt is left, and the database was not told."""
    first, heir = (Bench(located=located, after="dead-letter", has_store=True) for located in (True, False))
    first.submit(keyed(P0, "a"))
    task = first.take()
    first.end(task, SkipRecord())
    first.engine.wrote(task, ConnectionError(), first.now, 0.5)
    heir.submit(keyed(P0, "a"))
    heir.engine.locate(P0, first.engine.committable().get(P0, OffsetAndMetadata(offset=0)), TOPIC_ID)
    assert not heir.take().writes_dead_letter


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (SkipRecord(), Step.SKIP),
        (DeadLetterRecord(), Step.DEAD_LETTER),
        (RetryRecord(), Step.RETRY),
        (OSError(), Step.RETRY),
        (ValueError(), Step.DEAD_LETTER),
        (KeyboardInterrupt(), Step.STOP),
        (SystemExit(), Step.STOP),
        (DeserializationError("no", part="value", record=keyed(P0, "a")[0]), Step.DEAD_LETTER),
    ],
)
def test_what_a_handler_raises_says_what_becomes_of_the_record(error: BaseException, step: Step) -> None:
    bench = Bench(after="dead-letter", retry=Retry(attempts=2, on=OSError))
    bench.submit(keyed(P0, "a"))
    verdict = bench.end(bench.take(), error)
    assert verdict is not None
    assert verdict.step is step


def test_a_handler_says_when_it_is_to_be_tried_again() -> None:
    bench = Bench(retry=Retry(attempts=2, on=()))
    bench.submit(keyed(P0, "a"))
    bench.end(bench.take(), RetryRecord(after=17.0))
    assert bench.engine.next_due() == 17.0


class Busy(RetryRecord):
    """A user's, which says nothing to the class above it."""

    def __init__(self, **told: Any) -> None:
        vars(self).update(told)


@pytest.mark.parametrize("told", [{}, {"after": None}, {"after": "soon"}, {"after": -1.0}, {"after": float("nan")}])
def test_a_request_to_try_again_without_a_time_waits_as_the_policy_says(told: dict[str, Any]) -> None:
    bench, error = Bench(retry=Retry(attempts=2, backoff=3.0)), Busy(**told)
    bench.submit(keyed(P0, "a"))
    bench.end(bench.take(), error)
    assert bench.engine.next_due() == 3.0
    notes: list[str] = getattr(error, "__notes__", [])
    assert ["RetryRecord: after must be" in note for note in notes] == [True] * bool(told.get("after"))


@pytest.mark.rule("16")
def test_of_a_draining_partition_nothing_is_started_and_what_is_reassigned_goes_on() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "aaa") + keyed(P1, "aaa"))
    task = bench.take()
    assert bench.engine.hold([P0, P1]) == {P0}, "of the other nothing is at work"
    assert bench.takes() == []
    bench.end(task)
    assert bench.engine.is_urgent()
    bench.engine.hold([])
    assert offsets(bench.takes()) == [1, 2], "the other was released, and its queue dropped"


class Key:
    """Unlike bytes it can be asked whether anybody still has it."""


@pytest.mark.parametrize("is_tried", [False, True])
def test_of_what_is_released_no_record_is_kept(*, is_tried: bool) -> None:
    """The partition itself is known until it is gone: its revocation may wait for other partitions for long."""
    bench = Bench(order="none", retry=Retry(attempts=9, backoff=0.0))
    keys = [Key() for _ in range(3)]
    kept = [weakref.ref(each) for each in keys]
    bench.submit([ConsumerRecord(*P0, offset, epoch=1, key=keys.pop(), value=b"v") for offset in range(3)])
    if is_tried:
        bench.end(bench.take(), ValueError())
        bench.now = 1.0
        assert bench.engine.has_next(1.0), "it is due, and waits for nothing"
        assert bench.commit() == {P0: (0, (), {0: 1})}
    assert bench.engine.hold([P0]) == set()
    gc.collect()
    assert [each() for each in kept] == [None, None, None]
    bench.engine.stop()
    bench.engine.give_up()
    assert bench.commit() == {}


@pytest.mark.rule("16")
def test_what_is_lost_is_given_up_and_its_results_are_ignored() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "aaa") + keyed(P1, "a"))
    tasks = [task for task in bench.takes() if task.record.topic_partition == P0]
    bench.end(tasks[0])
    assert bench.submit(keyed(P0, "aa", start=1, epoch=2), lost=[P0]) == [1, 2]
    assert all(task.over for task in tasks[1:])
    assert bench.end(tasks[1]) is None
    assert bench.end(tasks[2], ValueError()) is None
    assert bench.engine.wrote(tasks[2], None, 0.0, 0.5) is None
    assert bench.engine.started == 1, "of the other partition"
    assert bench.commit() == {}
    assert offsets(bench.takes()) == [1, 2]
    assert bench.engine.tally.abandoned == 2


def test_a_retry_of_a_lost_partition_is_never_due() -> None:
    bench = Bench(retry=Retry(attempts=9, backoff=1.0))
    bench.submit(keyed(P0, "a"))
    bench.end(bench.take(), ValueError())
    bench.submit([], lost=[P0])
    bench.now = 5.0
    assert bench.takes() == []
    assert (bench.engine.queued, bench.engine.records, bench.engine.next_due()) == (0, 0, None)


def test_a_stop_starts_nothing_more_and_drops_what_comes() -> None:
    bench = Bench(order="none", retry=Retry(attempts=2, backoff=0.0))
    bench.submit(keyed(P0, "aaa"))
    first, second = bench.take(), bench.take()
    bench.engine.stop()
    assert bench.takes() == []
    assert bench.submit(keyed(P1, "a")) == []
    bench.end(first)
    bench.end(second, ValueError())
    assert bench.engine.is_at_rest()
    assert bench.takes() == []
    assert bench.engine.next_due() is None
    assert bench.commit() == {P0: (1, (), {1: 1})}


def test_what_is_given_up_at_the_end_is_named_in_order() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "aa") + keyed(P1, "a"))
    tasks = bench.takes()
    assert [(task.record.partition, task.offset) for task in bench.engine.give_up()] == [(0, 0), (0, 1), (1, 0)]
    assert bench.end(tasks[0]) is None
    assert bench.commit() == {}


def test_what_is_given_up_before_the_deadline_lets_the_rest_go() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "aaa") + keyed(P1, "a"))
    tasks = bench.takes()
    bench.end(tasks[0])
    assert bench.engine.give_up_of(P0) == [], "its revocation is not requested"
    assert bench.engine.hold([P0]) == {P0}
    assert [task.offset for task in bench.engine.give_up_of(P0)] == [1, 2]
    assert bench.end(tasks[2]) is None, "it is ignored"
    assert bench.engine.is_urgent()
    assert bench.commit() == {P0: (1, (), {})}
    assert bench.engine.hold([P0]) == set()
    assert (bench.engine.started, bench.engine.tally.abandoned) == (1, 2), "the other partition's goes on"


@pytest.mark.rule("16")
@pytest.mark.parametrize("order", ["none", "key", "partition"])
def test_what_was_given_up_is_handled_again_when_it_is_reassigned(order: Any) -> None:
    """The group asks for the partition, its deadline comes, and then the group lets us keep it after all."""
    bench = Bench(order=order)
    bench.submit(keyed(P0, "aba"))
    given_up = bench.takes()
    bench.engine.hold([P0])
    assert bench.engine.give_up_of(P0) == given_up
    bench.engine.hold([])
    assert bench.end(given_up[0]) is None, "it is ignored"
    handled = []
    while (task := bench.engine.take(bench.now)) is not None:
        handled.append(task.offset)
        bench.end(task)
    assert sorted(handled) == [0, 1, 2]
    assert bench.commit() == {P0: (3, (), {})}
    assert (bench.engine.queued, bench.engine.started, bench.engine.records) == (0, 0, 0)


@pytest.mark.rule("16")
def test_a_batch_that_was_given_up_is_handled_again_in_order() -> None:
    bench = Bench(order="key", max_batch=3)
    bench.submit(keyed(P0, "aab"))
    given_up = bench.take_batch()
    bench.engine.hold([P0])
    bench.engine.give_up_of(P0)
    bench.engine.hold([])
    assert bench.end(given_up) is None
    again = bench.take_batch()
    assert offsets(again.tasks) == [0, 1, 2]
    bench.end(again)
    assert bench.commit() == {P0: (3, (), {})}


BOUNDS = [{"max_records": 12}, {"max_bytes": 12}]
"""Here each record has one byte."""


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_partition_is_paused_with_half_as_much_as_there_is_room_for(bound: Any) -> None:
    bench = Bench(order="none", **bound)
    bench.submit(keyed(P0, "aaa"))
    assert bench.engine.full() == []
    assert bench.engine.capacity() == 4
    bench.submit(keyed(P0, "a", start=3))
    assert bench.engine.full() == [P0]
    assert bench.engine.full() == [], "each is named once"
    bench.submit(keyed(P1, "aa"))
    assert bench.engine.full() == [], "there is room for six, and these are two"
    bench.submit(keyed(P1, "a", start=2))
    assert bench.engine.full() == [P1]
    assert bench.engine.capacity() == 2


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_partition_is_resumed_with_a_quarter_of_that_or_nothing(bound: Any) -> None:
    bench = Bench(order="none", **bound)
    bench.submit(keyed(P0, "aaaa"))
    assert bench.engine.full() == [P0]
    tasks = [bench.take()]
    assert not bench.engine.wants_resuming(), "three are queued, and there is room for eight"
    tasks.append(bench.take())
    assert bench.engine.wants_resuming()
    assert bench.engine.ready() == [P0]
    assert bench.engine.ready() == []
    bench.submit(keyed(P0, "aaa", start=4))
    assert bench.engine.full() == [P0]
    assert bench.engine.ready() == []
    tasks += bench.takes()
    assert bench.engine.ready() == [P0], "nothing is queued"
    for task in tasks:
        bench.end(task)
    assert bench.engine.records == 0


@pytest.mark.parametrize("bound", BOUNDS)
def test_where_there_is_no_room_a_partition_without_a_queue_gets_a_record_at_a_time(bound: Any) -> None:
    bench = Bench(order="none", **bound)
    bench.submit(keyed(P0, "a" * 20))
    assert bench.engine.full() == [P0]
    assert bench.engine.capacity() == 1
    bench.submit(keyed(P1, "a"))
    assert bench.engine.full() == [P1]
    tasks = bench.takes()
    assert bench.engine.ready() == [P0, P1]
    for task in tasks[:14]:
        bench.end(task)
    assert bench.engine.capacity() == 2


def test_what_waits_for_a_commit_is_bounded_too() -> None:
    """While no coordinator says where a partition begins, or takes where it does, its records are there."""
    bench = Bench(order="none", located=False, max_records=12)
    bench.submit(keyed(P0, "aaaa"))
    assert bench.engine.full() == [P0]
    bench.engine.locate(P0, OffsetAndMetadata(offset=0))
    assert bench.engine.ready() == []
    bench.takes()
    assert bench.engine.ready() == [P0]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("stuck", [1, 3, 9])
@pytest.mark.parametrize("bound", [{"max_records": 1_000}, {"max_bytes": 1_000}])
def test_whatever_stands_still_the_bound_holds_and_the_others_go_on(stuck: int, bound: Any) -> None:
    """In the order of the partition: of some the first record never ends. Each poll brings what there is room for."""
    partitions = [TopicPartition("t", number) for number in range(12)]
    bench, paused, chance = Bench(order="partition", **bound), set[TopicPartition](), random.Random(stuck)
    ends, at_work, finished = Counter[TopicPartition](), set[TopicPartition](), Counter[TopicPartition]()
    for _ in range(500):
        flowing = sorted(set(partitions) - paused)
        if flowing:
            partition, count = chance.choice(flowing), min(200, bench.engine.capacity())
            bench.submit(keyed(partition, "a" * count, start=ends[partition]))
            ends[partition] += count
        assert bench.engine.records <= 1_000
        paused |= set(bench.engine.full())
        paused -= set(bench.engine.ready())
        for _ in range(200):
            task = bench.engine.take(0.0)
            if task is None:
                break
            assert isinstance(task, Task)
            if task.lane.partition in partitions[:stuck]:
                at_work.add(task.lane.partition)
            else:
                bench.end(task)
                finished[task.lane.partition] += 1
    assert at_work == set(partitions[:stuck])
    assert min(finished[each] for each in partitions[stuck:]) > 300


@pytest.mark.parametrize("count", [1, 3, 12, 100])
def test_at_the_bound_polls_are_few_and_large(count: int) -> None:
    """Of a backlog in so many partitions. A poll brings one's records, and is woken when one may be resumed."""
    partitions = [TopicPartition("t", number) for number in range(count)]
    bench, paused, ends = Bench(order="none", max_records=10_000), set[TopicPartition](), Counter[TopicPartition]()
    said, finished = Counter[str](), 0
    while finished < 30_000:
        flowing = [each for each in partitions if each not in paused]
        if flowing:
            partition = min(flowing, key=lambda each: ends[each])
            asked = min(500, bench.engine.capacity())
            bench.submit(keyed(partition, "-" * asked, start=ends[partition]))
            ends[partition] += asked
            said["polls"] += 1
        full = bench.engine.full()
        ready = bench.engine.ready()
        said.update(pause=bool(full), resume=bool(ready), rounds=1)
        paused = (paused | set(full)) - set(ready)
        while (task := bench.engine.take(0.0)) is not None:
            bench.end(task)
            finished += 1
            if bench.engine.wants_resuming() or (len(paused) < count and finished % 400 == 0):
                break
        assert said["rounds"] < 1_000
    assert said["polls"] * 300 < finished
    assert said["rounds"] * 250 < finished
    assert said["pause"] * 500 < finished
    assert said["resume"] * 500 < finished


def test_a_batch_may_grow_to_its_size() -> None:
    bench = Bench(order="none", max_records=12, max_batch=10, max_wait=1e9)
    bench.submit(keyed(P0, "a" * 9))
    assert bench.engine.full() == []
    bench.submit(keyed(P0, "aa", start=9))
    assert bench.engine.full() == [P0]
    assert len(bench.take_batch().tasks) == 10


def test_bytes_are_counted_until_their_record_is_finished_or_lost() -> None:
    bench = Bench(order="none", after="skip")
    bench.submit(keyed(P0, "abc") + keyed(P1, "ab"))
    assert bench.engine.bytes == 5
    tasks = bench.takes()
    assert bench.engine.bytes == 5
    bench.end(tasks[0])
    bench.end(tasks[1], ValueError())
    assert bench.engine.bytes == 3, "one is finished, one skipped"
    bench.submit([], lost=[P0])
    bench.engine.hold([P1])
    assert bench.engine.bytes == 1, "the lost partition's are gone"
    bench.submit([], lost=[P1])
    assert bench.engine.bytes == 0


def test_where_the_metadata_takes_no_more_only_the_first_unfinished_is_started() -> None:
    """Every second record is finished, so each is a range of its own."""
    bench = Bench(order="none", metadata_limit=80, per_partition=1 << 30)
    bench.submit(keyed(P0, "a" * 100))
    most, at_work = 0, []
    while (task := bench.engine.take(bench.now)) is not None:
        assert isinstance(task, Task)
        at_work.append(task)
        if task.offset % 2:
            bench.end(at_work.pop())
        most = max(most, len(bench.commit().get(P0, (0, (), {}))[1]))
    assert most < 10
    assert len(at_work) < 11
    for task in at_work:
        bench.end(task)
    assert offsets(bench.takes())[0] == 2 * len(at_work)


def test_a_broker_that_takes_less_metadata_is_told_less() -> None:
    bench = Bench(order="none", metadata_limit=200)
    bench.submit(keyed(P0, "aaa"))
    tasks = bench.takes()
    bench.end(tasks[1])
    assert bench.engine.shrink_metadata() == 100
    assert bench.commit() == {P0: (0, ((1, 2),), {})}
    assert bench.engine.shrink_metadata() == 0
    bench.end(tasks[2])
    assert bench.commit() == {P0: (0, (), {})}
    bench.submit(keyed(P0, "aaa", start=3))
    assert len(bench.takes()) == 3


def test_what_a_hand_over_waits_for_is_named() -> None:
    bench = Bench(order="none")
    bench.submit(keyed(P0, "aa"))
    assert bench.engine.waits_for(P0) is None
    first, second = bench.takes()
    assert bench.engine.waits_for(P0) is first.record
    bench.end(first)
    assert bench.engine.waits_for(P0) is second.record
    assert [task.offset for task in bench.engine.at_work()] == [1]
    assert bench.engine.waits_for(tp(7)) is None


def test_records_of_an_older_epoch_or_of_a_released_partition_are_dropped() -> None:
    bench = Bench()
    bench.submit(keyed(P0, "a", epoch=2))
    bench.submit(keyed(P0, "b", start=1, epoch=1))
    assert offsets(bench.takes()) == [0]
    bench.submit(keyed(P1, "a"))
    assert bench.engine.hold([P1]) == set()
    bench.submit(keyed(P1, "b", start=1))
    assert (bench.takes(), bench.engine.queued) == ([], 0)


def test_a_hand_over_waits_for_what_no_commit_has_said() -> None:
    """Two commits that say the same (the last of a drain, and one in flight) settle no more than one of them."""
    bench = Bench()
    bench.submit(keyed(P0, "--"))
    first, second = bench.takes()
    bench.end(first)
    in_flight, last = bench.engine.committable(), bench.engine.committable()
    assert commit(in_flight) == commit(last) == {P0: 1}
    bench.end(second)
    assert bench.engine.hold([P0]) == {P0}
    assert bench.engine.is_urgent()
    assert commit(bench.engine.committable()) == {P0: 2}
    assert bench.engine.hold([P0]) == set()


def finishing_while_a_commit_is_in_flight() -> tuple[Bench, CommitSnapshot]:
    """A bench where the first of two records is being committed, and the second is finished meanwhile."""
    bench = Bench()
    bench.submit(keyed(P0, "--"))
    first, second = bench.takes()
    bench.end(first)
    in_flight = bench.engine.committable()
    bench.end(second)
    return bench, in_flight


def test_a_hand_over_waits_for_what_was_finished_while_a_commit_was_in_flight() -> None:
    bench, in_flight = finishing_while_a_commit_is_in_flight()
    assert commit(in_flight) == {P0: 1}
    assert bench.engine.hold([P0]) == {P0}
    assert commit(bench.engine.committable()) == {P0: 2}


def test_a_hand_over_waits_for_no_commit_that_another_overtook() -> None:
    bench, overtaken = finishing_while_a_commit_is_in_flight()
    commit(bench.engine.committable())
    commit(overtaken)
    assert bench.engine.hold([P0]) == set()


@pytest.mark.rule("completing")
def test_a_hand_over_waits_for_no_commit_that_is_refused_for_good() -> None:
    """Of a topic that is gone, say. What is finished since is worth another commit, and so is what failed for now."""
    bench = Bench()
    bench.submit(keyed(P0, "ab"))
    first, second = bench.takes()
    bench.end(first)

    def fails(*, refused: bool) -> None:
        snapshot = bench.engine.committable()
        snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=refused)

    fails(refused=True)
    bench.end(second)
    fails(refused=False)
    assert bench.engine.hold([P0]) == {P0}
    assert bench.engine.is_urgent()
    fails(refused=True)
    assert not bench.engine.is_urgent()
    assert bench.engine.hold([P0]) == set()


def test_a_start_that_is_refused_for_good_is_tried_again_with_the_next_commit_alone() -> None:
    """Not in each round: that were fifty a second."""
    bench = Bench(located=False)
    bench.submit(keyed(P0, "a"))
    bench.engine.locate(P0, None)
    assert bench.engine.has_starts()
    snapshot = bench.engine.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
    assert not bench.engine.has_starts()
    assert P0 in bench.engine.committable().entries


@pytest.mark.parametrize("window", [0, 2])
def test_a_start_that_is_refused_for_good_hurries_no_poll(window: int) -> None:
    """As long as it is refused. Where it is accepted after all, the next start is to come soon again (law 11)."""
    bench = Bench(located=False, window=window)
    bench.submit(keyed(P0, "a"))
    assert bench.engine.is_beginning()
    bench.engine.locate(P0, None)
    assert bench.engine.is_beginning()
    snapshot = bench.engine.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
    assert not bench.engine.is_beginning()
    bench.commit()
    assert bench.engine.is_beginning() == bool(window)


@pytest.mark.rule("completing")
def test_a_hand_over_tries_once_more_what_was_refused_before_it() -> None:
    """The permission may have been granted again since."""
    bench = Bench()
    bench.submit(keyed(P0, "a"))
    bench.end(bench.take())
    for held in ({P0}, set[TopicPartition]()):
        snapshot = bench.engine.committable()
        snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
        assert bench.engine.hold([P0]) == held


def test_what_was_refused_for_good_is_offered_again() -> None:
    """The permission to read the topic may be granted again."""
    bench = Bench()
    bench.submit(keyed(P0, "a"))
    bench.end(bench.take())
    snapshot = bench.engine.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, refused=True)
    assert commit(bench.engine.committable()) == {P0: 1}


def test_a_stale_commit_is_not_offered_again() -> None:
    bench = Bench()
    bench.submit(keyed(P0, "a"))
    bench.end(bench.take())
    snapshot = bench.engine.committable()
    snapshot.settle(P0, snapshot.entries[P0], committed=False, stale=True)
    assert not bench.engine.committable()


def test_where_records_wait_and_none_is_finished_is_told() -> None:
    """A record that is tried again and again holds up its partition. One that nobody waits for does not."""
    bench = Bench(order="partition", retry=Retry(attempts=None, backoff=1.0, jitter=0.0))
    bench.submit([*keyed(P0, "ab"), *keyed(P1, "a")])
    for now in (0.0, 10.0, 20.0):
        bench.now = now
        for _ in (P0, P1):
            bench.end(bench.take(), OSError())
        assert bench.engine.stalled(now - 15.0) == ([P0] if now == 20.0 else [])
    bench.engine.hold([P0])
    assert bench.engine.stalled(20.0) == [], "it is another's soon"
    bench.engine.hold([])
    bench.now = 30.0
    while bench.engine.has_next(bench.now):
        bench.end(bench.take())
    bench.submit(keyed(P0, "c", 2))
    assert bench.engine.stalled(29.0) == [], "some was finished, and the new one waits since now"
    assert bench.engine.stalled(30.0) == [P0]
    bench.engine.stop()
    assert bench.engine.stalled(30.0) == []
