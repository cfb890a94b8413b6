"""`format("instride")` with a real Spark and a real Kafka: found without a call, batch and streaming."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pipeline_help import PATIENCE, QUICK_JVM, wait_for
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType, StringType, StructType
from session_help import beside_a_full_load, local_session

from filled_topics import fill, fill_values
from instride import Consumer, OffsetAndMetadata, TopicPartition
from instride.errors import ConfigError
from instride.spark import OffsetsBehindListener, recommended_conf, source
from instride.testing import LocalKafka

# Each query starts Python processes, one after another: slow beside a full load.
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

Topic = Callable[..., str]
Read = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    conf = {**recommended_conf(), "spark.driver.extraJavaOptions": QUICK_JVM}
    conf["spark.sql.session.timeZone"] = "UTC"
    with local_session("source", "local[2]", conf) as session:
        yield session


@pytest.fixture
def read(spark: SparkSession, kafka: LocalKafka) -> Read:
    """``read(topic, **options)``: a batch; dots in names are written as __."""

    def load(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("instride").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return reader.option("subscribe", topic).options(**_dotted(options)).load()

    return load


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.select("value").collect())


@pytest.mark.requirement("source/17", "source/18")
def test_a_batch_has_the_connectors_columns_and_every_record(kafka: LocalKafka, kafka_topic: Topic, read: Read) -> None:
    topic = kafka_topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(
        topic, b"v", key=b"k", partition=0, timestamp=1_600_000_000_123, headers=[("h", b"1"), ("n", None)]
    )
    producer.produce(topic, None, partition=1, timestamp=1)
    assert producer.flush(30) == 0
    frame = read(topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    first, second = sorted(rows, key=lambda row: int(row["partition"]))
    assert (bytes(first["key"]), bytes(first["value"]), first["topic"], first["offset"]) == (b"k", b"v", topic, 0)
    assert (first["ms"], first["timestampType"], second["ms"]) == (1_600_000_000_123, 0, 1)
    headers = [(each["key"], each["value"] and bytes(each["value"])) for each in first["headers"]]
    assert headers == [("h", b"1"), ("n", None)]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


@pytest.mark.requirement("source/6", "source/9")
def test_a_batch_reads_what_was_requested(kafka: LocalKafka, kafka_topic: Topic, read: Read) -> None:
    topic = kafka_topic(2)
    written = fill_values(kafka, topic, {0: 20, 1: 20})
    frame = read(topic, minPartitions="5")
    assert frame.rdd.getNumPartitions() >= 4
    assert values(frame) == sorted(written)
    assert read(topic, maxPartitions="1").rdd.getNumPartitions() == 1
    some = read(
        topic,
        columns="value",
        startingOffsets=f'{{"{topic}": {{"0": 5, "1": -2}}}}',
        endingOffsets=f'{{"{topic}": {{"0": -1, "1": 3}}}}',
    )
    assert some.columns == ["value"]
    assert values(some) == sorted([f"0:{n}" for n in range(5, 20)] + [f"1:{n}" for n in range(3)])
    # PySpark plans the tasks of a DataFrame once: what came since is in the next one.
    more = fill_values(kafka, topic, {0: 5}, start=20)
    assert values(frame) == sorted(written)
    assert values(read(topic)) == sorted(written + more)


@pytest.mark.drawn(2, "source on Spark")
def test_a_batch_goes_on_from_what_a_group_has_committed(kafka: LocalKafka, kafka_topic: Topic, read: Read) -> None:
    """And takes no part in the group: nothing that it has committed moves."""
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 20, 1: 5})
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=f"{topic}-old") as old:
        old.assign([TopicPartition(topic, 0)])
        old.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset=12)})
        frame = read(topic, startingOffsets="group", kafka__group__id=f"{topic}-old")
        assert values(frame) == sorted([f"0:{n}" for n in range(12, 20)] + [f"1:{n}" for n in range(5)])
        told = old.committed(TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert {partition.partition: each and each.offset for partition, each in told.items()} == {0: 12, 1: None}


@pytest.mark.drawn(2, "source on Spark")
def test_filters_leave_less_to_read(spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, read: Read) -> None:
    """One task for one partition, and what is left of the filters is Spark's."""
    topic = kafka_topic(3)
    fill(kafka, topic, {0: 5, 1: 9, 2: 5})
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        wanted = "partition = 1 AND offset >= 6 AND timestamp > '2001-01-01 00:00:00'"
        frame = read(topic, pushFilters="true").where(wanted)
        assert frame.rdd.getNumPartitions() == 1
        assert values(frame.where("offset % 2 = 0")) == ["1:6", "1:8"]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.drawn(2, "source on Spark")
def test_a_topic_with_nothing_to_read_is_an_empty_frame(kafka_topic: Topic, read: Read) -> None:
    assert values(read(kafka_topic(2))) == []


