"""The reader of a query in group mode: what Spark asks it, with a scripted consumer in its group, and no Spark."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from member_help import PATIENCE, Scripted, done, records
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from instride.errors import (
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    OffsetsGoneError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from instride.errors.broker import GroupAuthorizationFailedError
from instride.records import OffsetRange, TopicPartition
from instride.spark._data_source import group_member, group_stream, stream
from instride.spark._data_source.admission import Sample
from instride.spark._data_source.group_stream import GroupStreamReader
from instride.spark._data_source.offsets import BatchPlan, GroupMark, Span
from instride.spark._data_source.options import parse_options
from instride.spark._data_source.reading import RangesPartition
from instride.telemetry import ResetCause

P0, P1 = (TopicPartition("t", number) for number in range(2))
OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "consumerGroup": "billing"}
Offset = dict[str, Any]


class Cluster:
    """What the driver asks the brokers."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.gone: list[TopicPartition] = []
        self.later: list[dict[TopicPartition, int]] = []
        self.sampled: list[tuple[str, dict[TopicPartition, Span]]] = []
        self.closed = False

    def partitions(self, _topics: object) -> list[TopicPartition]:
        """What is gone is deleted after the first look. What comes later is there from one of the next looks on."""
        if self.later:
            self.ends |= self.later.pop(0)
        gone, self.gone = self.gone, []
        return [*self.ends, *gone]

    def latest(self, partitions: Iterable[TopicPartition], **_: float) -> dict[TopicPartition, int]:
        try:
            return {each: self.ends[each] for each in partitions}
        except KeyError:
            raise KafkaTimeoutError("no leader") from None

    def sample(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Sample]:
        self.sampled.append((threading.current_thread().name, dict(spans)))
        return {each: Sample(start=s.start, first=s.start, end=s.end, nbytes=100 * 10) for each, s in spans.items()}

    def close(self) -> None:
        self.closed = True


class Query:
    """A query's source. Its consumer has what the group has of both partitions: nothing is committed at first."""

    def __init__(self, **options: str) -> None:
        self.reader = GroupStreamReader(parse_options(OPTIONS | options, "stream"))
        self.cluster = Cluster()
        self.reader._cluster = self.cluster  # type: ignore[assignment]  # scripted
        self.consumer = Scripted()
        self.consumer.group_has = {P0: 0, P1: 0}
        self.settings: dict[str, Any] = {}

    def built(self, **settings: Any) -> Scripted:
        self.settings = settings
        return self.consumer

    @property
    def start(self) -> Offset:
        return self.reader.initialOffset()

    def latest(self, start: Offset, limit: ReadLimit | None = None) -> Offset:
        return self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())

    def begins(self) -> Offset:
        """The first batch, which has nothing; then it owns both partitions."""
        first = self.latest(self.start)
        self.consumer.turn(self.assigns(P0, P1))
        return first

    def assigns(self, *partitions: TopicPartition) -> Callable[[], Iterable[OffsetRange]]:
        def play() -> Iterable[OffsetRange]:
            self.consumer.listener.on_partitions_assigned(partitions)
            return ()

        return play

    def is_asked(self) -> bool:
        """A request of Spark's waits for the member."""
        member = self.reader._member
        return member is not None and bool(member._requests)

    def waits_for_a_request(self) -> Iterable[OffsetRange]:
        assert self.consumer.woken.wait(PATIENCE)
        return ()

    def offers(self, *ranges: OffsetRange) -> None:
        self.consumer.turn(lambda: ranges)


class Asked:
    """What Spark asks for, which waits for what the test has happen."""

    def __init__(self, lookup: Callable[[], Offset]) -> None:
        self._result: Future[Offset] = Future()
        self._thread = threading.Thread(target=self._ask, args=(lookup,), daemon=True)
        self._thread.start()

    def _ask(self, lookup: Callable[[], Offset]) -> None:
        try:
            self._result.set_result(lookup())
        except BaseException as error:  # raised where it is awaited
            self._result.set_exception(error)

    def while_it_waits(self, query: Query, *, until: Callable[[], bool]) -> None:
        """The member polls until then. It may do so before the thread that asks has made its request."""
        while not (self._result.done() or (until() and query.is_asked())):
            query.consumer.turn()
        query.consumer.turn()
        # The wake-up of its request may have the member look at it just now: then it waits again at once, or is done.
        while not query.is_asked():
            assert not self._result.done(), "it has its response, or its time is over"

    @property
    def is_over(self) -> bool:
        return self._result.done()

    def response(self) -> Offset:
        return self._result.result(PATIENCE)


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """The handlers of signals that were set."""
    found: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", found.__setitem__)
    return found


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Query]]:
    made: list[Query] = []

    def one(**options: str) -> Query:
        query = Query(**options)
        monkeypatch.setattr(group_stream, "RangeConsumer", query.built)
        made.append(query)
        return query

    monkeypatch.setattr(group_stream, "_WAIT", PATIENCE)
    monkeypatch.setattr(stream, "_LOOK_AGAIN", 0.0)
    monkeypatch.setattr(group_stream, "_ASK_AGAIN", 0.0)  # as often as the member polls
    monkeypatch.setattr(group_member, "_AGAIN", 0.0)
    monkeypatch.setattr(group_member, "_LONG", float("inf"))
    yield one
    for query in made:
        query.reader.stop()


