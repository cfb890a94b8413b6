"""Equal schema, rows and micro-batches with Spark's own Kafka connector, on one topic; and the same is refused.

Numbers are those of the requirements "source/...": what the connector's own test suites try. The
connector's jars come from Maven Central once, and are kept beside the Kafka that the tests use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

import instride
from connector_jars import connector_jars
from drawn_by_commit import WHOLE, commit, drawn
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

FORMATS = ("kafka", "instride")
PRODUCED = 1_700_000_000_000
"""The time of the first records, as their producer gives it."""
Result = dict[str, Any]
Story = Callable[[LocalKafka, "Both"], None]


@pytest.fixture(scope="module")
def jars() -> list[str]:
    try:
        return connector_jars()
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        pytest.skip(str(error))


class Both:
    """A Spark with both sources, in a process of its own (`both_sources`)."""

    def __init__(self, kafka: LocalKafka, jars: list[str], folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log"
        settings = {"servers": kafka.bootstrap_servers, "jars": jars, "folder": str(folder)}
        program = str(Path(__file__).with_name("both_sources.py"))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, program, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(Path(instride.__file__).parents[1])},
            )

    def ask(self, do: str, **command: Any) -> dict[str, Result | str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Result | str] = json.loads(line)
                return found
        raise AssertionError(f"the Spark with both sources ended:\n{self.log()}")

    def same(self, do: str, **command: Any) -> Result:
        """What both give."""
        found = self.ask(do, **command)
        assert found["kafka"] == found["instride"], (command, self.log())
        assert isinstance(found["kafka"], dict), (command, self.log())
        return found["kafka"]

    def same_but_for_tasks(self, options: dict[str, str]) -> tuple[Result, list[int]]:
        """What both give for a batch, and how many tasks each makes of it."""
        found = self.ask("batch", options=options, tasks=True)
        tasks = [each.pop("tasks") for each in found.values() if isinstance(each, dict)]
        assert found["kafka"] == found["instride"], (options, self.log())
        assert isinstance(found["kafka"], dict), (options, self.log())
        return found["kafka"], tasks

    def refused(self, do: str, **command: Any) -> None:
        """By both."""
        found = self.ask(do, **command)
        assert found == dict.fromkeys(FORMATS, "refused"), (command, self.log())

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")[-5000:]

    def end(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def both(kafka: LocalKafka, jars: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    made = Both(kafka, jars, tmp_path_factory.mktemp("both"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def topic(kafka: LocalKafka) -> Iterator[str]:
    """Three partitions: nulls, headers, aborted transactions, and times that rise by a second with each record."""
    name = "both-sources"
    with_transactions(kafka, name, 4, aborted={1, 3})
    yield name
    kafka.delete_topic(name)


def with_transactions(kafka: LocalKafka, name: str, count: int, *, aborted: set[int]) -> None:
    """A topic of three partitions with so many transactions, 30 records in each."""
    kafka.create_topic(name, 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for turn in range(count):
        producer.begin_transaction()
        for number in range(30):
            producer.produce(name, **_record(turn, number))
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if turn in aborted else producer.commit_transaction(30)


def _record(turn: int, number: int) -> dict[str, Any]:
    return {
        "partition": number % 3,
        "key": None if number % 4 == 0 else f"k{number}".encode(),
        "value": None if number % 5 == 0 else f"{turn}-{number}".encode(),
        "timestamp": PRODUCED + 1_000 * (30 * turn + number),
        "headers": [("n", b"%d" % number), ("null", None), ("n", b"")] if number % 2 else [],
    }


def _parts(*numbers: int) -> str:
    return json.dumps({"both-sources": {str(partition): number for partition, number in enumerate(numbers)}})


MIDDLE = PRODUCED + 45_500
ONE = {"subscribe": "both-sources"}
READ: list[dict[str, str]] = [
    ONE,
    {**ONE, "includeHeaders": "true"},
    {**ONE, "kafka.isolation.level": "read_committed"},
    {**ONE, "kafka.isolation.level": "read_uncommitted", "minPartitions": "6"},
    {**ONE, "minPartitions": "7", "startingOffsets": _parts(3, 40, -2)},
    {"assign": json.dumps({"both-sources": [2, 0]})},
    {"subscribePattern": "both-s.*"},
    {"SUBSCRIBE": "both-sources", "STARTINGoffsets": "EARLIEST", "ENDINGoffsets": "Latest"},
    {**ONE, "startingOffsets": _parts(3, -2, 11)},
    {**ONE, "startingTimestamp": str(MIDDLE)},
    {**ONE, "startingOffsetsByTimestamp": _parts(0, MIDDLE, MIDDLE + 10_000)},
    {**ONE, "endingTimestamp": str(MIDDLE)},
    {**ONE, "startingTimestamp": str(MIDDLE), "endingOffsets": _parts(20, 20, -1)},
    {**ONE, "startingOffsets": _parts(3, 0, 5), "endingTimestamp": str(MIDDLE)},
]
NOTHING = {**ONE, "startingTimestamp": str(2 * MIDDLE), "startingOffsetsByTimestampStrategy": "latest"}
OTHER_TASKS: list[tuple[dict[str, str], int]] = [
    ({**ONE, "startingOffsets": _parts(3, 0, 5), "endingOffsets": _parts(9, -1, 5)}, 2),
    ({**ONE, "endingOffsetsByTimestamp": _parts(MIDDLE, 2 * MIDDLE, 1)}, 2),
    (NOTHING, 1),
    ({**ONE, "maxRecordsPerPartition": "4"}, 33),
]
"""The same rows in another number of tasks: ours. The connector makes one for each of the three partitions.

