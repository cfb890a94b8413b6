"""`Processor` beside its peers: a backlog, and a group whose members come and go.

    python -m benchmarks processors [--seconds N] [--rounds N] [--quick] [--only NAME ...] [--parts NAME ...]
                                    [--kinds NAME ...] [--storm-rate N] [--page]

10,000 keys in 12 partitions of one Kafka; each member is a process of its own. Handlers sleep for 5 ms (32 at a time),
or compute for 1 ms (as many at a time as there are cores).

backlog   one member, all records are there before it joins. Records a second in the middle 80 % of them; the part of
          the ideal (concurrency / handler time; of computing: one core where threads share an interpreter, else all);
          CPU time of a record in all, the handler's included; peak memory.
storm     1,000 records a second (computing: 300); every 3 seconds one of two members joins or leaves, in turn, while
          the other stays. The part of the records that was handled in the end, and during the storm; how many were
          handled twice, the longest time in which nothing of a partition was handled, and how long a record took from
          the producer to its end (99 %). `--storm-rate` has sleeping handlers take more records a second: one member
          can handle 6,400, so near that rate each pause of a rebalance is seen in what was handled during the storm.
steady    The same, but nobody joins or leaves: one member handles all. What a storm is to be compared with; measured
          only if `--parts` names it.

Tables show medians. A run beside which other work took more than 5 % of the machine is void. The medians leave it out,
and the table says how many were. If all runs of a form are void, the table shows them and says VOID.

--page writes the medians into docs/benchmarks.md, with every run beside it.

FastStream is installed into a virtual environment in bench-output/, the jars of parallel-consumer are fetched with jgo.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.groups import feeding
from benchmarks.load import FOREIGN_MOST, ForeignLoad, not_void, void_cell, void_remark
from benchmarks.processor_handlers import COMPUTE, SLEEP
from benchmarks.processor_members import FORMS, Report

PARTITIONS, KEYS = 12, 10_000
CONCURRENCY = {"sleep": 32, "compute": os.cpu_count() or 1}
RATES = {"sleep": 1_000.0, "compute": 300.0}
"""Of the storm, records a second: also the slowest form keeps up with it alone."""
PARTS = ("backlog", "storm")
MORE_PARTS = ("steady",)
STORM, SETTLE = 3.0, 3.0
CHANGES = ((1, "join"), (0, "leave"), (0, "join"), (1, "leave"))
"""Of a storm, again and again: which member does what. One of them is always there."""
PATIENCE = 30.0
JAVA = "parallel-consumer (Java)"
ROOT = Path(__file__).parents[1]
FASTSTREAM = "faststream[kafka]>=0.7,<0.8"
PARALLEL_CONSUMER = "io.confluent.parallelconsumer:parallel-consumer-core:0.5.3.3"
MANY_CORES = ("instride, processes", JAVA)

Row = dict[str, float]
Command = list[str]


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks processors", description=__doc__)
    parser.add_argument("--seconds", type=float, default=24.0, help="of a storm")
    parser.add_argument("--records", type=int, default=60_000, help="of a backlog of sleeping handlers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the records, a storm of 9 seconds")
    parser.add_argument("--only", nargs="*", choices=[*FORMS, JAVA], default=[*FORMS, JAVA])
    parser.add_argument("--parts", nargs="*", choices=[*PARTS, *MORE_PARTS], default=[*PARTS])
    parser.add_argument("--kinds", nargs="*", choices=[*CONCURRENCY], default=[*CONCURRENCY], help="of handlers")
    parser.add_argument("--storm-rate", type=float, default=RATES["sleep"], help="records a second, sleeping handlers")
    parser.add_argument("--page", action="store_true", help="write the medians into docs/benchmarks.md")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.seconds, chosen.records, chosen.rounds = 9.0, 6_000, 1
    whole = ([*PARTS], [*CONCURRENCY], RATES["sleep"])
    if chosen.page and (chosen.parts, chosen.kinds, chosen.storm_rate) != whole:
        parser.error("--page writes the section of all parts, at the rate that it names")
    from instride.testing import LocalKafka

    results: dict[str, dict[str, list[Row]]] = {}
    measures = {"backlog": backlog, "storm": storm, "steady": steady}
    with ExitStack() as stack:
        commands = stack.enter_context(members(chosen.only))
        kafka = stack.enter_context(LocalKafka(heap="1g", jvm_options=()))
        for number in range(chosen.rounds):
            for kind in chosen.kinds:
                for name in sorted(commands, reverse=bool(number % 2)):
                    if name == "instride, processes" and kind == "sleep":
                        continue
                    for part in chosen.parts:
                        load = ForeignLoad()
                        row = measures[part](kafka, name, commands[name], kind, chosen)
                        row["foreign"] = load.share()
                        results.setdefault(f"{part}, {kind}", {}).setdefault(name, []).append(row)
                        print(f"round {number + 1}: {part}, {kind}, {name}: {row}", file=sys.stderr, flush=True)
    show(results)
    if chosen.page:
        write_page(results, " ".join(arguments))
    return dict(results)


# -- the members' processes


@contextmanager
def members(names: list[str]) -> Iterator[dict[str, Command]]:
    """What starts each form; a peer that cannot be had is left out, by name."""
    found: dict[str, Command] = {}
    with ExitStack() as stack:
        for name in names:
            try:
                if name == JAVA:
                    found[name] = stack.enter_context(_parallel_consumer())
                else:
                    python = _faststream() if name.startswith("FastStream") else sys.executable
                    found[name] = [python, "-m", "benchmarks.processor_members", name]
            except Exception as error:  # noqa: BLE001 - whatever keeps it from being installed
                print(f"{name} is not measured: {error}", file=sys.stderr)
        yield found


def _faststream() -> str:
    """The Python of an environment that has it, beside our own packages' versions."""
    folder = ROOT / "bench-output" / "peers"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", FASTSTREAM], check=True)
        (folder / "installed").touch()
    return str(python)


