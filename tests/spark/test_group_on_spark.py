"""Group mode with a real Spark: two queries of one session are two members, as each has a source process of its own."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pipeline_help import PATIENCE, QUICK_JVM, wait_for
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader
from session_help import local_session

from filled_topics import fill_values
from instride import Consumer, TopicPartition
from instride.spark import recommended_conf, stop
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1800)]

Topic = Callable[..., str]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    conf = {**recommended_conf(), "spark.driver.extraJavaOptions": QUICK_JVM, "spark.sql.shuffle.partitions": "1"}
    with local_session("groups", "local[2]", conf) as session:
        yield session


class Application:
    """A query into a folder of Parquet files, which goes on from its checkpoint whenever it is started."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, topic: str, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        reader = spark.readStream.format("instride").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        reader = reader.option("subscribe", topic).option("consumerGroup", topic).option("columns", "value")
        reader = reader.option("startingOffsets", "earliest").option("maxPartitions", "2")
        self._frame = self.frame(reader.option("kafka.session.timeout.ms", "15000"))
        self.query = self._start()

    def frame(self, reader: DataStreamReader) -> DataFrame:
        return reader.load()

    def _start(self) -> StreamingQuery:
        writer = self._frame.writeStream.format("parquet").option("path", str(self._folder / "out"))
        return writer.option("checkpointLocation", str(self._folder / "at")).start()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Spark gives a new Python process ten seconds to call back: too few beside a full load."""

        def holds() -> object:
            error = self.query.exception()
            if error is not None and "failed to connect back" in str(error):
                self.query = self._start()
            elif error is not None:
                raise error
            return condition()

        wait_for(holds, what, seconds=PATIENCE * 4)

    def go_on(self) -> None:
        self.query = self._start()

    def end(self) -> None:
        self.query.stop()

    def rows(self) -> list[str]:
        """What the sink's own log says that it has."""
        if not (self._folder / "out" / "_spark_metadata").exists():
            return []
        return [bytes(row["value"]).decode() for row in self._spark.read.parquet(str(self._folder / "out")).collect()]


