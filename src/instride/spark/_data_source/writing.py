"""The sink: rows of a DataFrame as records of Kafka, by confluent-kafka. `df.write` and `writeStream`.

Laws
1. Columns are those of Spark's own connector: value, and where they are there key, topic, partition and headers. Others
   are passed over. The option "topic" comes before the column.
2. At least once: a task succeeds when all of its records are acknowledged, by all replicas unless kafka.acks says less.
   One that runs again writes its records again, and nothing is taken back that a task wrote before it failed.
3. A worker process keeps its producer from task to task. After an error it is given up. One that a fatal error has
   ended between two tasks fails none of them.
4. A setting is translated, or refused by its name (`security`). No message holds a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from instride._processing.dead_letters import confluent_settings, with_authorities
from instride.errors import ConfigError, SinkError
from instride.errors._quoting import counted
from instride.spark._data_source.security import OF_CONSUMERS, consumer_settings, milliseconds

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchWriter", "StreamWriter", "WriteTask", "close_producers", "write_task"]

_OPTIONS: Final = frozenset(("topic", "checkpointlocation", "path", "queryname"))
_PRODUCERS: Final[dict[str, str]] = {
    "acks": "acks",
    "batch.size": "batch.size",
    "buffer.memory": "queue.buffering.max.kbytes",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "request.timeout.ms",
    "retries": "retries",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
}
"""Java's names, and librdkafka's."""
_WAITS: Final = {
    "metadata.max.age.ms": (1, 86_400_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "retry.backoff.ms": (1, 300_000),
    "retry.backoff.max.ms": (1, 300_000),
}
"""librdkafka's bounds, which are narrower than Java's."""
_RECONNECT_BACKOFF: Final = 100
_DEFAULTS: Final[dict[str, Any]] = {
    # librdkafka's own is 1,000,000, and a topic refuses a batch that is larger than its max.message.bytes as a whole,
    # though it would take each record of it. Java's 16 KiB cost throughput here: librdkafka sends one batch a request.
    "batch.size": 131_072,
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.max.bytes": 1 << 20,  # as Java's max.request.size; librdkafka's own is 1,000,000
    "partitioner": "murmur2_random",  # Java's, for equal keys
}
_BUFFER: Final = 32 << 20
"""Bytes: Java's default of buffer.memory. librdkafka's is 1 GiB, of each worker process."""
_MOST_KIBIBYTES: Final = 2**31 - 1
"""librdkafka's bound of such a queue."""
_MOST_IN_FLIGHT: Final = 5
"""Of a producer that is idempotent."""
_LEAST: Final = {"batch.size": 1, "message.max.bytes": 1_000}
"""librdkafka's bounds; in Java a batch.size of 0 means no batches."""
_REFUSED: Final[dict[str, str]] = {
    "key.serializer": "keys are bytes or text; convert them with DataFrame operations",
    "value.serializer": "values are bytes or text; convert them with DataFrame operations",
    "transactional.id": "the sink is at-least-once",
    **dict.fromkeys(
        (*OF_CONSUMERS, "auto.offset.reset", "client.rack", "default.api.timeout.ms", "isolation.level"),
        "it is a setting of consumers, and this is a sink",
    ),
}
_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_BYTES: Final = ("key", "value")
_AS_BYTES: Final = {"string": "binary", "large_string": "large_binary"}
"""Arrow's types; the second with spark.sql.execution.arrow.useLargeVarTypes."""
_LONGEST_REQUEST: Final = 900_000
"""Milliseconds, of librdkafka's."""
_POLL: Final = 0.1
"""Seconds. Below 0.2: what takes longer confluent-kafka does in steps, and goes on after a fatal error, whose reason is
lost then."""
_SERVED: Final = 1_000
"""Records between two looks at the acknowledgements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Picklable. topic: of all records; None: the column says it. settings: of the producer; may hold secrets."""

    topic: str | None
    columns: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = field(repr=False)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Law 2. Raises SinkError for what the brokers did not take or a producer refuses, ConfigError for a row
        without a topic, or with a partition or a header that no record can have."""
        failures: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failures.append(error)

        producer = _producer(self.settings)
        try:
            for number, record in enumerate(each for batch in batches for each in self._records(batch)):
                _produce(producer, {**record, "on_delivery": delivered})
                if number % _SERVED == 0:
                    _hear(producer.poll, 0)
                if failures:
                    break
            # It ends: the producer gives up each record after delivery.timeout.ms.
            # `flush` lets nothing wait for linger.ms.
            while len(producer):
                _hear(producer.flush, _POLL)
        except BaseException:
            close_producers()
            raise
        if failures:
            close_producers()
            count = counted(len(failures), "record")
            raise SinkError(f"the brokers did not take {count} or more of this task: {failures[0]}{_hint(failures[0])}")

    def _records(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        names = [name for name in self.columns if name != "topic" or self.topic is None]
        try:
            columns = [_column(batch, name).to_pylist() for name in names]
        except UnicodeDecodeError:
            raise ConfigError("a header's key, or a row's topic, is no UTF-8") from None
        fixed = {} if self.topic is None else {"topic": self.topic}
        for values in zip(*columns, strict=True) if columns else repeat((), batch.num_rows):
            record = fixed | dict(zip(names, values, strict=True))
            if record["topic"] is None:
                raise ConfigError('a row has no topic: give the option "topic", or a topic in each row')
            # confluent-kafka takes no None for a partition, and -1 for any.
            partition = record.get("partition", 0)
            if partition is None:
                del record["partition"]
            elif partition < 0:
                raise ConfigError(f"a row for the topic {record['topic']!r} names the partition {partition}")
            record["headers"] = _headers(record.get("headers"))
            yield record


class BatchWriter(DataSourceArrowWriter):
    """Picklable."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._task.write(iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All is written."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is taken back (law 2)."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Picklable."""

    def __init__(self, task: WriteTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._task.write(iterator)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """All is written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        """Nothing is taken back (law 2)."""


def _column(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    """Texts as their bytes: Spark's need not be UTF-8, and a record is bytes anyway."""
    column = batch.column(name)
    kind = _AS_BYTES.get(str(column.type)) if name in _BYTES else None
    return column if kind is None else column.cast(kind)


def _headers(given: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]]:
    found = []
    for each in given or ():
        if each is None or each["key"] is None:
            raise ConfigError("a row has a header without a key; only a header's value may be null")
        found.append((each["key"], each["value"]))
    return found