@contextmanager
def _parallel_consumer() -> Iterator[Command]:
    from instride.testing import find_java
    from instride.testing._kafka.fetching import fetched

    with tempfile.TemporaryDirectory() as base, fetched(PARALLEL_CONSUMER, Path(base)) as folder:
        jars = ":".join(sorted(map(str, folder.rglob("*.jar"))))
        yield [str(find_java().path), "-Xmx1g", "-cp", jars, str(ROOT / "benchmarks" / "peers" / "Parallel.java")]


class Member:
    def __init__(self, command: Command, servers: str, topic: str, kind: str) -> None:
        told = [*command, servers, topic, kind, str(CONCURRENCY[kind])]
        self._process = subprocess.Popen(
            told, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._joined = False

    def tell(self, verb: str) -> str:
        """One line to it; the line that comes back."""
        self._joined = {"join": True, "leave": False}.get(verb, self._joined)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{verb}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a member died while it was told to {verb}: {self._process.args!r}")
        return line

    def report(self) -> Report:
        """Since its start."""
        return Report(**json.loads(self.tell("report")))

    def leave(self) -> None:
        """If it has joined. The processes that it started end with that. Those of a member that is killed would be
        nobody's children, so their CPU time would be taken for other work's."""
        if self._joined:
            self.tell("leave")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def start(command: Command, servers: str, topic: str, kind: str, count: int) -> Iterator[list[Member]]:
    members = [Member(command, servers, topic, kind) for _ in range(count)]
    try:
        for member in members:
            member.report()  # it has been imported, or compiled
        yield members
        for member in members:
            member.leave()
    finally:
        for member in members:
            member.kill()


# -- what is measured


def backlog(kafka: Any, name: str, command: Command, kind: str, chosen: argparse.Namespace) -> Row:
    topic = _topic(kafka)
    count = chosen.records if kind == "sleep" else chosen.records // 6
    _produce(kafka.bootstrap_servers, topic, count)
    with start(command, kafka.bootstrap_servers, topic, kind, 1) as (member,):
        before = member.report().cpu
        member.tell("join")
        (report,) = _until(count, [member], count / 100)
        member.tell("leave")
        last = member.report()
    times = sorted(at for _, _, at in report.finished)
    low, high = len(times) // 10, len(times) * 9 // 10
    rate = (high - low) / (times[high] - times[low])
    cores = CONCURRENCY["compute"] if name in MANY_CORES else 1
    ideal = CONCURRENCY[kind] / SLEEP if kind == "sleep" else cores / COMPUTE
    return {
        "records/s": rate,
        "of ideal %": 100 * rate / ideal,
        "CPU us": (last.cpu - before) / count * 1e6,
        "peak MB": last.peak_mb,
    }


def storm(kafka: Any, name: str, command: Command, kind: str, chosen: argparse.Namespace) -> Row:
    return _paced(kafka, command, kind, chosen, CHANGES)


def steady(kafka: Any, name: str, command: Command, kind: str, chosen: argparse.Namespace) -> Row:
    return _paced(kafka, command, kind, chosen, ())


def _paced(
    kafka: Any, command: Command, kind: str, chosen: argparse.Namespace, changes: tuple[tuple[int, str], ...]
) -> Row:
    topic, rate = _topic(kafka), chosen.storm_rate if kind == "sleep" else RATES[kind]
    with start(command, kafka.bootstrap_servers, topic, kind, 2) as members:
        members[0].tell("join")
        with feeding(kafka.bootstrap_servers, topic, rate, PARTITIONS, KEYS) as feeder:
            time.sleep(SETTLE)
            began, begin = time.monotonic(), time.time()
            for number in range(int(chosen.seconds / STORM)):
                if changes:
                    member, verb = changes[number % len(changes)]
                    members[member].tell(verb)
                time.sleep(max(0.0, began + STORM * (number + 1) - time.monotonic()))
            end = time.time()
        made = feeder.made
        reports = _until(made, members, PATIENCE)
    finished = [each for report in reports for each in report.finished]
    produced = _timestamps(kafka.bootstrap_servers, topic, made)
    first_end = {(partition, offset): at for partition, offset, at in sorted(finished, key=_at, reverse=True)}
    latencies = sorted(at - produced[place] for place, at in first_end.items())
    in_storm = sum(begin <= at <= end for at in first_end.values())
    return {
        "handled %": 100 * len(first_end) / made,
        "kept up %": 100 * in_storm / (rate * (end - begin)),
        "twice": len(finished) - len(first_end),
        "longest stall s": _longest_stall(finished, begin, end),
        "p99 s": latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))],
        "peak MB": max(report.peak_mb for report in reports),
    }


