"""What reads ranges on an executor, without Spark: one range after another, and why nothing comes of one."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable

import pytest
from pipeline_help import fill

from instride.errors import KafkaTimeoutError
from instride.spark._range_reader import RangeReader, ReaderSettings
from instride.spark.sink import OutputRange
from instride.testing import LocalKafka

Topic = Callable[..., str]


def offsets(reader: RangeReader, wanted: OutputRange) -> list[int]:
    return [offset for batch in reader.read(wanted) for offset in batch.column("offset").to_pylist()]


@pytest.mark.spark
@pytest.mark.kafka
def test_one_reader_reads_range_after_range_each_exactly(kafka: LocalKafka, kafka_topic: Topic) -> None:
    """Neighbours, which use what was fetched already; ranges behind and before; other partitions between them."""
    name, chance = kafka_topic(partitions=3), random.Random(983)
    fill(kafka, name, dict.fromkeys(range(3), 1000))
    reader = RangeReader(ReaderSettings(bootstrap_servers=kafka.bootstrap_servers))
    try:
        last = dict.fromkeys(range(3), 0)
        for _ in range(60):
            partition = chance.randrange(3)
            start = chance.choice((last[partition], 0, chance.randrange(900)))
            end = start + chance.randrange(1, 100)
            last[partition] = 0 if end > 900 else end
            wanted = OutputRange(topic=name, partition=partition, start=start, end=end)
            assert offsets(reader, wanted) == list(range(start, end)), wanted
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