@pytest.mark.requirement("source/elastic", "source/killed", "source/idle-commit")
def test_applications_join_leave_and_die_and_each_record_is_in_one_sink_once(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    topic, at = kafka_topic(4), 0
    written: list[str] = []

    def write() -> None:
        nonlocal at
        written.extend(fill_values(kafka, topic, dict.fromkeys(range(4), 10), start=at))
        at += 10

    def reads(application: Application) -> bool:
        """Records come to it once it owns something: some more, whenever the group has all that there were."""
        if application.query.lastProgress is not None and committed(kafka, topic) == len(written):
            write()
        return any(each["numInputRows"] for each in application.query.recentProgress)

    with ExitStack() as stack:
        write()
        first = Application(spark, kafka, topic, tmp_path / "first")
        stack.callback(first.end)
        first.until(lambda: reads(first), "the first one's records")
        second = Application(spark, kafka, topic, tmp_path / "second")
        stack.callback(second.end)
        second.until(lambda: reads(second), "records for the one that joined")
        write()
        stop(first.query, timeout=PATIENCE)
        second.until(lambda: len(first.rows()) + len(second.rows()) >= len(written), "every record")
        second.until(lambda: committed(kafka, topic) == len(written), "the group's offsets")
        # Nothing is in flight. The source's process is killed: the query fails, and goes on where it was.
        for process in children("python_streaming_source_runner"):
            os.kill(process, signal.SIGKILL)
        write()
        wait_for(lambda: not second.query.isActive, "the query to fail")
        assert isinstance(second.query.exception(), StreamingQueryException)
        second.go_on()
        second.until(lambda: len(first.rows()) + len(second.rows()) >= len(written), "every record")
        stop(second.query, timeout=PATIENCE)
        there = Counter(first.rows() + second.rows())
    expected = Counter(written)
    assert there == expected, f"lost {list(expected - there)[:5]}, twice {list(there - expected)[:5]}"


class Foreach(Application):
    """Into lines of a file for each Python worker: a sink for which Spark takes asynchronous progress tracking."""

    options: Mapping[str, str] = {}

    def _start(self) -> StreamingQuery:
        folder = self._folder
        folder.mkdir(exist_ok=True)

        def keep(row: Row) -> None:  # a closure: workers cannot import this module
            with (folder / f"{os.getpid()}.rows").open("a") as file:
                file.write(bytes(row["value"]).decode() + "\n")

        writer = self._frame.writeStream.foreach(keep).options(**self.options)
        return writer.option("checkpointLocation", str(self._folder / "at")).start()

    def rows(self) -> list[str]:
        return [line for path in self._folder.glob("*.rows") for line in path.read_text().splitlines()]


class Asynchronous(Foreach):
    options = {"asyncProgressTrackingEnabled": "true"}  # noqa: RUF012 - never changed


@pytest.mark.drawn(1, "Spark applications")
def test_asynchronous_progress_tracking_is_refused_and_nothing_is_lost(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """Spark does not end such a query cleanly: only another process can go on from its checkpoint."""
    topic, written = kafka_topic(4), list[str]()

    def write_more() -> None:
        written.extend(fill_values(kafka, topic, {0: 1}, start=len(written)))

    with ExitStack() as stack:
        refused = Asynchronous(spark, kafka, topic, tmp_path / "refused")
        stack.callback(refused.end)
        with pytest.raises(StreamingQueryException, match="asyncProgressTrackingEnabled does not go with"):
            refused.until(write_more, "to be refused")
        other = Foreach(spark, kafka, topic, tmp_path / "other")
        stack.callback(other.end)
        other.until(lambda: len(refused.rows()) + len(other.rows()) >= len(written), "every record")
        stop(other.query, timeout=PATIENCE)
        assert sorted(refused.rows() + other.rows()) == sorted(written)


class Stateful(Foreach):
    """Spark keeps the values that it has seen."""

    def frame(self, reader: DataStreamReader) -> DataFrame:
        return reader.load().dropDuplicates(["value"])


class SaidToBeStateless(Foreach):
    def frame(self, reader: DataStreamReader) -> DataFrame:
        return reader.option("statelessQuery", "true").load()


@pytest.mark.drawn(1, "Spark applications")
def test_a_stateful_query_is_refused_and_nothing_of_it_is_committed(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """Known by adaptive execution, which Spark turns off for it. Who turns that off for all says what has no state."""
    topic = kafka_topic(4)
    written = fill_values(kafka, topic, {0: 5, 1: 5})
    with ExitStack() as stack:
        refused = Stateful(spark, kafka, topic, tmp_path / "refused")
        stack.callback(refused.end)
        with pytest.raises(StreamingQueryException, match="a stateful query does not go with consumerGroup"):
            refused.until(lambda: False, "to be refused")
        assert (refused.rows(), committed(kafka, topic)) == ([], 0)
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        stack.callback(spark.conf.unset, "spark.sql.adaptive.enabled")
        other = SaidToBeStateless(spark, kafka, topic, tmp_path / "other")
        stack.callback(other.end)
        other.until(lambda: len(other.rows()) >= len(written), "every record")
        stop(other.query, timeout=PATIENCE)
        assert sorted(other.rows()) == sorted(written)


@pytest.mark.drawn(1, "Spark applications")
def test_the_example_of_the_page_runs(
    spark: SparkSession, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """That of docs/spark-groups.md, in this session."""
    topic, page = kafka_topic(2), Path(__file__).parents[2] / "docs" / "spark-groups.md"
    written = fill_values(kafka, topic, {0: 10, 1: 10})
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace('"orders"', repr(topic))
    code = code.replace('"billing"', repr(topic)).replace("/data/billing-a", str(tmp_path / "a"))
    code = code.replace(".load()", '.option("startingOffsets", "earliest").load()')
    code = code.replace("query.awaitTermination(3600)", "until_read(query)")

    def until_read(query: StreamingQuery) -> None:
        read = len(written)
        wait_for(lambda: not query.isActive or sum(p["numInputRows"] for p in query.recentProgress) >= read, "rows")

    names: dict[str, Any] = {"until_read": until_read}
    exec(code, names)
    while "failed to connect back" in str(names["query"].exception()):
        exec(code, names)
    rows = spark.read.parquet(str(tmp_path / "a")).collect()
    assert sorted(bytes(row["value"]).decode() for row in rows) == sorted(written)


def committed(kafka: LocalKafka, topic: str) -> int:
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        found = consumer.committed([TopicPartition(topic, number) for number in range(4)])
    return sum(each.offset for each in found.values() if each is not None)


def children(module: str) -> list[int]:
    """The processes of this session's sources: of the JVM that is a child of ours."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if module.encode() in line and is_ours(int(place.name)):
            found.append(int(place.name))
    return found


def is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False