@pytest.mark.drawn(2)
@pytest.mark.requirement("source/5", "source/8", "source/23")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 5}}'}, "it lacks TOPIC-1"),
        (
            {"startingOffsets": '{"TOPIC": {"0": 5, "1": 0}}', "endingOffsets": '{"TOPIC": {"0": 4, "1": 0}}'},
            "beyond the end",
        ),
        ({"startingOffsets": "latest"}, "must not be"),
        ({"startingTimestamp": "99999999999999"}, "is that late"),
        ({"subscribe": "no-such-topic"}, "there is no no-such-topic in the cluster"),
        ({"kafka__auto__offset__reset": "latest"}, "kafka.auto.offset.reset is not supported"),
    ],
)
def test_what_is_wrong_is_told(
    kafka: LocalKafka, kafka_topic: Topic, read: Read, options: dict[str, str], message: str
) -> None:
    topic = kafka_topic(2)
    with pytest.raises(PySparkException) as caught:
        read(topic, **{name: value.replace("TOPIC", topic) for name, value in options.items()}).collect()
    assert message.replace("TOPIC", topic) in str(caught.value)


def test_a_schema_of_ones_own_is_refused(spark: SparkSession) -> None:
    reader = spark.read.format("instride").schema("value STRING").option("subscribe", "t")
    with pytest.raises(PySparkException, match="a schema of its own"):
        reader.option("kafka.bootstrap.servers", "localhost:9").load().collect()


@pytest.mark.requirement("source/15", "source/16")
def test_aborted_records_are_left_out_of_read_committed(kafka: LocalKafka, kafka_topic: Topic, read: Read) -> None:
    topic = kafka_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{turn}-{number}".encode(), partition=0)
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if turn % 2 else producer.commit_transaction(30)
    committed = sorted(f"{turn}-{number}" for turn in (0, 2) for number in range(10))
    assert values(read(topic, kafka__isolation__level="read_committed")) == committed
    assert len(values(read(topic))) == 40


def _evens() -> Any:
    """A function of a function: pickled by value, since no process of Spark's can import this file."""

    def even(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["value", "offset"]
        offsets = [offset for offset in batch["offset"].to_pylist() if offset % 2 == 0]
        return pa.record_batch({"more": [None] * len(offsets), "offset": pa.array(offsets, pa.int32())})

    return even


@pytest.mark.drawn(2, "source on Spark")
def test_a_function_runs_in_the_reader_and_its_result_has_its_schema(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 9, 1: 4})
    schema = StructType().add("offset", LongType()).add("more", StringType())
    spark.dataSource.register(source(_evens(), schema, name="even"))
    reader = spark.read.format("even").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    rows = reader.option("subscribe", topic).option("columns", "value,offset").load().collect()
    assert sorted((row["offset"], row["more"]) for row in rows) == [(n, None) for n in (0, 0, 2, 2, 4, 6, 8)]


@pytest.mark.parametrize(("transform", "schema"), [(3, StructType()), (_evens(), "offset BIGINT")])
def test_a_fused_source_of_something_else_is_refused(transform: Any, schema: Any) -> None:
    with pytest.raises(ConfigError):
        source(transform, schema)


@contextmanager
def exported(spark: SparkSession) -> Iterator[list[tuple[str, dict[TopicPartition, int]]]]:
    """What an OffsetsBehindListener of the session exports meanwhile."""
    told: list[tuple[str, dict[TopicPartition, int]]] = []
    listener = OffsetsBehindListener(lambda query, behind: told.append((query, dict(behind))))
    spark.streams.addListener(listener)
    try:
        yield told
    finally:
        spark.streams.removeListener(listener)


class Stream:
    """A query of one topic into a folder of Parquet files, which restarts from its checkpoint."""

    source = "instride"

    def __init__(self, spark: SparkSession, kafka: LocalKafka, topic: str, folder: Path, **options: str) -> None:
        self._spark, self._folder = spark, folder
        reader = spark.readStream.format(self.source).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        options = {"subscribe": topic, "startingOffsets": "earliest", **_dotted(options)}
        self.frame = reader.options(**options).load()

    def run(self) -> list[dict[str, Any]]:
        """Everything that there is; the batches' progress."""
        return beside_a_full_load(self._run)

    def following(self) -> StreamingQuery:
        """A query that has read everything, and goes on."""
        return beside_a_full_load(self._follow)

    def _follow(self) -> StreamingQuery:
        query = self._writer().start()
        try:
            query.processAllAvailable()
        except BaseException:
            query.stop()  # else it would go on beside the tests that follow
            raise
        return query

    def _writer(self) -> DataStreamWriter:
        writer = self.frame.writeStream.format("parquet").option("path", str(self._folder / "out"))
        return writer.option("checkpointLocation", str(self._folder / "at"))

    def _run(self) -> list[dict[str, Any]]:
        query = self._writer().trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(int(PATIENCE) * 5)
        finally:
            query.stop()
        return [dict(each) for each in query.recentProgress]

    def written(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "out"))

    def rows(self) -> list[str]:
        return values(self.written())


