"""Pipelines in several processes: hand-over while a job takes long, SIGKILL in mid-batch, a standalone cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from app_help import App
from cluster_help import CONF, SparkCluster
from pipeline_help import each_once, seen, wait_for

from filled_topics import fill_values
from instride import TopicPartition
from instride.spark import ParquetSink
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

Topic = Callable[..., str]


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, App]]:
    """A and B, each with its own Spark. The last test that uses them may kill one."""
    folder = tmp_path_factory.mktemp("apps")
    with ExitStack() as stack:
        both = App("A", folder), App("B", folder)
        for app in both:
            stack.callback(app.end)
        for app in both:
            app.wait_ready()
        yield both


@pytest.mark.drawn(1, "Spark applications")
def test_a_partition_moves_when_its_slow_job_is_committed_and_the_others_go_on(
    apps: tuple[App, App], kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    a, b = apps
    topic, out = kafka_topic(4), tmp_path / "out"
    values = fill_values(kafka, topic, dict.fromkeys(range(4), 200))
    a.run(kafka, topic, out, slow="3:150")
    a.wait(lambda: len({p for _, p in a.worked_on()}) == 3, "to finish the other partitions")
    a.wait((tmp_path / "gate.reached").exists, "to meet the slow record")
    b.run(kafka, topic, out)
    b.wait(lambda: b.changed("assigned"), "to own something")
    assert 3 in a.changed("delayed")
    for turn in range(1, 4):
        values += fill_values(kafka, topic, dict.fromkeys(range(4), 50), start=150 + 50 * turn)
        wait_rows(out, 600 + 150 * turn)
    assert 3 not in a.changed("revoked")
    opened = time.monotonic()
    (tmp_path / "gate").touch()
    wait_rows(out, len(values))
    b.leave()
    a.leave()
    each_once(out, values)
    # Asked for before the gate opened, kept for it, and B's from then on; all others moved or stayed meanwhile.
    assert a.changed("delayed")[3] < opened < a.changed("revoked")[3] <= b.changed("assigned")[3]
    during = {p for t, p in a.worked_on() + b.worked_on() if a.changed("delayed")[3] < t < opened}
    assert during == {0, 1, 2}
    assert {p for _, p in b.worked_on()} >= {3}


@pytest.mark.drawn(1, "Spark applications")
def test_what_a_killed_application_was_at_is_done_by_the_other_once(
    apps: tuple[App, App], kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path
) -> None:
    """Of partition 3 it has committed nothing: where it began, at the end of the log, is in the sink all the same.

    Else the other one would begin at the end of the log as it is by then, as "latest" says.
    """
    a, b = apps
    topic, out = kafka_topic(4), tmp_path / "out"
    a.run(kafka, topic, out, slow="3:0", reset="latest")
    started = ParquetSink(out)
    a.wait(lambda: None not in started.positions(tps(topic)).values(), "to store where it begins")
    values = fill_values(kafka, topic, dict.fromkeys(range(4), 1_200))
    a.wait((tmp_path / "gate.reached").exists, "to meet the slow record")
    a.wait(lambda: {number for _, number in a.worked_on()} == {0, 1, 2}, "to commit of the others")
    assert started.positions([TopicPartition(topic, 3)]) == {TopicPartition(topic, 3): 0}
    b.run(kafka, topic, out, reset="latest")
    b.wait(lambda: b.changed("assigned"), "to own something")
    values += fill_values(kafka, topic, dict.fromkeys(range(4), 300), start=1_200)
    a.kill()
    (tmp_path / "gate").touch()
    b.wait(lambda: len(b.changed("assigned")) == 4, "to own everything")
    wait_rows(out, len(values))
    b.leave()
    each_once(out, values)


def tps(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(4)]


def wait_rows(out: Path, rows: int) -> None:
    wait_for(lambda: len(seen(out)) == rows, f"{rows} rows in the sink")


@pytest.mark.drawn(1, "Spark applications")
def test_a_standalone_cluster(kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path) -> None:
    topic, out = kafka_topic(3), tmp_path / "out"
    values = fill_values(kafka, topic, dict.fromkeys(range(3), 2_000))
    with SparkCluster(tmp_path) as cluster, ExitStack() as stack:
        app = App("C", tmp_path, master=cluster.address, conf=CONF)
        stack.callback(app.end)
        app.wait_ready()
        app.run(kafka, topic, out)
        wait_rows(out, len(values))
        app.leave()
        jobs = app.events("JobStarted")
    each_once(out, values)
    assert jobs
    executors = list(cluster.work.glob("app-*/*"))
    assert executors, "the work was not done on the cluster"
