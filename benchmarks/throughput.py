"""Rows a second from a live broker: ours and the peers', in turn, several rounds.

    python -m benchmarks throughput [--gigabytes N] [--seconds N] [--rounds N] [--case NAME ...] [--clients NAME ...]

Each client is a process of its own that reads each record's key and value. Start-up and the first quarter of the rows
(or the first 3 s) count for nothing; then at most `--seconds` seconds count, and none of the topic's last tenth, where
partitions end. The order is another in each round. Tables show medians, and the spread as least and most.

A run takes some 15 s, one of the raw drain less: 20 minutes for five rounds of a case, besides the filling.

A run beside which other work took more than 5 % of the machine is void. The medians leave it out, and the table says
how many were. If all runs of a client are void, the table shows them and says VOID. The raw drain is the best of six
ways to fetch: 1, 2 or 3 fetches outstanding on each of 1 or 2 connections.

Each client checks CRCs as it does by default. A second table has, beside that, the rates where all check them: of
confluent-kafka, which does not by default, a form of its own is measured. `--clients` with both names gives both.

A third table shows the start-up, which is in no other figure: from the start of the process until it has read the
records of its first poll. The JVM and the imports are in it, a compiler is not: Java's and Go's clients are compiled
before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import certificates
from benchmarks.batches import Log
from benchmarks.clients import CLIENTS, Task
from benchmarks.filler import fill
from benchmarks.load import ForeignLoad, all_void, not_void, void_remark

HERE = Path(__file__).parent
HEAP = "1g"
RAW = [name for name in CLIENTS if name.startswith("raw")]
NAMES = [*CLIENTS, "aiokafka", "aiokafka, without CRC", "Java", "Java, without CRC", "franz-go"]
# All clients but these check each batch's CRC by default. Of these the second form does so, too.
CHECKING = {
    "confluent-kafka": "confluent-kafka, CRC too",
    "confluent-kafka, at defaults": "confluent-kafka, at defaults, CRC too",
}
# `--crc` measures those that can do without checks in that way, too.
OTHERWISE = [name for name in NAMES if "without CRC" in name]
# Only where they are named: they measure other work of the application beside the client.
BUSY = [name for name in NAMES if "handler" in name or "busy thread" in name]
CASES = {
    "100 B": Log(rows=8192, random=True),
    "1 KB": Log(size=1000, rows=1000, random=True),
    "100 B, 140 a batch": Log(random=True),
    "100 B, 10 a batch": Log(rows=10, random=True),
    "100 B, keys": Log(rows=8192, random=True, key=True),
    "100 B, zstd": Log(rows=8192, codec="zstd"),
    "100 B, lz4": Log(rows=8192, codec="lz4"),
    "100 B, snappy": Log(rows=8192, codec="snappy"),
    "100 B, 1 partition": Log(rows=8192, random=True, partitions=1, hot=1),
    "100 B, TLS": Log(rows=8192, random=True, tls="in a folder of the run"),
    "1 KB, keys": Log(size=1000, rows=1000, random=True, key=True),
    "1 KB, 10 a batch": Log(size=1000, rows=10, random=True),
    "1 KB, zstd": Log(size=1000, rows=1000, codec="zstd"),
    "1 KB, lz4": Log(size=1000, rows=1000, codec="lz4"),
    "1 KB, snappy": Log(size=1000, rows=1000, codec="snappy"),
    "1 KB, TLS": Log(size=1000, rows=1000, random=True, tls="in a folder of the run"),
}
QUICK = ("100 B", "1 KB")

Run = dict[str, float]
Reader = Callable[[Task], list[str]]


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks throughput", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of values in each topic")
    parser.add_argument("--seconds", type=float, default=10.0, help="that count, at most, of each run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", nargs="*", default=list(QUICK), choices=list(CASES))
    parser.add_argument("--clients", nargs="*", choices=NAMES)
    parser.add_argument("--crc", action="store_true", help="besides, clients without CRC checks, where they can")
    parser.add_argument("--quick", action="store_true", help="two minutes: less of everything")
    chosen = parser.parse_args(arguments)
    if chosen.clients is None:
        left_out = {*BUSY, *(() if chosen.crc else OTHERWISE), *(CHECKING.values() if chosen.quick else ())}
        chosen.clients = [name for name in NAMES if name not in left_out]
    if chosen.quick:
        chosen.gigabytes, chosen.seconds, chosen.rounds = 1.0, 2.0, 1
    from instride.testing import LocalKafka

    results: dict[str, object] = {"heap": HEAP, "cores": os.cpu_count(), "settings": vars(chosen)}
    with tempfile.TemporaryDirectory() as folder:
        commands = readers(chosen.clients, Path(folder))
        properties = certificates.keystore(folder, "TLS")
        for case in chosen.case:
            # The JVM's own defaults: all of its compilers.
            with LocalKafka(heap=HEAP, jvm_options=(), listeners={"TLS": "SSL"}, properties=properties) as kafka:
                task = prepare(kafka, CASES[case], chosen)
                if CASES[case].tls:
                    task = replace(task, servers=kafka.listener("TLS"), ca_file=f"{folder}/ca.pem")
                runs: dict[str, list[Run]] = {name: [] for name in commands}
                for name, run in rounds(commands, task, chosen.rounds):
                    runs[name].append(run)
            runs = {name: mine for name, mine in runs.items() if mine}
            show(case, runs)
            results[case] = runs
    return results


def prepare(kafka: object, log: Log, chosen: argparse.Namespace) -> Task:
    kafka.create_topic("rows", partitions=log.partitions, configs={"retention.ms": "-1"})  # type: ignore[attr-defined]
    servers: str = kafka.bootstrap_servers  # type: ignore[attr-defined]
    rows = fill(servers, "rows", log, int(chosen.gigabytes * 1e9 / log.size))
    return Task(
        servers=servers,
        topic="rows",
        warm_rows=rows // 4,
        warm_seconds=3.0,
        most_rows=rows * 9 // 10,
        most_seconds=chosen.seconds,
        partitions=log.partitions,
    )


# -- the clients' processes


def readers(names: list[str], folder: Path) -> dict[str, Reader]:
    """The command of each client; a client without its language is left out, by name."""
    found: dict[str, Reader] = {}
    for name in names:
        if name.startswith("Java"):
            compile_java("Reader.java", folder)
            found[name] = lambda task, crc=name == "Java": _java(task, folder, crc=crc)  # type: ignore[misc]
        elif name != "franz-go":
            found[name] = lambda task, name=name: [  # type: ignore[misc]
                *(sys.executable, "-m", "benchmarks.clients", name, json.dumps(asdict(task)))
            ]
        elif go := shutil.which("go"):
            binary = folder / "franz-reader"
            subprocess.run([go, "build", "-o", str(binary), "."], cwd=HERE / "peers" / "franz", check=True)
            found[name] = lambda task, binary=binary: [str(binary), *_told(task), task.ca_file]  # type: ignore[misc]
        else:
            print("franz-go is not measured: there is no go on the PATH", file=sys.stderr)
    return found


def compile_java(name: str, folder: Path) -> None:
    """Before it is measured: a run of the source itself would compile it in its start-up."""
    from instride.testing import find_java, find_kafka

    compiler = (str(find_java().path), "-m", "jdk.compiler/com.sun.tools.javac.Main")
    source = str(HERE / "peers" / name)
    jars = ":".join(map(str, Path(find_kafka().class_path).parent.glob("*.jar")))  # only java itself knows libs/*
    subprocess.run([*compiler, "-cp", jars, "-d", str(folder), source], check=True)


def _java(task: Task, folder: Path, *, crc: bool) -> list[str]:
    from instride.testing import find_java, find_kafka

    return [
        str(find_java().path),
        "-Xmx1g",
        "-cp",
        f"{find_kafka().class_path}:{folder}",
        "Reader",
        *_told(task),
        str(crc),
        task.ca_file,
    ]


def _told(task: Task) -> list[str]:
    window = (task.warm_rows, task.warm_seconds, task.most_rows, task.most_seconds)
    sizes = (task.partitions, task.partition_bytes, task.fetch_bytes)
    return [task.servers, task.topic, *map(str, window), *map(str, sizes)]


def rounds(commands: dict[str, Reader], task: Task, count: int) -> Iterator[tuple[str, Run]]:
    names = list(commands)
    for number in range(count):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            command = commands[name](task)
            load, began = ForeignLoad(), time.time()
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if "UnsupportedCodecError" in done.stderr:
                print(f"{name} is not measured: {done.stderr.splitlines()[-1]}", file=sys.stderr)
                continue
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr}")
            run: Run = json.loads(done.stdout.splitlines()[-1])
            run["foreign"] = load.share()
            run["start-up"] = run.pop("first at") - began
            print(f"round {number + 1} of {count}: {name}: {_rate(run):.2f} M rows/s", file=sys.stderr, flush=True)
            yield name, run


# -- the tables


def _rate(run: Run) -> float:
    return run["rows"] / run["seconds"] / 1e6


def show(case: str, runs: dict[str, list[Run]]) -> None:
    remarks = {name: void_remark(mine) for name, mine in runs.items()}
    runs = {name: not_void(mine) for name, mine in runs.items()}
    rates = {name: [_rate(each) for each in mine] for name, mine in runs.items()}
    raw = best_raw(runs)
    base = statistics.median(rates.get("confluent-kafka", [float("nan")]))
    print(f"\n{case}, M rows a second; of {CASES[case].partitions} partitions")
    columns = ("median", "least", "most", "CPU s/M", "peak MB", "of raw", "of confluent")
    print(f"{'client':40}" + "".join(f"{column:>13}" for column in columns))
    for name, mine in sorted(rates.items(), key=lambda each: -statistics.median(each[1])):
        rate = statistics.median(mine)
        cpu = statistics.median(each["cpu"] / each["rows"] * 1e6 for each in runs[name])
        peak = statistics.median(each["peak_mb"] for each in runs[name])
        figures = (rate, min(mine), max(mine), cpu, peak, rate / raw, rate / base)
        print(f"{name:40}" + "".join(f"{figure:13.3f}" for figure in figures) + remarks[name])
    show_checks(case, runs, remarks)
    print(f"\n{case}, from the start of the process until the first records are read (medians)")
    print(f"{'client':40}{'seconds':>8}{'CPU s':>8}")
    for name, found in sorted(runs.items(), key=lambda each: statistics.median(run["start-up"] for run in each[1])):
        wall, cpu = (statistics.median(run[each] for run in found) for each in ("start-up", "start-up cpu"))
        print(f"{name:40}{wall:8.2f}{cpu:8.2f}{remarks[name]}")


def show_checks(case: str, runs: dict[str, list[Run]], remarks: dict[str, str]) -> None:
    """CRC checks as each client has them by default, beside checks by all. Of void runs `remarks` tells."""
    print(f"\n{case}, CRC checks: M rows a second and CPU s for a million rows (medians)")
    print(f"{'client':40}{'by default':>12}{'CPU s/M':>9}{'all check':>12}{'CPU s/M':>9}")
    for name in (name for name in runs if name not in {*RAW, *OTHERWISE, *CHECKING.values()}):
        checking = CHECKING.get(name, name)
        cells = f"{_rate_and_cpu(runs[name])}{_rate_and_cpu(runs.get(checking, []))}"
        print(f"{name:40}{cells}{remarks[name]}{remarks.get(checking, '') if checking != name else ''}")


def _rate_and_cpu(found: list[Run]) -> str:
    if not found:
        return f"{'not measured':>21}"
    cpu = statistics.median(each["cpu"] / each["rows"] * 1e6 for each in found)
    return f"{statistics.median(map(_rate, found)):12.2f}{cpu:9.3f}"


def best_raw(runs: dict[str, list[Run]]) -> float:
    """The median of the raw drain's best form; of a form whose runs are all void only where each form's are."""
    forms = [mine for name, mine in runs.items() if name in RAW]
    counted = [mine for mine in forms if not all_void(mine)] or forms
    return max((statistics.median(map(_rate, not_void(mine))) for mine in counted), default=float("nan"))
