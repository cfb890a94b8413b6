"""`make spark-groups`: group mode with two real applications, each a driver of its own.

They join and leave 20 times by `instride.spark.stop`; and a driver, or its source alone, is killed in mid-batch, by
SIGKILL and by SIGTERM.
QueryApps live on from turn to turn, so that no JVM starts 20 times.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster_help import ancestors_of, command_of, descendants_of
from pipeline_help import wait_for
from query_help import QueryApp

from filled_topics import fill
from instride import Consumer, TopicPartition
from instride.testing import LocalKafka

__all__ = ["PARTITIONS", "Topic", "each_once"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(3600)]

TURNS = int(os.environ.get("GROUP_TURNS", "20"))
PARTITIONS = 4
Topic = Callable[..., str]
Row = tuple[int, int]


def jvms_of(driver: int) -> list[int]:
    """Not the source's process and the workers, which are their children: those have to see that the driver is gone."""
    return [each for each in descendants_of(driver) if ancestors_of(each)[0] == driver]


def sources_of(driver: int) -> list[int]:
    """The processes of its queries' sources."""
    return [each for each in descendants_of(driver) if b"python_streaming_source_runner" in command_of(each)]


def committed(kafka: LocalKafka, topic: str) -> int:
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return sum(each.offset for each in found.values() if each is not None)


def each_once(count: int, rows: list[Row]) -> None:
    expected = Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(count))
    there = Counter(rows)
    assert there == expected, f"too few {list(expected - there)[:5]}, too many {list(there - expected)[:5]}"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[[str], QueryApp]]:
    with ExitStack() as stack:

        def made(name: str) -> QueryApp:
            one = QueryApp(name, tmp_path)
            stack.callback(one.end)
            one.wait_ready()
            return one

        yield made


def test_two_applications_join_and_leave_and_each_record_is_in_one_sink_once(
    driver: Callable[[str], QueryApp], kafka: LocalKafka, kafka_topic: Topic
) -> None:
    topic, at = kafka_topic(PARTITIONS), 0
    staying, joining = driver("A"), driver("B")

    def write() -> None:
        nonlocal at
        fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 25), start=at)
        at += 25

    def has_more(than: int) -> bool:
        """Some more records, whenever the group has all that there were: then they come to whoever owns something."""
        if committed(kafka, topic) == PARTITIONS * at:
            write()
        return len(joining.rows()) > than

    write()
    staying.start(kafka, topic)
    for turn in range(TURNS):
        joining.start(kafka, topic)
        before = len(joining.rows())
        joining.until(lambda before=before: has_more(before), "records for the one that joined")  # type: ignore[misc]
        write()
        staying.stop()
        staying, joining = joining, staying
        print(f"turn {turn + 1}: {PARTITIONS * at} records, {len(staying.rows()) + len(joining.rows())} in the sinks")
    staying.until(lambda: len(staying.rows()) + len(joining.rows()) >= PARTITIONS * at, "every record")
    staying.stop()
    assert committed(kafka, topic) == PARTITIONS * at
    each_once(at, staying.rows() + joining.rows())


def in_mid_batch(one: QueryApp, kafka: LocalKafka, topic: str, gate: Path) -> tuple[int, list[Row]]:
    """Its query runs a batch that waits at the gate: its number, which is not committed, and the rows that it plans."""
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 100))
    one.start(kafka, topic, slow="2:150", gate=str(gate))
    one.until(lambda: len(one.rows()) == PARTITIONS * 100, "the first records")
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 100), start=100)
    one.until(gate.with_suffix(".reached").exists, "to meet the slow record")
    pending = one.log_of("offsets")[-1]
    assert one.log_of("commits")[-1] < pending
    planned = one.planned(pending)
    assert (2, 150) in planned
    return pending, planned


kinds = pytest.mark.parametrize("kind", ["SIGKILL", "SIGTERM"])


@kinds
def test_a_driver_that_is_killed_in_mid_batch_goes_on_with_that_very_batch(
    driver: Callable[[str], QueryApp], kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, kind: str
) -> None:
    topic, gate = kafka_topic(PARTITIONS), tmp_path / "gate"
    one = driver("A")
    pending, planned = in_mid_batch(one, kafka, topic, gate)
    for process in [one.process.pid, *jvms_of(one.process.pid)]:
        os.kill(process, signal.Signals[kind])
    wait_for(lambda: not Path(f"/proc/{one.process.pid}").exists() or one.process.poll() is not None, "its end")
    one.kill()
    gate.touch()
    # More came while nobody ran: it is in later batches.
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 50), start=200)
    again = driver("A")
    again.start(kafka, topic)
    again.until(lambda: len(again.rows()) >= PARTITIONS * 250, "every record")
    again.stop()
    assert sorted(again.batches()[pending]) == sorted(planned)
    each_once(250, again.rows())


@kinds
def test_a_source_that_is_killed_in_mid_batch_loses_nothing_and_repeats_nothing(
    driver: Callable[[str], QueryApp], kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, kind: str
) -> None:
    """Spark notices when it asks for the next batch: this one is in the sink then. The next run tells the group."""
    topic, gate = kafka_topic(PARTITIONS), tmp_path / "gate"
    one = driver("A")
    pending, planned = in_mid_batch(one, kafka, topic, gate)
    (source,) = sources_of(one.process.pid)
    os.kill(source, signal.Signals[kind])
    wait_for(lambda: not Path(f"/proc/{source}").exists(), "its end")
    assert pending not in one.log_of("commits")
    gate.touch()
    one.wait(lambda: one.events("failed"), "its query to fail")
    assert sorted(one.batches()[pending]) == sorted(planned)
    assert one.log_of("commits")[-1] == pending
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 50), start=200)
    one.start(kafka, topic)
    one.until(lambda: len(one.rows()) >= PARTITIONS * 250, "every record")
    one.stop()
    each_once(250, one.rows())
    assert committed(kafka, topic) == PARTITIONS * 250
