"""What reads ranges on an executor, without Spark: one range after another, and why nothing comes of one."""

from __future__ import annotations

import itertools
import random
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pipeline_help import range_task

from filled_topics import fill
from instride import PartitionInfo, TopicPartition
from instride.errors import (
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    OffsetsGoneError,
    TransportError,
    WrongTopicError,
)
from instride.errors.broker import TopicAuthorizationFailedError
from instride.spark import ParquetSink, _range_reader
from instride.spark._range_reader import RangeReader, ReaderSettings, followed, forget, reader_for
from instride.spark._report import RangePart, RangeReport
from instride.spark.sink import OutputRange
from instride.testing import LocalKafka

Topic = Callable[..., str]
Chain = tuple[RangeReader, list[OutputRange]]


def offsets(reader: RangeReader, wanted: OutputRange, following: OutputRange | None = None) -> list[int]:
    return [offset for batch in reader.read(wanted, following) for offset in batch.column("offset").to_pylist()]


@pytest.mark.spark
@pytest.mark.kafka
def test_one_reader_reads_range_after_range_each_exactly(kafka: LocalKafka, kafka_topic: Topic) -> None:
    """Neighbours, which use what was fetched already; ranges behind and before; other partitions between them; ranges
    that were told before, and ranges that were told and do not come.
    """
    name, chance = kafka_topic(partitions=3), random.Random(983)
    fill(kafka, name, dict.fromkeys(range(3), 1000))
    reader = RangeReader(ReaderSettings(bootstrap_servers=kafka.bootstrap_servers))
    try:
        last = dict.fromkeys(range(3), 0)
        ranges = []
        for _ in range(60):
            partition = chance.randrange(3)
            start = chance.choice((last[partition], 0, chance.randrange(900)))
            end = start + chance.randrange(1, 100)
            last[partition] = 0 if end > 900 else end
            ranges.append(OutputRange(topic=name, partition=partition, start=start, end=end))
        for wanted, following in followed(ranges):
            told = chance.choice((following, following, chance.choice(ranges), None))
            assert offsets(reader, wanted, told) == list(range(wanted.start, wanted.end)), (wanted, told)
    finally:
        reader.close()


@pytest.mark.spark
@pytest.mark.kafka
def test_a_range_whose_records_do_not_come_ends_in_an_error_that_says_where(
    kafka: LocalKafka, kafka_topic: Topic
) -> None:
    name = kafka_topic(partitions=1)
    fill(kafka, name, {0: 5})
    reader = RangeReader(ReaderSettings(bootstrap_servers=kafka.bootstrap_servers, timeout=5.0))
    try:
        with pytest.raises(KafkaTimeoutError, match=rf"{name}-0 \[2, 9\): nothing came after offset 5 for \d+ s$"):
            offsets(reader, OutputRange(topic=name, partition=0, start=2, end=9))
    finally:
        reader.close()


@pytest.mark.spark
@pytest.mark.kafka
def test_what_is_of_an_open_transaction_is_awaited_and_not_passed_over(kafka: LocalKafka, kafka_topic: Topic) -> None:
    name = kafka_topic(partitions=1)
    fill(kafka, name, {0: 5})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(5):
        producer.produce(name, b"open", partition=0)
    producer.flush(30)
    settings = replace(
        SOURCES, bootstrap_servers=kafka.bootstrap_servers, timeout=60.0, isolation_level="read_committed"
    )
    hasty, patient = RangeReader(replace(settings, timeout=5.0)), RangeReader(settings)
    wanted = OutputRange(topic=name, partition=0, start=2, end=10)
    try:
        with pytest.raises(KafkaTimeoutError, match="nothing came after offset"):
            offsets(hasty, wanted)
        producer.commit_transaction(30)
        assert offsets(patient, wanted) == list(range(2, 10))
    finally:
        hasty.close()
        patient.close()


def test_a_reader_that_gives_up_says_why_nothing_came() -> None:
    """The broker takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reader = RangeReader(ReaderSettings(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}", timeout=1.0))
        try:
            with pytest.raises(
                KafkaTimeoutError, match=r"nothing came after offset 7 .*: no broker is known to lead it"
            ):
                offsets(reader, OutputRange(topic="t", partition=0, start=7, end=9))
        finally:
            reader.close()


@pytest.fixture
def nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has read nothing yet."""
    monkeypatch.setattr(_range_reader, "_readers", {})
    monkeypatch.setattr(_range_reader, "_record_bytes", {})