docs/spark-moving.md has a row for each.
"""
REFUSED: list[dict[str, str | None]] = [
    {**ONE, "startingTimestamp": str(2 * MIDDLE)},
    {**ONE, "startingOffsetsByTimestamp": _parts(0, 2 * MIDDLE, 0)},
    {**ONE, "startingOffsets": "latest"},
    {**ONE, "startingOffsets": _parts(0, -1, 0)},
    {**ONE, "endingOffsets": "earliest"},
    {**ONE, "endingOffsets": _parts(0, -2, 0)},
    {**ONE, "startingOffsets": json.dumps({"both-sources": {"0": 1}})},
    {**ONE, "startingOffsets": _parts(1, 1, 1), "endingOffsets": json.dumps({"both-sources": {"0": 1, "1": 2}})},
    {**ONE, "startingOffsets": _parts(9, 0, 0), "endingOffsets": _parts(8, 1, 1)},
    {"subscribe": "no-such-topic-at-all"},
]
REFUSED_OPTIONS: list[dict[str, str | None]] = [
    # Wrong options.
    {},
    {**ONE, "kafka.bootstrap.servers": None},
    {**ONE, "assign": json.dumps({"both-sources": [0]})},
    {**ONE, "subscribePattern": "both-s.*"},
    {"subscribe": " "},
    {"subscribePattern": ""},
    {"assign": "both-sources"},
    {**ONE, "startingOffsets": "somewhere"},
    {**ONE, "failOnDataLoss": "perhaps"},
    {**ONE, "includeHeaders": "perhaps"},
    {**ONE, "minPartitions": "0"},
    {**ONE, "minPartitions": "some"},
    {**ONE, "maxRecordsPerPartition": "0"},
    {**ONE, "startingOffsetsByTimestampStrategy": "earliest"},
    # Timestamps that are none.
    {**ONE, "startingTimestamp": "yesterday"},
    {**ONE, "startingTimestamp": "-5"},
    {**ONE, "endingTimestamp": "1.5"},
    {**ONE, "startingOffsetsByTimestamp": "yesterday"},
    {**ONE, "startingOffsetsByTimestamp": json.dumps({"both-sources": {"0": "yesterday", "1": 1, "2": 1}})},
    # Settings of Kafka's that are the source's to say.
    *(
        dict[str, str | None]({**ONE, f"kafka.{name}": value})
        for name, value in {
            "auto.offset.reset": "earliest",
            "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "enable.auto.commit": "true",
            "interceptor.classes": "org.example.Interceptor",
        }.items()
    ),
]


STREAMS: dict[str, dict[str, str]] = {
    "earliest": {**ONE, "maxOffsetsPerTrigger": "50", "includeHeaders": "true", "startingOffsets": "earliest"},
    "offsets": {**ONE, "startingOffsets": _parts(5, -2, -1), "kafka.isolation.level": "read_committed"},
    "assign": {"assign": json.dumps({"both-sources": [2, 0]}), "startingOffsets": "earliest"},
}
REFUSED_STREAMS: list[dict[str, str]] = [
    {"endingOffsets": "latest"},
    {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
]


@pytest.mark.requirement("source/1", "source/2", "source/3", "source/4", "source/5", "source/6", "source/7")
@pytest.mark.requirement("source/8", "source/10", "source/11", "source/12", "source/13", "source/14", "source/15")
@pytest.mark.requirement("source/16", "source/17", "source/18", "source/19", "source/20", "source/21", "source/22")
@pytest.mark.requirement("source/23", "source/24", "source/25", "source/26", "source/27", "source/28", "source/29")
@pytest.mark.requirement("source/same-rows")
def test_both_give_the_same_rows_and_refuse_the_same(
    request: pytest.FixtureRequest, kafka: LocalKafka, topic: str, both: Both
) -> None:
    """One test: each worker that ran a part of it would start a broker and a Spark of its own.

    All batches, and of the wrong options and the streams the part that the commit says: each query of ours starts
    Python processes. What the options mean is tested without Spark, too (`test_source_options`).
    `make conformance` counts only what was played.
    """
    for options in READ:
        assert both.same("batch", options=options, tasks=True)["rows"], options
    for options, ours in OTHER_TASKS:
        found, tasks = both.same_but_for_tasks(options)
        assert bool(found["rows"]) != (options == NOTHING), options
        assert tasks == [3, ours], options
    wrong = REFUSED_OPTIONS if WHOLE else drawn(commit(), "options that both refuse", REFUSED_OPTIONS, 4)
    for refused in [*REFUSED, *wrong]:
        both.refused("batch", options=refused)
    for options in REFUSED_STREAMS:
        both.refused("stream", name="refused", options={**ONE, "startingOffsets": "earliest", **options})
    batches_of_aborted_records(kafka, both)
    times_that_the_broker_sets(kafka, both)
    frames_that_are_used_again(kafka, both)
    played = list(STORIES) if WHOLE else drawn(commit(), "stories of both sources", list(STORIES), 1)
    for story in played:
        story(kafka, both)
    marked = {each for mark in request.node.iter_markers("requirement") for each in mark.args}
    assert marked == {each for shown in (SHOWN_BY_BATCHES, *STORIES.values()) for each in shown}
    shown = {*SHOWN_BY_BATCHES, *(each for story in played for each in STORIES[story])}
    request.node.user_properties.extend(("requirement", each) for each in sorted(shown))


def put(kafka: LocalKafka, topic: str, counts: dict[int, int]) -> None:
    """counts: of records, by partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(topic, f"{partition}-{number}".encode(), partition=partition, timestamp=PRODUCED)
    assert producer.flush(60) == 0


