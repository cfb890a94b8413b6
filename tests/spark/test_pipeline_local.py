"""The pipeline on `local[*]` with a real Kafka, in this process."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient
from pipeline_help import PATIENCE, QUICK_JVM, Runner, each_once, keep, seen, wait_for
from pyspark.sql import DataFrame, SparkSession
from session_help import local_session

from filled_topics import fill, fill_values
from instride import Consumer, TopicPartition
from instride._net import transport
from instride._processing.origin import DeadLetterOrigin
from instride._wire.connection import Connection, Received
from instride.errors import (
    ConfigError,
    IllegalStateError,
    OffsetsGoneError,
    PipelineError,
    RangeFailedError,
    WrongTopicError,
)
from instride.spark import (
    JobFinished,
    JobStarted,
    ParquetSink,
    Pipeline,
    RangeCommitted,
    RangeDropped,
    RangeFailed,
    _pipeline,
    recommended_conf,
)
from instride.spark._jobs import JobRunner
from instride.spark._range_reader import end_offsets
from instride.telemetry import OwnershipChange, OwnershipChanged
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.drawn(6, "pipelines on Spark")]

Topic = Callable[..., str]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # The default: many a cluster's conf has one, and it does not say what runs at a time.
    conf = {**recommended_conf(), "spark.driver.extraJavaOptions": QUICK_JVM, "spark.default.parallelism": "5"}
    with local_session("pipeline", "local[4]", conf) as session:
        yield session


@pytest.fixture
def runner(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Callable[..., Runner]:
    """``runner(topic, **settings)``: a pipeline into this test's sink; the topic's name is the group's too."""

    def build(topic: str, **settings: Any) -> Runner:
        merged = {"topics": [topic], "group_id": topic, "bootstrap_servers": kafka.bootstrap_servers, **settings}
        return Runner(spark, tmp_path / "out", **merged)

    return build


Build = Callable[..., Runner]


def committed(kafka: LocalKafka, topic: str, partitions: int) -> list[int | None]:
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        found = consumer.committed(*(TopicPartition(topic, each) for each in range(partitions)))
        return [each.offset if each is not None else None for _, each in sorted(found.items())]


def test_the_cores_are_those_of_the_session_whatever_its_default_parallelism(spark: SparkSession) -> None:
    assert spark.sparkContext.defaultParallelism == 5
    ran = JobRunner(spark.sparkContext, lambda _: None)
    assert ran.cores == 4
    ran.close()