@pytest.mark.requirement("source/1", "source/24", "source/27")
def test_a_stream_goes_on_from_its_checkpoint_in_batches_of_its_limit(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """The first run, from "latest", ends with nothing read; where it began is in the checkpoint all the same."""
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 5})
    options = {"startingOffsets": "latest", "commitOffsetsToGroup": f"{topic}-lag"}
    stream = Stream(spark, kafka, topic, tmp_path, maxOffsetsPerTrigger="5", **options)
    stream.run()
    written = fill_values(kafka, topic, {0: 12}, start=5) + fill_values(kafka, topic, {1: 3})
    with exported(spark) as heard:
        progress = stream.run()
        wait_for(lambda: len(heard) >= len(progress), "the listener to hear of each batch")
    batches = [each["numInputRows"] for each in progress if each["numInputRows"]]
    assert sum(batches) == 15
    assert max(batches) <= 6
    assert {name for name, _ in heard} == {str(progress[0]["id"])}
    behind = [sum(each.values()) for _, each in heard]
    assert behind == [15 - read for read in accumulate(each["numInputRows"] for each in progress)]
    assert heard[-1][1] == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    written += fill_values(kafka, topic, {0: 4, 1: 4}, start=17)
    assert sum(each["numInputRows"] for each in stream.run()) == 8
    # And by bytes: a row is its value of 1,000 bytes, and the other columns.
    heavy = [f"{number:01000}" for number in range(20)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, value in enumerate(heavy):
        producer.produce(topic, value.encode(), partition=number % 2)
    assert producer.flush(30) == 0
    bounded = Stream(spark, kafka, topic, tmp_path, maxBytesPerTrigger="8800", **options)
    batches = [each["numInputRows"] for each in bounded.run() if each["numInputRows"]]
    assert sum(batches) == 20
    assert max(batches) * 1_000 <= 8_800
    assert len(batches) < 20
    written += heavy
    assert stream.rows() == sorted(written)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=f"{topic}-lag") as lag:
        told = lag.committed(TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert {partition.partition: each and each.offset for partition, each in told.items()} == {0: 31, 1: 17}


class Evens(Stream):
    source = "even-stream"


@pytest.mark.drawn(2, "source on Spark")
@pytest.mark.parametrize("group", [False, True])
def test_a_fused_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, group: bool
) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 9, 1: 4})
    schema = StructType().add("offset", LongType()).add("more", StringType())
    spark.dataSource.register(source(_evens(), schema, name=Evens.source))
    options = {"columns": "value,offset", "maxOffsetsPerTrigger": "5"}
    if group:  # the second run waits for as long as the group holds the first one's member
        options |= {
            "consumerGroup": topic,
            "kafka__session__timeout__ms": "6000",
            "kafka__heartbeat__interval__ms": "200",
        }
    stream = Evens(spark, kafka, topic, tmp_path, **options)
    batches = [each["numInputRows"] for each in stream.run() if each["numInputRows"]]
    assert sum(batches) == 5 + 2
    assert len(batches) > 1
    fill(kafka, topic, {0: 4, 1: 4}, start=9)
    assert sum(each["numInputRows"] for each in stream.run()) == 2 + 2
    rows = [(row["offset"], row["more"]) for row in stream.written().collect()]
    assert sorted(rows) == [(n, None) for n in (0, 0, 2, 2, 4, 4, 6, 6, 8, 10, 12)]


@pytest.mark.requirement("source/26")
def test_a_stream_that_is_united_with_itself_is_one_source(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(2)
    written = fill_values(kafka, topic, {0: 9, 1: 4})
    stream = Stream(spark, kafka, topic, tmp_path)
    stream.frame = stream.frame.where("partition = 0").union(stream.frame)
    (progress,) = [each for each in stream.run() if each["numInputRows"]]
    assert [each["numInputRows"] for each in progress["sources"]] == [2 * 13], "each row once for each of its uses"
    assert stream.rows() == sorted(written + written[:9])


@pytest.mark.requirement("source/20")
def test_a_topic_that_was_made_again_fails_the_stream_that_knew_the_old_one(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 5})
    stream = Stream(spark, kafka, topic, tmp_path)
    query = stream.following()
    kafka.delete_topic(topic)
    with pytest.raises(PySparkException, match=r"there is no|not there any more"):
        query.awaitTermination(int(PATIENCE) * 5)
    kafka.create_topic(topic, 1)
    fill(kafka, topic, {0: 9})
    with pytest.raises(PySparkException, match="was deleted and made again"):
        stream.run()


@pytest.mark.drawn(2, "source on Spark")
def test_the_sinks_example_writes_each_row(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, read: Read
) -> None:
    """That of docs/spark-sink.md, in this session."""
    topic, page = kafka_topic(2), Path(__file__).parents[2] / "docs" / "spark-sink.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(code.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', repr(topic)), {})
    assert values(read(topic)) == sorted(f"v{number}" for number in range(50))
