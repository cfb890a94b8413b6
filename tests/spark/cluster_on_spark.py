"""`make spark-cluster`: a standalone cluster with two workers; an executor and a worker are killed in mid-job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_help import App
from cluster_help import CONF, SparkCluster
from groups_on_spark import PARTITIONS, Topic, each_once
from pipeline_help import each_once as each_value_once
from pipeline_help import fill, seen, wait_for
from query_help import QueryApp

from instride.testing import LocalKafka

__all__ = ["reached"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1800)]

victims = pytest.mark.parametrize("victim", ["executor", "worker"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path, workers=2, cores=1) as cluster:
        yield cluster


def reached(gate: Path) -> int:
    """The process that met the slow record; 0: none yet."""
    path = gate.with_suffix(".reached")
    return int(path.read_text() or 0) if path.exists() else 0


def kill_at(gate: Path, cluster: SparkCluster, victim: str) -> None:
    """The executor that works on the slow record, or its worker with it; then the gate opens for who does it again."""
    executor = cluster.executor_of(reached(gate))
    worker = cluster.executors()[executor]
    os.kill(executor if victim == "executor" else worker, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{executor}").exists(), "the executor's end")
    gate.touch()


@victims
def test_a_pipeline_whose_executor_dies(
    cluster: SparkCluster, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, victim: str
) -> None:
    topic, out, gate = kafka_topic(PARTITIONS), tmp_path / "out", tmp_path / "gate"
    values = fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 1_200))
    app = App("C", tmp_path, master=cluster.address, conf=CONF)
    try:
        app.wait_ready()
        cluster.wait_for_executors(2)
        app.run(kafka, topic, out, slow="3:700")
        app.wait(lambda: reached(gate), "to meet the slow record")
        kill_at(gate, cluster, victim)
        values += fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 300), start=1_200)
        app.wait(lambda: len(seen(out)) >= len(values), "every record")
        app.leave()
    finally:
        app.end()
    each_value_once(out, values)


@victims
def test_a_query_whose_executor_dies(
    cluster: SparkCluster, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, victim: str
) -> None:
    topic, gate = kafka_topic(PARTITIONS), tmp_path / "gate"
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 1_200))
    app = QueryApp("D", tmp_path, master=cluster.address, conf=CONF)
    try:
        app.wait_ready()
        cluster.wait_for_executors(2)
        app.start(kafka, topic, group=False, slow="3:700", gate=str(gate))
        app.until(lambda: reached(gate), "to meet the slow record")
        kill_at(gate, cluster, victim)
        fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 300), start=1_200)
        app.until(lambda: len(app.rows()) >= PARTITIONS * 1_500, "every record")
        app.stop()
    finally:
        app.end()
    each_once(1_500, app.rows())
