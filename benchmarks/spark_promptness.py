"""How soon a pipeline's partitions are served: a thousand that trickle, and others beside one whose sink is slow.

Measured from outside, by the events of the pipeline. Two parts of `python -m benchmarks pipeline`.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.load import ForeignLoad, not_void, void_remark

TRICKLING = 1000
EIGHT = 8
RATE = 50.0
"""Records a second of each of the eight."""
SLOW_COMMIT = 10.0
WATCHED = 20.0
PATIENCE = 300.0


class Commits:
    """When the sink had a range of each partition. Threads: the pipeline's adds, one waits."""

    def __init__(self) -> None:
        self.times: dict[int, list[float]] = {}
        self._heard = threading.Condition()

    def hear(self, event: object) -> None:
        from instride.spark import RangeCommitted

        if isinstance(event, RangeCommitted):
            with self._heard:
                self.times.setdefault(event.range.partition, []).append(time.monotonic())
                self._heard.notify()

    def wait_for(self, partitions: int, count: int) -> float:
        """When the last of so many partitions had its so many commits."""
        with self._heard:
            done = self._heard.wait_for(
                lambda: sum(len(each) >= count for each in self.times.values()) >= partitions, PATIENCE
            )
        assert done, f"not all partitions were served within {PATIENCE:.0f} s"
        return max(each[count - 1] for each in self.times.values())


@contextmanager
def pipeline(spark: Any, servers: str, topic: str, sink: Callable[[str], Any]) -> Iterator[Commits]:
    """sink: made of a folder."""
    from instride.spark import Pipeline

    commits = Commits()
    with tempfile.TemporaryDirectory() as folder:
        running = Pipeline(
            spark,
            topics=[topic],
            group_id=topic,
            bootstrap_servers=servers,
            function=lambda batch: batch,
            sink=sink(folder),
            columns=["value"],
            auto_offset_reset="earliest",
            on_event=commits.hear,
        ).start()
        try:
            yield commits
        finally:
            running.stop()
            running.awaitTermination()


def trickle(session: Callable[[], Any], rounds: int) -> dict[str, object]:
    """A thousand partitions get one record each, a round after the other: seconds until the sink has the last."""
    from confluent_kafka import Producer

    from instride.spark import ParquetSink
    from instride.testing import LocalKafka

    spark = session()
    runs: list[dict[str, float]] = []
    with LocalKafka() as kafka:
        kafka.create_topic("trickle", partitions=TRICKLING)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.list_topics("trickle", timeout=60)
        with pipeline(spark, kafka.bootstrap_servers, "trickle", ParquetSink) as commits:
            for number in range(1, rounds + 1):
                load = ForeignLoad()
                for partition in range(TRICKLING):
                    producer.produce("trickle", b"one", partition=partition)
                producer.flush()
                written = time.monotonic()
                seconds = commits.wait_for(TRICKLING, number) - written
                runs.append({"seconds": seconds, "foreign": load.share()})
                print(f"round {number} of {rounds}: trickle: {seconds:.1f} s", file=sys.stderr, flush=True)
    spark.stop()
    first, counted = runs[0]["seconds"], runs[1:] or runs
    served = statistics.median(each["seconds"] for each in not_void(counted))
    print(
        f"\n{TRICKLING:,} partitions, a record each: in the sink after {served:.1f} s, the first time {first:.1f}"
        f"{void_remark(counted)}"
    )
    return {"runs": runs, "median of all but the first": served}


def slow_sink(session: Callable[[], Any]) -> dict[str, dict[str, float]]:
    """The longest time between two commits of a partition, but of that whose commits take 10 s: before and while."""
    from benchmarks.groups import feeding
    from instride.spark import ParquetSink
    from instride.testing import LocalKafka

    slow = threading.Event()

    class SlowSink(ParquetSink):
        """It needs long for each commit of partition 0 while it is slow."""

        def commit(self, job: Any) -> Any:
            if slow.is_set() and any(each.range.partition == 0 for each in job.written):
                time.sleep(SLOW_COMMIT)
            return super().commit(job)

    spark = session()
    found: dict[str, dict[str, float]] = {}
    with LocalKafka() as kafka:
        kafka.create_topic("slow", partitions=EIGHT)
        servers = kafka.bootstrap_servers
        with (
            feeding(servers, "slow", RATE * EIGHT, EIGHT),
            pipeline(spark, servers, "slow", SlowSink) as commits,
        ):
            commits.wait_for(EIGHT, 20)
            found["steady"] = _watched(commits)
            slow.set()
            found["beside the slow one"] = _watched(commits)
            slow.clear()
    spark.stop()
    print(f"\none partition whose commits take {SLOW_COMMIT:.0f} s; the others' longest gap: ", end="")
    print(", ".join(f"{name} {run['longest gap']:.2f} s{void_remark([run])}" for name, run in found.items()))
    return found


def _watched(commits: Commits) -> dict[str, float]:
    load = ForeignLoad()
    time.sleep(WATCHED)
    return {"longest gap": _longest_gap(commits, time.monotonic() - WATCHED), "foreign": load.share()}


def _longest_gap(commits: Commits, since: float) -> float:
    now = time.monotonic()
    others = ([since, *(at for at in times if since < at <= now), now] for p, times in commits.times.items() if p)
    return max(later - earlier for times in others for earlier, later in itertools.pairwise(times))
