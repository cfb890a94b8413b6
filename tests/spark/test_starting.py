"""What a start costs the thread that polls, and who asks for topics' ids."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest
from run_help import PATIENCE, MemorySink, tp

from instride.errors import KafkaTimeoutError, UnknownTopicOrPartitionError, WakeupError
from instride.records import PartitionInfo, TopicPartition
from instride.spark import _starting
from instride.spark._starting import Started, Starts, TopicIds

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


class Opened:
    """A consumer of a broker from before topics had ids. all_: those that were opened. then: called when one has been
    opened.
    """

    found: ClassVar[list[PartitionInfo]] = [PartitionInfo(topic="t", partition=0, leader=None)]

    def __init__(self, all_: list[Opened], then: Callable[[], None]) -> None:
        self.asked, self.closed = 0, False
        all_.append(self)
        then()

    def partitions_for(self, topic: str, *, timeout: float) -> list[PartitionInfo]:
        self.asked += 1
        return self.found

    def wakeup(self) -> None: ...

    def close(self, *, timeout: float) -> None:
        self.closed = True


def test_a_topic_that_a_broker_does_not_know_is_none_without_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that had just started: from then on nothing would tell the topic from one that was made again."""
    monkeypatch.setattr(_starting, "Consumer", lambda: Opened([], lambda: None))
    monkeypatch.setattr(Opened, "found", [])
    ids = TopicIds({})
    with pytest.raises(UnknownTopicOrPartitionError) as raised:
        ids("t")
    assert raised.value.retriable, "it is asked again"
    ids.close()


def test_an_id_that_is_known_is_not_taken_away() -> None:
    told, answers = queue.SimpleQueue[Started](), ["an id", ""]
    starts = Starts(
        cast(Any, Unknowing()),
        cast(Any, MemorySink()),
        topic_id=lambda _: answers.pop(0),
        tell=told.put,
        fail=lambda _: None,
    )
    for partition in range(2):
        starts.begin([tp(partition)])
        starts.take(told.get(timeout=PATIENCE))
    assert starts.topic_ids == {"t": "an id"}
    starts.close()


def test_a_topic_that_is_looked_up_after_the_end_opens_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would have closed it: its thread and connections stayed."""
    opened: list[Opened] = []
    monkeypatch.setattr(_starting, "Consumer", lambda: Opened(opened, lambda: None))
    ids, used = TopicIds({}), TopicIds({})
    ids.close()
    assert used("t") == ""
    used.close()
    for each in (ids, used):
        with pytest.raises(WakeupError):
            each("t")
    assert [(each.asked, each.closed) for each in opened] == [(1, True)]


def test_a_consumer_that_is_opened_while_the_run_ends_is_closed_and_asks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`close` found no consumer to wake, and waited for a broker's response."""
    opened: list[Opened] = []
    ids = TopicIds({})
    closing = threading.Thread(target=ids.close)

    class Lock:
        """`close` is at it as soon as somebody has opened a consumer."""

        lock, wanted = threading.Lock(), threading.Event()

        def __enter__(self) -> None:
            if threading.current_thread() is closing:
                self.wanted.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def then() -> None:
        closing.start()
        assert Lock.wanted.wait(PATIENCE)

    monkeypatch.setattr(_starting, "Consumer", lambda: Opened(opened, then))
    monkeypatch.setattr(ids, "_lock", Lock())
    with pytest.raises(WakeupError):
        ids("t")
    closing.join(PATIENCE)
    assert [(each.asked, each.closed) for each in opened] == [(0, True)]
