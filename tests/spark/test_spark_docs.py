"""The examples of docs/pipeline.md and docs/parquet-sink.md as one program, and those of docs/spark-source.md."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_help import PATIENCE, QUICK_JVM, wait_for

import instride
from filled_topics import fill
from instride.spark.parquet import read_table
from instride.testing import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

DOCS = Path(__file__).parents[2] / "docs"
AFTERWARDS = "\nprint(table.num_rows, frame.count())\n"


def examples(page: str) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL))


@pytest.mark.drawn(1, "Spark applications")
def test_what_the_pipeline_writes_is_read_back(
    kafka: LocalKafka, kafka_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, sink = kafka_topic(2), tmp_path / "sizes"
    fill(kafka, topic, {0: 30, 1: 30})
    # The example of an object store is run beside it: `test_parquet_on_spark.py`.
    code = examples("pipeline.md") + examples("parquet-sink.md").partition("options = {")[0] + AFTERWARDS
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace('"flights"', repr(topic))
    code = code.replace('"sizes"', repr(f"group-{topic}"))
    code = code.replace("/data/sizes", str(sink)).replace("/data/flights", str(sink))
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            wait_for(lambda: process.poll() is not None or rows(sink) == 60, "the rows")
            process.send_signal(signal.SIGTERM)
            out, complaints = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out.split()) == (0, ["60", "60"]), complaints[-3000:]


@pytest.mark.drawn(1, "Spark applications")
@pytest.mark.timeout(600)
def test_the_source_is_read_by_name_alone(kafka: LocalKafka, kafka_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = kafka_topic(2)
    fill(kafka, topic, {0: 30, 1: 30})
    code = examples("spark-source.md") + '\nprint("rows", spark.read.parquet("/data/flights").count())\n'
    code = code.replace("localhost:9092", kafka.bootstrap_servers).replace('"flights"', repr(topic))
    program = tmp_path / "program.py"
    program.write_text(code.replace("/data/", f"{tmp_path}/"), encoding="utf-8")
    done = run(program)
    while "failed to connect back" in done.stderr:
        # Spark gives a new Python process ten seconds to call back: too few beside a full load.
        done = run(program)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 60" in done.stdout
    assert "sizes 60" in done.stdout
    assert "0:7" in done.stdout or "1:7" in done.stdout


def environment() -> dict[str, str]:
    """The examples name no settings of Spark's own. These only make it start sooner, and write fewer files."""
    quick = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    options = [f"--conf {name}={value}" for name, value in quick.items()]
    return {
        **os.environ,
        "PYTHONPATH": str(Path(instride.__file__).parents[1]),
        "PYSPARK_SUBMIT_ARGS": " ".join([*options, f"--driver-java-options '{QUICK_JVM}'", "pyspark-shell"]),
    }


def run(program: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=5 * PATIENCE, check=False)


def rows(sink: Path) -> int:
    return read_table(sink).num_rows if (sink / "_instride" / "sink.json").exists() else 0
