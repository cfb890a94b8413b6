"""What the records of a backlog weigh, asked of a real Kafka: the sampler, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from instride import TopicPartition
from instride.errors import KafkaTimeoutError
from instride.spark._data_source.offsets import Span
from instride.spark._data_source.options import parse_options
from instride.spark._data_source.sampling import Sampler
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def sampler(kafka: LocalKafka, topic: str, **given: str) -> Sampler:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "columns": "key,value", **given}
    return Sampler(parse_options(options, "stream"))


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> Iterator[str]:
    """0: 30 records of 1,000 bytes, 10 a compressed batch. 1: 200,000 bytes each. 2: ten of them, aborted. 3: empty."""
    name = "weighed"
    kafka.create_topic(name, 4)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "zstd", "linger.ms": 1_000}
    producer = Producer({**settings, "transactional.id": name, "batch.num.messages": 10})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(30):
        producer.produce(name, b"v" * 999 + b"%d" % (number % 10), key=b"key", partition=0)
    for _ in range(5):
        producer.produce(name, b"w" * 200_000, partition=1)
    producer.commit_transaction(30)
    producer.begin_transaction()
    for _ in range(10):
        producer.produce(name, b"x" * 1_000, partition=2)
    producer.flush(30)
    producer.abort_transaction(30)
    yield name
    kafka.delete_topic(name)


def test_a_record_weighs_what_its_row_does_wherever_reading_begins(kafka: LocalKafka, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    made = sampler(kafka, topic)
    try:
        for start in (0, 13, 29):
            found = made.sample({first: Span(start, 31), second: Span(2, 6)})
            assert found[first].start == found[first].first == start
            assert 1_003 <= found[first].weight < 1_003 + 16, "decompressed, with Arrow's offsets"
            assert 200_000 <= found[second].weight < 200_000 + 16
    finally:
        made.close()


@pytest.mark.parametrize(("level", "weighs"), [("read_committed", False), ("read_uncommitted", True)])
def test_aborted_records_weigh_nothing_where_they_are_not_read(
    kafka: LocalKafka, topic: str, level: str, weighs: bool
) -> None:
    aborted = TopicPartition(topic, 2)
    made = sampler(kafka, topic, **{"kafka.isolation.level": level})
    try:
        found = made.sample({aborted: Span(0, 11), TopicPartition(topic, 0): Span(0, 31)})
        assert (found[aborted].nbytes > 0) == weighs
        assert found[aborted].end == (10 if weighs else 11)
    finally:
        made.close()


def test_a_topic_that_is_gone_is_left_out(kafka: LocalKafka, topic: str) -> None:
    made = sampler(kafka, topic)
    try:
        found = made.sample({TopicPartition("gone", 0): Span(3, 9), TopicPartition(topic, 0): Span(0, 31)})
        assert list(found) == [TopicPartition(topic, 0)]
    finally:
        made.close()


def test_a_partition_whose_records_do_not_come_is_named(kafka: LocalKafka, topic: str) -> None:
    made = sampler(kafka, topic, **{"kafkaConsumer.pollTimeoutMs": "1"})
    try:
        with pytest.raises(KafkaTimeoutError, match=rf"maxBytesPerTrigger: no record of {topic}-3 came from offset 0"):
            made.sample({TopicPartition(topic, 3): Span(0, 5)})
    finally:
        made.close()
