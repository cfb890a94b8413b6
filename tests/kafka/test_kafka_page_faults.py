"""What is received at full speed lands in memory that was used before: the pages that the system clears are counted.

At a real broker, since its responses are as long as was requested, which no short response of a test shows: all of them
once gave back their pages, 2.8 for each page of records, and a row to Arrow took more than twice the CPU time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.batches import Log
from benchmarks.clients import Task
from benchmarks.filler import fill
from instride.testing import LocalKafka

ROOT = Path(__file__).parents[2]
LOG = Log(rows=8192, random=True, partitions=12, hot=12)


@pytest.fixture(scope="module")
def task(kafka: LocalKafka) -> Iterator[Task]:
    """What a client reads. The first third is for its start, in which all memory is new."""
    topic = f"page-faults-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, partitions=LOG.partitions)
    rows = fill(kafka.bootstrap_servers, topic, LOG, 6_000_000)
    yield Task(
        servers=kafka.bootstrap_servers,
        topic=topic,
        warm_rows=rows // 3,
        warm_seconds=600.0,
        most_rows=rows * 9 // 10,
        most_seconds=600.0,
        partitions=LOG.partitions,
    )
    kafka.delete_topic(topic)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("form", ["Arrow", "Arrow, at defaults", "records", "records, at defaults"])
def test_the_memory_of_full_responses_is_used_again(task: Task, form: str) -> None:
    """Each byte is received once and copied once or twice. If each of these took a new page, there would be 2 to 3.

    malloc gives the copies' memory back to the system in some processes, and not in others: 0.02 or 0.5 for records.
    """
    command = [sys.executable, "-m", "benchmarks.clients", f"instride, {form}", json.dumps(asdict(task))]
    found = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=600).stdout)
    received = found["rows"] * LOG.size / resource.getpagesize()
    assert found["faults"] < 1.5 * received, f"{found['faults']:.0f} page faults for {received:.0f} pages of records"
