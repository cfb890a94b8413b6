"""What a group's members feel: latency, a hold, and a storm of rebalances.

    python -m benchmarks groups [--seconds N] [--hold N] [--rate N] [--rounds N] [--parts latency hold ...]
                                [--clients instride Java ...] [--quick]

The feeder and each member are processes of their own; one Kafka; 12 partitions (hold: 24, of which 12 stay); a record
carries the time at which it was made. Every figure stands beside the same for confluent-kafka, in turn.

latency   one member, 1,000 records a second: seconds from the producer to the poll that returns the record.
hold      RATE records a second (1,200); a second member joins; the first needs HOLD seconds before it can let go of
          what moves. Each client in its best idiom (`members.py`). Gaps and throughput of the partitions that the first
          keeps, beside a time without a second member, and which share of these gaps is how long.
busy hold the same with a handler that computes for BUSY seconds a record (0.0005: over half of a core).
storm     1,200 records a second; a second member, which runs already, joins and leaves every 2 seconds, for SECONDS
          after as long without a change. Gaps of the partitions that the first keeps all the time, which share of the
          records has been returned, and storm / steady: what the storm returned a second, of what was returned before.

A run of latency takes 8 s and SECONDS, one of a hold 15 s and twice HOLD, one of the storm 13 s and twice SECONDS: 9
minutes a round, 45 minutes in all. --quick takes five minutes: one round, a hold of 3 s, 6 s of all else.

The table shows medians. A run beside which other work took more than 5 % of the machine is void. The medians leave it
out, and the table says how many were. If all runs of a client are void, the table shows them and says VOID.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.load import ForeignLoad, not_void, void_remark
from benchmarks.members import Seen
from benchmarks.throughput import compile_java

PARTITIONS = 12
SETTLE = 5.0
STORM = 2.0
STEADY_GOAL = 0.98
JAVA = "Java"
HELD = ("instride", "confluent-kafka", "confluent-kafka, worker and pause", "kafka-python", JAVA)
CLIENTS = {
    "latency": ("instride", "confluent-kafka", "kafka-python"),
    "hold": HELD,
    "busy hold": HELD,
    "storm": ("instride", "confluent-kafka"),
}
PARTS = tuple(CLIENTS)
BINS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Seconds; of the histogram of gaps."""

Row = dict[str, float]


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks groups", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--hold", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=1200.0)
    parser.add_argument("--busy", type=float, default=0.0005)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--clients", nargs="*", choices=HELD, default=list(HELD), help="of a part, those that it has")
    parser.add_argument("--quick", action="store_true", help="five minutes: one round, less of everything")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.seconds, chosen.hold, chosen.rounds = 6.0, 3.0, 1
    from instride.testing import LocalKafka

    results: dict[str, dict[str, list[Row]]] = {
        part: {name: [] for name in CLIENTS[part] if name in chosen.clients}
        for part in chosen.parts
        if not set(chosen.clients).isdisjoint(CLIENTS[part])
    }
    with ExitStack() as stack:
        chosen.folder = stack.enter_context(tempfile.TemporaryDirectory())
        if JAVA in chosen.clients:
            compile_java("Member.java", Path(chosen.folder))
        kafka = stack.enter_context(LocalKafka(heap="1g", jvm_options=()))
        for number in range(chosen.rounds):
            for part, rows in results.items():
                for name in sorted(rows, reverse=bool(number % 2)):
                    load = ForeignLoad()
                    row = MEASURES[part](kafka, name, chosen)
                    rows[name].append({**row, "foreign": load.share()})
                    print(f"round {number + 1}: {part}, {name}: {row}", file=sys.stderr, flush=True)
    show(results)
    settings = {key: value for key, value in vars(chosen).items() if key != "folder"}
    return {"settings": settings, **results}


# -- the processes


def command(name: str, folder: str) -> list[str]:
    """What starts a member. folder: of Java's classes."""
    if name != JAVA:
        return [sys.executable, "-m", "benchmarks.members", name]
    from instride.testing import find_java, find_kafka

    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(find_java().path), "-Xmx1g", quiet, "-cp", f"{find_kafka().class_path}:{folder}", "Member"]