@pytest.fixture
def query(make: Callable[..., Query]) -> Query:
    return make()


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, a stream's next batch comes at once or not."""
    return lambda: monkeypatch.setattr(group_stream, "_WAIT", 0.0)


@pytest.fixture
def nobody_waits(no_wait: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, what does not come at once does not come."""

    def patch() -> None:
        no_wait()
        monkeypatch.setattr(group_stream, "_JOIN", 0.0)

    return patch


def plan(offset: Offset) -> BatchPlan:
    return BatchPlan.from_json(offset)


def marked(spans: Mapping[TopicPartition, Span], topic_id: str = "id", **mark: str) -> Offset:
    """The end of a batch of an earlier run."""
    known = {"group": "billing", "subscribed": "t", "run": "0" * 16} | mark
    return BatchPlan(spans, {"t": topic_id}, GroupMark(**known)).to_json()


# -- a query begins


@pytest.mark.parametrize(("given", "reset"), [({}, "latest"), ({"startingOffsets": "earliest"}, "earliest")])
def test_it_joins_its_group_with_the_first_request(
    make: Callable[..., Query], given: dict[str, str], reset: str
) -> None:
    query = make(**given)
    assert query.settings == {}
    query.latest(query.start)
    assert query.settings["group_id"] == "billing"
    assert query.settings["auto_offset_reset"] == reset
    assert query.settings["bootstrap_servers"] == "localhost:9092"
    assert query.consumer.calls_of("subscribe") == [("subscribe", ("t",))]


def test_the_first_batch_is_planned_at_once_and_names_the_run(query: Query, no_wait: Callable[[], None]) -> None:
    no_wait()
    first = plan(query.latest(query.start))
    assert (first.spans, first.mark and (first.mark.group, first.mark.subscribed)) == ({}, ("billing", "t"))
    assert first.mark is not None
    assert query.reader._door is not None
    assert first.mark.run in query.reader._door._path.name, "by it stop() finds this process"


def test_a_runs_first_batch_waits_until_the_start_is_committed(query: Query, no_wait: Callable[[], None]) -> None:
    no_wait()
    query.consumer.group_has = {}
    query.consumer.then(query.assigns(P0))
    asked = Asked(lambda: query.latest(query.start))
    asked.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    confirm(query)
    assert plan(asked.response()).mark is not None


def test_a_pattern_is_what_the_checkpoint_says_is_subscribed(make: Callable[..., Query]) -> None:
    query = make()
    options = {name: value for name, value in OPTIONS.items() if name != "subscribe"}
    query.reader._mark = GroupStreamReader(parse_options(options | {"subscribePattern": "t.*"}, "stream"))._mark
    first = plan(query.latest(query.start))
    assert first.mark is not None
    assert first.mark.subscribed == "pattern t.*"


# -- batch after batch


def test_the_first_batch_with_records_does_not_wait_for_the_least_number(make: Callable[..., Query]) -> None:
    """The run's empty first batch was taken for it: a small backlog waited for a quarter of an hour. The next waits."""
    query = make(minOffsetsPerTrigger="5")
    first = query.begins()
    query.offers(records(P0, 0, 3))
    second = query.latest(first)
    assert plan(second).spans == {P0: Span(0, 3)}
    asked = Asked(lambda: query.latest(second))
    asked.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    confirm(query)
    query.offers(records(P0, 3, 6))
    asked.while_it_waits(query, until=query.is_asked)
    query.offers(records(P0, 6, 8))
    assert plan(asked.response()).spans == {P0: Span(3, 8)}


def test_what_its_partitions_have_is_the_next_batch_and_what_came_later_the_next(query: Query) -> None:
    first = query.begins()
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    assert plan(second).spans == {P0: Span(0, 5)}
    assert plan(second).mark == plan(first).mark
    assert query.latest(first) == second, "asked twice it says the same"
    query.offers(records(P1, 0, 3))
    assert query.latest(first) == second
    third = Asked(lambda: query.latest(second))
    third.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    assert query.consumer.commits[0][0] == {P0: 5}, "the group hears of what was confirmed before anything is planned"
    confirm(query)
    assert plan(third.response()).spans == {P1: Span(0, 3)}


def confirm(query: Query) -> None:
    """The broker takes what was committed."""
    done(query.consumer.commits[-1])
    query.consumer.turn()


def test_a_limit_of_rows_bounds_a_batch(query: Query) -> None:
    first = query.begins()
    query.offers(records(P0, 0, 5), records(P1, 0, 5))
    assert plan(query.latest(first, ReadMaxRows(4))).records == 4


def test_a_limit_of_bytes_is_weighed_on_sparks_thread(make: Callable[..., Query]) -> None:
    query = make(maxBytesPerTrigger="500")
    first = query.begins()
    query.offers(records(P0, 0, 10))
    second = plan(query.latest(first, query.reader.getDefaultReadLimit()))
    assert query.cluster.sampled[-1] == ("MainThread", {P0: Span(0, 10)})
    assert second.spans == {P0: Span(0, 5)}, "a record weighs 100 bytes"


def test_nothing_new_is_told_as_the_start(query: Query, nobody_waits: Callable[[], None]) -> None:
    first = query.begins()
    nobody_waits()
    assert query.latest(first) == first
    assert query.reader.partitions(first, first) == []


def test_a_batch_is_read_from_where_it_was_planned(query: Query) -> None:
    first = query.begins()
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    query.reader.commit(first)
    (partition,) = query.reader.partitions(first, second)
    assert isinstance(partition, RangesPartition)
    ((read,),) = [partition.ranges]
    assert (read.partition, read.start, read.end, read.topic_id) == (0, 0, 5, "id")


# -- a restart


EARLIER = "instride run " + "0" * 16
PENDING = marked({P0: Span(3, 5), P1: Span(0, 9)})


def pending_ranges(query: Query) -> list[tuple[int, int, int]]:
    """What Spark reads of the batch that is pending: (partition, start, end)."""
    tasks = query.reader.partitions(marked({}), PENDING)
    ranges = [each for task in tasks if isinstance(task, RangesPartition) for each in task.ranges]
    return [(each.partition, each.start, each.end) for each in ranges]


def test_the_batch_in_flight_is_read_again_of_what_nobody_took_over(query: Query) -> None:
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: "instride run other"}
    query.consumer.then(query.waits_for_a_request)
    query.consumer.then(query.assigns(P0))
    assert pending_ranges(query) == [(0, 3, 5)], "partition 1 its owner reads"
    assert not query.consumer.taken_over, "what is untouched stays so: it may be replayed once more"


