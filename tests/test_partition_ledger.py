"""A partition's records in one epoch (`_partition_ledger`): what is finished beyond the first that is not."""

from __future__ import annotations

import random

import pytest

from instride._core.session_lease import Lease, Standing
from instride._partition_ledger import (
    CANCELLED,
    FAILED,
    FINISHED,
    UNDER_WAY,
    Block,
    PartitionLedger,
    PolledRanges,
    standing_of,
    stretches_of,
)
from instride.consumer_records import ConsumerRecords
from instride.records import ConsumerRecord, OffsetRange, TopicPartition

TP = TopicPartition("t", 0)


def block(*offsets: int, start: int = -1, until: int = -1, leader_epoch: int = 5) -> Block:
    made = Block([ConsumerRecord("t", 0, each, epoch=1, leader_epoch=leader_epoch) for each in offsets])
    made.start, made.until = start, until
    return made


def run(*blocks: Block, finished: tuple[int, ...] = ()) -> PartitionLedger:
    made = PartitionLedger(TP, 1, 0)
    for each in blocks:
        made.add(each)
    for offset in finished:
        assert made.mark(offset, FINISHED)
    return made


@pytest.mark.parametrize(
    ("finished", "first", "beyond"),
    [
        ((), 0, []),
        ((0, 1), 2, []),
        ((1,), 0, [(1, 2)]),
        ((1, 2, 4), 0, [(1, 3), (4, 5)]),
        ((0, 2, 3, 5), 1, [(2, 4), (5, 6)]),
        ((5, 4, 3, 2, 1), 0, [(1, 6)]),
        ((0, 1, 2, 3, 4, 5), -1, []),
    ],
)
def test_what_is_finished_beyond_the_first_that_is_not(
    finished: tuple[int, ...], first: int, beyond: list[tuple[int, int]]
) -> None:
    made = run(block(0, 1, 2, 3, 4, 5), finished=finished)
    assert (made.first_unfinished(), made.finished_beyond()) == (first, beyond)


def test_a_stretch_goes_on_from_block_to_block() -> None:
    """Blocks of two leader epochs are not joined, and one that is finished stays until those before it are."""
    made = run(block(0, 1, 2), block(3, 4, leader_epoch=6), block(5, 6), finished=(1, 2, 3, 4, 5))
    assert made.finished_beyond() == [(1, 6)]
    made.mark(0, FINISHED)
    assert (made.first_unfinished(), made.finished_beyond(), made.next_offset) == (6, [], 6)


def test_a_stretch_has_the_gaps_that_the_log_has() -> None:
    assert run(block(0, 3, 7, 9), finished=(3, 7)).finished_beyond() == [(3, 8)]


def test_ranges_are_counted_as_they_are_told() -> None:
    """Over several blocks, whatever state a record is in."""
    chance = random.Random(3)
    for _ in range(200):
        made, records = PartitionLedger(TP, 1, 0), list(range(chance.randrange(1, 24)))
        rest = list(records)
        while rest:
            count = chance.randrange(1, 9)
            # Of another leader epoch, a block is not joined with the one before.
            made.add(block(*rest[:count], leader_epoch=len(rest)))
            rest = rest[count:]
        chance.shuffle(records)
        for offset in records:
            made.mark(offset, chance.choice([FINISHED, FINISHED, FAILED, CANCELLED, UNDER_WAY]))
            assert made.ranges_beyond() == len(made.finished_beyond())


def test_nothing_is_finished_beyond_a_gap_that_the_log_does_not_have() -> None:
    """It could not be committed: records between were polled, and nobody has tracked them."""
    made = run(block(0, 1, until=2), block(5, 6, start=5, until=7), finished=(1, 5))
    assert made.gap is not None
    assert made.finished_beyond() == [(1, 2)]


def test_a_range_is_finished_to_its_end() -> None:
    ranges = [
        OffsetRange(topic="t", partition=0, start=start, end=start + 10, epoch=1, seek_number=0)
        for start in (0, 10, 20)
    ]
    made = run(Block(ranges), finished=(10, 20))
    assert (made.first_unfinished(), made.finished_beyond()) == (0, [(10, 30)])


def test_a_record_is_found_until_it_is_finished() -> None:
    made = run(block(0, 1, 2), block(7, 8, leader_epoch=6), finished=(1,))
    assert [made.record_at(offset).offset for offset in (0, 2, 7, 8)] == [0, 2, 7, 8]


def test_only_what_a_poll_returned_knows_its_standing() -> None:
    standing = Standing(Lease(), 0)
    polled: ConsumerRecords[bytes, bytes] = ConsumerRecords([], standing)
    assert standing_of(polled) is standing
    assert standing_of(PolledRanges(standing)) is standing
    assert standing_of([]) is None
    assert stretches_of(polled) == []
    assert stretches_of(PolledRanges(standing)) is None