class Member:
    def __init__(self, command: list[str], servers: str, topic: str, hold: float, busy: float) -> None:
        told = [*command, servers, topic, str(hold), str(busy)]
        self._process = subprocess.Popen(told, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, verb: str) -> str:
        """One line to it; the line that comes back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{verb}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def report(self) -> Seen:
        """Since the last one."""
        return Seen(**json.loads(self.tell("report")))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Feeder:
    """made: how many records, once it has ended."""

    made = 0


@contextmanager
def feeding(servers: str, topic: str, rate: float, partitions: int = PARTITIONS, keys: int = 0) -> Iterator[Feeder]:
    told = [servers, topic, str(partitions), str(rate), str(keys)]
    found = Feeder()
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.feeder", *told], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as feeder:
        try:
            yield found
        finally:
            with suppress(BrokenPipeError):
                found.made = int(feeder.communicate()[0] or 0)
    if feeder.returncode:
        raise RuntimeError(f"the feeder ended with {feeder.returncode}: what was measured beside it says nothing")


@contextmanager
def group(
    kafka: object, name: str, folder: str, rate: float, *holds: float, partitions: int = PARTITIONS, busy: float = 0.0
) -> Iterator[list[Member]]:
    """The first member has joined and settled."""
    topic = f"{name.split(',', maxsplit=1)[0]}-{os.urandom(4).hex()}"
    kafka.create_topic(topic, partitions=partitions)  # type: ignore[attr-defined]
    servers: str = kafka.bootstrap_servers  # type: ignore[attr-defined]
    members = [Member(command(name, folder), servers, topic, hold, busy) for hold in holds]
    try:
        with feeding(servers, topic, rate, partitions):
            members[0].tell("join")
            time.sleep(SETTLE)
            yield members
    finally:
        for member in members:
            member.kill()


# -- what is measured


def latency(kafka: object, name: str, chosen: argparse.Namespace) -> Row:
    with group(kafka, name, chosen.folder, 1000, 0.0) as (member,):
        member.report()
        time.sleep(chosen.seconds)
        seen = member.report()
    times = sorted(seen.latencies)
    row = {f"p{share}": 1000 * _share(times, share) for share in (50, 99, 99.9)}
    return {**row, "CPU %": 100 * seen.cpu / seen.seconds}


def busy_hold(kafka: object, name: str, chosen: argparse.Namespace) -> Row:
    return hold(kafka, name, chosen, busy=chosen.busy)


def hold(kafka: object, name: str, chosen: argparse.Namespace, busy: float = 0.0) -> Row:
    partitions = 2 * PARTITIONS
    holds = (chosen.hold, 0.0)
    with group(kafka, name, chosen.folder, chosen.rate, *holds, partitions=partitions, busy=busy) as (first, second):
        first.report()
        time.sleep(chosen.hold)
        without = first.report()
        second.tell("join")
        time.sleep(chosen.hold + SETTLE)  # the first hears of it up to a heartbeat later
        during = first.report()
    kept, steady, found = during.records.keys(), _gaps(without), _gaps(during)
    return {
        "steady p99.9": _share(steady, 99.9),
        "steady longest": steady[-1],
        "p99.9": _share(found, 99.9),
        "longest": found[-1],
        "kept": len(kept),
        "steady records/s": sum(without.records[each] for each in kept) / without.seconds,
        "records/s": sum(during.records.values()) / during.seconds,
        **_histogram(found),
    }


def storm(kafka: object, name: str, chosen: argparse.Namespace) -> Row:
    with group(kafka, name, chosen.folder, 1200, 0.0, 0.0) as (first, second):
        second.tell("join")
        time.sleep(SETTLE)
        first.report(), second.report()
        time.sleep(chosen.seconds)
        steady = _returned_a_second(first.report(), second.report())
        began = time.monotonic()
        for number in range(int(chosen.seconds / STORM)):
            time.sleep(max(0.0, began + STORM * (number + 1) - time.monotonic()))
            second.tell("join" if number % 2 else "leave")
        one, other = first.report(), second.report()
    times = sorted([*one.latencies, *other.latencies])
    return {
        "returned %": 100 * len(times) / (1200 * one.seconds),
        "storm / steady": _part(_returned_a_second(one, other), steady),
        "p99 s": _share(times, 99),
        "longest s": _share(_gaps(one), 100),
    }


def _returned_a_second(one: Seen, other: Seen) -> float:
    return (len(one.latencies) + len(other.latencies)) / one.seconds


def _part(storm: float, steady: float) -> float:
    """0.0, which is missed, for a client that returned nothing before the storm."""
    return storm / steady if steady else 0.0


MEASURES = {"latency": latency, "hold": hold, "busy hold": busy_hold, "storm": storm}


def _histogram(gaps: list[float]) -> Row:
    """Percent of them that are up to so many seconds long, and longer than the bin before."""
    shares = [100 * sum(gap <= most for gap in gaps) / len(gaps) for most in BINS] + [100.0]
    names = [*(f"% to {most:g} s" for most in BINS), "% longer"]
    return {name: shares[n] - (shares[n - 1] if n else 0) for n, name in enumerate(names)}


def _gaps(seen: Seen) -> list[float]:
    """Of the partitions that stayed, in order."""
    return sorted(gap for gaps in seen.gaps.values() for gap in gaps)


def _share(ordered: list[float], percent: float) -> float:
    """NaN where nothing was seen."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else math.nan


def show(results: dict[str, dict[str, list[Row]]]) -> None:
    for part, rows in results.items():
        columns = list(next(iter(rows.values()))[0])
        print(f"\n{part}")
        for shown in filter(None, (columns[:8], columns[8:])):
            print(f"{'client':36}" + "".join(f"{column:>18}" for column in shown))
            for name, runs in rows.items():
                figures = (statistics.median(run[each] for run in not_void(runs)) for each in shown)
                print(f"{name:36}" + "".join(f"{figure:18.3f}" for figure in figures) + void_remark(runs))
        if part == "storm":
            show_storm(rows)


def show_storm(rows: dict[str, list[Row]]) -> None:
    for name, runs in rows.items():
        part = statistics.median(run["storm / steady"] for run in not_void(runs))
        judged = "reached" if part >= STEADY_GOAL else "missed"
        print(
            f"{name}: the storm returned {part:.3f} of what was returned a second before it; "
            f"the goal is {STEADY_GOAL} or more: {judged}{void_remark(runs)}"
        )
