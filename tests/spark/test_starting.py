"""What a start costs the thread that polls."""

from __future__ import annotations

import queue
from typing import Any, cast

from run_help import PATIENCE, MemorySink, tp

from instride.errors import KafkaTimeoutError
from instride.records import TopicPartition
from instride.spark._starting import Started, Starts

MANY = 200


class Unknowing:
    """A consumer that does not know yet where any partition begins. asked: how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def pause(self, partitions: list[TopicPartition]) -> None: ...

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        self.asked += 1
        raise KafkaTimeoutError("not known yet")


def test_what_the_sink_tells_of_a_partition_costs_a_look_at_that_one() -> None:
    """Not at all that have no position yet: of 1,000 partitions that would be half a million looks."""
    consumer, told = Unknowing(), queue.SimpleQueue[Started]()
    starts = Starts(
        cast(Any, consumer), cast(Any, MemorySink()), topic_id=lambda _: "", tell=told.put, fail=lambda _: None
    )
    starts.begin(map(tp, range(MANY)))
    for _ in range(MANY):
        starts.take(told.get(timeout=PATIENCE))
    assert consumer.asked == MANY
    starts.look()
    assert consumer.asked == 2 * MANY
    starts.close()