def _at(finished: tuple[int, int, float]) -> float:
    return finished[2]


def _longest_stall(finished: list[tuple[int, int, float]], begin: float, end: float) -> float:
    """Of any partition, while records came: the longest time between two ends, by whichever member."""
    by_partition: dict[int, list[float]] = {number: [begin] for number in range(PARTITIONS)}
    for partition, _, at in sorted(finished, key=_at):
        if begin <= at <= end:
            by_partition[partition].append(at)
    return max(after - before for times in by_partition.values() for before, after in pairwise([*times, end]))


def _until(count: int, members: list[Member], patience: float) -> list[Report]:
    """What they have handled, once so many records were by all together, or nothing is any more.

    While they work they tell counts only: a report of all records takes as long as hundreds of records.
    """
    deadline, seen = time.monotonic() + patience + PATIENCE, 0
    while time.monotonic() < deadline:
        time.sleep(1.0)
        finished = sum(int(member.tell("count")) for member in members)
        if finished >= count:  # of which some may have been handled twice
            reports = [member.report() for member in members]
            if len({(each[0], each[1]) for report in reports for each in report.finished}) >= count:
                return reports
        if finished > seen:
            seen, deadline = finished, max(deadline, time.monotonic() + PATIENCE)
    return [member.report() for member in members]