def test_a_replay_waits_for_what_is_between_two_owners(query: Query) -> None:
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: EARLIER}
    query.consumer.then(query.assigns(P0))
    waiting = Asked(lambda: {"ranges": pending_ranges(query)})
    waiting.while_it_waits(query, until=lambda: {P1} in query.consumer.looked_up)
    query.consumer.raises["committed"] = [KafkaTimeoutError("later")]
    query.consumer.turn()
    assert query.is_asked()
    query.consumer.then(query.assigns(P1))
    assert waiting.response() == {"ranges": [(0, 3, 5), (1, 0, 9)]}


def test_a_replay_that_may_not_ask_its_group_says_so(query: Query) -> None:
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: EARLIER}
    query.consumer.then(query.assigns(P0))
    waiting = Asked(lambda: {"ranges": pending_ranges(query)})
    waiting.while_it_waits(query, until=lambda: {P1} in query.consumer.looked_up)
    query.consumer.raises["committed"] = [GroupAuthorizationFailedError("no")]
    query.consumer.then(list)
    with pytest.raises(GroupAuthorizationFailedError):
        waiting.response()


def test_what_nobody_takes_over_in_time_is_named(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.consumer.group_has, query.consumer.metadata = {P1: 0}, {P1: EARLIER}
    monkeypatch.setattr(query.reader, "_joined", query.reader._opened)
    monkeypatch.setattr(group_stream, "_JOIN", 0.0)
    with pytest.raises(KafkaTimeoutError, match=r"leaves out \['t-1'\], which nobody in the group 'billing'"):
        query.reader.partitions(marked({}), PENDING)


def test_a_wake_up_does_not_keep_it_from_naming_them(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.consumer.group_has, query.consumer.metadata = {P1: 0}, {P1: EARLIER}
    monkeypatch.setattr(query.reader, "_joined", query.reader._opened)
    monkeypatch.setattr(group_stream, "_JOIN", 0.0)
    # The first look of two may be that of the request whose time is over.
    query.consumer.raises["committed"] = [WakeupError("woken"), WakeupError("woken")]
    asked = Asked(lambda: {"ranges": query.reader.partitions(marked({}), PENDING)})
    while not asked.is_over:
        query.consumer.turn()
    with pytest.raises(KafkaTimeoutError, match=r"leaves out \['t-1'\]"):
        asked.response()


def test_a_source_whose_driver_is_gone_leaves_its_group_though_it_waits(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run of this checkpoint waits for its partitions."""
    parents = [7]

    def parent() -> int:
        parents.append(parents[-1])
        return parents[-1]

    monkeypatch.setattr(group_member, "_LOOK", 0.01)
    monkeypatch.setattr(os, "getppid", parent)
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: EARLIER}
    query.consumer.then(query.assigns(P0))
    waiting = Asked(lambda: {"ranges": pending_ranges(query)})
    while {P1} not in query.consumer.looked_up or len(parents) < 5:
        assert not waiting.is_over, "it has its response, or its time is over"
        query.consumer.turn()
    parents.append(1)
    with pytest.raises(SystemExit):
        waiting.response()
    assert query.consumer.calls_of("close")


def test_what_may_not_be_told_yet_is_not_forgotten_by_another_batch(query: Query) -> None:
    """A stop before the member that was killed is gone would leave a checkpoint whose last batch is empty."""
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: "instride run other"}
    query.consumer.raises["committed"] = [KafkaTimeoutError("later")]
    asked = Asked(lambda: query.latest(PENDING))
    asked.while_it_waits(query, until=lambda: {P0, P1} in query.consumer.looked_up)
    query.consumer.metadata[P0] = "instride run other"
    query.consumer.then(list)
    assert plan(asked.response()).spans == {}


def test_a_run_that_waits_for_its_group_does_not_ask_it_after_each_poll(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_stream, "_ASK_AGAIN", PATIENCE)
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: "instride run other"}
    asked = Asked(lambda: query.latest(PENDING))
    asked.while_it_waits(query, until=lambda: bool(query.consumer.looked_up))
    for _ in range(20):
        query.consumer.turn()
    assert len(query.consumer.looked_up) == 1


def test_a_wake_up_in_the_middle_of_such_a_look_only_ends_the_look(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_stream, "_ASK_AGAIN", PATIENCE)
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: "instride run other"}
    query.consumer.raises["committed"] = [WakeupError("woken")]
    asked = Asked(lambda: query.latest(PENDING))
    asked.while_it_waits(query, until=lambda: not query.consumer.raises["committed"])
    for _ in range(5):
        query.consumer.turn()
    assert query.consumer.looked_up == [{P0, P1}], "asked again at once, and then no more"


def test_a_run_that_may_not_ask_its_group_of_the_last_batch_says_so(query: Query) -> None:
    query.consumer.raises["committed"] = [GroupAuthorizationFailedError("no")]
    with pytest.raises(GroupAuthorizationFailedError):
        query.latest(PENDING)


def test_what_spark_committed_is_told_to_the_group_before_more_is_planned(query: Query) -> None:
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER, P1: "instride run other"}
    query.consumer.then(query.assigns(P0, P1))
    asked = Asked(lambda: query.latest(PENDING))
    asked.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    assert query.consumer.commits[0][0] == {P0: 5, P1: 0}
    confirm(query)
    first = plan(asked.response())
    assert first.mark is not None
    assert query.consumer.metadata == dict.fromkeys([P0, P1], f"instride run {first.mark.run}")


def test_a_group_that_assigns_nothing_is_named(query: Query, nobody_waits: Callable[[], None]) -> None:
    nobody_waits()
    with pytest.raises(KafkaTimeoutError, match="'billing' assigned nothing"):
        query.reader.partitions(marked({}), marked({P0: Span(0, 5)}))


def test_who_waits_for_an_assignment_hears_what_it_waits_for(query: Query, nobody_waits: Callable[[], None]) -> None:
    query.consumer.group_has, query.consumer.leaders = {}, {P0: None}
    query.reader._opened()
    query.consumer.turn(query.assigns(P0))
    nobody_waits()
    with pytest.raises(KafkaTimeoutError, match=r"'billing' assigned .* no leader is known of t-0") as raised:
        query.reader._joined()
    assert isinstance(raised.value.__cause__, KafkaTimeoutError)


def test_after_a_restart_a_batch_is_planned_at_once_though_there_is_nothing_new(
    query: Query, no_wait: Callable[[], None]
) -> None:
    no_wait()
    start = marked({P0: Span(0, 5)})
    first = plan(query.latest(start))
    assert first.mark is not None
    assert (first.spans, first.mark.run != "0" * 16) == ({}, True), "its end offset names the new run"


# -- what is refused


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (BatchPlan({P0: Span(0, 5)}, {"t": "id"}).to_json(), "a query without consumerGroup"),
        (BatchPlan(empty=True).to_json(), "a query without consumerGroup"),
        (marked({}, group="other"), "of the group 'other', and consumerGroup is 'billing'"),
        (marked({}, subscribed="u"), "reads u, and this one reads t"),
    ],
)
def test_the_checkpoint_of_another_query_is_refused(query: Query, start: Offset, said: str) -> None:
    for ask in (lambda: query.latest(start), lambda: query.reader.partitions(query.start, start)):
        with pytest.raises(ConfigError, match=said):
            ask()
    assert query.settings == {}, "it has not joined"


@pytest.mark.parametrize(
    "options", [{}, {"maxOffsetsPerTrigger": "5"}, {"minOffsetsPerTrigger": "5"}, {"maxBytesPerTrigger": "5"}]
)
def test_a_trigger_that_asks_once_is_refused(make: Callable[..., Query], options: dict[str, str]) -> None:
    """It read nothing, in each run, without an error: its batch was planned before anything was assigned."""
    query = make(**options)
    assert not isinstance(query.reader.getDefaultReadLimit(), ReadAllAvailable), "what Spark gives with that trigger"
    with pytest.raises(ConfigError, match=r"trigger\(once=True\) does not go with consumerGroup.*availableNow"):
        query.latest(query.start, ReadAllAvailable())
    assert query.settings == {}, "it has not joined"


def test_a_topic_that_was_made_again_is_data_loss(query: Query) -> None:
    query.consumer.then(query.assigns(P0))
    with pytest.raises(OffsetsGoneError, match=r"t was deleted and made again \(its id was old, and is id\)"):
        query.latest(marked({P0: Span(0, 5)}, "old"))


@pytest.mark.requirement("source/20")
def test_so_is_one_of_which_the_last_batch_read_nothing(query: Query) -> None:
    query.consumer.then(query.assigns(P0))
    with pytest.raises(OffsetsGoneError, match=r"t was deleted and made again \(its id was old, and is id\)"):
        query.latest(marked({}, "old"))


def test_a_batch_has_the_id_of_each_topic_that_the_query_has_known(query: Query, no_wait: Callable[[], None]) -> None:
    """Also of those that others own now."""
    known = {"s": "another", "t": "id"}
    start = {**marked({}), "topics": {name: {"id": topic_id, "partitions": {}} for name, topic_id in known.items()}}
    first = query.latest(start)
    assert plan(first).topic_ids == known
    query.consumer.topic_ids = [None]  # it cannot be learnt now
    query.consumer.turn(query.assigns(P0, P1))
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    assert plan(second) == BatchPlan({P0: Span(0, 5)}, known, plan(first).mark)
    assert plan(second).to_json() == second


def test_a_batch_does_not_have_a_topic_of_which_nothing_is_placed_yet(query: Query) -> None:
    """The group has no offset of it. The next run would take that for one that it has forgotten."""
    other = TopicPartition("u", 0)
    query.consumer.group_has, query.consumer.leaders = {other: 0}, {P0: None}
    first = query.latest(query.start)
    query.consumer.turn(query.assigns(P0, other))
    query.offers(records(other, 0, 5))
    second = query.latest(first)
    assert plan(second) == BatchPlan({other: Span(0, 5)}, {"u": "id"}, plan(first).mark)
    query.consumer.leaders = {}
    query.consumer.turn()
    assert [each[0] for each in query.consumer.commits] == [{P0: 9}]


@pytest.mark.requirement("source/22")
def test_that_the_group_has_forgotten_its_offsets_is_data_loss(query: Query) -> None:
    query.consumer.group_has = {}
    query.consumer.then(query.assigns(P0, P1))
    with pytest.raises(OffsetsGoneError, match=r"forgotten its offsets of topic t, .* t-1: some data may be lost"):
        query.latest(marked({P0: Span(0, 5)}))


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize("cause", [ResetCause.OUT_OF_RANGE, ResetCause.RECREATED])
def test_a_query_fails_where_its_consumer_goes_on_elsewhere(query: Query, cause: ResetCause) -> None:
    first = query.begins()
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    query.consumer.topic_ids = ["new"] if cause is ResetCause.RECREATED else ["id"]
    query.consumer.turn(lambda: query.consumer.leads(P0, 5, 2, cause) or ())  # type: ignore[func-returns-value]
    with pytest.raises(OffsetsGoneError, match=r"t-0 cannot go on at offset 5|its id was id, and is new"):
        query.latest(second)
    assert query.consumer.commits == [], "the next run fails so, too"


@pytest.mark.requirement("source/22")
def test_where_loss_is_passed_over_it_reads_what_is_written_then(make: Callable[..., Query]) -> None:
    """The batch that Spark runs ends behind the end of the log."""
    query = make(failOnDataLoss="false")
    first = query.begins()
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    query.consumer.turn(lambda: query.consumer.leads(P0, 5, 2) or ())  # type: ignore[func-returns-value]
    third = Asked(lambda: query.latest(second))
    third.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    assert query.consumer.commits[-1][0] == {P0: 2}
    confirm(query)
    query.offers(records(P0, 2, 4))
    assert plan(third.response()).spans == {P0: Span(2, 4)}


def test_asynchronous_progress_tracking_is_refused(query: Query) -> None:
    first = query.begins()
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    with pytest.raises(ConfigError, match="asyncProgressTrackingEnabled"):
        query.reader.partitions(first, second)
    query.reader.commit(first)
    assert query.reader.partitions(first, second)


@pytest.mark.parametrize(
    ("adaptive", "options", "refused"),
    [("false", {}, True), ("true", {}, False), ("false", {"statelessQuery": "true"}, False)],
)
def test_a_task_of_a_stateful_query_is_refused_before_its_first_record(
    make: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    adaptive: str,
    options: dict[str, str],
    *,
    refused: bool,
) -> None:
    class Task:
        def getLocalProperty(self, name: str) -> str | None:
            return adaptive if name == "spark.sql.adaptive.enabled" else None

    class Reader:
        def read(self, partition: object) -> Iterator[object]:
            return iter(["a batch"])

    query = make(**options)
    query.reader._task = Reader()  # type: ignore[assignment]  # scripted
    monkeypatch.setattr(TaskContext, "get", Task)
    if refused:
        with pytest.raises(ConfigError, match="a stateful query does not go with consumerGroup"):
            query.reader.read(RangesPartition(()))
    else:
        assert [*query.reader.read(RangesPartition(()))] == ["a batch"]


def test_what_ended_the_member_is_raised_by_the_next_request(query: Query) -> None:
    first = query.begins()

    def fails() -> Iterable[OffsetRange]:
        raise GroupAuthorizationFailedError("no")

    query.consumer.then(fails)
    for _ in range(2):
        with pytest.raises(GroupAuthorizationFailedError):
            query.latest(first)


# -- available now


def test_available_now_is_read_up_to_what_was_there(query: Query) -> None:
    query.cluster.ends = {P0: 5, P1: 0}
    query.consumer.then(query.assigns(P0, P1))
    query.reader.prepareForTriggerAvailableNow()
    assert query.settings == {}, "it joins when it knows which batch was the last"
    query.consumer.then(lambda: [records(P0, 0, 9), records(P1, 0, 4)])
    first = query.latest(query.start)
    assert plan(first).spans == {P0: Span(0, 5)}, "what came later is the next run's"
    last = Asked(lambda: query.latest(first))
    last.while_it_waits(query, until=lambda: bool(query.consumer.commits))  # of its end the group hears first
    confirm(query)
    assert last.response() == first, "it is over"


def test_a_topic_that_is_deleted_after_the_look_at_topics_is_no_target(query: Query) -> None:
    """The query waited a minute for its leader, and then ended by a time-out."""
    query.cluster.ends, query.cluster.gone = {P0: 5}, [TopicPartition("gone", 0)]
    query.consumer.then(query.assigns(P0))
    query.reader.prepareForTriggerAvailableNow()
    query.consumer.then(lambda: [records(P0, 0, 9)])
    assert plan(query.latest(query.start)).spans == {P0: Span(0, 5)}


@pytest.fixture
def never(make: Callable[..., Query], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Query]:
    """Only the topic t is there, and comes of no other."""
    monkeypatch.setattr(stream, "MISSING_GRACE", 0.0)

    def one(**options: str) -> Query:
        query = make(**options)
        query.cluster.ends = {P0: 5}
        return query

    return one


def test_available_now_fails_where_a_named_topic_was_never_there(
    never: Callable[..., Query],
) -> None:
    """A mistyped name: the run read nothing of it and ended well."""
    query = never(subscribe="t,tpyo")
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no tpyo in"):
        query.latest(query.start)
    assert query.settings == {}, "it has not joined"


def test_available_now_fails_so_after_a_pending_batch_too(never: Callable[..., Query]) -> None:
    """When all is read: the group hears first of what Spark has committed. Nobody may go on from this checkpoint."""
    query = never(subscribe="t,tpyo")
    query.reader.prepareForTriggerAvailableNow()
    query.consumer.group_has, query.consumer.metadata = {P0: 3, P1: 0}, {P0: EARLIER}
    query.consumer.then(query.assigns(P0))
    pending = marked({P0: Span(3, 5)}, subscribed="t,tpyo")
    assert len(query.reader.partitions(marked({}, subscribed="t,tpyo"), pending)) == 1
    first = Asked(lambda: query.latest(pending))
    first.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    assert query.consumer.commits[0][0] == {P0: 5}
    confirm(query)
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no tpyo in"):
        query.latest(first.response())


@pytest.mark.parametrize("why", ["it may have been deleted", "it was there"])
def test_available_now_goes_on_where_a_named_topic_need_not_be_there(never: Callable[..., Query], why: str) -> None:
    query = never(subscribe="t,late", failOnDataLoss="false" if why == "it may have been deleted" else "true")
    query.consumer.then(query.assigns(P0))
    query.reader.prepareForTriggerAvailableNow()
    start = query.start
    if why == "it was there":
        start = BatchPlan({}, {"t": "", "late": ""}, GroupMark(group="billing", subscribed="late,t", run="r")).to_json()
    query.consumer.then(lambda: [records(P0, 0, 9)])
    assert plan(query.latest(start)).spans == {P0: Span(0, 5)}


def test_available_now_reads_a_named_topic_that_a_broker_did_not_know_yet(make: Callable[..., Query]) -> None:
    """The run ended well, and read nothing of it."""
    query, late = make(subscribe="t,late"), TopicPartition("late", 0)
    query.cluster.ends, query.cluster.later = {P0: 5}, [{}, {late: 1}]
    query.consumer.group_has[late] = 0
    query.reader.prepareForTriggerAvailableNow()
    query.consumer.then(query.assigns(P0, late))
    query.consumer.then(lambda: [records(P0, 0, 9), records(late, 0, 9)])
    assert plan(query.latest(query.start)).spans == {P0: Span(0, 5), late: Span(0, 1)}


@pytest.mark.parametrize("cause", [ResetCause.OUT_OF_RANGE, ResetCause.RECREATED])
def test_available_now_ends_where_the_log_does_if_loss_is_passed_over(
    make: Callable[..., Query], cause: ResetCause
) -> None:
    query = make(failOnDataLoss="false")
    query.cluster.ends = {P0: 5}
    query.consumer.then(query.assigns(P0))
    query.reader.prepareForTriggerAvailableNow()
    first = query.latest(query.start)
    query.consumer.topic_ids = ["new"] if cause is ResetCause.RECREATED else ["id"]
    query.consumer.turn(lambda: query.consumer.leads(P0, 0, 0, cause) or ())  # type: ignore[func-returns-value]
    assert query.latest(first) == first


def test_available_now_reads_on_where_only_the_consumer_took_the_topic_for_another(
    make: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended where the consumer had gone, with records unread."""
    monkeypatch.setattr(group_member, "_STALE", 0.0)
    query = make(failOnDataLoss="false")
    query.cluster.ends = {P0: 5}
    query.consumer.then(query.assigns(P0))
    query.reader.prepareForTriggerAvailableNow()
    first = query.latest(query.start)
    query.consumer.turn(lambda: query.consumer.leads(P0, 0, 0, ResetCause.RECREATED) or ())  # type: ignore[func-returns-value]
    asked = Asked(lambda: query.latest(first))
    asked.while_it_waits(query, until=query.is_asked)
    query.offers(records(P0, 0, 5))
    assert plan(asked.response()).spans == {P0: Span(0, 5)}


@pytest.fixture
def behind_its_log(query: Query) -> Offset:
    """Available-now: the group's offset lies behind the target."""
    query.cluster.ends = {P0: 5}
    query.consumer.group_has = {P0: 9}
    query.consumer.then(query.assigns(P0))
    query.reader.prepareForTriggerAvailableNow()
    return query.latest(query.start)


@pytest.mark.requirement("source/22")
def test_available_now_is_not_over_before_its_consumer_finds_that_the_log_is_short(
    query: Query, behind_its_log: Offset
) -> None:
    query.consumer.raises["end_offsets"] = [KafkaTimeoutError("later")]
    query.consumer.ends = 5
    asked = Asked(lambda: query.latest(behind_its_log))
    asked.while_it_waits(query, until=lambda: bool(query.consumer.calls_of("end_offsets")))
    query.consumer.then(lambda: query.consumer.leads(P0, 9, 5) or ())  # type: ignore[func-returns-value]
    with pytest.raises(OffsetsGoneError, match="t-0 cannot go on at offset 9"):
        asked.response()


def test_available_now_is_over_where_the_group_has_read_more_than_its_target(
    query: Query, behind_its_log: Offset
) -> None:
    assert query.latest(behind_its_log) == behind_its_log
    assert query.consumer.calls_of("end_offsets") == [("end_offsets", P0)]


def test_available_now_that_may_not_ask_where_a_log_ends_says_so(query: Query, behind_its_log: Offset) -> None:
    query.consumer.raises["end_offsets"] = [GroupAuthorizationFailedError("no")]
    with pytest.raises(GroupAuthorizationFailedError):
        query.latest(behind_its_log)


@pytest.fixture
def unread(query: Query) -> Offset:
    """Available-now: what is to be read of partition 0 was not offered yet."""
    query.cluster.ends = {P0: 5}
    query.consumer.then(query.assigns(P0))
    query.reader.prepareForTriggerAvailableNow()
    first = query.latest(query.start)
    assert plan(first).spans == {}
    return first


def test_available_now_waits_for_what_is_assigned_and_not_offered_yet(query: Query, unread: Offset) -> None:
    asked = Asked(lambda: query.latest(unread))
    asked.while_it_waits(query, until=query.is_asked)
    query.offers(records(P0, 0, 5))
    assert plan(asked.response()).spans == {P0: Span(0, 5)}


def test_what_available_now_cannot_read_is_an_error_in_time(
    query: Query, unread: Offset, nobody_waits: Callable[[], None]
) -> None:
    nobody_waits()
    with pytest.raises(KafkaTimeoutError, match="what the group assigned could not be read"):
        query.latest(unread)


def test_that_error_names_what_keeps_a_partition_from_being_read(
    query: Query, unread: Offset, nobody_waits: Callable[[], None]
) -> None:
    query.consumer.leaders = {P1: None}
    query.consumer.group_has = {}
    query.consumer.turn(query.assigns(P1))
    nobody_waits()
    with pytest.raises(KafkaTimeoutError, match="could not be read within 0 s: no leader is known of t-1"):
        query.latest(unread)


# -- the end


def test_a_source_that_was_asked_to_leave_plans_nothing_more(query: Query, no_wait: Callable[[], None]) -> None:
    first = query.begins()
    query.offers(records(P0, 0, 5))
    second = query.latest(first)
    assert query.reader._member is not None
    left = query.reader._member.leave()
    query.offers(records(P1, 0, 5))
    asked = Asked(lambda: query.latest(second))
    asked.while_it_waits(query, until=lambda: bool(query.consumer.commits))
    no_wait()
    done(query.consumer.commits[-1])
    assert left.result(PATIENCE)
    assert asked.response() == second
    assert query.latest(second) == second, "also when it has left"


def test_what_comes_with_the_request_to_leave_is_in_no_batch(query: Query, no_wait: Callable[[], None]) -> None:
    first = query.begins()
    member = query.reader._member
    assert member is not None
    asked = Asked(lambda: query.latest(first))
    asked.while_it_waits(query, until=query.is_asked)
    no_wait()
    left: list[Future[bool]] = []

    def leaves() -> Iterable[OffsetRange]:
        left.append(member.leave())
        return [records(P0, 0, 5)]

    query.consumer.then(leaves)
    assert asked.response() == first
    assert left[0].result(PATIENCE)


def test_a_member_that_has_gone_unasked_is_an_error(query: Query, no_wait: Callable[[], None]) -> None:
    first = query.begins()
    no_wait()
    assert query.reader._member is not None
    query.reader._member.close()
    with pytest.raises(IllegalStateError, match="has left its group"):
        query.latest(first)


def test_a_stop_leaves_the_group_and_nothing_behind(query: Query) -> None:
    query.begins()
    assert query.reader._door is not None
    path = query.reader._door._path
    assert path.is_socket()
    query.reader.stop()
    assert not path.exists()
    assert query.consumer.calls_of("close")
    assert query.cluster.closed


def test_a_source_whose_folder_is_open_to_others_begins_nothing(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had made its consumer, which nobody closed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"instride-{os.getuid()}").mkdir()
    (tmp_path / f"instride-{os.getuid()}").chmod(0o755)
    with pytest.raises(ConfigError, match="only this user may enter"):
        query.latest(query.start)
    assert query.settings == {}


def test_who_knocks_asks_the_member_to_leave(query: Query) -> None:
    query.latest(query.start)
    query.reader._leave()
    assert query.reader._member is not None
    assert query.reader._member.leaves


def test_a_source_that_was_never_asked_is_stopped(query: Query) -> None:
    query.reader.stop()
    assert (query.settings, query.cluster.closed) == ({}, True)


@pytest.mark.requirement("source/killed")
def test_sigterm_ends_the_process_through_its_clean_up(query: Query, handlers: dict[int, Any]) -> None:
    query.latest(query.start)
    with pytest.raises(SystemExit) as exit_:
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert exit_.value.code == 128 + signal.SIGTERM


def test_beside_the_main_thread_no_signal_is_touched(query: Query, handlers: dict[int, Any]) -> None:
    asked = threading.Thread(target=lambda: query.latest(query.start))
    asked.start()
    asked.join(PATIENCE)
    assert query.settings
    assert handlers == {}
