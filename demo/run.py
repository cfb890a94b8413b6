"""The main job, from an empty machine to a verdict: `python -m demo`, or `make demo`.

Laws
1. Everything that runs or is written while it runs belongs to a keeper (see `instride.testing`): whatever
   ends this process, no process and no file is left. Only the results are written elsewhere, at the end.
2. SIGTERM and SIGHUP are as good as Ctrl-C.
3. The exit status is 0 only if every flight is there exactly once and the checker finds nothing in the history; 1 if
   not, or if something failed; 130 if interrupted.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from demo.flights import SCHEMA, source_table
from demo.history import History, history_files
from demo.picture import draw, save
from demo.report import Result, page, print_report
from demo.scenario import Contender, Plan, Stage, play
from demo.verdict import judge, read_written
from demo.view import View
from instride.errors import KafkaError
from instride.spark.parquet import read_files
from instride.testing import LocalKafka
from instride.testing.check import check, read_histories, without_owner
from instride.testing.processes import Processes

__all__ = ["main"]


def _plain_files(output: Path) -> list[Path]:
    """Every finished file; one that is being written has a name that starts with a dot."""
    return sorted(path for path in output.glob("*.parquet") if not path.name.startswith("."))


CONTENDERS: Final = (
    Contender(
        name="instride",
        slug="instride",
        module="demo.pipeline_member",
        slow_partition=6,
        written=read_files,
        ours=True,
    ),
    Contender(
        name="confluent-kafka",
        slug="confluent",
        module="demo.confluent_member",
        slow_partition=3,
        written=_plain_files,
    ),
)
"""In the order in which they stand side by side."""

PLAIN_WIDTH: Final = 150
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    options = _options(arguments)
    console = _console()
    try:
        with _interruptible():
            results = _run_all(options, console)
    except KeyboardInterrupt:
        console.print("Interrupted. No process and no file is left.", markup=False)
        return INTERRUPTED
    except KafkaError as error:
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    judged = [result for result in results if result.ours] or results
    return 0 if all(result.verdict.exactly_once and not result.violations for result in judged) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Two applications, one topic, no pause.")
    usual = Plan()
    names = [contender.slug for contender in CONTENDERS]
    parser.add_argument("--only", choices=names, help="run this kind of consumer only")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder of the results (%(default)s)")
    parser.add_argument("--rows", type=int, default=usual.rows, help="how many flights are sent (%(default)s)")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="in how much time (%(default)s)")
    parser.add_argument("--slow", type=float, default=usual.slow_seconds, help="seconds of the long work (%(default)s)")
    parser.add_argument("--stay", type=float, default=usual.stay_seconds, help="seconds that B stays (%(default)s)")
    return parser.parse_args(arguments)


def _console() -> Console:
    """Where output is not a terminal it has no width of its own, and 80 columns are too few for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make the signals that mean an end raise KeyboardInterrupt, as Ctrl-C does."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_all(options: argparse.Namespace, console: Console) -> list[Result]:
    plan = Plan(rows=options.rows, seconds=options.seconds, slow_seconds=options.slow, stay_seconds=options.stay)
    chosen = [each for each in CONTENDERS if options.only in (None, each.slug)]
    console.print(
        f"{plan.rows:,} flights of 2013 from New York, {plan.partitions} partitions, a real Kafka", markup=False
    )
    with LocalKafka() as kafka, _keeper() as processes:
        stages, results = [], []
        for contender in chosen:
            topic = f"flights-{contender.slug}"
            kafka.create_topic(topic, partitions=plan.partitions)
            folder = processes.folder / contender.slug
            stage = Stage(bootstrap_servers=kafka.bootstrap_servers, topic=topic, folder=folder)
            with View(f"The flights with {contender.name}", console) as view:
                play(plan, contender, stage, processes, view)
            results.append(_result(plan, contender, stage))
            stages.append(stage)
        print_report(results, console)
        _save(results, stages, options.output)
    console.print(f"The picture and the verdict: {options.output / 'demo.html'} and demo.png beside it", markup=False)
    return results


@contextmanager
def _keeper() -> Iterator[Processes]:
    processes = Processes()
    try:
        yield processes
    finally:
        processes.end()


def _result(plan: Plan, contender: Contender, stage: Stage) -> Result:
    written = read_written(contender.written(stage.output), SCHEMA)
    events = [each.event for each in read_histories(history_files(stage.histories))]
    return Result(
        name=contender.name,
        run=History(events),
        violations=tuple(check(events)),
        ownerless=tuple(without_owner(events)),
        verdict=judge(written, source_table().slice(0, plan.rows)),
        ours=contender.ours,
    )


def _save(results: Sequence[Result], stages: Sequence[Stage], folder: Path) -> None:
    """The page, the picture, and the histories that they were made from."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(results)
    (folder / "demo.png").write_bytes(save(figure, "png"))
    (folder / "demo.html").write_text(page(results, save(figure, "svg")), encoding="utf-8")
    for stage in stages:
        shutil.copytree(stage.histories, folder / stage.folder.name, dirs_exist_ok=True)
