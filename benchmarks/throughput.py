"""Rows a second from a live broker, first row to last: ours and the peers', in turn, several rounds.

    python -m benchmarks throughput [--rows N] [--rounds N] [--clients NAME ...]

The clients take turns, so that a machine whose speed drifts is the same for all. Figures are medians; the last
column is the ratio to confluent-kafka's consume(10000) in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.clients import CLIENTS, FETCH_BYTES, PARTITION_BYTES, PARTITIONS

NAMES = ["java", *CLIENTS, "aiokafka"]
BASE = "confluent-consume"


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks throughput")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 100 bytes; a quarter as many of 1 KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="*", default=NAMES, choices=NAMES)
    chosen = parser.parse_args(arguments)
    from instride.testing import LocalKafka

    results: dict[str, object] = {}
    with LocalKafka() as kafka:
        for size, rows in ((100, chosen.rows), (1000, chosen.rows // 4)):
            topic = f"bytes-{size}"
            kafka.create_topic(topic, partitions=PARTITIONS)
            produce(kafka.bootstrap_servers, topic, rows, size)
            runs = list(rounds(kafka.bootstrap_servers, topic, rows, chosen.clients, chosen.rounds))
            results[topic] = show(size, runs)
    return results


def produce(servers: str, topic: str, rows: int, size: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    value = os.urandom(size)
    for number in range(rows):
        while True:
            try:
                producer.produce(topic, value=value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def rounds(servers: str, topic: str, rows: int, names: list[str], count: int) -> Iterator[dict[str, float | str]]:
    for number in range(count):
        for name in names:
            print(f"round {number + 1} of {count}: {name}", file=sys.stderr, flush=True)
            yield java(servers, topic, rows) if name == "java" else python(name, servers, topic, rows)


def python(name: str, servers: str, topic: str, rows: int) -> dict[str, float | str]:
    command = [sys.executable, "-m", "benchmarks.clients", name, servers, topic, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    if found["rows"] != rows:
        raise SystemExit(f"{name} read {found['rows']} rows of {rows}")
    return found


def java(servers: str, topic: str, rows: int) -> dict[str, float | str]:
    """Kafka's own ConsumerPerformance; its fetch time is from the first assignment to the last row."""
    from instride.testing import find_java, find_kafka

    command = [
        str(find_java().path),
        "-Xmx1g",
        "-cp",
        find_kafka().class_path,
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", servers, "--topic", topic, "--messages", str(rows)),
        *("--fetch-size", str(PARTITION_BYTES), "--timeout", "60000", "--group", f"java-{os.urandom(4).hex()}"),
    ]
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    after = os.times()
    header, values = ([each.strip() for each in line.split(",")] for line in done.stdout.splitlines()[-2:])
    row = dict(zip(header, values, strict=False))
    return {
        "client": "java",
        "rows": float(row["data.consumed.in.nMsg"]),
        "seconds": float(row["fetch.time.ms"]) / 1000,
        "cpu": after.children_user + after.children_system - before.children_user - before.children_system,
        "peak_mb": float("nan"),
    }


def show(size: int, runs: list[dict[str, float | str]]) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(str(run["client"]) for run in runs):
        mine = [run for run in runs if run["client"] == name]
        rate = statistics.median(float(run["rows"]) / float(run["seconds"]) for run in mine)
        cpu = statistics.median(float(run["cpu"]) / float(run["rows"]) for run in mine)
        memory = statistics.median(float(run["peak_mb"]) for run in mine)
        table[name] = {"rows_per_second": rate, "cpu_per_million": cpu * 1e6, "peak_mb": memory}
    base = table.get(BASE, {"rows_per_second": float("nan")})["rows_per_second"]
    print(
        f"\n{size} bytes a row, {PARTITIONS} partitions, fetches of {PARTITION_BYTES >> 20} and {FETCH_BYTES >> 20} MiB"
    )
    print(f"{'client':20} {'M rows/s':>9} {'MB/s':>7} {'CPU s/M':>8} {'peak MB':>8} {'ratio':>6}")
    for name, row in sorted(table.items(), key=lambda each: -each[1]["rows_per_second"]):
        million = row["rows_per_second"] / 1e6
        ratio = row["rows_per_second"] / base
        print(
            f"{name:20} {million:9.2f} {million * size:7.0f} {row['cpu_per_million']:8.2f} "
            f"{row['peak_mb']:8.0f} {ratio:6.2f}"
        )
    return table
