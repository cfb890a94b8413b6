"""What the client costs at a canned broker: `python -m benchmarks canned [--seconds N] [--rounds N] [CASE ...]`.

Each run of a case is a process of its own; cases take turns, round by round; the table shows medians. Of each run 10 s
count ("seconds" of a run says how long it was). Before them comes a warm-up of a fifth of that, from the first record
on, which counts for nothing. With `--rows N` so many rows count in place of a time. All cases take some 9 minutes a
round, a case of reading 13 s.

A case of memory shows how much the process took at most over what it had before it was assigned its partitions, while
nobody polls for 5 s, while one of twelve partitions is paused and full, and with batches that decompress to many times
their size. The bound is 1.25 `fetch_buffer_bytes` and 32 MB.

"start-up" is what importing instride and making the first consumer take; the cases of assigning are without it.

CPU s/M: user and system seconds of the client for a million rows. faults/M: pages that were touched first. no fetch %:
the share of the time in which the broker had no fetch to respond to (warm-up included). room %: the share in which the
consumer had no fetch outstanding and room for one.
A run beside which other work took more than 5 % of the machine is void. The medians leave it out, and the table says
how many were. If all runs of a case are void, the table shows them and says VOID.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import certificates
from benchmarks.batches import Log, batch
from benchmarks.canned_broker import TOPIC, canned_broker
from benchmarks.clients import handled, pairs, spin, taken
from benchmarks.load import ForeignLoad, not_void, void_remark
from benchmarks.meter import Meter
from benchmarks.outstanding import Outstanding

PARTITION_BYTES = 4 << 20
FETCH_BYTES = 64 << 20

CASES: dict[str, tuple[Log, str, int]] = {
    "raw": (Log(), "raw", -1),
    "columns": (Log(), "columns", -1),
    "arrow": (Log(), "arrow", -1),
    "arrow, no values": (Log(), "valueless", -1),
    "arrow, views": (Log(), "views", -1),
    "arrow, keys": (Log(key=True), "arrow", -1),
    "arrow, headers": (Log(header=True), "arrow", -1),
    "arrow, 10 a batch": (Log(rows=10), "arrow", -1),
    "arrow, 1 KB": (Log(size=1000, rows=16), "arrow", -1),
    "arrow, views, 1 KB": (Log(size=1000, rows=16), "views", -1),
    "records": (Log(), "records", -1),
    "records, 500 a poll": (Log(), "records", 500),
    "arrow, 500 a poll": (Log(), "arrow", 500),
    "records, headers": (Log(header=True), "records", -1),
    "records, 1 KB": (Log(size=1000, rows=16), "records", -1),
    "raw, 1 KB": (Log(size=1000, rows=16), "raw", -1),
    "raw, TLS": (Log(tls="in a folder of the run"), "raw", -1),
    "arrow, TLS": (Log(tls="in a folder of the run"), "arrow", -1),
    "records, TLS": (Log(tls="in a folder of the run"), "records", -1),
    "arrow, busy thread": (Log(), "arrow-busy", -1),
    "arrow, busy thread, TLS": (Log(tls="in a folder of the run"), "arrow-busy", -1),
    "arrow, busy thread that switches often": (Log(), "arrow-busy-often", -1),
    "arrow, busy thread that switches often, TLS": (Log(tls="in a folder of the run"), "arrow-busy-often", -1),
    "handler of 5 us": (Log(), "handler", 500),
    "handler of 5 us, alone": (Log(), "alone", -1),
    "arrow, 12 of 1000": (Log(partitions=1000), "arrow", -1),
    "arrow, 12 of 10000": (Log(partitions=10_000), "arrow", -1),
    "arrow, zstd": (Log(codec="zstd"), "arrow", -1),
    "arrow, lz4": (Log(codec="lz4"), "arrow", -1),
    "arrow, snappy": (Log(codec="snappy"), "arrow", -1),
    "arrow, 1 partition": (Log(partitions=1, hot=1), "arrow", -1),
    "records, 1 partition": (Log(partitions=1, hot=1), "records", -1),
    "memory, poller stopped": (Log(), "memory-stopped", -1),
    "memory, one slow of 12": (Log(), "memory-slow", -1),
    "memory, zstd": (Log(size=1000, rows=1000, codec="zstd"), "memory", -1),
    "start-up": (Log(), "start", -1),
    "idle, 100": (Log(partitions=100, hot=0), "idle", -1),
    "idle, 10000": (Log(partitions=10_000, hot=0), "idle", -1),
    "assign, 10000": (Log(partitions=10_000, hot=1), "assign", -1),
    "assign, 100000": (Log(partitions=100_000, hot=1), "assign", -1),
}
QUICK_SECONDS = 1.0
WARM_UP = 0.2
"""As a part of what counts."""
MEMORY_ROWS = 5_000_000
"""What a case of memory reads."""
QUICK = ("raw", "columns", "arrow", "records", "records, 500 a poll", "arrow, 12 of 10000", "assign, 10000")


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks canned", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="that count of each run, after the warm-up")
    parser.add_argument("--rows", type=int, default=0, help="that count, in place of a time; of 1 KB a fifth of it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the few cases that tell most, 2 rounds of a second each")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.seconds, chosen.rounds = QUICK_SECONDS, 2
    chosen.cases = names = chosen.cases or list(QUICK if chosen.quick else CASES)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(chosen.rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            runs[name].append(_run_case(name, chosen.rows, chosen.seconds))
    show(runs)
    return {"settings": vars(chosen), **runs}


def _run_case(name: str, rows: int, seconds: float) -> dict[str, float]:
    log, form, limit = CASES[name]
    if form.startswith("memory"):
        rows = rows or MEMORY_ROWS
    rows = rows // 5 if log.size > 500 else rows
    with tempfile.TemporaryDirectory() as folder:
        if log.tls:
            certificates.make(folder)
            log = replace(log, tls=folder)
        return _run_log(name, log, form=form, limit=limit, rows=rows, seconds=seconds)


def _run_log(name: str, log: Log, **what: str | float) -> dict[str, float]:
    with canned_broker(log) as (port, counts):
        told = json.dumps({**what, "port": port, "log": asdict(log)})
        command = [sys.executable, "-m", "benchmarks.canned", told]
        load = ForeignLoad()
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        found["foreign"] = load.share()  # while the broker, whose work is ours, still runs
        found["fetches"] = counts.fetches.value  # type: ignore[attr-defined]
        found["without a fetch"] = counts.without_a_fetch
        found["partitions a fetch"] = counts.named.value / max(1, counts.fetches.value)  # type: ignore[attr-defined]
    print(name, {key: round(value, 4) for key, value in found.items()}, file=sys.stderr, flush=True)
    return found


def show(runs: dict[str, list[dict[str, float]]]) -> None:
    print(
        f"\n{'case':44}{'M rows/s':>10}{'CPU s/M':>10}{'(least)':>10}{'faults/M':>10}{'no fetch %':>11}"
        f"{'room %':>8}{'seconds':>10}{'CPU %':>8}"
    )
    for name, mine in runs.items():
        found, remark = not_void(mine), void_remark(mine)

        def middle(key: str, found: list[dict[str, float]] = found) -> float:
            return statistics.median(each[key] for each in found)

        rows = middle("rows")
        if "over start MB" in found[0]:
            print(f"{name:44}{middle('over start MB'):10.1f} MB over start; bound {middle('bound MB'):.1f}{remark}")
        elif rows:
            room = f"{100 * middle('idle with room'):8.1f}" if "idle with room" in found[0] else " " * 8
            cpu = sorted(each["cpu"] / each["rows"] * 1e6 for each in found)
            print(
                f"{name:44}{rows / middle('seconds') / 1e6:10.2f}{statistics.median(cpu):10.3f}{cpu[0]:10.3f}"
                f"{middle('faults') / rows * 1e6:10.0f}{100 * middle('without a fetch'):11.1f}{room}"
                f"{middle('seconds'):10.2f}{'':8}{remark}"
            )
        else:
            print(f"{name:44}{'':59}{middle('seconds'):10.2f}{100 * middle('cpu') / middle('seconds'):8.1f}{remark}")


# -- the client's process


def _read(polls: Iterator[int], rows: int, seconds: float) -> dict[str, float]:
    """Of so many rows, or else of so many seconds, after a warm-up of a fifth as many from the first record on."""
    meter, seen, part = Meter(), 0, WARM_UP
    began: float | None = None
    for got in polls:
        seen += got
        now = time.perf_counter()
        if began is None:  # until something comes
            began = now if seen else None
        elif seen >= rows * part if rows else now - began >= seconds * part:
            if part == 1.0:
                return meter.read(seen)
            meter, seen, part, began = Meter(), 0, 1.0, now
    raise AssertionError("no end")


def _consumer(port: int, limit: int, log: Log) -> object:
    from instride import Consumer, TopicPartition

    settings: dict[str, object] = {"max_partition_fetch_bytes": PARTITION_BYTES, "fetch_max_bytes": FETCH_BYTES}
    if log.tls:
        settings |= {"security_protocol": "SSL", "ssl_ca_file": f"{log.tls}/ca.pem"}
    consumer = Consumer(
        bootstrap_servers=f"127.0.0.1:{port}",
        auto_offset_reset="earliest",
        max_poll_records=limit,
        **settings,  # type: ignore[arg-type]
    )
    consumer.assign([TopicPartition(TOPIC, number) for number in range(log.partitions)])
    return consumer


def _polls(consumer: object, count: Callable[[object], int]) -> Iterator[int]:
    while True:
        yield count(consumer.poll(timeout=1.0))  # type: ignore[attr-defined]


def _arrow(records: object) -> int:
    return sum(each.num_rows for each in records.to_arrow())  # type: ignore[attr-defined]


def _views(records: object) -> int:
    return sum(each.num_rows for each in records.to_arrow(binary_view=True, dictionary=True))  # type: ignore[attr-defined]


def _valueless(records: object) -> int:
    """What it costs besides the values."""
    names = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers"]
    return sum(each.num_rows for each in records.to_arrow(columns=names))  # type: ignore[attr-defined]


def _client(form: str, limit: int, rows: int, seconds: float, port: int, log: Log) -> dict[str, float]:
    if form == "raw":
        return _read(_drain(port, log), rows, seconds)
    if form == "assign":
        return _time_assign(port, log)
    if form == "start":
        return _start_up(port)
    if form == "alone":
        return _read(iter(lambda: handled(range(500)), None), rows, seconds)
    if form.startswith("memory"):
        return _memory(port, log, rows, form)
    outstanding = Outstanding() if log.partitions == log.hot else None
    consumer = _consumer(port, limit, log)
    if form == "idle":
        return _idle(consumer)
    form, *besides = form.split("-")
    if "busy" in besides:
        threading.Thread(target=spin, daemon=True).start()
    if "often" in besides:
        sys.setswitchinterval(0.0005)  # a tenth of what it is by default
    forms: dict[str, Callable[[object], int]] = {"arrow": _arrow, "valueless": _valueless, "records": taken}
    forms |= {"views": _views, "handler": lambda records: handled(pairs(records))}  # type: ignore[arg-type]
    count: Callable[[object], int] = forms.get(form, len)  # type: ignore[arg-type]
    found = _read(_polls(consumer, count), rows, seconds)
    return found | outstanding.shares() if outstanding else found


def _time_assign(port: int, log: Log) -> dict[str, float]:
    """Until the first record comes, of a partition whose position is found with all others."""
    _start_up(port)
    meter = Meter()
    consumer = _consumer(port, -1, log)
    called = time.perf_counter()
    while not consumer.poll(timeout=1.0):  # type: ignore[attr-defined]
        pass
    return {**meter.read(0), "after the call": time.perf_counter() - called}


def _start_up(port: int) -> dict[str, float]:
    """The first consumer imports what instride itself does without, as the schemas of the messages."""
    meter = Meter()
    from instride import Consumer

    Consumer(bootstrap_servers=f"127.0.0.1:{port}").close(timeout=0)
    return meter.read(0)


def _memory(port: int, log: Log, rows: int, form: str) -> dict[str, float]:
    """How much memory this process took at most, over what it had with everything imported."""
    import pyarrow as pa  # noqa: F401 - what it takes is not the consumer's

    from instride import ConsumerConfig, TopicPartition

    _start_up(port)
    before = _resident_mb()
    most, seen, until = before, 0, time.perf_counter() + 60
    consumer = _consumer(port, -1, log)
    while seen < rows and time.perf_counter() < until:
        records = consumer.poll(timeout=1.0)  # type: ignore[attr-defined]
        if records and form == "memory-slow" and not seen:
            consumer.pause(TopicPartition(TOPIC, 0))  # type: ignore[attr-defined]
        seen += _arrow(records)
        del records
        if seen and form == "memory-stopped":
            until = 0.0
            for _ in range(50):
                time.sleep(0.1)
                most = max(most, _resident_mb())
        most = max(most, _resident_mb())
    buffer = ConsumerConfig(bootstrap_servers="none:9092").fetch_buffer_bytes
    return {"rows": seen, "seconds": 0.0, "over start MB": most - before, "bound MB": 1.25 * buffer / (1 << 20) + 32}


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _idle(consumer: object) -> dict[str, float]:
    for each in consumer.assignment():  # type: ignore[attr-defined]
        consumer.position(each)  # type: ignore[attr-defined]
    for _ in range(30):
        consumer.poll(timeout=0.1)  # type: ignore[attr-defined]
    meter = Meter()
    for _ in range(50):
        consumer.poll(timeout=0.1)  # type: ignore[attr-defined]
    return meter.read(0)


def _drain(port: int, log: Log) -> Iterator[int]:
    """The most that any client could have: three fetches in flight, responses received into one buffer, none read."""
    peer = socket.create_connection(("127.0.0.1", port))
    if log.tls:
        context = ssl.create_default_context(cafile=f"{log.tls}/ca.pem")
        peer = context.wrap_socket(peer, server_hostname="127.0.0.1")
    requested = b"".join(struct.pack(">iiqqi", each, 0, 0, 0, PARTITION_BYTES) for each in range(log.hot))
    body = struct.pack(">iiiibii", -1, 500, 1, 8 << 20, 0, 0, 0)
    body += (
        struct.pack(">i", 1) + struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">i", log.hot) + requested
    )
    body += struct.pack(">ih", 0, 0)
    request = struct.pack(">hhihi", 1, 11, 0, -1, 0)[:10] + body
    request = struct.pack(">i", len(request)) + request
    buffer = bytearray(1 << 20)
    for _ in range(3):
        peer.sendall(request)
    one = len(batch(0, log))
    while True:
        left = struct.unpack(">i", _exactly(peer, 4))[0]
        rows = left // one * log.rows
        while left:
            left -= peer.recv_into(buffer, min(left, len(buffer)))
        peer.sendall(request)
        yield rows


def _exactly(peer: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += peer.recv(count - len(found))
    return found


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    told["log"] = Log(**told["log"])
    print(json.dumps(_client(**told)), flush=True)
    sys.stdout.flush()
    os._exit(0)  # without waiting for what is under way
