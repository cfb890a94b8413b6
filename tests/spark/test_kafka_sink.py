"""The sink `df.write.format("instride")`: what it refuses, and with a real Kafka what it writes, without a Spark."""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from instride import Consumer, TopicPartition
from instride.errors import ConfigError, SinkError
from instride.spark._data_source import writing
from instride.spark._data_source.columns import spark_schema
from instride.spark._data_source.writing import close_producers, write_task
from instride.testing import LocalKafka

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
VALUES = StructType().add("value", BinaryType())
KINDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
ALL = spark_schema(["key", "value", "topic", "partition", "headers"])


@pytest.mark.parametrize(
    ("options", "schema", "names"),
    [
        ({"topic": "t"}, VALUES, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "x:1"}, VALUES, '"topic"'),
        ({**SERVERS, "wrong": "1"}, VALUES, "'wrong'"),
        ({**SERVERS, "kafka.transactional.id": "1"}, VALUES, "kafka.transactional.id"),
        ({**SERVERS, "kafka.value.serializer": "x"}, VALUES, "kafka.value.serializer"),
        ({**SERVERS, "kafka.buffer.memory": "-1"}, VALUES, "kafka.buffer.memory must be a whole number of bytes"),
        ({**SERVERS, "kafka.max.block.ms": "1"}, VALUES, "kafka.max.block.ms"),
        ({**SERVERS, "kafka.request.timeout.ms": "1200000"}, VALUES, "kafka.request.timeout.ms .* to 900000"),
        ({**SERVERS, "kafka.delivery.timeout.ms": "0"}, VALUES, "kafka.delivery.timeout.ms .* from 1"),
        ({**SERVERS, "kafka.isolation.level": "read_committed"}, VALUES, "kafka.isolation.level.*setting of consumers"),
        ({**SERVERS, "kafka.max.poll.records": "1"}, VALUES, "kafka.max.poll.records.*setting of consumers"),
        ({**SERVERS, "kafka.session.timeout.ms": "1"}, VALUES, "kafka.session.timeout.ms.*setting of consumers"),
        (SERVERS, StructType().add("key", BinaryType()), '"value"'),
        (SERVERS, StructType().add("value", LongType()), "binary or string"),
        (SERVERS, StructType().add("value", StringType()).add("partition", LongType()), "'partition'"),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_name(options: dict[str, str], schema: StructType, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        write_task(options, schema, overwrite=False)


def test_the_settings_of_a_producer_are_translated() -> None:
    times = {"kafka.request.timeout.ms": "7000", "kafka.retry.backoff.ms": "50"}
    task = write_task({**SERVERS, **times, "kafka.max.request.size": "5"}, VALUES, overwrite=False)
    settings = dict(task.settings)
    assert (settings["request.timeout.ms"], settings["retry.backoff.ms"]) == ("7000", "50")
    assert settings["message.max.bytes"] == "1000", "librdkafka takes no less"
    slow = write_task({**SERVERS, "kafka.reconnect.backoff.ms": "20000"}, VALUES, overwrite=False)
    assert dict(slow.settings)["reconnect.backoff.max.ms"] == "20000"
    defaults = dict(write_task(SERVERS, VALUES, overwrite=False).settings)
    assert (defaults["message.max.bytes"], defaults["batch.size"]) == (1_048_576, 131_072)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"reconnect.backoff.max.ms": "60"}, {"reconnect.backoff.max.ms": "60", "reconnect.backoff.ms": "60"}),
        ({"reconnect.backoff.max.ms": "3600001"}, {"reconnect.backoff.max.ms": "3600000"}),
        ({"reconnect.backoff.ms": "500", "reconnect.backoff.max.ms": "200"}, {"reconnect.backoff.ms": "200"}),
        ({"retry.backoff.ms": "0", "retry.backoff.max.ms": "0"}, {"retry.backoff.ms": "1"}),
        ({"retry.backoff.ms": "2000"}, {"retry.backoff.ms": "2000"}),
        ({"metadata.max.age.ms": "0"}, {"metadata.max.age.ms": "1"}),
        ({"batch.size": "0"}, {"batch.size": "1"}),
        ({"batch.size": "100000"}, {"batch.size": "100000"}),
        ({"acks": "1"}, {"acks": "1"}),
        ({"acks": "0"}, {"acks": "0"}),
        ({"acks": "-1"}, {"enable.idempotence": True}),
        ({"retries": "0"}, {"retries": "0"}),
        ({"max.in.flight.requests.per.connection": "10"}, {}),
        ({"max.in.flight.requests.per.connection": "5"}, {"enable.idempotence": True}),
        ({"delivery.timeout.ms": "2"}, {"delivery.timeout.ms": "2"}),
        ({"buffer.memory": "67108864"}, {"queue.buffering.max.kbytes": "65536"}),
        ({"buffer.memory": "9223372036854775807"}, {"queue.buffering.max.kbytes": "2147483647"}),
        ({"buffer.memory": "1"}, {"queue.buffering.max.kbytes": "1024"}),
        ({"buffer.memory": "1025", "max.request.size": "2000"}, {"queue.buffering.max.kbytes": "2"}),
        ({"max.request.size": "67108865"}, {"queue.buffering.max.kbytes": "65537"}),
    ],
    ids=str,
)
def test_settings_that_java_takes_are_within_librdkafkas_bounds(given: dict[str, str], found: dict[str, str]) -> None:
    """Such a setting failed each write, on an executor."""
    task = write_task({**SERVERS, **{f"kafka.{name}": value for name, value in given.items()}}, VALUES, overwrite=False)
    assert found.items() <= dict(task.settings).items()
    Producer(dict(task.settings))


