"""`make spark-cluster`: a standalone cluster with two workers; an executor and a worker are killed in mid-job; and
executors that have no instride are given the compiled package in an archive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_help import HELPERS, App
from cluster_help import CONF, SparkCluster
from groups_on_spark import PARTITIONS, Topic, each_once
from pipeline_help import PATIENCE, seen, wait_for
from pipeline_help import each_once as each_value_once
from query_help import QueryApp

from filled_topics import fill, fill_values
from instride.testing import LocalKafka

__all__ = ["reached"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1800)]

PROJECT = Path(__file__).parents[2]
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
    values = fill_values(kafka, topic, dict.fromkeys(range(PARTITIONS), 1_200))
    app = App("C", tmp_path, master=cluster.address, conf=CONF)
    try:
        app.wait_ready()
        cluster.wait_for_executors(2)
        app.run(kafka, topic, out, slow="3:700")
        app.wait(lambda: reached(gate), "to meet the slow record")
        kill_at(gate, cluster, victim)
        values += fill_values(kafka, topic, dict.fromkeys(range(PARTITIONS), 300), start=1_200)
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


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all that the executors need but instride."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # Folders that a .pth file names are searched, but not for .pth files: instride's own is one.
    (site / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = folder / "bin" / "python"
    subprocess.run([python, "-c", "import pyarrow"], env={}, check=True)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([python, "-c", "import instride"], env={}, check=True, capture_output=True)
    return python


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As docs/pipeline.md says, but for the packages that the wheel depends on: the bare Python has them."""
    folder = tmp_path_factory.mktemp("archive")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    wheel = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(PROJECT)]
    subprocess.run(wheel, check=True)
    (built,) = folder.glob("instride-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "deps"), str(built)], check=True)
    assert list((folder / "deps").glob("instride/_wire/decoder*.so"))
    with tarfile.open(folder / "deps.tar.gz", "w:gz") as made:
        made.add(folder / "deps", arcname=".")
    return folder / "deps.tar.gz"


def _conf(bare: Path, *paths: str) -> dict[str, str]:
    """Of an application whose executors run that Python."""
    path = os.pathsep.join([*paths, HELPERS])
    return {**CONF, "spark.pyspark.python": str(bare), "spark.executorEnv.PYTHONPATH": path}


def test_a_pipeline_whose_executors_have_the_package_from_an_archive(
    cluster: SparkCluster, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, bare: Path, archive: Path
) -> None:
    topic, out = kafka_topic(PARTITIONS), tmp_path / "out"
    values = fill_values(kafka, topic, dict.fromkeys(range(PARTITIONS), 100))
    conf = {**_conf(bare, "deps"), "spark.archives": f"{archive}#deps"}
    app = App("C", tmp_path, master=cluster.address, conf=conf)
    try:
        app.wait_ready()
        app.run(kafka, topic, out)
        app.wait(lambda: len(seen(out)) >= len(values), "every record")
        app.leave()
    finally:
        app.end()
    each_value_once(out, values)


def test_a_query_whose_executors_have_the_package_from_an_archive(
    cluster: SparkCluster, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, bare: Path, archive: Path
) -> None:
    topic = kafka_topic(PARTITIONS)
    fill(kafka, topic, dict.fromkeys(range(PARTITIONS), 100))
    conf = {**_conf(bare, "deps"), "spark.archives": f"{archive}#deps"}
    app = QueryApp("D", tmp_path, master=cluster.address, conf=conf)
    try:
        app.wait_ready()
        app.start(kafka, topic, group=False)
        app.until(lambda: len(app.rows()) >= PARTITIONS * 100, "every record")
        app.stop()
    finally:
        app.end()
    each_once(100, app.rows())


def test_a_pipeline_whose_executors_have_no_package_says_so(
    cluster: SparkCluster, kafka: LocalKafka, kafka_topic: Topic, tmp_path: Path, bare: Path
) -> None:
    app = App("C", tmp_path, master=cluster.address, conf=_conf(bare))
    try:
        app.wait_ready()
        app.run(kafka, kafka_topic(1), tmp_path / "out")
        app.process.wait(PATIENCE)
    finally:
        app.kill()  # and its pipe
    assert "PipelineError: Spark cannot run the pipeline's tasks" in app.log.read_text()
    assert "No module named 'instride'" in app.log.read_text()