def write_task(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WriteTask:
    """Of a writer's options and its rows. Raises ConfigError."""
    if overwrite:
        raise ConfigError('a topic cannot be overwritten: use mode("append"), or the output mode append or update')
    plain = {name.lower(): str(value) for name, value in given.items()}
    for name in sorted(plain):
        if not name.startswith("kafka.") and name not in _OPTIONS:
            raise ConfigError(f"the sink has no option {name!r}; docs/spark-sink.md lists its options")
    columns = _columns(schema)
    topic = plain.get("topic")
    if topic is None and "topic" not in columns:
        raise ConfigError('where to write to is missing: give the option "topic", or a column of that name')
    kafka = {name.removeprefix("kafka."): value for name, value in plain.items() if name.startswith("kafka.")}
    return WriteTask(topic=topic, columns=columns, settings=tuple(sorted(_settings(kafka).items())))


def _columns(schema: StructType) -> tuple[str, ...]:
    found = {name: schema[name].dataType.simpleString() for name in _KINDS if name in schema.names}
    if "value" not in found:
        raise ConfigError(f'the rows have no column "value"; they have {", ".join(schema.names)}')
    for name, kind in found.items():
        if kind not in _KINDS[name]:
            raise ConfigError(f"the column {name!r} is of type {kind}; it must be {' or '.join(_KINDS[name])}")
    return tuple(found)


def _settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    if not kafka.get("bootstrap.servers"):
        raise ConfigError('the option "kafka.bootstrap.servers" is missing')
    for name, reason in _REFUSED.items():
        if name in kafka:
            raise ConfigError(f"kafka.{name} is not supported: {reason}")
    own = {_PRODUCERS[name]: value for name, value in kafka.items() if name in _PRODUCERS}
    own |= _waits(own)
    if milliseconds("delivery.timeout.ms", own.get("delivery.timeout.ms", "1")) < 1:
        # Java's producer refuses that. To librdkafka it is no limit, and a task would wait for ever (law 2).
        raise ConfigError("kafka.delivery.timeout.ms must be a whole number from 1 on")
    timeout = milliseconds("request.timeout.ms", own.get("request.timeout.ms", "1"))
    if not 1 <= timeout <= _LONGEST_REQUEST:
        raise ConfigError(f"kafka.request.timeout.ms must be a whole number from 1 to {_LONGEST_REQUEST}")
    shared = consumer_settings({name: value for name, value in kafka.items() if name not in _PRODUCERS})
    own |= {
        name: str(max(_number(own[name]), least))
        for name, least in _LEAST.items()
        if name in own and _number(own[name]) >= 0
    }
    own["queue.buffering.max.kbytes"] = _queue(own)
    contradicted = _contradicted(own)
    if "enable.idempotence" in contradicted and own.get("enable.idempotence", "").lower() == "true":
        raise ConfigError(
            "kafka.enable.idempotence=true needs kafka.acks=all, kafka.retries of at least 1, and at most "
            f"{_MOST_IN_FLIGHT} kafka.max.in.flight.requests.per.connection"
        )
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in contradicted}
    return {**defaults, **confluent_settings(shared), **own}