def _topic(kafka: Any) -> str:
    topic = f"orders-{os.urandom(4).hex()}"
    kafka.create_topic(topic, partitions=PARTITIONS)
    return topic


def _produce(servers: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "log_level": 0})
    for number in range(count):
        key = number % KEYS
        producer.produce(topic, b"v" * 100, b"k%d" % key, partition=key % PARTITIONS)
        producer.poll(0)
    producer.flush(60)


def _timestamps(servers: str, topic: str, count: int) -> dict[tuple[int, int], float]:
    """When each record was made."""
    from instride import Consumer, TopicPartition

    found: dict[tuple[int, int], float] = {}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=-1) as reader:
        reader.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while len(found) < count:
            for record in reader.poll(timeout=1.0):
                found[record.partition, record.offset] = record.timestamp / 1000
    return found


def show(results: dict[str, dict[str, list[Row]]]) -> None:
    for part, rows in results.items():
        columns = list(next(iter(rows.values()))[0])
        print(f"\n{part}")
        print(f"{'':30}" + "".join(f"{column:>17}" for column in columns))
        for name, runs in rows.items():
            figures = (statistics.median(run[each] for run in not_void(runs)) for each in columns)
            print(f"{name:30}" + "".join(f"{figure:17.3f}" for figure in figures) + void_remark(runs))


_TITLE, _BEFORE = "## With handlers", "## At a canned broker"
_RUNS = "docs/benchmarks/processors.json"
_CHANGING = "A storm: every 3 seconds one of two members joins or leaves."
_KINDS = {
    "backlog, sleep": "A backlog: 32 handlers at a time sleep for 5 ms each. The ideal is 6,400 records a second.",
    "storm, sleep": f"{_CHANGING} 1,000 records arrive a second; a handler sleeps for 5 ms.",
    "backlog, compute": "A backlog: each handler computes for 1 ms. The ideal is one busy core; with processes, "
    "and in Java, it is all cores.",
    "storm, compute": f"{_CHANGING} 300 records arrive a second; a handler computes for 1 ms.",
}


def write_page(results: dict[str, dict[str, list[Row]]], command: str) -> None:
    """A section of docs/benchmarks.md: made, or made again."""
    page, runs = ROOT / "docs" / "benchmarks.md", ROOT / _RUNS
    runs.write_text(json.dumps(results, indent=1) + "\n")
    text = page.read_text()
    start = text.index(_TITLE) if _TITLE in text else text.index(_BEFORE)
    end = text.index("\n## ", start) + 1 if _TITLE in text else start
    page.write_text(text[:start] + _section(results, command) + text[end:])


def _section(results: dict[str, dict[str, list[Row]]], command: str) -> str:
    rounds = max(len(runs) for rows in results.values() for runs in rows.values())
    told = "**one round**" if rounds == 1 else f"medians of {rounds} rounds"
    foreign = [run["foreign"] for rows in results.values() for runs in rows.values() for run in runs]
    void = sum(each > FOREIGN_MOST for each in foreign)
    lines = [
        _TITLE,
        "",
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%d %B %Y')}; "
        f"`python -m benchmarks processors {command}`, {told}.",
        f"Of {len(foreign)} runs {void} were void: other work took more than 5 % of the machine. "
        f"[Every run](benchmarks/{Path(_RUNS).name}).",
        "",
    ]
    for part, rows in results.items():
        columns = [column for column in next(iter(rows.values()))[0] if column != "foreign"]
        lines += [_KINDS[part], "", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for name, runs in rows.items():
            cells = (_cell(statistics.median(run[column] for run in not_void(runs))) for column in columns)
            lines.append(f"| {name}{void_cell(runs)} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines) + "\n"


def _cell(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"