def test_a_topic_is_written_exactly_once_and_no_record_passes_through_the_driver(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka_topic(4)
    values = fill_values(kafka, topic, dict.fromkeys(range(4), 20_000))
    received = _count_what_this_process_receives(monkeypatch)
    with runner(topic, max_range_records=6_000) as running:
        running.until(lambda: running.rows == len(values), "all rows")
    each_once(tmp_path / "out", values)
    assert committed(kafka, topic, 4) == [20_000] * 4
    # The process is a member, so it hears from the brokers; but never a record.
    assert received["ListOffsets"] > 0
    assert received["Fetch"] == 0
    assert 0 < received["bytes"] < sum(map(len, values)) / 4
    assert any(len(event.ranges) > 1 for event in running.of(JobStarted))


def _count_what_this_process_receives(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """By kind of request how many were sent to brokers, and the bytes that came."""
    counts: Counter[str] = Counter()
    send, take = transport.Transport.send, Connection.buffer_updated

    def counting_send(self: transport.Transport, request_id: int, request: Any) -> None:
        counts[type(request).__name__] += 1
        send(self, request_id, request)

    def counting_take(self: Connection, count: int) -> list[Received]:
        counts["bytes"] += count
        return take(self, count)

    monkeypatch.setattr(transport.Transport, "send", counting_send)
    monkeypatch.setattr(Connection, "buffer_updated", counting_take)
    return counts


def test_gaps_of_transactions_are_passed_also_at_the_end_of_a_range_and_of_a_part(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted records and markers take offsets; the last offset of the log is a marker. Tasks share ranges here."""
    monkeypatch.setattr("instride.spark._planning._PART", 10)
    topic = kafka_topic(2)
    values = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for turn in range(6):
        producer.begin_transaction()
        written = [f"{partition}:{turn}-{number}" for partition in range(2) for number in range(50)]
        for value in written:
            producer.produce(topic, value.encode(), partition=int(value[0]))
        assert producer.flush(30) == 0
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            values += written
    with runner(topic, isolation_level="read_committed", max_range_records=40, split_ranges=True) as running:
        running.until(lambda: committed(kafka, topic, 2) == [306, 306], "both partitions to their ends")
    each_once(tmp_path / "out", values)


def test_a_restart_goes_on_where_the_sink_is_whatever_the_group_says(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(2)
    values = fill_values(kafka, topic, {0: 100, 1: 100})
    with runner(topic) as running:
        running.until_rows(200)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic, auto_offset_reset="earliest") as rewind:
        rewind.subscribe([topic])
        while len(rewind.assignment()) < 2:
            rewind.poll(timeout=0.1)
        rewind.seek(TopicPartition(topic, 0), 10)
        rewind.commit({TopicPartition(topic, 0): 10})
    values += fill_values(kafka, topic, {0: 50, 1: 50}, start=100)
    with runner(topic) as running:
        running.until_rows(100)
    each_once(tmp_path / "out", values)


def test_a_topic_that_is_made_again_is_not_taken_for_the_old_one(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    values = fill_values(kafka, topic, {0: 20})
    with runner(topic) as running:
        running.until_rows(20)
    _make_again(kafka, topic)
    fill(kafka, topic, {0: 40})
    with pytest.raises(WrongTopicError, match=f"{topic}.*made again"), runner(topic) as running:
        running.until(lambda: False, "it stops")
    each_once(tmp_path / "out", values)


def test_a_topic_that_is_made_again_while_it_is_read_stops_the_pipeline(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """At once, so that its member misses that it was away. It read the new one, dropped that, and so on for ever."""
    topic = kafka_topic(1)
    values = fill_values(kafka, topic, {0: 20})
    running = runner(topic)
    # The member finds out, or a task.
    with pytest.raises((WrongTopicError, RangeFailedError), match=f"{topic}.*made again"), running:
        _make_again_while_it_runs(running, kafka, topic)
    each_once(tmp_path / "out", values)


def test_available_now_ends_though_its_topic_is_made_again_meanwhile(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever for records that nobody writes again."""
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 20})

    def then_made_again(*arguments: Any) -> dict[TopicPartition, int]:
        found = end_offsets(*arguments)
        _make_again(kafka, topic)
        fill(kafka, topic, {0: 10})
        return found

    monkeypatch.setattr(_pipeline, "end_offsets", then_made_again)
    running = runner(topic, available_now=True)
    told = f"^{topic}-0 was to be read up to offset 20, but its log ends at 10 now"
    with pytest.raises(OffsetsGoneError, match=told), running:
        running.until(lambda: False, "it stops")


def _make_again_while_it_runs(running: Runner, kafka: LocalKafka, topic: str) -> None:
    running.until_rows(20)
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    fill(kafka, topic, {0: 10}, start=1_000)
    running.until(lambda: len(running.of(RangeDropped)) > 3)


def _fails_at_7(batch: pa.RecordBatch, marker: str) -> pa.RecordBatch:
    if not Path(marker).exists() and b"0:7" in batch["value"].to_pylist():
        raise ValueError("record 0:7 is not to my liking")
    return keep(batch)


def test_a_failing_function_stops_the_pipeline_or_with_dead_letters_all_is_done(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(3)
    values = fill_values(kafka, topic, {0: 20, 1: 20, 2: 20})
    function = partial(_fails_at_7, marker=str(tmp_path / "mended"))
    with (
        pytest.raises(RangeFailedError, match=r"record 0:7 is not to my liking") as caught,
        runner(topic, function=function, retries=2) as running,
    ):
        running.until(lambda: False)
    assert "_fails_at_7" in "".join(caught.value.__notes__)
    failures = running.of(RangeFailed)
    assert [event.again for event in failures] == [True, True, False]
    assert sorted(seen(tmp_path / "out")) == sorted(value for value in values if not value.startswith("0"))
    assert committed(kafka, topic, 3) == [None, 20, 20]
    letters = kafka_topic(1)
    with runner(topic, function=function, retries=1, dead_letters=letters, available_now=True) as running:
        running.join()
    each_once(tmp_path / "out", [value for value in values if value != "0:7"])
    assert [event.dead_letters for event in running.of(RangeCommitted)] == [1]
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(letters, 0)])
        (letter,) = reader.poll(timeout=PATIENCE)
    origin = DeadLetterOrigin.of(letter)
    assert origin is not None
    assert (letter.value, origin.topic, origin.partition, origin.offset) == (b"0:7", topic, 0, 7)
    assert (origin.group, origin.attempts, origin.error) == (topic, 2, "builtins.ValueError")
    assert committed(kafka, topic, 3) == [20, 20, 20]