def _contradicted(own: Mapping[str, str]) -> set[str]:
    """The defaults that do not go with what is given. Java turns idempotence off in silence, as here. librdkafka
    refuses the settings, and so fails each write on an executor."""
    found = set()
    many = _number(own.get("max.in.flight.requests.per.connection", "")) > _MOST_IN_FLIGHT
    if own.get("acks", "all") not in ("all", "-1") or own.get("retries") == "0" or many:
        found.add("enable.idempotence")
    if milliseconds("delivery.timeout.ms", own.get("delivery.timeout.ms", "120000")) <= _DEFAULTS["linger.ms"]:
        found.add("linger.ms")
    return found


def _number(text: str) -> int:
    """-1: none from 0 on that Java takes. librdkafka tells of it."""
    return int(text) if re.fullmatch(r"\d{1,19}", text) else -1


def _queue(own: Mapping[str, str]) -> str:
    """Kibibytes, for the bytes that are given. Raises ConfigError."""
    wanted = _number(own.get("queue.buffering.max.kbytes", str(_BUFFER)))
    if wanted < 0:
        raise ConfigError("kafka.buffer.memory must be a whole number of bytes")
    # A record that never finds room would have `_produce` wait for ever.
    largest = _number(str(own.get("message.max.bytes", _DEFAULTS["message.max.bytes"])))
    return str(min(-(-max(wanted, largest) // 1024), _MOST_KIBIBYTES))


def _waits(given: Mapping[str, str]) -> dict[str, str]:
    """Those times within what librdkafka takes. Raises ConfigError."""
    found: dict[str, int] = {}
    for name, (least, most) in _WAITS.items():
        if name in given:
            wanted = milliseconds(name, given[name])
            if wanted < 0:
                raise ConfigError(f"kafka.{name} must not be negative")
            found[name] = int(min(max(wanted, least), most))
    first, longest = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    # librdkafka refuses a first one above the longest, whose default it has, where one of them is not given.
    if longest in found:
        found[first] = min(found.get(first, _RECONNECT_BACKOFF), found[longest])
    elif first in found:
        found[longest] = found[first]
    return {name: str(value) for name, value in found.items()}


_producers: dict[tuple[int, tuple[tuple[str, Any], ...]], Any] = {}


def _producer(settings: tuple[tuple[str, Any], ...]) -> Any:
    """This process's (law 3). For one thread, as a Spark worker process has. Raises ConfigError."""
    # librdkafka's threads are not there in the child of a fork.
    key = (os.getpid(), settings)
    if key in _producers:
        try:
            _hear(_producers[key].poll, 0)
        except SinkError:
            close_producers()
    if key not in _producers:
        try:
            from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError("to write needs the extra instride[produce], also on the executors") from error
        try:
            made = Producer(with_authorities(dict(settings)))
        except KafkaException as error:
            raise ConfigError(f"confluent-kafka refuses the settings: {error}") from None
        close_producers()
        _producers[key] = made
    return _producers[key]


def close_producers() -> None:
    """Give this process's up. What it has not written yet is not written any more."""
    _producers.clear()


def _hear(call: Callable[..., object], *arguments: object) -> None:
    """Of acknowledgements. Raises SinkError where librdkafka tells of a fatal error, after which it takes nothing."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 - KafkaException, of an extra
        raise SinkError(f"the producer is given up after a fatal error: {error}") from None


def _produce(producer: Any, record: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(**record)
        # librdkafka's queue is full: what is acknowledged makes room, and `poll` hears of it.
        except BufferError:
            _hear(producer.poll, _POLL)
        except Exception as error:  # noqa: BLE001 - KafkaException, of an extra: a record that is not even queued
            _hear(producer.poll, 0)  # where it is the producer that is lost, this says why
            raise SinkError(_refusal(record, error)) from None
        else:
            return


def _hint(failure: Any) -> str:
    """What to set. Of a batch that is too large the error names one record, which may be small."""
    if failure.name() != "MSG_SIZE_TOO_LARGE":
        return ""
    return (
        ". The record, or the batch that it was in, is larger than the topic's max.message.bytes: where each record is "
        "smaller, set kafka.batch.size to less than that"
    )


def _refusal(record: Mapping[str, Any], error: Exception) -> str:
    size = sum(len(record.get(name) or b"") for name in _BYTES)
    hint = "; kafka.max.request.size bounds it" if "too large" in str(error) else ""
    return f"a record of {counted(size, 'byte')} for the topic {record['topic']!r} was refused{hint}: {error}"