@pytest.mark.parametrize(("given", "mebibytes"), [({}, 32), ({"kafka.buffer.memory": str(3 << 20)}, 3)])
def test_what_waits_to_be_written_is_bounded_in_bytes(given: dict[str, str], mebibytes: int) -> None:
    """It was 1 GiB of each worker process, and nobody could set less."""
    producer = Producer(dict(write_task({**NOBODY, **given}, VALUES, overwrite=False).settings) | {"log_level": 0})
    queued = records_queued(producer, bytes(100_000))
    producer.purge()
    assert queued == (mebibytes << 20) // 100_000


def records_queued(producer: Any, value: bytes) -> int:
    """Until it is full, or so many that it should be."""
    for number in range(1_000):
        try:
            producer.produce("t", value=value, partition=0)
        except BufferError:
            return number
    return 1_000


@pytest.mark.parametrize("name", ["batch.size", "max.in.flight.requests.per.connection"])
def test_a_number_of_more_digits_than_python_takes_is_librdkafkas_to_refuse(name: str) -> None:
    digits = "9" * 5_000
    task = write_task({**SERVERS, f"kafka.{name}": digits}, VALUES, overwrite=False)
    assert dict(task.settings)[name] == digits


@pytest.mark.parametrize("name", ["acks", "retries"])
def test_idempotence_that_is_asked_for_needs_its_settings(name: str) -> None:
    given = {"kafka.enable.idempotence": "true", f"kafka.{name}": "0"}
    with pytest.raises(ConfigError, match=r"kafka\.enable\.idempotence=true needs"):
        write_task({**SERVERS, **given}, VALUES, overwrite=False)


@pytest.mark.parametrize("name", ["retry.backoff.ms", "delivery.timeout.ms"])
@pytest.mark.parametrize("wrong", ["-1", "100.0", "soon", "1_000", "9" * 400], ids=range(5))
def test_times_that_are_none_are_refused_by_name(name: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=rf"kafka\.{name} must"):
        write_task({**SERVERS, f"kafka.{name}": wrong}, VALUES, overwrite=False)


