"""What one step of a `PartitionExecutor` costs does not grow with what the step does not touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from processing_help import P0, commit, records, tp

from instride import ConsumerRecord, TopicPartition
from instride._processing.partition_queues import PartitionQueues, Task
from step_counter import steps

Queues = PartitionQueues[ConsumerRecord]
FEW, MANY, NOISE = 10, 200, 60


def others(many: int) -> list[TopicPartition]:
    return [tp(number) for number in range(1, many + 1)]


def queues(many: int, *, each: int, room: int = 1 << 30) -> Queues:
    found: Queues = PartitionQueues(max_records=room, max_bytes=1 << 40, size=lambda _: 1)
    found.submit([record for partition in others(many) for record in records(partition, *range(each))])
    return found


def started(found: Queues) -> Iterator[Task[ConsumerRecord]]:
    while (task := found.take()) is not None:
        yield task


def idle(many: int) -> Queues:
    found = queues(many, each=1)
    for task in list(started(found)):
        found.end(task)
    commit(found.ledger.committable())
    return found


def at_work(many: int) -> Queues:
    """Each of the others has one record at work and two that wait."""
    found = queues(many, each=3)
    for _ in range(many):
        found.take()
    return found


def failed(many: int) -> Queues:
    """Each of the others has a failed record, which nobody settles."""
    found = queues(many, each=2)
    for _ in range(many):
        task = found.take()
        assert task is not None
        found.end(task, ValueError())
    return found


def paused(many: int) -> Queues:
    """With what comes of P0 there is no space left."""
    return queues(many, each=2, room=2 * many + 10)


def finished(many: int) -> Queues:
    """What is finished of the others is not committed yet."""
    found = queues(many, each=1)
    for task in list(started(found)):
        found.end(task)
    return found


def a_round(found: Queues) -> None:
    """Whose poll brings nothing, but for the commit."""
    found.submit([])
    assert found.has_next()
    found.hold(())
    found.full()
    found.ready()
    while found.next_error() is not None:
        pass


def busy(found: Queues) -> Queues:
    found.submit(records(P0, *range(8)))
    a_round(found)
    return found


def a_record(found: Queues) -> None:
    task = found.take()
    assert task is not None
    found.end(task)


def a_round_that_brings(found: Queues) -> None:
    found.submit(records(P0, 9))
    a_round(found)


WORLDS = [idle, at_work, failed, paused, finished]


@pytest.mark.parametrize("step", [a_record, a_round, a_round_that_brings])
@pytest.mark.parametrize("world", WORLDS)
def test_a_step_costs_nothing_for_what_it_does_not_touch(
    world: Callable[[int], Queues], step: Callable[[Queues], Any]
) -> None:
    few, many = (busy(world(each)) for each in (FEW, MANY))
    one, two = steps(lambda: step(few)), steps(lambda: step(many))
    assert two <= one + NOISE, f"{one} steps with {FEW} partitions, {two} with {MANY}"
