"""The main job, from an empty machine to a verdict: `python -m demo` in a clone, or `make demo`.

Laws
1. Everything that runs or is written while it runs belongs to a keeper (see `instride.testing`): whatever
   ends this process, no process and no file is left. Only the results are written elsewhere, at the end.
2. SIGTERM and SIGHUP are as good as Ctrl-C.
3. The exit status is 0 only if every flight is there exactly once and the checker finds nothing in the history; 1 if
   not, or if something failed; 130 if interrupted. A run with another client is there to be compared with: where one of
   ours runs too, only ours are judged.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console

from demo.flights import FLIGHTS, PARTITIONS, SCHEMA, slow_flight, source_table
from demo.history import History, history_files
from demo.member import Plan
from demo.picture import draw, save
from demo.report import Result, page, print_report
from demo.scenario import play
from demo.verdict import judge, read_written
from demo.view import View
from instride.errors import KafkaError
from instride.spark.parquet import read_files
from instride.testing import LocalKafka
from instride.testing._kafka.processes import Processes
from instride.testing.check import check, read_histories, without_owner

PLAIN_WIDTH: Final = 150
INTERRUPTED: Final = 130
KILLED: Final = "killed"


class Contender(NamedTuple):
    """A kind of run. member: the kind of its consumers. slow_partition: one that goes to the second of two members."""

    name: str
    member: str
    slow_partition: int


CONTENDERS: Final = {
    "instride": Contender("instride on Spark", "instride", 6),
    "processor": Contender("instride, a Processor", "processor", 6),
    "confluent": Contender("confluent-kafka, waiting", "confluent", 3),
    "releasing_at_once": Contender("confluent-kafka, releasing at once", "confluent", 3),
    KILLED: Contender("instride on Spark, one killed", "instride", 6),
}
"""By kind, in the order in which they stand side by side. Those in between have the same handler."""


def main() -> int:
    """Run the demo and return the exit status."""
    options = _options()
    # Where output is not a terminal it has no width of its own, and 80 columns are too few for the tables.
    console = Console(width=None if Console().is_terminal else PLAIN_WIDTH)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        results = _run_all(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted. No process and no file is left.", markup=False)
        return INTERRUPTED
    except KafkaError as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    judged = [result for kind, result in results.items() if CONTENDERS[kind].member != "confluent"] or results.values()
    return 0 if all(result.verdict.exactly_once and not result.violations for result in judged) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Two applications, one topic, no pause.")
    add = parser.add_argument
    add("--only", choices=CONTENDERS, help="run this kind of consumer only")
    add("--output", type=Path, default=Path("demo-output"), help="folder of the results (%(default)s)")
    add("--rows", type=_rows, default=FLIGHTS, help="how many flights are sent (%(default)s)")
    add("--seconds", type=float, default=60.0, help="in how much time (%(default)s)")
    add("--slow", type=float, default=15.0, help="seconds of the long work (%(default)s)")
    add("--stay", type=float, default=15.0, help="seconds that B stays (%(default)s)")
    return parser.parse_args()


def _rows(text: str) -> int:
    """There are no more than all."""
    return min(int(text), FLIGHTS)


def _run_all(options: argparse.Namespace, console: Console) -> dict[str, Result]:
    """By kind. At the end the page and the picture are written, and the histories that they were made from."""
    console.print(f"{options.rows:,} flights of 2013 from New York, {PARTITIONS} partitions, a real Kafka")
    results = {}
    with LocalKafka() as kafka, ExitStack() as stack:
        processes = Processes()
        stack.callback(processes.end)
        plans = [_plan(kind, kafka, processes.folder, options) for kind in CONTENDERS if options.only in (None, kind)]
        for plan in plans:
            kafka.create_topic(plan.topic, partitions=PARTITIONS)
            view = View(f"The flights with {CONTENDERS[plan.kind].name}", console)
            with view:
                play(plan, processes, view)
            results[plan.kind] = _result(plan)
        print_report([*results.values()], console)
        # Who is killed is compared with nobody, and has a pace of its own.
        figure = draw([each for kind, each in results.items() if kind != KILLED] or [*results.values()])
        for plan in plans:
            shutil.copytree(plan.histories, options.output / plan.kind, dirs_exist_ok=True)
    (options.output / "demo.png").write_bytes(save(figure, "png"))
    (options.output / "demo.html").write_text(page([*results.values()], save(figure, "svg")), encoding="utf-8")
    console.print(f"The picture and the verdict: {options.output / 'demo.html'} and demo.png beside it", markup=False)
    return results


def _plan(kind: str, kafka: LocalKafka, folder: Path, options: argparse.Namespace) -> Plan:
    partition = CONTENDERS[kind].slow_partition
    row, offset = slow_flight(options.rows, partition)
    return Plan(
        kind=kind,
        member=CONTENDERS[kind].member,
        killed=kind == KILLED,
        bootstrap_servers=kafka.bootstrap_servers,
        folder=folder / kind,
        rows=options.rows,
        seconds=options.seconds,
        slow_partition=partition,
        slow_row=row,
        slow_offset=offset,
        slow_seconds=options.slow,
        stay_seconds=options.stay,
    )


def _result(plan: Plan) -> Result:
    written = read_files(plan.output) if plan.member == "instride" else plan.output.glob("*.parquet")
    events = [each.event for each in read_histories(history_files(plan.histories))]
    return Result(
        name=CONTENDERS[plan.kind].name,
        run=History(events),
        violations=tuple(check(events)),
        ownerless=tuple(without_owner(events)),
        verdict=judge(read_written(written, SCHEMA), source_table(plan.rows)),
    )


if __name__ == "__main__":
    # The members and Spark's workers are processes of their own. They must find this folder, which is not installed.
    clone = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (clone, os.environ.get("PYTHONPATH"))))
    sys.exit(main())