@pytest.mark.spark
@pytest.mark.kafka
def test_a_range_of_which_much_is_to_come_has_a_reader_that_fetches_much(
    kafka: LocalKafka, kafka_topic: Topic, monkeypatch: pytest.MonkeyPatch, nothing_read: None
) -> None:
    """What a record takes is known once one was read. The reader of short ranges begins no long one that follows."""
    name = kafka_topic(partitions=3)
    fill(kafka, name, dict.fromkeys(range(3), 500))
    monkeypatch.setattr(_range_reader, "_LONG", replace(_range_reader._LONG, buffer_bytes=20_000))
    settings = ReaderSettings(bootstrap_servers=kafka.bootstrap_servers)
    short, *long = [OutputRange(topic=name, partition=each, start=0, end=500) for each in range(3)]
    used = []
    try:
        for wanted, following in followed([short, *long]):
            used.append(reader_for(settings, wanted))
            assert offsets(used[-1], wanted, following) == list(range(500))
        assert used[0] is not used[1]
        assert used[1] is used[2]
        assert [each._fetches for each in used[:2]] == [_range_reader._SHORT, _range_reader._LONG]
        little = OutputRange(topic=name, partition=0, start=0, end=20)
        assert reader_for(settings, little) is used[0]
        assert offsets(used[0], little, long[0]) == list(range(20))
        assert used[0]._ahead is None
        assert reader_for(settings) is used[0]
    finally:
        forget(settings)
    assert _range_reader._readers == {}


@pytest.mark.parametrize(("records", "long"), [(100_000, False), (400_000, True)])
def test_what_a_range_takes_is_reckoned_by_what_its_topics_records_took(
    records: int, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_range_reader, "_record_bytes", {"t": 100.0})
    known, unknown = (OutputRange(topic=topic, partition=0, start=7, end=7 + records) for topic in ("t", "other"))
    assert (_range_reader.fetches_for(known) is _range_reader._LONG) == long
    assert _range_reader.fetches_for(unknown) is _range_reader._SHORT


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("long", [False, True])
def test_a_function_that_fails_leaves_no_traceback_of_the_reader(
    kafka: LocalKafka,
    kafka_topic: Topic,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    long: bool,
    nothing_read: None,
) -> None:
    """The reader of a range that failed is closed, while the error still holds what was to come of the range."""
    name = kafka_topic(partitions=1)
    fill(kafka, name, {0: 50})
    monkeypatch.setattr(_range_reader, "_record_bytes", {name: 1e9} if long else {})
    wanted = OutputRange(topic=name, partition=0, start=0, end=50)
    run = range_task(ParquetSink(tmp_path / "out"), fails, ReaderSettings(bootstrap_servers=kafka.bootstrap_servers))
    assert (_range_reader.fetches_for(wanted) is _range_reader._LONG) == long
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: ignored.append(each.exc_value))
    (text,) = run([[RangePart(range=wanted, offsets=wanted)]])
    problem = RangeReport.from_json(text).problem
    assert problem is not None
    assert "the user's" in problem.traceback
    assert ignored == []
    assert _range_reader._readers == {}


def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("the user's")


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("fetches", [_range_reader._SHORT, _range_reader._LONG], ids=["short", "long"])
def test_batches_that_are_left_after_their_reader_was_closed_end_in_silence(
    kafka: LocalKafka, kafka_topic: Topic, fetches: _range_reader.Fetches
) -> None:
    name = kafka_topic(partitions=1)
    fill(kafka, name, {0: 50})
    reader = RangeReader(ReaderSettings(bootstrap_servers=kafka.bootstrap_servers), fetches)
    batches = reader.read(OutputRange(topic=name, partition=0, start=0, end=50))
    next(batches)
    reader.close()
    batches.close()  # type: ignore[attr-defined]  # a generator


class Looked:
    """A reader, and what it was told when it looked a topic up. other: says from then on that the id is another."""

    def __init__(self, reader: RangeReader, patch: pytest.MonkeyPatch) -> None:
        self.consumer = reader._consumer
        self.times = 0
        self.other = False
        self._ask = self.consumer.partitions_for
        patch.setattr(self.consumer, "partitions_for", self._look)

    def _look(self, topic: str, *, timeout: float) -> list[PartitionInfo]:
        self.times += 1
        found = self._ask(topic, timeout=timeout)
        return [replace(each, topic_id=UUID(int=7)) for each in found] if self.other else found


