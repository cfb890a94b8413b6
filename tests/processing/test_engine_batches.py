"""`Engine` with batches (law 8): when one is started, what is in it, and what becomes of one that fails."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from engine_help import TOPIC_ID, Bench, keyed
from processing_help import P0, P1, commit

from instride import OffsetAndMetadata, Retry
from instride._processing.engine import Batch
from instride._processing.retries import Step
from instride.errors import DeserializationError, HandlerDiedError


def offsets(batch: Batch) -> list[int]:
    return [task.offset for task in batch.tasks]


def test_a_batch_is_started_when_it_is_full_or_old_enough() -> None:
    bench = Bench(order="partition", max_batch=3, max_wait=2.0)
    bench.submit(keyed(P0, "ab"))
    bench.now = 1.0
    assert bench.engine.take(bench.now) is None
    assert bench.engine.next_due() == 2.0
    bench.submit(keyed(P0, "abab", start=2))
    first = bench.take_batch()
    assert offsets(first) == [0, 1, 2]
    assert bench.engine.take(bench.now) is None, "of a partition one at a time"
    bench.end(first)
    assert offsets(bench.take_batch()) == [3, 4, 5]
    bench.submit(keyed(P1, "a"))
    bench.now = 3.0
    assert offsets(bench.take_batch()) == [0]


@pytest.mark.parametrize(
    ("order", "batches"), [("partition", [[0, 1, 2]]), ("key", [[0, 1, 2], [4]]), ("none", [[0, 1, 2], [3, 4, 5]])]
)
def test_what_may_be_in_batches_at_the_same_time(order: Any, batches: list[list[int]]) -> None:
    """Keys a a b a c b: while the first batch has a and b, of the others only c may start."""
    bench = Bench(order=order, max_batch=3)
    bench.submit(keyed(P0, "aabacb"))
    found = []
    while (batch := bench.engine.take(bench.now)) is not None:
        assert isinstance(batch, Batch)
        found.append(batch)
    assert [offsets(each) for each in found] == batches
    for each in found:
        bench.end(each)
    rest = []
    while (batch := bench.engine.take(bench.now)) is not None:
        assert isinstance(batch, Batch)
        rest += offsets(batch)
        bench.end(batch)
    assert sorted([*chain(*batches), *rest]) == [0, 1, 2, 3, 4, 5]
    assert bench.commit() == {P0: (6, (), {})}
    assert (bench.engine.started, bench.engine.queued, bench.engine.records) == (0, 0, 0)


def test_of_a_batch_that_failed_each_record_is_tried_alone_in_the_order_of_its_key() -> None:
    bench = Bench(order="key", max_batch=10, retry=Retry(attempts=3, backoff=1.0, jitter=0.0), after="dead-letter")
    bench.submit(keyed(P0, "aab"))
    verdict = bench.end(bench.take_batch(), ValueError())
    assert verdict is not None
    assert verdict.step is Step.RETRY
    assert bench.engine.take(bench.now) is None
    bench.submit(keyed(P0, "ac", start=3))
    assert offsets(bench.take_batch()) == [4], "of another key, at once"
    bench.now = 1.0
    first, other = bench.take_batch(), bench.take_batch()
    assert (offsets(first), offsets(other)) == ([0], [2])
    assert bench.engine.take(bench.now) is None
    bench.end(first)
    second = bench.take_batch()
    assert offsets(second) == [1]
    bench.end(other)
    bench.end(second, ValueError())
    bench.now = 9.0
    second = bench.take_batch()
    bench.end(second, ValueError())
    letter = bench.take()
    assert (letter.offset, letter.writes_dead_letter, letter.attempts) == (1, True, 3)
    bench.engine.wrote(letter, None, bench.now, 0.5)
    assert offsets(bench.take_batch()) == [3]
    assert bench.engine.tally.dead_lettered == 1


def test_a_record_that_cannot_be_deserialized_is_found_by_trying_each_alone() -> None:
    bench = Bench(order="partition", max_batch=10, after="dead-letter")
    records = keyed(P0, "abc")
    bench.submit(records)
    error = DeserializationError("no", part="value", record=records[1])
    assert bench.end(bench.take_batch(), error) is None
    found = []
    while (job := bench.engine.take(bench.now)) is not None:
        if isinstance(job, Batch):
            found.append(offsets(job))
            bench.end(job, error if job.offset == 1 else None)
        else:
            bench.engine.wrote(job, None, bench.now, 0.5)
    assert found == [[0], [1], [2]]
    assert (bench.engine.tally.finished, bench.engine.tally.dead_lettered) == (2, 1)
    assert bench.commit() == {P0: (3, (), {})}


@pytest.mark.parametrize("after", ["skip", "stop"])
def test_a_batch_that_is_not_tried_again(after: Any) -> None:
    bench = Bench(order="key", max_batch=2, after=after)
    bench.submit(keyed(P0, "aaa"))
    bench.end(bench.take_batch(), ValueError())
    if after == "skip":
        assert bench.engine.tally.skipped == 2
        assert offsets(bench.take_batch()) == [2]
    else:
        assert bench.engine.take(bench.now) is None
        assert bench.engine.failure is not None
        assert bench.engine.failure.__notes__ == ["while handling t-0 at offset 0, attempt 1"]
        assert bench.commit() == {P0: (0, (), {})}


@pytest.mark.parametrize("after", ["dead-letter", "skip"])
def test_a_batch_that_failed_makes_room_for_the_next_call_of_its_partition(after: Any) -> None:
    """At once: perhaps no poll brings anything more."""
    bench = Bench(order="none", after=after, max_batch=3, per_partition=1)
    bench.submit(keyed(P0, "-" * 6))
    batch = bench.take_batch()
    assert bench.engine.take(bench.now) is None
    bench.end(batch, ValueError())
    assert bench.engine.has_next(bench.now)


@pytest.mark.rule("16")
def test_a_hand_over_waits_for_a_batch_and_a_loss_gives_all_of_it_up() -> None:
    bench = Bench(order="none", max_batch=2, max_wait=5.0)
    bench.submit(keyed(P0, "aaa"))
    batch = bench.take_batch()
    assert bench.engine.hold([P0]) == {P0}
    bench.now = 9.0
    assert bench.engine.take(bench.now) is None
    bench.engine.hold([])
    assert offsets(bench.take_batch()) == [2]
    assert bench.submit([], lost=[P0]) == [0, 1, 2]
    assert batch.over
    assert bench.end(batch) is None
    commit(bench.engine.committable())
    assert (bench.engine.started, bench.engine.records) == (0, 0)


def test_the_next_owner_of_a_batch_that_is_half_remembered_takes_the_rest() -> None:
    first, heir = Bench(order="none", max_batch=2), Bench(located=False, order="none", max_batch=10)
    first.submit(keyed(P0, "aaaa"))
    first.take_batch()
    first.end(first.take_batch())
    heir.submit(keyed(P0, "aaaaa"))
    heir.engine.locate(P0, first.engine.committable()[P0])
    assert offsets(heir.take_batch()) == [0, 1, 4]


def test_what_failed_in_a_batch_of_an_earlier_owner_is_tried_alone() -> None:
    """In one batch again, the record that is to blame would use up the attempts of all others."""
    options: dict[str, Any] = {"order": "none", "max_batch": 3, "retry": Retry(attempts=2), "after": "dead-letter"}
    first, heir = Bench(**options), Bench(located=False, **options)
    first.submit(keyed(P0, "---"))
    first.end(first.take_batch(), ValueError())
    heir.submit(keyed(P0, "---"))
    heir.engine.locate(P0, first.engine.committable()[P0], TOPIC_ID)
    found = [heir.take_batch() for _ in range(3)]
    assert [offsets(each) for each in found] == [[0], [1], [2]]
    for each in found:
        heir.end(each, ValueError() if each.offset == 1 else None)
    letter = heir.take()
    assert (letter.offset, letter.writes_dead_letter, letter.attempts) == (1, True, 2)
    assert heir.engine.tally.finished == 2


def test_what_was_in_a_batch_when_its_process_died_is_tried_by_the_next_owner() -> None:
    """Each record has three attempts then, those that wait for the first of their key too."""
    options: dict[str, Any] = {"order": "partition", "max_batch": 2, "after": "dead-letter"}
    first, heir = Bench(**options), Bench(located=False, **options)
    first.submit(keyed(P0, "--"))
    first.end(first.take_batch(), HandlerDiedError("died"))
    heir.submit(keyed(P0, "--"))
    heir.engine.locate(P0, first.engine.committable().get(P0, OffsetAndMetadata(offset=0)), TOPIC_ID)
    heir.end(heir.take_batch())
    assert heir.commit()[P0][0] > 0


def test_a_batch_that_takes_the_whole_queue_lets_its_partition_be_resumed() -> None:
    bench = Bench(order="partition", max_batch=5, max_records=10)
    bench.submit(keyed(P0, "-----"))
    assert bench.engine.full() == [P0]
    bench.take_batch()
    assert bench.engine.wants_resuming()
    assert bench.engine.ready() == [P0]