def a_stream_of_three_partitions(_: LocalKafka, both: Both) -> None:
    for name, options in STREAMS.items():
        assert both.same("stream", name=name, options=options)["rows"], options


def a_stream_from_the_latest(kafka: LocalKafka, both: Both) -> None:
    """The first run reads nothing; the second what has come since then."""
    kafka.create_topic("both-latest", 2)
    put(kafka, "both-latest", {0: 3, 1: 2})
    latest = {"subscribe": "both-latest", "startingOffsets": "latest"}
    assert both.same("stream", name="latest", options=latest)["rows"] == []
    put(kafka, "both-latest", {0: 4})
    assert len(both.same("stream", name="latest", options=latest)["rows"]) == 4


def a_stream_that_goes_on(kafka: LocalKafka, both: Both) -> None:
    """Vectors 2, 3, 24 and 25: where it begins is kept; without news it stays; partitions are added."""
    topic, five = "both-five", range(5)
    kafka.create_topic(topic, 5)
    put(kafka, topic, dict.fromkeys(five, 5))
    begins = {topic: {str(partition): offset for partition, offset in zip(five, (-2, -1, 0, 1, 2), strict=True)}}
    options = {"subscribe": topic, "startingOffsets": json.dumps(begins)}

    def count() -> int:
        return len(both.same("stream", name="five", options=options)["rows"])

    assert count() == 5 + 0 + 5 + 4 + 3
    assert count() == 17, "nothing is new"
    put(kafka, topic, dict.fromkeys(five, 1))
    assert count() == 22, "of the second partition the one that came after the end at which it began"
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(topic, 7)])[topic].result(60)
    kafka.wait_until_ready()
    put(kafka, topic, {0: 1, 5: 2, 6: 3})
    assert count() == 28, "new partitions are read from their first record"


