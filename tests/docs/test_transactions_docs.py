"""kafka-python's transaction of docs/exactly-once.md, run as it stands, against a real Kafka."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from instride import Consumer, ConsumerRecord, TopicPartition
from instride.testing import LocalKafka

PAGE = Path(__file__).parents[2] / "docs" / "exactly-once.md"
EACH, PARTITIONS, PATIENCE = 20, 2, 60.0

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # kafka-python's own
]


@contextmanager
def the_pages_code(kafka: LocalKafka, consumer: Consumer[Any, Any], output: str) -> Iterator[dict[str, Any]]:
    (code,) = [
        each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "import kafka" in each
    ]
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace('"bills"', repr(output))
    names: dict[str, Any] = {"consumer": consumer, "transform": lambda record: record.value}
    exec(compile(code.replace("billing-1", f"billing-{uuid.uuid4().hex}"), "example", "exec"), names)
    try:
        yield names
    finally:
        names["producer"].close(timeout=10)


def a_poll(consumer: Consumer[Any, Any], count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += consumer.poll(timeout=PATIENCE)
    return found


def following(records: list[ConsumerRecord]) -> dict[TopicPartition, int]:
    return {record.topic_partition: record.offset + 1 for record in records}


def filled(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> tuple[str, str]:
    topic, output = kafka_topic(PARTITIONS), kafka_topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(EACH * PARTITIONS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE) == 0
    return topic, output


def member(kafka: LocalKafka, topic: str) -> Consumer[bytes | None, bytes | None]:
    consumer = Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=f"transactions-{uuid.uuid4().hex[:8]}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe([topic])
    return consumer


def test_its_output_and_its_offsets_are_there_once(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    topic, output = filled(kafka, kafka_topic)
    with member(kafka, topic) as consumer, the_pages_code(kafka, consumer, output) as names:
        records = a_poll(consumer, EACH * PARTITIONS)
        names["transaction"](records, following(records))
        committed = consumer.committed(*following(records))
        assert {tp: each and each.offset for tp, each in committed.items()} == following(records)
    assert written(kafka, output, EACH * PARTITIONS) == Counter(b"%d" % each for each in range(EACH * PARTITIONS))


def test_what_is_aborted_is_read_again_and_written_once(kafka: LocalKafka, kafka_topic: Callable[..., str]) -> None:
    """The offsets of a generation that is over are refused; the page says what is done then."""
    topic, output = filled(kafka, kafka_topic)
    with member(kafka, topic) as consumer, the_pages_code(kafka, consumer, output) as names:
        records = a_poll(consumer, EACH * PARTITIONS)
        now = consumer.group_metadata()
        names["consumer"] = Stale(now._replace(generation_id=now.generation_id - 1))
        with pytest.raises(Exception, match=r"(?i)generation|commit"):
            names["transaction"](records, following(records))
        names["producer"].abort_transaction()
        for partition in following(records):
            consumer.seek(partition, 0)
        names["consumer"] = consumer
        records = a_poll(consumer, EACH * PARTITIONS)
        names["transaction"](records, following(records))
    assert written(kafka, output, EACH * PARTITIONS) == Counter(b"%d" % each for each in range(EACH * PARTITIONS))


class Stale:
    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata

    def group_metadata(self) -> Any:
        return self._metadata


def written(kafka: LocalKafka, output: str, count: int) -> Counter[bytes | None]:
    """What a reader of committed records sees, up to the end of the log."""
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        partition = TopicPartition(output, 0)
        reader.assign([partition])
        end = reader.end_offsets([partition])[partition]
        found: Counter[bytes | None] = Counter()
        while reader.position(partition) < end:
            found.update(record.value for record in reader.poll(timeout=1.0))
        assert found.total() == count
    return found
