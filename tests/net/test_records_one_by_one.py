"""`for record in consumer`: whatever ends the loop, no record is lost, and no commit covers one that it did not get."""

from __future__ import annotations

from itertools import islice

import pytest

from instride import Consumer, ConsumerRecords, TopicPartition
from instride._core.events import Fetched, Positioned, Wakeup
from instride.errors import WakeupError
from instride.testing._simulation.chunk import SimulatedChunk
from step_counter import calls

TP = TopicPartition("t", 0)


@pytest.fixture
def consumer(consumer: Consumer) -> Consumer:
    """Ten records of t-0 have come to it."""
    consumer._driver._mailbox.deliver(
        [Positioned(partition=TP, epoch=1, seek_number=0, offset=0), fetched(0, 10, fetch_number=0)]
    )
    return consumer


def fetched(start: int, end: int, *, fetch_number: int) -> Fetched:
    chunk = SimulatedChunk(topic="t", partition=0, first_offset=start, next_offset=end)
    return Fetched(
        partition=TP,
        epoch=1,
        fetch_number=fetch_number,
        start=start,
        chunk=chunk,
        next_offset=end,
    )


def test_a_loop_that_was_left_goes_on_behind_the_last_record_that_it_got(consumer: Consumer) -> None:
    got = []
    for record in consumer:
        got.append(record.offset)
        if len(got) == 3:
            break
    assert consumer.position(TP) == 3, "what a commit without offsets, and auto-commit, would say"
    for record in consumer:
        got.append(record.offset)
        if len(got) == 5:
            break
    assert got == [0, 1, 2, 3, 4]
    assert [record.offset for record in consumer.poll(timeout=0)] == [5, 6, 7, 8, 9]


def test_a_step_that_finds_nothing_polls_again(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a poll returns with the news of a rebalance alone."""
    real, polls = consumer.poll, []

    def poll(*, max_records: int) -> ConsumerRecords[bytes, bytes]:
        polls.append(max_records)
        return real(max_records=max_records) if len(polls) > 2 else ConsumerRecords(())

    monkeypatch.setattr(consumer, "poll", poll)
    assert next(consumer).offset == 0
    assert polls == [1, 1, 1]


def test_an_exception_in_the_loop_loses_no_record_behind_it(consumer: Consumer) -> None:
    def work() -> None:
        for record in consumer:
            if record.offset == 2:
                raise ConnectionError("the database is away for a moment")

    with pytest.raises(ConnectionError):
        work()
    assert next(iter(consumer)).offset == 3


def test_a_seek_in_the_loop_drops_what_was_fetched_before(consumer: Consumer) -> None:
    got = []
    for record in consumer:
        got.append(record.offset)
        if got == [0, 1, 2]:
            consumer.seek(TP, 50)
            consumer._driver._mailbox.deliver([fetched(50, 60, fetch_number=1)])
        if len(got) == 5:
            break
    assert got == [0, 1, 2, 50, 51]


def test_an_error_that_a_step_raises_ends_no_iterator(consumer: Consumer) -> None:
    records = iter(consumer)
    assert next(records).offset == 0
    consumer._driver._mailbox.deliver([Wakeup()])
    with pytest.raises(WakeupError):
        next(records)
    assert next(records).offset == 1


def test_a_record_costs_a_small_poll_and_no_more(consumer: Consumer) -> None:
    """docs/consumer.md tells how much. A poll's way where nothing but records is due (polling, law 11)."""
    records = iter(consumer)
    next(records)
    made = calls(lambda: list(islice(records, 8)))
    assert made < 8 * 200
