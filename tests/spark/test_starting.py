"""What a start costs the thread that polls, and who asks for topics' ids."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from typing import Any, ClassVar, cast

import pytest
from run_help import PATIENCE, MemorySink, tp

from instride.errors import KafkaTimeoutError, UnknownTopicOrPartitionError, WakeupError
from instride.records import PartitionInfo, TopicPartition
from instride.spark import _pipeline, _starting
from instride.spark._pipeline import Pipeline
from instride.spark._starting import Started, Starts, TopicLookup

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
    ids = TopicLookup({})
    with pytest.raises(UnknownTopicOrPartitionError) as raised:
        ids.topic_id("t")
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
    ids, used = TopicLookup({}), TopicLookup({})
    ids.close()
    assert used.topic_id("t") == ""
    used.close()
    for each in (ids, used):
        with pytest.raises(WakeupError):
            each.topic_id("t")
    assert [(each.asked, each.closed) for each in opened] == [(1, True)]


def test_a_consumer_that_is_opened_while_the_run_ends_is_closed_and_asks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`close` found no consumer to wake, and waited for a broker's response."""
    opened: list[Opened] = []
    ids = TopicLookup({})
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
        ids.topic_id("t")
    closing.join(PATIENCE)
    assert [(each.asked, each.closed) for each in opened] == [(0, True)]


class Ends(Opened):
    """topics: how many partitions each has. asked_ends: of which partitions the ends were asked. error: of that."""

    def __init__(self, topics: dict[str, int], error: Exception | None = None) -> None:
        super().__init__([], lambda: None)
        self.topics = topics
        self.error = error
        self.asked_ends: list[set[TopicPartition]] = []

    def list_topics(self, names: Collection[str], *, timeout: float) -> dict[str, list[PartitionInfo]]:
        """One request."""
        self.asked += 1
        return {
            topic: [PartitionInfo(topic=topic, partition=each, leader=None) for each in range(count)]
            for topic, count in self.topics.items()
            if topic in names
        }

    def partitions_for(self, topic: str, *, timeout: float) -> list[PartitionInfo]:
        return self.list_topics([topic], timeout=timeout).get(topic, [])

    def end_offsets(self, partitions: set[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
        self.asked_ends.append(partitions)
        if self.error is not None:
            raise self.error
        return dict.fromkeys(partitions, 7)


GONE = TopicPartition("gone", 0)


def test_only_logs_that_are_ours_and_there_are_asked_for_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member asked for all of its group's. To ask a leader for what is gone is an error, also of what is there."""
    consumer = Ends({"t": 2})
    monkeypatch.setattr(_starting, "Consumer", lambda: consumer)
    lookup = TopicLookup({})
    assert lookup.ends([tp(0), tp(1), tp(2), GONE], [tp(0), GONE]) == {tp(0): 7, tp(1): None}
    assert lookup.ends([tp(1), GONE], [GONE]) == {tp(1): None}
    assert consumer.asked_ends == [{tp(0)}]
    assert consumer.asked == 2, "one request a look, however many topics"
    lookup.close()


def test_what_is_gone_is_known_though_a_log_has_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends wait for the slowest: for as long as it had none, nobody learnt that another topic was gone."""
    monkeypatch.setattr(_starting, "Consumer", lambda: Ends({"t": 2}, KafkaTimeoutError("no leader")))
    lookup = TopicLookup({})
    assert lookup.ends([tp(0), tp(1), GONE], [tp(0), tp(1)]) == {tp(0): None, tp(1): None}
    lookup.close()


def test_a_start_does_not_wait_for_the_ends_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both had one consumer: what was newly assigned stood still for as long as a leader was away."""
    asked, let_go, waited = threading.Event(), threading.Event(), list[bool]()

    class Slow(Ends):
        def end_offsets(self, partitions: set[TopicPartition], *, timeout: float) -> dict[TopicPartition, int]:
            asked.set()
            waited.append(let_go.wait(PATIENCE))
            return super().end_offsets(partitions, timeout=timeout)

    class Loop:
        """In place of the run's."""

        def __init__(self, *_: object, **given: Any) -> None:
            self.topic_id, self.ends = given["topic_id"], given["ends"]

        def run(self, _: object) -> None:
            look = threading.Thread(target=self.ends, args=([tp(0)], [tp(0)]))
            look.start()
            assert asked.wait(PATIENCE)
            assert self.topic_id("t") == ""
            let_go.set()
            look.join()

    consumers: list[Slow] = []

    def opened(**_: object) -> Slow:
        consumers.append(Slow({"t": 1}))
        return consumers[-1]

    monkeypatch.setattr(_starting, "Consumer", opened)
    monkeypatch.setattr(_pipeline, "PipelineLoop", Loop)
    monkeypatch.setattr(Pipeline, "_prepared", lambda _: (None, None))
    Pipeline(
        cast(Any, None),
        topics=["t"],
        group_id="g",
        bootstrap_servers="localhost:9092",
        function=print,
        sink=cast(Any, MemorySink()),
    ).run()
    assert waited == [True]
    assert [each.closed for each in consumers] == [True, True]
