"""`make sink-attack`: each sink with 50 killed drivers, and with 50 faults under a real Spark and Kafka.

A fault is SIGKILL or SIGSTOP of the driver (between the data and the commit), or of an executor, a worker or the broker
(in mid-job). It is told by its seed. Takes about an hour for each sink. SINK_FAULTS: how many. SINK_SEEDS: which ones,
as "7,9". SINK_VICTIMS: of which, as "executor,broker". SINK_LONG=1: executors read the ranges as they read those of
32 MiB and more.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from app_help import App
from cluster_help import CONF, SparkCluster, descendants_of
from cluster_on_spark import reached
from pipeline_help import wait_for
from table_help import MAKERS, place, ready
from test_sinks_attacked import Apps, apps, assert_long, attack, values_in

from filled_topics import fill_values
from instride.spark.contract import killed_drivers
from instride.testing import LocalKafka

__all__ = ["apps"]

FAULTS = int(os.environ.get("SINK_FAULTS", "50"))
SEEDS = [int(each) for each in os.environ.get("SINK_SEEDS", "").split(",") if each] or list(range(FAULTS))
VICTIMS = os.environ.get("SINK_VICTIMS", "driver,executor,worker,broker").split(",")
kinds = pytest.mark.parametrize("kind", MAKERS)


@kinds
@pytest.mark.timeout(7200)
def test_many_killed_drivers(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ready(kind, request, tmp_path)
    killed_drivers(place(kind, tmp_path / "out"), kills=FAULTS)


class Arena:
    """An application on a standalone cluster with two workers, and a Kafka that may be killed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.kafka = stack.enter_context(LocalKafka())
        options = "-Dspark.worker.timeout=15"
        self.cluster = stack.enter_context(SparkCluster(folder, workers=2, cores=1, options=options))
        quick = {f"spark.{name}": "5s" for name in ("executor.heartbeatInterval", "network.timeoutInterval")}
        quick["spark.network.timeout"] = "15s"
        self.app = App("C", folder, master=self.cluster.address, conf={**CONF, **quick})
        stack.callback(self.app.end)
        self.app.wait_ready()

    def attack(self, topic: str, out: Path, kind: str, victim: str, fault: str, chance: random.Random) -> None:
        app, gate = self.app, out.parent / "gate"
        self.cluster.heal()
        self.cluster.wait_for_executors(2)
        self.kafka.create_topic(topic, 4)
        values = Counter(fill_values(self.kafka, topic, dict.fromkeys(range(4), 700)))
        slow = f"{chance.randrange(4)}:{chance.randrange(700)}"
        app.run(self.kafka, topic, out, sink=kind, slow=slow, bad="2:650")
        app.wait(lambda: reached(gate), "to meet the slow record")
        stopped = self._harm(victim, signal.Signals[fault], reached(gate), chance)
        gate.touch()
        values += Counter(fill_values(self.kafka, topic, dict.fromkeys(range(4), 100), start=700))
        app.wait(lambda: values_in(kind, out).total() >= values.total(), f"all of {values.total()} rows")
        for process in stopped:
            with suppress(ProcessLookupError):  # its worker has killed an executor that it hears nothing of
                os.kill(process, signal.SIGCONT)
        app.leave()
        there = values_in(kind, out)
        assert there == values, f"missing {list(values - there)[:5]}, too many {list(there - values)[:5]}"
        assert_long(out)

    def _harm(self, victim: str, fault: signal.Signals, process: int, chance: random.Random) -> list[int]:
        """Those that are stopped until the rows are there."""
        if victim == "broker":
            self._harm_broker(fault, chance.uniform(0.5, 10))
            return []
        executor = self.cluster.executor_of(process)
        worker = self.cluster.executors()[executor]
        chosen = [worker] if victim == "worker" else [executor, *descendants_of(executor)]
        if fault is signal.SIGKILL:
            chosen = chosen[:1]
        for each in chosen:
            os.kill(each, fault)
        if fault is signal.SIGKILL:
            wait_for(lambda: not Path(f"/proc/{executor}").exists(), "the executor's end")
            return []
        return chosen

    def _harm_broker(self, fault: signal.Signals, seconds: float) -> None:
        """It is away for so long."""
        kill = fault is signal.SIGKILL
        (self.kafka.kill if kill else self.kafka.suspend)(1)
        time.sleep(seconds)
        (self.kafka.restart if kill else self.kafka.resume)(1)
        self.kafka.wait_until_ready()


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ExitStack() as stack:
        yield Arena(tmp_path_factory.mktemp("arena"), stack)


@kinds
@pytest.mark.timeout(7200)
def test_many_faults(
    kafka: LocalKafka,
    kafka_topic: Callable[..., str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
) -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        ready(kind, request, folder)
        victim, fault = chance.choice(VICTIMS), chance.choice(["SIGKILL", "SIGSTOP"])
        began = time.monotonic()
        if victim == "driver":
            commit = chance.randint(1, 6)
            both: Apps = request.getfixturevalue("apps")
            attack(both, kafka, kafka_topic(4), folder / "out", kind, fault, commit)
        else:
            arena: Arena = request.getfixturevalue("arena")
            arena.attack(f"{kind}-{seed}", folder / "out", kind, victim, fault, chance)
        print(f"{kind} seed {seed}: {fault} of the {victim}, {time.monotonic() - began:.0f} s", flush=True)