NOBODY = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "kafka.delivery.timeout.ms": "1000"}
"""Where nothing listens: what is tried here is refused before a record is sent."""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"partition": -1}, "'t' names the partition -1"),
        ({"headers": [{"key": None, "value": b"x"}]}, "header without a key"),
        ({"headers": [None]}, "header without a key"),
    ],
    ids=str,
)
def test_a_row_that_no_record_can_be_is_refused(row: dict[str, Any], message: str) -> None:
    columns = {"key": b"", "value": b"", "topic": "t", "partition": None, "headers": None, **row}
    batch = pa.RecordBatch.from_pylist([columns], schema=KINDS)
    with pytest.raises(ConfigError, match=message):
        write_task(NOBODY, ALL, overwrite=False).write([batch])


def test_a_record_that_the_producer_refuses_says_how_large_it_is() -> None:
    task = write_task({**NOBODY, "kafka.max.request.size": "2000"}, VALUES, overwrite=False)
    with pytest.raises(SinkError, match=r"record of 5000 bytes .*'t'.* kafka.max.request.size bounds it"):
        task.write([pa.record_batch({"value": [b"x" * 5000]})])


class Mortal:
    """A producer that lingers for ever: it has its records acknowledged when it is flushed. Until a fatal error, which
    `poll` and `flush` raise."""

    made: ClassVar[list[Mortal]] = []

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.taken: list[Any] = []
        self.served = self.polled = 0
        self.is_dead = False
        self.unheard: list[KafkaError] = []
        self.made.append(self)

    def die(self) -> None:
        self.is_dead = True
        self.unheard.append(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "desynchronization", True))

    def produce(self, value: bytes, **_: Any) -> None:
        if self.is_dead:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        self.taken.append(value)

    def poll(self, _: float) -> None:
        if self.unheard:
            raise KafkaException(self.unheard.pop())
        self.polled += 1
        assert self.polled < 100, "it waits for ever"

    def flush(self, timeout: float) -> None:
        self.poll(timeout)
        self.served = len(self.taken)

    def __len__(self) -> int:
        return len(self.taken) + len(self.unheard) - self.served


@pytest.fixture
def mortals(monkeypatch: pytest.MonkeyPatch) -> list[Mortal]:
    monkeypatch.setattr(Mortal, "made", [])
    monkeypatch.setattr("confluent_kafka.Producer", Mortal)
    return Mortal.made


def test_a_task_does_not_linger_at_its_end(mortals: list[Mortal]) -> None:
    """Each task, or micro-batch, took as long as kafka.linger.ms at least."""
    write_task(SERVERS, VALUES, overwrite=False).write([pa.record_batch({"value": [b"1", b"2"]})])
    assert mortals[0].served == 2


def test_a_producer_that_died_between_two_tasks_fails_none(mortals: list[Mortal]) -> None:
    """A worker that Spark uses again would fail its next task."""
    task = write_task(SERVERS, VALUES, overwrite=False)
    task.write([pa.record_batch({"value": [b"1"]})])
    mortals[0].die()
    task.write([pa.record_batch({"value": [b"2"]})])
    task.write([pa.record_batch({"value": [b"3"]})])
    assert [each.taken for each in mortals] == [[b"1"], [b"2", b"3"]]


@pytest.mark.parametrize("records", [1, 2])
def test_a_fatal_error_fails_the_task_with_its_reason(mortals: list[Mortal], records: int) -> None:
    """When the next record is handed over, or at the end. The task that runs again has another producer."""
    task = write_task(SERVERS, VALUES, overwrite=False)

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"1"]})
        mortals[0].die()
        yield from [pa.record_batch({"value": [b"2"]})] * (records - 1)

    with pytest.raises(SinkError, match=r"a fatal error: .*desynchronization"):
        task.write(batches())
    task.write([pa.record_batch({"value": [b"3"]})])
    assert [each.taken for each in mortals] == [[b"1"], [b"3"]]


