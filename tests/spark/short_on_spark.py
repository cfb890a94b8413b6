"""`make spark-versions`: what there is for Spark, once, with whichever PySpark is on the path, classic or over Connect.

SPARK_SESSION: "classic" (the default) or "connect".
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from app_help import HELPERS
from pipeline_help import PATIENCE, QUICK, QUICK_JVM, Runner, each_once, keep
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType
from session_help import beside_a_full_load, local_session

from filled_topics import fill, fill_values
from instride.errors import RangeFailedError
from instride.spark import recommended_conf, source
from instride.spark._connect_jobs import over_connect
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

CONNECT = os.environ.get("SPARK_SESSION") == "connect"
DECLARATIVE = Path(__file__).parents[2] / "examples" / "declarative"
Topic = Callable[..., str]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    print(f"PySpark {pyspark.__version__}, {'Connect' if CONNECT else 'classic'}", flush=True)
    conf = {**recommended_conf(), "spark.driver.extraJavaOptions": QUICK_JVM}
    if not CONNECT:
        with local_session("short", "local[2]", conf) as session:
            yield session
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        # The server's workers import the tests' functions.
        patch.setenv("PYTHONPATH", HELPERS, prepend=os.pathsep)
        session = SparkSession.builder.remote("local[2]").getOrCreate()
        assert over_connect(session)
        yield session
        session.stop()


def read(spark: SparkSession, kafka: LocalKafka, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("instride").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options).load()


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.select("value").collect())


def test_a_batch(spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(2)
    written = fill_values(kafka, topic, {0: 20, 1: 20})
    assert values(read(spark, kafka, topic)) == sorted(written)


@pytest.mark.parametrize("group", [False, True])
def test_a_stream_in_micro_batches(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, group: bool
) -> None:
    topic = kafka_topic(2)
    written = fill_values(kafka, topic, {0: 20, 1: 20})
    reader = spark.readStream.format("instride").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 9)
    frame = (reader.option("consumerGroup", topic) if group else reader).load()

    def run() -> None:
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
        assert query.awaitTermination(int(PATIENCE))
        assert query.exception() is None

    beside_a_full_load(run)
    written += fill_values(kafka, topic, {0: 5}, start=20)
    beside_a_full_load(run)
    assert values(spark.read.parquet(str(tmp_path / "out"))) == sorted(written)


def test_the_fused_form(spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 20})

    def sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"size": [len(value.as_py()) for value in batch["value"]]})

    spark.dataSource.register(source(sizes, StructType().add("size", LongType()), name="sizes"))
    reader = spark.read.format("sizes").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    assert sorted(row["size"] for row in reader.option("subscribe", topic).load().collect()) == [3] * 10 + [4] * 10


def test_the_sink(spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path) -> None:
    first, second = kafka_topic(2), kafka_topic(2)
    rows = spark.range(50).selectExpr("CAST(id AS STRING) AS key", "CONCAT('v', id) AS value")
    writer = rows.write.format("instride").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.option("topic", first).mode("append").save()
    assert values(read(spark, kafka, first)) == sorted(f"v{number}" for number in range(50))
    reader = spark.readStream.format("instride").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    frame = reader.option("subscribe", first).option("startingOffsets", "earliest").load()
    stream = frame.selectExpr("key", "value", f"'{second}' AS topic").writeStream.format("instride")
    stream = stream.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    query = stream.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start()
    assert query.awaitTermination(int(PATIENCE))
    assert values(read(spark, kafka, second)) == sorted(f"v{number}" for number in range(50))


def by_value(records: DataFrame) -> DataFrame:
    return records.select("partition", "offset", "value").filter("value IS NOT NULL")


@pytest.mark.parametrize("form", ["arrow", "spark"])
def test_a_pipeline(spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, form: str) -> None:
    topic = kafka_topic(3)
    written = fill_values(kafka, topic, dict.fromkeys(range(3), 200))
    settings: dict[str, Any] = {"topics": [topic], "group_id": topic, "bootstrap_servers": kafka.bootstrap_servers}
    if form == "spark":
        settings |= {"batch_format": "spark", "function": by_value}
    with Runner(spark, tmp_path / "out", **QUICK | settings) as runner:
        runner.until_rows(len(written))
        written += fill_values(kafka, topic, {0: 50}, start=200)
        runner.until_rows(len(written))
    each_once(tmp_path / "out", written)


class Failing:
    """Fails once at a value."""

    def __init__(self, value: bytes, mark: Path) -> None:
        self._value = value
        self._mark = mark

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._value in batch["value"].to_pylist() and not self._mark.exists():
            self._mark.touch()
            raise ValueError("a bad record")
        return keep(batch)


def test_a_pipeline_whose_function_fails_once(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(2)
    written = fill_values(kafka, topic, dict.fromkeys(range(2), 100))
    settings = {"topics": [topic], "group_id": topic, "bootstrap_servers": kafka.bootstrap_servers}
    failing = Failing(b"1:50", tmp_path / "failed")
    with Runner(spark, tmp_path / "out", function=failing, **settings) as runner:
        runner.until_rows(len(written))
    each_once(tmp_path / "out", written)
    assert (tmp_path / "failed").exists()


def test_with_dataframes_an_error_of_an_executor_is_told_by_its_class(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic = kafka_topic(1)
    fill(kafka, topic, {0: 10})
    settings: dict[str, Any] = {"topics": [topic], "group_id": topic, "bootstrap_servers": kafka.bootstrap_servers}
    settings |= {"batch_format": "spark", "function": by_value, "retries": 0}
    lacking = pa.schema([("lacking", pa.int64())])
    with (
        pytest.raises(RangeFailedError, match=r"begins there\. KeyError: "),
        Runner(spark, tmp_path / "out", **QUICK | settings, schema=lacking) as runner,
    ):
        runner.until(lambda: False)


@pytest.mark.skipif(not CONNECT, reason="spark-pipelines is a client of Spark Connect")
def test_the_declarative_pipeline_of_the_examples(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """Run twice: the second run goes on from the first one's checkpoint."""
    topic, folder = kafka_topic(2), tmp_path / "declarative"
    shutil.copytree(DECLARATIVE, folder)
    spec, code = folder / "spark-pipeline.yml", folder / "transformations" / "flights.py"
    text = spec.read_text(encoding="utf-8").replace("localhost:9092", kafka.bootstrap_servers)
    spec.write_text(text.replace("/data/flights-pipeline", str(tmp_path / "storage")), encoding="utf-8")
    subscribed = code.read_text(encoding="utf-8").replace('"subscribe", "flights"', f'"subscribe", "{topic}"')
    code.write_text(subscribed, encoding="utf-8")
    home = Path(pyspark.__file__).parent
    # Without what this process's own session left there.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    # Under test, Spark's server takes any free port: that of ours has the usual one.
    environment |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    command = [str(home / "bin" / "spark-pipelines"), "run", "--conf", "spark.sql.catalogImplementation=hive"]
    written: list[str] = []
    for _ in range(2):
        written += fill_values(kafka, topic, {0: 20, 1: 20}, start=len(written) // 2)
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        assert values(spark.read.parquet(str(folder / "spark-warehouse" / "flights"))) == sorted(written)
        found = spark.read.parquet(str(folder / "spark-warehouse" / "sizes")).collect()
        assert {row["size"]: row["count"] for row in found} == Counter(map(len, written))