@pytest.fixture
def chain(kafka: LocalKafka, kafka_topic: Topic, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chain]:
    """A reader, and a range of each of three partitions, with the topic's id. It believes a broker at once."""
    monkeypatch.setattr(_range_reader, "MISSING_GRACE", 0.0)
    name = kafka_topic(partitions=3)
    fill(kafka, name, dict.fromkeys(range(3), 50))
    reader = RangeReader(ReaderSettings(bootstrap_servers=kafka.bootstrap_servers))
    topic_id = str(reader._consumer.partitions_for(name)[0].topic_id)
    ranges = [OutputRange(topic=name, partition=each, start=10, end=30, topic_id=topic_id) for each in range(3)]
    yield reader, ranges
    reader.close()


@pytest.mark.spark
@pytest.mark.kafka
def test_the_range_that_follows_is_fetched_while_this_one_is_worked_on(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic is looked up: each record was fetched by the topic's id. A lookup brings all partitions of the topic."""
    reader, ranges = chain
    looked = Looked(reader, monkeypatch)
    for wanted, following in followed(ranges):
        batches = reader.read(wanted, following)
        read = next(batches)
        while read["offset"][-1].as_py() < wanted.end - 1:
            read = next(batches)
        assert reader._consumer.assignment() == {(following or wanted).topic_partition}
        assert not reader._consumer.paused()
        assert list(batches) == []
    assert looked.times == 0
    assert reader._consumer.paused() == {ranges[-1].topic_partition}


@pytest.mark.spark
@pytest.mark.kafka
def test_a_range_of_another_topic_of_that_name_is_refused_and_the_next_is_read(chain: Chain) -> None:
    """Its first record is not given out. Whether its fetch was begun before makes no difference."""
    reader, (first, second, third) = chain
    other = replace(second, topic_id=str(UUID(int=7)))
    assert offsets(reader, first, other) == list(range(10, 30))
    with pytest.raises(WrongTopicError, match="made again"):
        next(reader.read(other, third))
    assert offsets(reader, third) == list(range(10, 30))
    beside = replace(third, start=30, end=40, topic_id=str(UUID(int=7)))
    with pytest.raises(WrongTopicError, match="made again"):
        offsets(reader, beside)


@pytest.mark.spark
@pytest.mark.kafka
def test_where_a_broker_fetches_by_name_a_topic_is_looked_up_before_and_after(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Kafka 3.1. What was fetched before the lookup is fetched again."""
    reader, (first, second, third) = chain
    looked = Looked(reader, monkeypatch)
    monkeypatch.setattr(reader._consumer, "fetched_topic_id", lambda _: None)
    sought: list[int] = []
    seek = reader._consumer.seek

    def sought_to(partition: TopicPartition, offset: int) -> None:
        sought.append(offset)
        seek(partition, offset)

    monkeypatch.setattr(reader._consumer, "seek", sought_to)
    assert offsets(reader, first, second) == list(range(10, 30))
    assert (looked.times, sought) == (2, [10, 10])
    assert offsets(reader, second, third) == list(range(10, 30))
    assert (looked.times, sought) == (4, [10] * 4), "the first one did not begin it"
    batches = reader.read(third)
    assert next(batches)["offset"][0].as_py() == 10
    looked.other = True
    with pytest.raises(WrongTopicError, match="made again"):
        list(batches)
    with pytest.raises(WrongTopicError, match="made again"):
        next(reader.read(first))


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("way", ["left", "passed over"])
def test_a_range_that_was_begun_and_did_not_follow_is_read_by_who_wants_it(chain: Chain, way: str) -> None:
    """Its fetch is given up where the one before it was left."""
    reader, (first, second, third) = chain
    if way == "left":
        batches = reader.read(first, second)
        next(batches)
        batches.close()  # type: ignore[attr-defined]  # a generator
        assert reader._consumer.paused() == reader._consumer.assignment()
    else:
        offsets(reader, first, second)
    longer = replace(second, end=40)
    assert offsets(reader, longer, third) == list(range(10, 40))
    assert offsets(reader, replace(third, start=12)) == list(range(12, 30))


# -- a log that became shorter, played


class ShortLog:
    """A consumer of one partition, whose log holds [begin, end). grows: the end, once a reader has looked at the ends.

    silent: its broker returns no records, though there are some. away: raised by who asks where the log ends. errors:
    raised by the next polls, one each.
    """

    def __init__(
        self, begin: int, end: int, *, grows: int = 0, silent: bool = False, away: KafkaError | None = None
    ) -> None:
        self.errors: list[KafkaError] = []
        self.topic_id = UUID(int=1)
        self._begin, self._end, self._grows = begin, end, grows
        self._silent, self._away = silent, away
        self.uncommitted = 0  # the offsets behind the end
        self._at = 0
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._failed = False
        self.sought: list[int] = []

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._at, self._failed = offset, False
        self.sought.append(offset)

    def poll(self, *, timeout: float, max_records: int) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        if self._failed:
            return Offsets(range(0))  # it has said why, and waits for a seek
        if not self._begin <= self._at <= self._end + self.uncommitted:
            self._failed = True
            raise OffsetOutOfRangeError("out of range")
        first = self._at
        self._at = self._at if self._silent else max(self._at, min(self._end, self._at + max_records))
        return Offsets(range(first, self._at))

    def position(self, partition: TopicPartition, *, timeout: float) -> int:
        return self._at

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._begin)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        if self._away is not None:
            raise self._away
        self._end = max(self._end, self._grows)
        return dict.fromkeys(partitions, self._end)

    def partitions_for(self, topic: str, *, timeout: float) -> list[PartitionInfo]:
        return [PartitionInfo(topic=topic, partition=0, leader=None, topic_id=self.topic_id)]

    def fetched_topic_id(self, partition: TopicPartition) -> UUID:
        return UUID(int=1)

    def assignment(self) -> frozenset[TopicPartition]:
        return self._assigned

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._assigned = frozenset(partitions)

    def resume(self, *partitions: TopicPartition) -> None: ...
    def pause(self, *partitions: TopicPartition) -> None: ...


class OpenTransaction:
    """Of the same log, a consumer that reads what is not committed: when it looks, a transaction is open, which begins
    at the end of what is committed."""

    def __init__(self, log: ShortLog) -> None:
        self._log = log

    def __enter__(self) -> OpenTransaction:
        return self

    def __exit__(self, *_: object) -> None: ...

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        self._log.uncommitted = 10
        return {each: end + 10 for each, end in self._log.end_offsets(partitions, timeout=timeout).items()}


class Offsets:
    def __init__(self, offsets: range) -> None:
        self._offsets = offsets

    def to_arrow(self, columns: object) -> list[pa.RecordBatch]:
        offsets = pa.array(self._offsets, pa.int64())
        return [pa.record_batch({"offset": offsets})] if self._offsets else []


AWAY = KafkaTimeoutError("no leader")
PLANNED = OutputRange(topic="t", partition=0, start=4, end=20, topic_id=str(UUID(int=1)))
SOURCES = ReaderSettings(bootstrap_servers="nowhere:1", timeout=0.0, fail_on_data_loss=False, ends_early=True)


def of_log(monkeypatch: pytest.MonkeyPatch, log: ShortLog, settings: ReaderSettings) -> RangeReader:
    committed = settings.isolation_level == "read_committed"
    monkeypatch.setattr(
        _range_reader,
        "Consumer",
        lambda **given: log if "isolation_level" in given or not committed else OpenTransaction(log),
    )
    monkeypatch.setattr(_range_reader, "MISSING_GRACE", 0.0)
    return RangeReader(settings)


@pytest.mark.requirement("source/22")
@pytest.mark.parametrize(
    ("log", "read"),
    [
        (ShortLog(0, 10), range(4, 10)),
        (ShortLog(0, 4), range(0)),
        (ShortLog(0, 2), range(0)),
        (ShortLog(0, 2, grows=9), range(4, 9)),  # while the reader looked
        (ShortLog(6, 10), range(6, 10)),
    ],
)
def test_a_range_ends_with_a_log_that_became_shorter_where_loss_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, log: ShortLog, read: range
) -> None:
    assert offsets(of_log(monkeypatch, log, SOURCES), PLANNED) == list(read)
    ended = [each for each in caplog.messages if "ends before the range t-0 [4, 20) does" in each]
    assert len(ended) == 1


def test_a_range_that_ended_at_once_is_tried_anew_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same reader's consumer stood where it had failed: the whole time-out went by in silence."""
    log = ShortLog(0, 2)
    reader = of_log(monkeypatch, log, SOURCES)
    assert [offsets(reader, PLANNED), offsets(reader, PLANNED)] == [[], []]
    assert log.sought == [4, 4]


def test_what_is_of_another_topic_is_not_passed_over_as_the_end_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ShortLog(0, 10)
    log.topic_id = UUID(int=2)
    with pytest.raises(WrongTopicError):
        offsets(of_log(monkeypatch, log, SOURCES), PLANNED)


@pytest.mark.parametrize("log", [ShortLog(0, 10, silent=True), ShortLog(0, 10, away=AWAY)])
def test_a_range_whose_records_do_not_come_is_not_passed_over(monkeypatch: pytest.MonkeyPatch, log: ShortLog) -> None:
    with pytest.raises(KafkaTimeoutError, match="nothing came after offset"):
        offsets(of_log(monkeypatch, log, SOURCES), PLANNED)


@pytest.mark.parametrize(
    "log", [ShortLog(0, 10), ShortLog(0, 4), ShortLog(0, 2), ShortLog(0, 10, away=TransportError("refused"))]
)
def test_a_transaction_that_is_open_is_no_end_of_a_log(monkeypatch: pytest.MonkeyPatch, log: ShortLog) -> None:
    """A consumer that reads what is committed is told its first offset as the log's end. The task succeeded, and what
    was committed later was not read."""
    with pytest.raises(KafkaTimeoutError, match="nothing came after offset"):
        offsets(of_log(monkeypatch, log, replace(SOURCES, isolation_level="read_committed")), PLANNED)


def test_who_may_not_ask_where_a_log_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ShortLog(0, 10, away=TopicAuthorizationFailedError("no"))
    with pytest.raises(TopicAuthorizationFailedError):
        offsets(of_log(monkeypatch, log, SOURCES), PLANNED)


@pytest.mark.parametrize("end", [4, 10])
def test_a_trouble_is_the_cause_only_until_records_come(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """One that was long over was named as the reason of a later time-out."""
    log, trouble = ShortLog(0, end), TransportError("reset by peer")
    log.errors.append(trouble)
    monkeypatch.setattr(_range_reader, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    with pytest.raises(KafkaTimeoutError, match=f"nothing came after offset {end}") as raised:
        offsets(of_log(monkeypatch, log, replace(SOURCES, timeout=9.0, fail_on_data_loss=True)), PLANNED)
    assert raised.value.__cause__ is (trouble if end == 4 else None)


@pytest.mark.parametrize("fail", [True, False])
def test_where_a_sink_would_stand_beyond_its_log_a_range_does_not_end_early(
    monkeypatch: pytest.MonkeyPatch, fail: bool
) -> None:
    """A pipeline's range is committed as a whole, and no setting changes that: none is advised."""
    settings = replace(SOURCES, fail_on_data_loss=fail, ends_early=False)
    with pytest.raises(OffsetsGoneError, match=r"holds \[0, 2\)") as raised:
        offsets(of_log(monkeypatch, ShortLog(0, 2), settings), PLANNED)
    assert "fail_on_data_loss=False" not in str(raised.value)
    with pytest.raises(KafkaTimeoutError):
        offsets(of_log(monkeypatch, ShortLog(0, 10), settings), PLANNED)


def test_a_loss_is_told_though_no_other_connection_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """With read_committed another consumer was asked where the log ends, and its error hid the loss."""
    log = ShortLog(6, 20)

    def opened(**given: object) -> ShortLog:
        if "isolation_level" not in given:
            raise TransportError("refused")
        return log

    monkeypatch.setattr(_range_reader, "Consumer", opened)
    reader = RangeReader(replace(SOURCES, fail_on_data_loss=True, isolation_level="read_committed"))
    with pytest.raises(OffsetsGoneError, match=r"holds \[6, 20\)"):
        offsets(reader, PLANNED)


@pytest.mark.parametrize(("log", "early"), [(ShortLog(6, 20), False), (ShortLog(6, 20), True), (ShortLog(0, 2), True)])
def test_the_setting_that_passes_over_a_loss_is_advised_where_it_does(
    monkeypatch: pytest.MonkeyPatch, log: ShortLog, early: bool
) -> None:
    settings = replace(SOURCES, fail_on_data_loss=True, ends_early=early)
    with pytest.raises(OffsetsGoneError, match="fail_on_data_loss=False goes on without what is gone"):
        offsets(of_log(monkeypatch, log, settings), PLANNED)
