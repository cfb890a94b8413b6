"""`make sink-attack`: each sink with 50 killed drivers, and with 50 faults of a driver under a real Spark and Kafka.

Takes some twenty minutes for each sink. A fault is told by its seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from table_help import MAKERS, place, ready
from test_sinks_attacked import Apps, apps, attack

from instride.spark.contract import killed_drivers
from instride.testing import LocalKafka

__all__ = ["apps"]

FAULTS = int(os.environ.get("SINK_FAULTS", "50"))
kinds = pytest.mark.parametrize("kind", MAKERS)


@kinds
@pytest.mark.timeout(7200)
def test_many_killed_drivers(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ready(kind, request, tmp_path)
    killed_drivers(place(kind, tmp_path / "out"), kills=FAULTS)


@kinds
@pytest.mark.timeout(7200)
def test_many_faults(
    apps: Apps,
    kafka: LocalKafka,
    kafka_topic: Callable[..., str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
) -> None:
    for seed in range(FAULTS):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        ready(kind, request, folder)
        fault, commit = chance.choice(["SIGKILL", "SIGSTOP"]), chance.randint(1, 6)
        print(f"{kind} seed {seed}: {fault} at commit {commit}", flush=True)
        attack(apps, kafka, kafka_topic(4), folder / "out", kind, fault, commit)