def test_a_letter_that_the_broker_finds_too_large_is_written_without_its_value(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic, letters = kafka_topic(1), kafka_topic(1, configs={"max.message.bytes": "20000"})
    values = fill_values(kafka, topic, {0: 7})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"x" * 30_000, b"k", partition=0)
    assert producer.flush(30) == 0

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if max(map(len, batch["value"].to_pylist())) > 10_000:
            raise ValueError("too long for me")
        return keep(batch)

    with runner(topic, function=function, retries=1, dead_letters=letters, available_now=True) as running:
        running.join()
    each_once(tmp_path / "out", values)
    assert [event.dead_letters for event in running.of(RangeCommitted)] == [1]
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(letters, 0)])
        (letter,) = reader.poll(timeout=PATIENCE)
    origin = DeadLetterOrigin.of(letter)
    assert origin is not None
    assert (letter.key, letter.value, origin.left_out, origin.offset) == (b"k", b"", "value (30000 bytes)", 7)


def test_what_came_after_latest_is_not_lost_with_a_first_job_that_fails(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """It was: nothing kept where "latest" had been, and the next start began at the newer end (25 of 32 were lost)."""
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 5}, start=100)
    function = partial(_fails_at_7, marker=str(tmp_path / "mended"))
    sink = ParquetSink(tmp_path / "out")
    first = runner(topic, function=function, retries=0, auto_offset_reset="latest")
    values: list[str] = []
    with pytest.raises(RangeFailedError), first:
        _fill_and_wait(first, kafka, sink, TopicPartition(topic, 0), values)
    (tmp_path / "mended").touch()
    values += fill_values(kafka, topic, {0: 7}, start=32)
    with runner(topic, function=function, auto_offset_reset="latest") as running:
        running.until_rows(32)
    each_once(tmp_path / "out", values)


def _fill_and_wait(
    running: Runner, kafka: LocalKafka, sink: ParquetSink, partition: TopicPartition, values: list[str]
) -> None:
    wait_for(lambda: sink.positions([partition]) == {partition: 5}, "the start")
    # From 7 on: the job that has the first record fails, however many of the others came in time for it.
    values += fill_values(kafka, partition.topic, {partition.partition: 25}, start=7)
    running.until(lambda: False)


def test_a_topic_that_is_made_again_between_planning_and_reading_is_not_read(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 20})
    running = runner(topic, retries=0)

    def make_again(event: Any) -> None:
        running.events.append(event)
        if isinstance(event, JobStarted):
            _make_again(kafka, topic)
            fill(kafka, topic, {0: 40}, start=1_000)

    running.pipeline._on_event = make_again
    # The task finds out, or the member.
    with pytest.raises((RangeFailedError, WrongTopicError), match="made again"), running:
        running.until(lambda: False)
    assert seen(tmp_path / "out") == []
    assert ParquetSink(tmp_path / "out").positions([TopicPartition(topic, 0)]) == {(topic, 0): 0}


def _make_again(kafka: LocalKafka, topic: str) -> None:
    kafka.delete_topic(topic)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers) as asking:
        wait_for(lambda: not asking.partitions_for(topic), "the topic's end")
    kafka.create_topic(topic, 1)


def _slow_in_0(batch: pa.RecordBatch, folder: str) -> pa.RecordBatch:
    if batch["value"][0].as_py().startswith(b"0:"):
        (Path(folder) / "began").touch()
        while not (Path(folder) / "go").exists():
            time.sleep(0.02)
    return keep(batch)


