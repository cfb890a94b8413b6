"""The demo as a whole with a real Kafka: to its verdict, and interrupted, after which nothing is left."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.__main__ import _options
from demo.flights import FLIGHTS, DemoError, flights, partition_of, slow_flight
from demo.history import History, Note, history_files
from instride.testing.check import Event, check, read_histories, without_owner

QUICK = ("--rows", "24000", "--seconds", "8", "--slow", "12", "--stay", "2", "--only", "confluent")
"""Heartbeats have their default of 3 s: the slow flight is still at work when B's joining is heard of."""
CLONE = Path(__file__).resolve().parents[2]
OURS = ("--only", "instride")


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The demo in a process of its own, whose temporary files and whose results are in the folder."""
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "demo", "--output", str(folder / "out"), *QUICK, *options]
    with subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(CLONE), "TMPDIR": str(folder / "tmp"), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until_line_with(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    pytest.fail(f"{text!r} never came:\n{''.join(seen)}")


def nothing_is_left(folder: Path) -> bool:
    """No file in its temporary place, and no process that was told of a file there."""
    arguments = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return not list((folder / "tmp").iterdir()) and f"{folder}/tmp" not in arguments


def soon_nothing_is_left(folder: Path, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not (result := nothing_is_left(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return result


def without_a_committed_range(events: list[Event]) -> list[Event]:
    """The history without the end of a range that a later commit covers: a commit of work that was never finished.

    Not just any range: where a partition was to be revoked before its member committed a range, nothing covers it.
    """
    for at, each in enumerate(events):
        if each.what == "range done" and any(_commits(later, each) for later in events[at:]):
            return [*events[:at], *events[at + 1 :]]
    pytest.fail("no commit covers a finished range")


def _commits(event: Event, done: Event) -> bool:
    if event.what not in ("sends commit", "commit response") or event.who != done.who:
        return False
    partition, first, _, _ = done.detail
    return any(tp == partition and offset > first for tp, offset, _ in event.detail[1])


@pytest.mark.drawn(1, "demo")
@pytest.mark.kafka
@pytest.mark.slow
def test_the_scenario_with_confluents_consumer_has_every_flight_once_and_the_wait(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        text, _ = process.communicate(timeout=150)
        assert process.returncode == 0, text
    assert "every flight exactly once" in text
    assert (tmp_path / "out" / "demo.png").stat().st_size > 10_000
    assert "Hand-overs with confluent-kafka" in (tmp_path / "out" / "demo.html").read_text()
    recorded = history_files(tmp_path / "out" / "confluent")
    assert [each.name for each in recorded] == [f"{name}.history.jsonl" for name in ("A", "B", "scenario")]
    events = [each.event for each in read_histories(recorded)]
    run = History(events)
    assert sum(each.rows for each in run.done) == 24_000
    taken = [each for each in run.handovers if each.after == "B"]
    assert 3 in {each.partition for each in taken}
    assert {str(cause) for each in taken if (cause := run.cause(each)) is not None and cause.partition == 3}
    assert {"poll", "range done", "commit response", "revoked", "closed"} <= {
        each.what for each in events if each.who == "A"
    }
    assert check(events) == []
    assert {each.number for each in check(without_a_committed_range(events))} >= {"S4"}
    assert nothing_is_left(tmp_path)


@pytest.mark.drawn(1, "demo")
@pytest.mark.kafka
@pytest.mark.slow
def test_who_releases_at_once_writes_flights_twice_and_none_too_few(tmp_path: Path) -> None:
    with demo(tmp_path, "--only", "releasing_at_once") as process:
        text, _ = process.communicate(timeout=150)
        assert process.returncode == 1, text  # it alone is judged
    assert re.search(r"missing +│ none", text), text
    assert re.search(r"duplicated +│ [\d,]+ \(rows", text), text
    events = [each.event for each in read_histories(history_files(tmp_path / "out" / "releasing_at_once"))]
    assert {each.number for each in check(events)} == {"S1"}
    assert not [each for each in History(events).handovers if each.delay >= 1.0]


@pytest.mark.drawn(1, "demo")
@pytest.mark.kafka
@pytest.mark.slow
def test_the_same_handler_in_a_processor_has_every_flight_once(tmp_path: Path) -> None:
    with demo(tmp_path, "--only", "processor") as process:
        text, _ = process.communicate(timeout=150)
        assert process.returncode == 0, text  # every flight exactly once, and no violation in its history
    events = [each.event for each in read_histories(history_files(tmp_path / "out" / "processor"))]
    run = History(events)
    assert sum(each.rows for each in run.done) == 24_000
    assert max((each.delay, each.partition) for each in run.handovers)[1] == 6, "in progress: the slow flight"
    assert check(events) == []


@pytest.mark.drawn(1, "demo")
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_scenario_with_ours_has_every_flight_once_and_shows_its_gaps(tmp_path: Path) -> None:
    with demo(tmp_path, *OURS) as process:
        text, _ = process.communicate(timeout=500)
        assert process.returncode == 0, text  # every flight exactly once, and no violation in its history
    assert "Hand-overs with instride on Spark" in (tmp_path / "out" / "demo.html").read_text()
    for figure in ("longest gap of a partition that was not moving", "longest time without an owner"):
        assert re.search(rf"{figure} +│ \d+\.\d+ s", text), text
    events = [each.event for each in read_histories(history_files(tmp_path / "out" / "instride"))]
    run = History(events)
    assert sum(each.rows for each in run.done) == 24_000
    assert [each for each in run.handovers if each.after == "B"]
    assert check(events) == []
    assert {each.taken_by for each in without_owner(events)} >= {"B"}
    assert nothing_is_left(tmp_path)


@pytest.mark.drawn(1, "demo")
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whoever_is_killed_amid_its_job_leaves_every_flight_to_be_written_once(tmp_path: Path) -> None:
    with demo(tmp_path, "--only", "killed") as process:
        text, _ = process.communicate(timeout=500)
        assert process.returncode == 0, text  # every flight exactly once, and no violation in its history
    events = [each.event for each in read_histories(history_files(tmp_path / "out" / "killed"))]
    (crash,) = (each for each in events if each.what == "crashed")
    begun = [(each.who, each.detail[0]) for each in events if each.what == Note.WORK_BEGAN]
    done = [(each.who, each.detail[0].partition) for each in events if each.what == "range done"]
    # The job that it died in was begun by both, and ended by one.
    assert {who for who, partition in begun if partition == 6} == {"A", "B"}
    assert begun.count((crash.who, 6)) == done.count((crash.who, 6)) + 1
    run = History(events)
    assert {each.after for each in run.handovers if each.before == crash.who} == {"A", "B"} - {crash.who}
    assert check(events) == []
    assert soon_nothing_is_left(tmp_path)


@pytest.mark.drawn(1, "demo's end")
@pytest.mark.kafka
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_with_130_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--slow", "60") as process:
        until_line_with(process, "delayed: ")
        assert not nothing_is_left(tmp_path)
        process.send_signal(number)
        text, _ = process.communicate(timeout=30)
    assert process.returncode == 130, text
    assert "No process and no file is left." in text
    assert soon_nothing_is_left(tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.drawn(1, "demo's end")
@pytest.mark.kafka
def test_killed_it_leaves_nothing_either(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        until_line_with(process, "A: assigned")
        process.kill()
        process.wait(timeout=10)
        assert soon_nothing_is_left(tmp_path)


def test_the_slow_flight_is_the_first_of_its_partition_after_the_share_of_the_plan() -> None:
    row, offset = slow_flight(1000, 3, after=0.5)
    assert row >= 500
    before = [flight for flight in flights(row) if partition_of(flight.key) == 3]
    assert offset == len(before)
    with pytest.raises(DemoError, match="no flight from row 10"):
        slow_flight(10, 3, after=1.0)


def test_who_asks_for_more_flights_than_there_are_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flight that takes long was sought among more: it was another one, or the demo failed as there was none."""
    monkeypatch.setattr(sys, "argv", ["demo", "--rows", str(10 * FLIGHTS)])
    assert _options().rows == FLIGHTS
