"""What one step of an `OffsetLedger` costs does not grow with what the step does not touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from instride import _arguments as arguments
from instride.commits import CommitSnapshot
from instride.consumer_records import Stretch
from instride.errors import OffsetGapError
from instride.ledger import OffsetLedger
from instride.records import ConsumerRecord, TopicPartition
from step_counter import steps

P0 = TopicPartition("t", 0)
FEW, MANY, NOISE = 10, 1_000, 60


def record(offset: int, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, epoch=1)


def settle(snapshot: CommitSnapshot) -> None:
    for partition, entry in snapshot.entries.items():
        snapshot.settle(partition, entry, committed=True)


def under_way(many: int) -> OffsetLedger:
    ledger = OffsetLedger()
    ledger.track([record(0, number) for number in range(1, many + 1)])
    return ledger


def idle(many: int) -> OffsetLedger:
    ledger = under_way(many)
    for number in range(1, many + 1):
        ledger.done(record(0, number))
    settle(ledger.committable())
    return ledger


def failed(many: int) -> OffsetLedger:
    ledger = under_way(many)
    for number in range(1, many + 1):
        ledger.fail(record(0, number), ValueError("bad"))
    for _ in range(many):
        with pytest.raises(ValueError, match="bad"):
            ledger.check()
    return ledger


def gaps(many: int) -> OffsetLedger:
    """Of each of the others a record was returned and never tracked."""
    ledger = under_way(many)
    for at in (0, 5):
        again = [record(at + 1, number) for number in range(1, many + 1)]
        ledger.track(again, stretches=[Stretch(at + 1, at + 2, 1)] * many)
    for _ in range(many):
        with pytest.raises(OffsetGapError):
            ledger.check()
    return ledger


def of_one_partition(many: int) -> OffsetLedger:
    """So many of P0's neighbour are finished behind one that is under way."""
    ledger = OffsetLedger()
    ledger.track([record(at, 1) for at in range(2 * many)])
    for at in range(1, 2 * many, 2):
        ledger.done(record(at, 1))
    return ledger


def a_record(ledger: OffsetLedger) -> None:
    ledger.done(record(1))


def a_poll(ledger: OffsetLedger) -> None:
    ledger.track([])
    ledger.track([record(9)])
    ledger.uncommitted([P0])
    ledger.oldest(P0)
    ledger.check()
    ledger.in_progress()


def a_commit(ledger: OffsetLedger) -> None:
    ledger.done(record(0))
    snapshot = ledger.committable()
    assert len(snapshot) == 1
    settle(snapshot)


def a_loss(ledger: OffsetLedger) -> None:
    ledger.forget([P0])


@pytest.mark.parametrize("step", [a_record, a_poll, a_commit, a_loss])
@pytest.mark.parametrize("world", [idle, under_way, failed, gaps, of_one_partition])
def test_a_step_costs_nothing_for_what_it_does_not_touch(
    world: Callable[[int], OffsetLedger], step: Callable[[OffsetLedger], Any]
) -> None:
    few, many = (world(each) for each in (FEW, MANY))
    for ledger in (few, many):
        ledger.track([record(at) for at in range(4)])
    one, two = steps(lambda: step(few)), steps(lambda: step(many))
    assert two <= one + NOISE, f"{one} steps with {FEW}, {two} with {MANY:,}"


def test_what_ended_behind_a_gap_costs_the_question_what_is_worth_a_delay_nothing() -> None:
    def asked(many: int) -> OffsetLedger:
        """One failed, and so many behind it; a gap follows, in which none is under way that could be committed."""
        ledger = OffsetLedger()
        ledger.track([record(at) for at in range(many)], stretches=[Stretch(0, many, many)])
        ledger.track([record(many + 5)], stretches=[Stretch(many + 5, many + 6, 1)])
        for at in range(1, many):
            ledger.done(record(at))
        ledger.fail(record(0), ValueError())
        assert ledger.uncommitted([P0]) == set()
        return ledger

    few, many = asked(FEW), asked(MANY)
    one, two = steps(lambda: few.uncommitted([P0])), steps(lambda: many.uncommitted([P0]))
    assert two <= one + NOISE, f"{one} steps with {FEW} records, {two} with {MANY:,}"


def test_a_commit_looks_at_no_entry_of_a_ledgers_snapshot() -> None:
    """They are of records that it has counted: only what a user builds is checked."""

    def taken(many: int) -> Callable[[], object]:
        ledger = under_way(many)
        for number in range(1, many + 1):
            ledger.done(record(0, number))
        snapshot = ledger.committable()
        return lambda: arguments.commit_offsets(snapshot)

    assert steps(taken(MANY)) <= steps(taken(FEW)) + NOISE
