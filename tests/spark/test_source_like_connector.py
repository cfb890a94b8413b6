"""Equal rows with Spark's own Kafka connector, on one topic, for each way to say where reading begins and ends.

The connector's jars come from Maven Central once, and are kept beside the Kafka that the tests use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import instride
from connector_jars import connector_jars
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

Result = dict[str, Any]


@pytest.fixture(scope="module")
def jars() -> list[str]:
    try:
        return connector_jars()
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> Iterator[str]:
    """Three partitions: nulls, headers, aborted transactions, and times that rise by a second with each record."""
    name = "both-sources"
    kafka.create_topic(name, 3, configs={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(30):
            producer.produce(name, **_record(turn, number))
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if turn % 2 else producer.commit_transaction(30)
    yield name
    kafka.delete_topic(name)


def _record(turn: int, number: int) -> dict[str, Any]:
    return {
        "partition": number % 3,
        "key": None if number % 4 == 0 else f"k{number}".encode(),
        "value": None if number % 5 == 0 else f"{turn}-{number}".encode(),
        "timestamp": 1_700_000_000_000 + 1_000 * (30 * turn + number),
        "headers": [("n", b"%d" % number), ("null", None), ("n", b"")] if number % 2 else [],
    }


def _batch(topic: str) -> list[dict[str, str]]:
    def parts(*numbers: int) -> str:
        return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})

    middle = 1_700_000_000_000 + 45_500
    one: dict[str, str] = {"subscribe": topic}
    return [
        one,
        {**one, "includeHeaders": "true"},
        {**one, "kafka.isolation.level": "read_committed"},
        {**one, "kafka.isolation.level": "read_uncommitted", "minPartitions": "7"},
        {**one, "maxRecordsPerPartition": "4"},
        {"assign": json.dumps({topic: [2, 0]})},
        {"subscribePattern": "both-s.*"},
        {"SUBSCRIBE": topic, "STARTINGoffsets": "EARLIEST"},
        {**one, "startingOffsets": parts(3, -2, 11)},
        {**one, "startingOffsets": parts(3, 0, 5), "endingOffsets": parts(9, -1, 5)},
        {**one, "startingTimestamp": str(middle)},
        {**one, "startingOffsetsByTimestamp": parts(0, middle, middle + 10_000)},
        {**one, "endingTimestamp": str(middle)},
        {**one, "endingOffsetsByTimestamp": parts(middle, 2 * middle, 1)},
        {**one, "startingTimestamp": str(middle), "endingOffsets": parts(20, 20, -1)},
        {**one, "startingOffsets": parts(3, 0, 5), "endingTimestamp": str(middle)},
        {**one, "startingTimestamp": str(2 * middle), "startingOffsetsByTimestampStrategy": "latest"},
        # Refused by both.
        {**one, "startingTimestamp": str(2 * middle)},
        {**one, "startingOffsets": "latest"},
        {**one, "endingOffsets": "earliest"},
        {**one, "startingOffsets": json.dumps({topic: {"0": 1}})},
        {**one, "startingOffsets": parts(9, 0, 0), "endingOffsets": parts(8, 1, 1)},
        {**one, "assign": json.dumps({topic: [0]})},
        {**one, "kafka.auto.offset.reset": "earliest"},
        {"subscribe": "no-such-topic-at-all"},
    ]


def _stream(topic: str) -> list[dict[str, str]]:
    offsets = json.dumps({topic: {"0": 5, "1": -2, "2": -1}})
    one = {"subscribe": topic, "startingOffsets": "earliest"}
    return [
        {**one, "maxOffsetsPerTrigger": "50", "includeHeaders": "true"},
        {**one, "startingOffsets": offsets, "kafka.isolation.level": "read_committed"},
        # Refused by both.
        {**one, "endingOffsets": "latest"},
        {**one, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
    ]


@pytest.mark.requirement(
    "source/1",
    "source/4",
    "source/5",
    "source/6",
    "source/7",
    "source/8",
    "source/15",
    "source/16",
    "source/18",
    "source/same-rows",
)
@pytest.mark.timeout(600)
def test_both_give_the_same_rows_and_refuse_the_same(
    kafka: LocalKafka, topic: str, jars: list[str], tmp_path: Path
) -> None:
    batches, streams = _batch(topic), _stream(topic)
    settings = {"servers": kafka.bootstrap_servers, "jars": jars, "folder": str(tmp_path)}
    program = str(Path(__file__).with_name("both_sources.py"))
    command = [sys.executable, program, json.dumps({**settings, "batch": batches, "stream": streams})]
    environment = {**os.environ, "PYTHONPATH": str(Path(instride.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=540, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[Result] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(results) == len(batches) + len(streams)
    differing = [
        (options, _some(result["kafka"]), _some(result["instride"]))
        for options, result in zip(batches + streams, results, strict=True)
        if result["kafka"] != result["instride"]
    ]
    assert differing == [], done.stderr[-20_000:]
    kinds = ["refused" if result["kafka"] == "refused" else "rows" for result in results]
    assert kinds == ["rows"] * 17 + ["refused"] * 8 + ["rows"] * 2 + ["refused"] * 2


def _some(result: list[str] | str) -> object:
    return result if isinstance(result, str) else (len(result), result[:2])