def test_a_slow_partition_holds_up_no_other_and_is_finished_by_a_stop(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(3)
    values = fill_values(kafka, topic, {0: 10, 1: 10, 2: 10})
    with runner(topic, function=partial(_slow_in_0, folder=str(tmp_path))) as running:
        running.until((tmp_path / "began").exists, "the slow record")
        for turn in range(1, 4):
            values += fill_values(kafka, topic, {1: 10, 2: 10}, start=10 * turn)
            running.until_rows(20 * (turn + 1))
        assert not any(value.startswith("0") for value in seen(tmp_path / "out"))
        running.pipeline.stop()
        (tmp_path / "go").touch()
    each_once(tmp_path / "out", values)
    assert committed(kafka, topic, 3) == [10, 40, 40]


def test_a_partition_lost_at_its_deadline_has_its_job_cancelled_and_not_committed(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """The delay of a revoke ends: the other member gets the partition, and the slow result of the first is dropped."""
    topic = kafka_topic(2)
    values = fill_values(kafka, topic, {0: 10, 1: 10})
    slow = {"function": partial(_slow_in_both, folder=str(tmp_path)), "max_revoke_delay": 3.0}
    with runner(topic, **slow, client_id="first") as first:
        first.until((tmp_path / "began").exists, "the slow record")
        with runner(topic, client_id="second", max_revoke_delay=3.0) as second:
            second.until(lambda: second.rows == 10, "the second to work on the lost partition")
            assert OwnershipChange.LOST in [event.change for event in first.of(OwnershipChanged)]
            wait_for(lambda: first.of(RangeDropped), "the first's job to be cancelled")
            (tmp_path / "go").touch()
            first.until(lambda: first.rows == 10, "the first to finish what it kept")
            first.until(lambda: len(first.of(JobFinished)) == len(first.of(JobStarted)), "its jobs to have ended")
    each_once(tmp_path / "out", values)


def _slow_in_both(batch: pa.RecordBatch, folder: str) -> pa.RecordBatch:
    (Path(folder) / "began").touch()
    while not (Path(folder) / "go").exists():
        time.sleep(0.02)
    return keep(batch)


def test_a_function_of_dataframes_is_called_for_each_range_and_may_use_sql(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(2)
    values = fill_values(kafka, topic, {0: 12_000, 1: 50})
    calls = itertools.count()

    def even(records: DataFrame) -> DataFrame:
        if next(calls) == 0:
            raise ValueError("not the first time")
        query = "SELECT partition, offset, value FROM {records} WHERE offset % 2 = 0"
        return records.sparkSession.sql(query, records=records)

    with runner(topic, function=even, batch_format="spark", available_now=True) as running:
        running.join()
    each_once(tmp_path / "out", values[:12_000:2] + values[12_000::2])
    assert all(len(event.ranges) == 1 for event in running.of(JobStarted))
    assert [event.reason for event in running.of(RangeFailed)] == ["ValueError: not the first time"]
    assert committed(kafka, topic, 2) == [12_000, 50]


def test_with_dataframes_an_error_of_an_executor_is_told_as_it_was_there(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic
) -> None:
    """It was told as Spark's PythonException."""
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    schema = pa.schema([("lacking", pa.int64())])
    with (
        pytest.raises(RangeFailedError, match=r"next start begins there\. KeyError: ") as caught,
        runner(topic, function=lambda records: records, batch_format="spark", schema=schema, retries=0) as running,
    ):
        running.until(lambda: False)
    (note,) = caught.value.__notes__
    assert "cast_to" in note
    assert "JVM" not in note


def _pool(batch: pa.RecordBatch) -> pa.RecordBatch:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    told = [context.getLocalProperty(name) or "none" for name in ("spark.scheduler.pool", "spark.job.description")]
    return pa.record_batch({"value": ["|".join(told).encode()] * batch.num_rows})


def test_jobs_run_in_the_pool_of_their_starter_and_say_what_they_read(
    spark: SparkSession, runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    pipeline = runner(topic, function=_pool).pipeline
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "quick")
    try:
        query = pipeline.start()
    finally:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    try:
        # The rows are there before the pipeline has heard that the job has ended.
        wait_for(lambda: not query.isActive or query.lastProgress is not None, "the job's end")
    finally:
        query.stop()
        query.awaitTermination()
    assert seen(tmp_path / "out") == [f"quick|instride: {topic}-0 [0, 10)"] * 10
    assert query.lastProgress is not None
    assert query.lastProgress["ranges"][0]["offsetsBehindLatest"] == 0


def _only_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    assert batch.schema.names == ["value"]
    return batch


def test_a_function_gets_the_chosen_columns_and_ranges_end_where_they_should(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    values = fill_values(kafka, topic, {0: 100})
    with runner(topic, function=_only_values, columns=["value"], max_range_records=7) as running:
        running.until_rows(100)
    each_once(tmp_path / "out", values)


def test_offsets_that_are_gone_stop_the_pipeline_unless_told_otherwise(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    values = fill_values(kafka, topic, {0: 10})
    with runner(topic) as running:
        running.until_rows(10)
    values += fill_values(kafka, topic, {0: 20}, start=10)
    _delete_before(kafka, topic, 15)
    with pytest.raises(RangeFailedError, match=r"OffsetsGoneError.*holds \[15, 30\)"), runner(topic) as running:
        running.until(lambda: False)
    assert len(running.of(RangeFailed)) == 1
    with runner(topic, fail_on_data_loss=False) as running:
        running.until_rows(15)
    each_once(tmp_path / "out", values[:10] + values[15:])


def _delete_before(kafka: LocalKafka, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([Partition(topic, 0, offset)]).values():
        future.result(30)


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_log_that_ends_before_the_sinks_position_stops_the_pipeline(
    runner: Build,
    kafka: LocalKafka,
    kafka_topic: Topic,
    tmp_path: Path,
    fail_on_data_loss: bool,
) -> None:
    """As after an unclean leader election. It read from the log's beginning, dropped that, and so on for ever."""
    topic = kafka_topic(1)
    fill_values(kafka, topic, {0: 10})
    ParquetSink(tmp_path / "out").begin(TopicPartition(topic, 0), 15)
    running = runner(topic, fail_on_data_loss=fail_on_data_loss)
    with pytest.raises(OffsetsGoneError, match=f"{topic}-0 .* offset 15, .* offset 0"), running:
        running.until(lambda: len(running.of(RangeDropped)) > 3)
    assert seen(tmp_path / "out") == []
    assert running.of(JobStarted) == []


def test_workers_that_lack_the_function_are_told_before_the_group_is_joined(
    runner: Build, kafka: LocalKafka, kafka_topic: Topic
) -> None:
    topic = kafka_topic(1)
    running = runner(topic, function=_Unloadable())
    with pytest.raises(PipelineError, match="it is only on the driver"):
        running.pipeline.run()
    assert running.events == []


class _Unloadable:
    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        return (_load, ())


def _load() -> _Unloadable:
    raise RuntimeError("it is only on the driver")


def test_wrong_settings_are_refused_when_the_pipeline_is_built(spark: SparkSession, tmp_path: Path) -> None:
    good: dict[str, Any] = {
        "topics": ["t"],
        "group_id": "g",
        "bootstrap_servers": "localhost:9092",
        "function": keep,
        "sink": ParquetSink(tmp_path / "out"),
    }
    for name, value, text in [
        ("topics", "t", "topics must be a list"),
        ("topics", [], "topics must be a list"),
        ("group_id", "", "group_id is missing"),
        ("bootstrap_servers", "localhost", "host:port"),
        ("function", 3, "function must be callable"),
        ("sink", tmp_path, "sink must be a Sink"),
        ("batch_format", "polars", "batch_format"),
        ("called_per", "record", "called_per"),
        ("columns", ["value", "body"], "columns must be a list of some of"),
        ("retries", -1, "retries"),
        ("dead_letters", "t", "a topic that the pipeline does not read"),
        ("produce", print, "name their topic with dead_letters"),
        ("max_dead_letters", 0, "max_dead_letters"),
        ("max_range_records", 0, "max_range_records"),
        ("heartbeat_interval", 100.0, "heartbeat_interval"),
    ]:
        with pytest.raises(ConfigError, match=text):
            Pipeline(spark, **{**good, name: value})
    with pytest.raises(ConfigError, match="a function of batches"):
        Pipeline(spark, **good, dead_letters="u", batch_format="spark")
    with pytest.raises(ConfigError, match="leave called_per out"):
        Pipeline(spark, **good, called_per="range", batch_format="spark")
    pipeline = Pipeline(spark, **good)
    pipeline.stop()
    assert not (tmp_path / "out").exists()


def test_a_pipeline_runs_once(runner: Build, kafka_topic: Topic) -> None:
    with runner(kafka_topic(1)) as running:
        running.until(lambda: running.of(OwnershipChanged))
    with pytest.raises(IllegalStateError):
        running.pipeline.run()