@pytest.fixture
def mock(monkeypatch: pytest.MonkeyPatch) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """librdkafka, and its mock broker, to which each producer goes."""
    if sys.platform != "linux":
        pytest.skip("librdkafka's library is found by /proc")
    # Not the sink's own: it would ask for an id before the broker is told to refuse it, if this thread had no
    # processor.
    keeper = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    with Path("/proc/self/maps").open() as lines:
        library = ctypes.CDLL(next(line.split()[-1] for line in lines if "rdkafka" in line))
    library.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    handle = ctypes.c_void_p.from_address(id(keeper) + object.__basicsize__)
    cluster = ctypes.c_void_p(library.rd_kafka_handle_mock_cluster(handle))
    servers = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()

    def make(settings: dict[str, Any], keeper: Producer = keeper) -> Producer:
        return Producer({**settings, "bootstrap.servers": servers, "log_level": 0})

    monkeypatch.setattr("confluent_kafka.Producer", make)
    return library, cluster


def test_librdkafka_itself_tells_why_it_died_at_the_end_of_a_task(mock: tuple[ctypes.CDLL, ctypes.c_void_p]) -> None:
    """It is refused an id: all that it has is given up at once, with that error pending."""
    library, cluster = mock
    init_producer_id, code = ctypes.c_int16(22), ctypes.c_int(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    library.rd_kafka_mock_push_request_errors(cluster, init_producer_id, ctypes.c_size_t(1), code)
    task = write_task(SERVERS, VALUES, overwrite=False)
    with pytest.raises(SinkError, match=r"a fatal error: .*CLUSTER_AUTHORIZATION_FAILED"):
        task.write([pa.record_batch({"value": [b"x"] * 3})])


@pytest.mark.usefixtures("mock")
def test_librdkafka_itself_does_not_linger_at_the_end_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of two tasks, the first of which has the producer's first connection."""
    turns = []
    monkeypatch.setattr(writing, "_hear", lambda call, *what: turns.append(call(*what)))
    task = write_task({**SERVERS, "kafka.linger.ms": "100000"}, VALUES, overwrite=False)
    for _ in range(2):
        task.write([pa.record_batch({"value": [b"x"] * 3})])
    assert len(turns) < 500, "as many as there are in 50 s"


def test_over_tls_it_trusts_whom_the_source_trusts(mortals: list[Mortal], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the variables of the executor, and not those of the driver."""
    task = write_task({**SERVERS, "kafka.security.protocol": "SSL"}, VALUES, overwrite=False)
    monkeypatch.setenv("SSL_CERT_DIR", "/")
    task.write([pa.record_batch({"value": [b"1"]})])
    assert mortals[0].settings["ssl.ca.location"] == "/"


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(ConfigError, match="append"):
        write_task(SERVERS, VALUES, overwrite=True)


def test_no_text_of_it_shows_a_secret() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden";'
    secret = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    task = write_task({**SERVERS, **secret, "kafka.sasl.jaas.config": jaas}, VALUES, overwrite=False)
    assert ("sasl.password", "hidden") in pickle.loads(pickle.dumps(task)).settings
    assert "hidden" not in repr(task)


@pytest.mark.kafka
def test_each_row_is_a_record(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(3)
    rows: list[dict[str, Any]] = [
        {"key": b"k", "value": b"1", "topic": topic, "partition": 2, "headers": [{"key": "h", "value": b"x"}]},
        {"key": None, "value": None, "topic": topic, "partition": 1, "headers": None},
        {"key": b"k", "value": b"3", "topic": topic, "partition": None, "headers": [{"key": "n", "value": None}]},
    ]
    batches = pa.Table.from_pylist(rows, schema=KINDS.append(pa.field("more", pa.int64()))).to_batches()
    task = write_task({"kafka.bootstrap.servers": kafka.bootstrap_servers}, ALL, overwrite=False)
    task.write(batches)
    task.write(batches[:0])
    found = read(kafka, topic, 3)
    # Where Java's partitioner puts this key.
    assert {(each.partition, each.key, each.value, each.headers) for each in found} == {
        (2, b"k", b"1", (("h", b"x"),)),
        (1, None, None, ()),
        (2, b"k", b"3", (("n", None),)),
    }


def test_a_header_whose_key_is_no_utf_8_is_refused() -> None:
    keys = pa.StringArray.from_buffers(1, *_text_buffers(pa.array([b"\xff"], pa.binary())))
    header = pa.StructArray.from_arrays([keys, pa.array([b"x"])], ["key", "value"])
    columns = [pa.array([b"v"]), pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), header)]
    batch = pa.RecordBatch.from_arrays(columns, ["value", "headers"])
    schema = StructType([field for field in ALL if field.name in ("value", "headers")])
    with pytest.raises(ConfigError, match="no UTF-8"):
        write_task(NOBODY, schema, overwrite=False).write([batch])


@pytest.mark.kafka
@pytest.mark.parametrize("large", [False, True])
def test_texts_that_are_not_utf_8_are_written_as_they_are(
    kafka: LocalKafka, kafka_topic: Callable[..., str], *, large: bool
) -> None:
    """Spark's strings may hold any bytes: `CAST(value AS STRING)` from topic to topic changes none."""
    topic = kafka_topic(1)
    texts = pa.array([b"\xff\xfe", "ü".encode(), None], pa.binary())
    column = pa.StringArray.from_buffers(3, *_text_buffers(texts))
    # The cast from string to large_string looks at no bytes.
    batch = pa.record_batch({"value": column.cast(pa.large_string()) if large else column})
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    write_task(options, StructType().add("value", StringType()), overwrite=False).write([batch])
    assert {each.value for each in read(kafka, topic, 1)} == {b"\xff\xfe", "ü".encode(), None}


def _text_buffers(array: pa.Array[Any]) -> tuple[Any, Any, Any]:
    """As Arrow's strings, which do not look at their bytes."""
    validity, offsets, data = array.buffers()
    return offsets, data, validity


@pytest.mark.kafka
def test_a_record_that_is_not_taken_fails_the_task(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    topic = kafka_topic(1, configs={"max.message.bytes": "1000"})
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    task = write_task(options, VALUES, overwrite=False)
    with pytest.raises(SinkError, match=r"did not take .* set kafka\.batch\.size to less"):
        task.write([pa.record_batch({"value": [b"x" * 100_000]})])
    # It runs again, with what the brokers take.
    task.write([pa.record_batch({"value": [b"x"]})])
    assert [each.value for each in read(kafka, topic, 1)] == [b"x"]
    with pytest.raises(ConfigError, match="no topic"):
        write_task({"kafka.bootstrap.servers": kafka.bootstrap_servers}, ALL, overwrite=False).write(
            [
                pa.RecordBatch.from_pylist(
                    [{"key": b"", "value": b"", "topic": None, "partition": None, "headers": None}]
                )
            ]
        )


@pytest.mark.kafka
def test_records_that_a_topic_takes_one_by_one_are_taken(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    """librdkafka's default batch is larger than the topic's bound, which refuses it as a whole."""
    topic = kafka_topic(1, configs={"max.message.bytes": "131072"})
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    values = [b"%d" % number + b"x" * 500 for number in range(5_000)]
    write_task(options, VALUES, overwrite=False).write([pa.record_batch({"value": values})])
    assert sorted(each.value for each in read(kafka, topic, 1)) == sorted(values)


@pytest.fixture(autouse=True)
def _no_producer_is_left() -> Iterator[None]:
    yield
    close_producers()


def read(kafka: LocalKafka, topic: str, partitions: int) -> list[Any]:
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        every = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(every)
        ends = consumer.end_offsets(every)
        found: list[Any] = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += consumer.poll(timeout=0.1)
    return found
