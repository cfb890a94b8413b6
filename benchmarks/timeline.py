"""The pipeline's time line: `python -m benchmarks timeline [--rows N] [--rounds N] [--picture FILE] [CASE ...]`.

Who does what while records go to Arrow from a canned broker: the network thread waits, receives, decodes and decides;
the application's thread waits, and makes Arrow of what came ("deliver"). Each case is today's code in which all
remedies but those that it names are taken away:

- reading ahead: the next fetch leaves before what came is decoded;
- pump: compiled code receives whole responses, and gives the GIL up once for each;
- segments: what responses were received into is used again.

The table has milliseconds of CPU for a million rows, and as a share of the time how long each thread waited and the
broker had no fetch. The picture is of 40 ms of each case; what is white in it is the rest, decisions and polls.
Rates and shares mean nothing on a busy machine; the CPU grows by a tenth or two, or by more on a very busy one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from benchmarks.batches import Log
from benchmarks.canned_broker import canned_broker
from benchmarks.load import ForeignLoad, not_void, void_remark

REMEDIES = ("reading ahead", "pump", "segments")
CASES: dict[str, tuple[str, ...]] = {
    "before": (),
    "reading ahead alone": ("reading ahead",),
    "pump alone": ("pump",),
    "segments alone": ("segments",),
    "now": REMEDIES,
    "now, 1 partition": REMEDIES,
    "before, 1 partition": (),
}
WORK = ("receive", "decode", "decide", "deliver", "poll")
PICTURED = 0.04
_COLOURS = {"wait": "#e4e4de", "receive": "#4f81bd", "decode": "#1f6f54", "deliver": "#c98b2b"}

# what was done, when it began and ended, CPU seconds of its thread
Span = tuple[str, float, float, float]


def main(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks timeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", help="the file of the picture")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    chosen = parser.parse_args(arguments)
    names = chosen.cases or list(CASES)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    spans: dict[str, list[Span]] = {}
    for number in range(chosen.rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            found = _run_case(name, chosen.rows)
            spans[name] = found.pop("spans")  # type: ignore[assignment]
            runs[name].append(found)  # type: ignore[arg-type]
    _show(runs)
    if chosen.picture:
        _draw(spans, chosen.picture)
    return dict(runs)


def _run_case(name: str, rows: int) -> dict[str, object]:
    log = Log(partitions=1, hot=1) if name.endswith("1 partition") else Log()
    with canned_broker(log) as (port, counts):
        told = json.dumps({"remedies": CASES[name], "rows": rows, "port": port, "log": asdict(log)})
        load = ForeignLoad()
        command = [sys.executable, "-m", "benchmarks.timeline", told]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr}")
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        found |= {"foreign": load.share(), "without a fetch": counts.without_a_fetch}
    print(name, {key: value for key, value in found.items() if key != "spans"}, file=sys.stderr, flush=True)
    return found


def _show(runs: dict[str, list[dict[str, float]]]) -> None:
    waits = ("network waits", "application waits", "without a fetch")
    heads = ("CPU ms for a million rows", *WORK, "in all", *(f"{each}, %" for each in waits), "M rows/s")
    print(f"\n| {' | '.join(heads)} |")
    print("|---" * (len(WORK) + len(waits) + 3) + "|")
    for name, mine in runs.items():
        found, void = not_void(mine), void_remark(mine)

        def middle(key: str, found: list[dict[str, float]] = found) -> float:
            return statistics.median(each[key] for each in found)

        cpu = [middle(each) for each in WORK]
        cells = [*(f"{each:.0f}" for each in (*cpu, sum(cpu))), *(f"{100 * middle(each):.0f}" for each in waits)]
        print(f"| {name}{void} | {' | '.join(cells)} | {middle('rate'):.1f} |")


def _draw(spans: dict[str, list[Span]], target: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(len(spans), 1, figsize=(10, 0.5 + 0.9 * len(spans)), sharex=True, layout="constrained")
    for axis, (name, found) in zip([axes] if len(spans) == 1 else axes, spans.items(), strict=True):
        for what, begin, end, _ in found:
            place = 0 if what in ("deliver", "wait of the application") else 1
            axis.barh(place, (end - begin) * 1000, left=begin * 1000, height=0.8, color=_COLOURS[what.split()[0]])
        axis.set_yticks((0, 1), ("application", "network"), fontsize=7)
        axis.set_title(name, fontsize=8, loc="left")
        axis.set_xlim(0, PICTURED * 1000)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=[Patch(color=colour, label=what) for what, colour in _COLOURS.items()], fontsize=7, ncols=5)
    figure.supxlabel("ms", fontsize=8)
    figure.savefig(target, dpi=130)


# -- the client's process


class _Spans:
    """What was done from `start` on. Two threads append to it."""

    def __init__(self) -> None:
        self.all: list[Span] = []
        self.network_cpu = 0.0  # of the network thread until now
        self._waited = 0.0

    def timed(self, what: str, work: Callable[..., object]) -> Callable[..., object]:
        def timed(*arguments: object, **named: object) -> object:
            begin, cpu = time.perf_counter(), time.thread_time()
            try:
                return work(*arguments, **named)
            finally:
                self.all.append((what, begin, time.perf_counter(), time.thread_time() - cpu))

        return timed

    def seconds(self, what: str) -> float:
        return sum(end - begin for name, begin, end, _ in self.all if name == what)

    def cpu(self, what: str) -> float:
        return sum(cpu for name, _, _, cpu in self.all if name == what)


def _watch(spans: _Spans) -> None:
    """Wrap what the threads do. The pump waits and receives in one call: its CPU is the receiving."""
    from instride._net import mailbox, thread, transport
    from instride._wire import record_set

    pump = thread.Pump

    class Pump:
        def __init__(self, *, eager: bool) -> None:
            self._pump = pump(eager=eager)
            self.select = spans.timed("wait", self._select)

        def _select(self, timeout: float) -> object:
            ready = self._pump.select(timeout)
            spans.network_cpu = time.thread_time()
            return ready

        def __getattr__(self, name: str) -> object:
            return getattr(self._pump, name)

    thread.Pump = Pump  # type: ignore[misc, assignment]
    record_set.RecordSet.decode = spans.timed("decode", record_set.RecordSet.decode)  # type: ignore[method-assign]
    readable = spans.timed("receive", transport.Transport.readable)
    transport.Transport.readable = readable  # type: ignore[method-assign, assignment]
    mailbox.Mailbox.wait = spans.timed("wait of the application", mailbox.Mailbox.wait)  # type: ignore[method-assign]


def _take_away(remedies: tuple[str, ...]) -> None:
    """All that are not named."""
    from instride._core.network import fetcher
    from instride._net import plain_pump, thread, transport
    from instride._wire.memory_pool import Segments

    if "reading ahead" not in remedies:
        capacity = fetcher.capacity
        fetcher.capacity = lambda config, owned: replace(capacity(config, owned), undecoded=-1)
        fetcher._LITTLE_BYTES, fetcher._LITTLE = 1 << 40, 1  # type: ignore[misc]
    if "pump" not in remedies:
        thread.Pump = plain_pump.Pump  # type: ignore[misc, assignment]
        transport.Line = plain_pump.Line  # type: ignore[misc, assignment]
    if "segments" not in remedies:
        Segments.take = lambda _self, _length: None  # type: ignore[method-assign, assignment]


def _client(remedies: tuple[str, ...], rows: int, port: int, log: Log) -> dict[str, object]:
    from benchmarks.canned import _arrow, _consumer

    spans = _Spans()
    _take_away(tuple(remedies))
    _watch(spans)
    consumer, seen, warm = _consumer(port, -1, log), 0, rows // 5
    deliver = spans.timed("deliver", _arrow)
    began = own = network = 0.0
    while seen < rows:
        seen += deliver(consumer.poll(timeout=1.0))  # type: ignore[attr-defined, operator]
        if warm and seen >= warm:
            warm = seen = 0
            began, own, network = time.perf_counter(), time.thread_time(), spans.network_cpu
            spans.all.clear()
    took = time.perf_counter() - began
    million = seen / 1e9  # of milliseconds
    waiting, decode, deliver_cpu = (spans.cpu(each) for each in ("wait", "decode", "deliver"))
    receive = waiting + spans.cpu("receive")
    return {
        "rate": seen / took / 1e6,
        "receive": receive / million,
        "decode": decode / million,
        "decide": (spans.network_cpu - network - receive - decode) / million,
        "deliver": deliver_cpu / million,
        "poll": (time.thread_time() - own - deliver_cpu) / million,
        "network waits": (spans.seconds("wait") - waiting) / took,
        "application waits": spans.seconds("wait of the application") / took,
        "spans": _pictured(spans.all, began + took / 2),
    }


def _pictured(spans: list[Span], start: float) -> list[Span]:
    """From then on; a wait of the network thread is divided into waiting and, at its end, receiving."""
    found: list[Span] = []
    for what, begin, end, cpu in spans:
        if end < start or begin > start + PICTURED:
            continue
        received = end - min(cpu, end - begin) if what == "wait" else end
        found.append((what, begin - start, received - start, cpu))
        if received < end:
            found.append(("receive", received - start, end - start, cpu))
    return found


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    told["log"] = Log(**told["log"])
    print(json.dumps(_client(**told)), flush=True)
    os._exit(0)  # without waiting for what is under way