def a_stream_with_limits(kafka: LocalKafka, both: Both) -> None:
    """Vectors 10, 11, 12 and 27."""
    kafka.create_topic("both-one", 1)
    put(kafka, "both-one", {0: 15})
    one = {"subscribe": "both-one", "startingOffsets": "earliest"}
    limited = both.same("stream", name="fives", options={**one, "maxOffsetsPerTrigger": "5"}, batches=True)
    assert (limited["batches"], len(limited["rows"])) == ([5, 5, 5], 15)
    assert limited["behind"] == [[left, left, left] for left in (10, 5, 0)]
    kafka.create_topic("both-uneven", 3)
    put(kafka, "both-uneven", {0: 40, 1: 10, 2: 1})
    uneven = {"subscribe": "both-uneven", "startingOffsets": "earliest"}
    for number, limits in enumerate(
        (
            {"maxOffsetsPerTrigger": "10"},
            {"maxOffsetsPerTrigger": str(2**63 - 1)},
            {"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "20", "maxTriggerDelay": "10ms"},
        )
    ):
        assert len(both.same("stream", name=f"uneven-{number}", options={**uneven, **limits})["rows"]) == 51, limits


def a_stream_whose_topics_change(kafka: LocalKafka, both: Both) -> None:
    """Vectors 14, 20 and 22: a topic that is made anew with fewer records, and a pattern's topics that come and go."""
    kafka.create_topics({"both-going-a": 1, "both-going-b": 1})
    put(kafka, "both-going-a", {0: 3})
    put(kafka, "both-going-b", {0: 4})
    pattern = {"subscribePattern": "both-going-.*", "startingOffsets": "earliest"}
    for name in ("strict", "tolerant"):
        assert len(both.same("stream", name=name, options=pattern)["rows"]) == 7
    kafka.delete_topic("both-going-a")
    kafka.create_topics({"both-going-c": 1})
    put(kafka, "both-going-b", {0: 1})
    put(kafka, "both-going-c", {0: 2})
    both.refused("stream", name="strict", options=pattern)
    tolerant = {**pattern, "failOnDataLoss": "false"}
    assert len(both.same("stream", name="tolerant", options=tolerant)["rows"]) == 10
    kafka.delete_topic("both-going-b")
    kafka.create_topics({"both-going-b": 1})
    put(kafka, "both-going-b", {0: 1})
    both.refused("stream", name="tolerant", options=pattern)
    found = both.ask("stream", name="tolerant", options=tolerant)
    # A deviation of ours (vector 20): a topic that was made again is another one, of which all is read. To the
    # connector it is the old one, of which five records were read.
    assert [len(found[each]["rows"]) for each in FORMATS] == [10, 11]  # type: ignore[index]


def topics_that_are_deleted_meanwhile(kafka: LocalKafka, both: Both) -> None:
    """Vectors 13 and 21."""
    for each in FORMATS:
        kafka.create_topics({f"both-lost-{each}": 1, f"both-deleted-{each}": 1})
        put(kafka, f"both-lost-{each}", {0: 9})
        put(kafka, f"both-deleted-{each}", {0: 9})
    lost = {"subscribe": "both-lost-SOURCE", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    both.refused("stream", name="lost", options=lost, deletes="both-lost-SOURCE")
    # The connector's task waits for the deleted topic for as long as these say.
    soon = {"kafkaConsumer.pollTimeoutMs": "5000", "kafka.default.api.timeout.ms": "5000"}
    deleted = {"subscribe": "both-deleted-SOURCE", "kafka.request.timeout.ms": "4000", **soon}
    both.refused("deleted", options=deleted, deletes="both-deleted-SOURCE")
    for each in FORMATS:
        kafka.create_topics({f"both-deleted-{each}": 1})
        put(kafka, f"both-deleted-{each}", {0: 9})
    lenient = both.ask("deleted", options={**deleted, "failOnDataLoss": "false"}, deletes="both-deleted-SOURCE")
    # A deviation of ours: the connector's task fails by a time-out though the loss is to be ignored.
    assert lenient == {"kafka": "refused", "instride": {"rows": 0}}


def topics_that_come_and_go(kafka: LocalKafka, both: Both) -> None:
    """Vector 29. No name comes twice: a topic that was made anew is new to us, and to the connector is the old one."""
    seed = int(commit()[:8], 16)
    chance = Random(seed)
    sizes: dict[str, int] = {}
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    options = {"subscribePattern": "both-stress-.*", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    for turn in range(4):
        for number in range(chance.randint(1, 2)):
            name = f"both-stress-{seed}-{turn}-{number}"
            sizes[name] = chance.randint(1, 3)
            kafka.create_topics({name: sizes[name]})
        if turn and chance.random() < 0.7:
            gone = chance.choice(sorted(sizes))
            del sizes[gone]
            kafka.delete_topic(gone)
        grown = chance.choice(sorted(sizes))
        sizes[grown] += 1
        client.create_partitions([NewPartitions(grown, sizes[grown])])[grown].result(60)
        kafka.wait_until_ready()
        for name, size in sizes.items():
            put(kafka, name, {partition: chance.randint(0, 9) for partition in range(size)})
        limit = {"maxOffsetsPerTrigger": str(chance.randint(5, 50))} if chance.random() < 0.5 else {}
        both.same("stream", name=f"stress-{seed}", options={**options, **limit})


def batches_of_aborted_records(kafka: LocalKafka, both: Both) -> None:
    """Of the first transaction, and of all: what is read ends, or begins, with records that nobody sees."""
    for name, aborted, committed in (("both-first", {0}, 30), ("both-all", {0, 1}, 0)):
        with_transactions(kafka, name, 2, aborted=aborted)
        for level, count in (("read_committed", committed), ("read_uncommitted", 60)):
            options = {"subscribe": name, "kafka.isolation.level": level}
            assert len(both.same("batch", options=options)["rows"]) == count, options


def times_that_the_broker_sets(kafka: LocalKafka, both: Both) -> None:
    kafka.create_topic("both-appended", 1, configs={"message.timestamp.type": "LogAppendTime"})
    put(kafka, "both-appended", {0: 5})
    rows = [json.loads(row) for row in both.same("batch", options={"subscribe": "both-appended"})["rows"]]
    times = {(row[-2], row[-1] > PRODUCED * 1_000) for row in rows}
    assert (len(rows), times) == (5, {(1, True)}), "type and time are the broker's"


def frames_that_are_used_again(kafka: LocalKafka, both: Both) -> None:
    """Vectors 9 and 26. A deviation of ours: a frame keeps the offsets that its first use found."""
    kafka.create_topic("both-again", 1)
    put(kafka, "both-again", {0: 3})
    again = {"subscribe": "both-again"}
    assert len(both.same("batch", options=again, union=True)["rows"]) == 6
    assert len(both.same("bind", options=again)["rows"]) == 3
    put(kafka, "both-again", {0: 2})
    used = both.ask("again")
    assert used["kafka"] == {"same frame": 5, "another": 5}
    assert used["instride"] == {"same frame": 3, "another": 3}


SHOWN_BY_BATCHES = tuple(f"source/{each}" for each in (4, 5, 6, 7, 8, 15, 16, 17, 18, 19, 23, 26, 28, "same-rows"))
STORIES: dict[Story, tuple[str, ...]] = {
    a_stream_of_three_partitions: (),
    a_stream_from_the_latest: ("source/1",),
    a_stream_that_goes_on: ("source/1", "source/2", "source/3", "source/24", "source/25"),
    a_stream_with_limits: ("source/10", "source/11", "source/12", "source/27"),
    a_stream_whose_topics_change: ("source/14", "source/20", "source/22"),
    topics_that_are_deleted_meanwhile: ("source/13", "source/21"),
    topics_that_come_and_go: ("source/29",),
}
