"""When a partition is paused and resumed, at the edges of its share."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from processing_help import P0, tp

from instride import TopicPartition
from instride._processing.back_pressure import BelowShare, has_its_share, may_resume


@dataclass
class Queue:
    queued: int
    records: int
    size: int
    partition: TopicPartition = P0


@pytest.mark.parametrize(
    ("queue", "free", "free_bytes", "paused", "resumed"),
    [
        (Queue(0, 0, 0), 0, 0, True, True),
        (Queue(1, 1, 1), 9, 0, True, False),
        (Queue(4, 4, 4), 9, 900, False, False),
        (Queue(5, 5, 5), 10, 900, True, False),
        (Queue(2, 2, 2), 8, 900, False, True),
        (Queue(3, 3, 3), 8, 900, False, False),
        (Queue(2, 4, 200), 100, 200, True, False),
        (Queue(2, 4, 200), 100, 201, False, False),
        (Queue(2, 4, 200), 100, 400, False, True),
        (Queue(2, 4, 200), 100, 399, False, False),
    ],
)
def test_its_share_is_half_and_a_quarter_resumes(
    queue: Queue, free: int, free_bytes: int, paused: bool, resumed: bool
) -> None:
    assert (has_its_share(queue, free, free_bytes), may_resume(queue, free, free_bytes)) == (paused, resumed)


def test_a_batch_grows_to_its_size() -> None:
    assert not has_its_share(Queue(5, 5, 5), 10, 900, batch=6)
    assert has_its_share(Queue(5, 5, 5), 10, 900, batch=5)


def test_what_did_not_change_has_its_share_when_less_space_is_left() -> None:
    """Whatever it is that grows less, and however the others are: none is missed, and none is looked at in vain."""
    chance = random.Random(5)
    for _ in range(300):
        batch = chance.choice([0, 1, 4])
        below: BelowShare[Queue] = BelowShare(batch)
        queues = [some_queue(tp(number), chance) for number in range(5)]
        for each in queues:
            below.keep(each)
        free = free_bytes = 1 << 20
        while queues:
            free, free_bytes = (
                free - chance.randrange(free // 2 + 2),
                free_bytes - chance.randrange(free_bytes // 2 + 2),
            )
            full = [each for each in queues if has_its_share(each, free, free_bytes, batch=batch)]
            concerned = list(below.concerned(free, free_bytes).values())
            assert [each for each in concerned if has_its_share(each, free, free_bytes, batch=batch)] == full
            queues = [each for each in queues if each not in full]
            for each in concerned:
                if each not in full:
                    below.keep(each)
            assert bool(concerned) == bool(full)


def some_queue(partition: TopicPartition, chance: random.Random) -> Queue:
    queued, size = chance.randrange(1, 9), chance.randrange(1, 900)
    return Queue(queued, queued + chance.randrange(3), size, partition)
