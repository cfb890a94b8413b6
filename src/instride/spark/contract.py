"""The contract of a sink as checks that any sink can be put to: also your own.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_sink_keeps_the_contract(check, tmp_path):
        check(SinkUnderTest(make=partial(MySink, tmp_path), rows=lambda: my_rows(tmp_path)))

Each check wants a place that nothing was written to yet, and raises AssertionError. Numbers are those of the laws in
`instride.spark.sink`. `stopped_driver` and `killed_drivers` start processes, by multiprocessing's "spawn".
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, TypeVar

import pyarrow as pa

from instride.errors import SinkError, WrongTopicError
from instride.errors._quoting import counted
from instride.records import TopicPartition
from instride.spark.sink import (
    CommitOutcome,
    CommitStatus,
    JobResult,
    OutputRange,
    RangeWriter,
    Sink,
    WrittenRange,
    new_job_id,
)

__all__ = ["CHECKS", "SCHEMA", "SinkUnderTest", "killed_drivers", "stopped_driver"]

SCHEMA: Final = pa.schema([("partition", pa.int64()), ("offset", pa.int64()), ("job", pa.string())])
"""What the checks write: a row for each offset, which says whose it is."""

_COMMITTED, _ALREADY, _CONFLICT = CommitStatus.COMMITTED, CommitStatus.ALREADY, CommitStatus.CONFLICT
_RESPONSE_SECONDS: Final = 300.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkUnderTest:
    """make: a sink on the place, as a driver that starts anew makes it; picklable. rows: what a reader finds there."""

    make: Callable[[], Sink]
    rows: Callable[[], list[tuple[int, int, str]]]

    def holds(self, *expected: tuple[OutputRange, str]) -> None:
        """A reader finds exactly the rows of these ranges, each of this job."""
        there = sorted(self.rows())
        wanted = sorted((o.partition, at, job) for o, job in expected for at in range(o.start, o.end))
        assert there == wanted, (
            f"a reader finds {there[:9]}... ({counted(len(there), 'row')}), and not {wanted[:9]}... ({len(wanted)})"
        )


def a_new_sink_holds_nothing(case: SinkUnderTest) -> None:
    sink = case.make()
    assert isinstance(sink, Sink)
    assert isinstance(sink.writer(), RangeWriter)
    assert sink.positions([_at(0), _at(1)]) == {_at(0): None, _at(1): None}
    case.holds()


def ranges_chain_and_outlive_their_driver(case: SinkUnderTest) -> None:
    """Laws 1, 2 and 6."""
    spans = [_span(40, 47), _span(47, 48), _span(48, 60)]
    for each in spans:
        outcome = _commit(case.make(), f"job{each.start}", _write(case.make(), each, f"job{each.start}"))
        assert outcome == CommitOutcome(status=_COMMITTED, position=each.end)
    assert case.make().positions([_at(0), _at(1)]) == {_at(0): 60, _at(1): None}
    case.holds(*((each, f"job{each.start}") for each in spans))


def nothing_is_visible_before_its_commit(case: SinkUnderTest) -> None:
    """Law 5. What other attempts of the same job wrote stays invisible after it, too."""
    sink = case.make()
    written = [_write(sink, _span(0, 5), "a", attempt=number) for number in range(3)]
    case.holds()
    assert _commit(sink, "a", written[1]).status is _COMMITTED
    case.holds((_span(0, 5), "a"))


def the_writer_travels(case: SinkUnderTest) -> None:
    """To executors, by pickle."""
    writer: RangeWriter = pickle.loads(pickle.dumps(case.make().writer()))  # noqa: S301 - made on this line
    written = writer.write(_span(0, 4), job="a", attempt=1, batches=_batches(_span(0, 4), "a"))
    travelled = WrittenRange.from_json(written.to_json())
    assert _commit(case.make(), "a", travelled).status is _COMMITTED
    case.holds((_span(0, 4), "a"))


def a_commit_without_a_response_may_be_repeated(case: SinkUnderTest) -> None:
    """Laws 3 and 6: by the same driver, by the next, with another attempt's output."""
    sink = case.make()
    written = _write(sink, _span(0, 5), "a")
    assert _commit(sink, "a", written).status is _COMMITTED
    for driver in (sink, case.make()):
        for output in (written, _write(sink, _span(0, 5), "a", attempt=1)):
            assert _commit(driver, "a", output) == CommitOutcome(status=_ALREADY, position=5)
    case.holds((_span(0, 5), "a"))
    assert _commit(sink, "b", _write(sink, _span(5, 7), "b")).status is _COMMITTED
    late = _commit(sink, "a", written)
    assert late.status is not _COMMITTED
    assert late.position == 7
    case.holds((_span(0, 5), "a"), (_span(5, 7), "b"))


def what_does_not_meet_is_in_conflict(case: SinkUnderTest) -> None:
    """Laws 2 and 3: late, early, longer, and the same job with another range."""
    sink = case.make()
    _commit(sink, "a", _write(sink, _span(3, 8), "a"))
    for job, start, end in [("b", 3, 8), ("b", 0, 3), ("b", 5, 8), ("b", 3, 12), ("b", 9, 10), ("a", 3, 9)]:
        outcome = _commit(case.make(), job, _write(sink, _span(start, end), job))
        assert outcome == CommitOutcome(status=_CONFLICT, position=8), f"{job} {start} {end}: {outcome}"
    case.holds((_span(3, 8), "a"))


def partitions_of_a_job_are_independent(case: SinkUnderTest) -> None:
    """Law 4."""
    sink = case.make()
    _commit(sink, "a", _write(sink, _span(0, 5), "a"))
    parts = tuple(_write(sink, _span(0, 4, partition), "b") for partition in range(4))
    outcomes = sink.commit(JobResult(job="b", written=parts))
    assert [outcomes[_at(each)].status for each in range(4)] == [_CONFLICT, _COMMITTED, _COMMITTED, _COMMITTED]
    case.holds((_span(0, 5), "a"), *((_span(0, 4, each), "b") for each in (1, 2, 3)))


def a_range_without_rows_counts(case: SinkUnderTest) -> None:
    sink = case.make()
    empty = sink.writer().write(_span(0, 9), job="a", attempt=0, batches=iter([]))
    assert empty.rows == 0
    assert _commit(sink, "a", empty).status is _COMMITTED
    assert _commit(sink, "a", empty).status is _ALREADY
    assert _commit(sink, "b", _write(sink, _span(9, 11), "b")).status is _COMMITTED
    case.holds((_span(9, 11), "b"))


def a_start_is_set_once(case: SinkUnderTest) -> None:
    """Law 2, of `begin`: by whoever is first; the first range must meet it."""
    assert case.make().begin(_at(0), 7) == 7
    assert case.make().begin(_at(0), 3) == 7
    sink = case.make()
    assert sink.positions([_at(0)]) == {_at(0): 7}
    assert _commit(sink, "a", _write(sink, _span(3, 9), "a")).status is _CONFLICT
    assert _commit(sink, "a", _write(sink, _span(7, 9), "a")).status is _COMMITTED
    assert sink.begin(_at(0), 0) == 9
    case.holds((_span(7, 9), "a"))


def a_topic_made_anew_is_told_from_the_old(case: SinkUnderTest) -> None:
    sink = case.make()
    assert sink.begin(_at(0), 0, topic_id="old") == 0
    _commit(sink, "a", _write(sink, _span(0, 5, topic_id="old"), "a"))
    _commit(sink, "b", _write(sink, _span(5, 6), "b"))  # whose id nobody knew
    wrong = _write(sink, _span(6, 9, topic_id="new"), "c")
    for call in (
        lambda: case.make().positions([_at(0)], topic_ids={"flights": "new"}),
        lambda: case.make().begin(_at(0), 0, topic_id="new"),
        lambda: _commit(case.make(), "c", wrong),
    ):
        _raises(WrongTopicError, call)
    assert case.make().positions([_at(0)], topic_ids={"flights": "old"}) == {_at(0): 6}
    case.holds((_span(0, 5), "a"), (_span(5, 6), "b"))


def a_function_that_fails_leaves_nothing(case: SinkUnderTest) -> None:
    """Law 5: its error passes through the writer, and the next attempt is as good as a first."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield from _batches(_span(0, 3), "a")
        raise ConnectionResetError("the function's own")

    sink = case.make()
    _raises(ConnectionResetError, lambda: sink.writer().write(_span(0, 5), job="a", attempt=0, batches=failing()))
    case.holds()
    assert _commit(sink, "a", _write(sink, _span(0, 5), "a", attempt=1)).status is _COMMITTED
    case.holds((_span(0, 5), "a"))


def a_driver_may_end_after_each_step(case: SinkUnderTest) -> None:
    """Laws 1, 3, 5 and 6: after its begin, amid a range, after its data, after its commit. The next one goes on."""
    whole: list[tuple[OutputRange, str]] = []
    for number, step in enumerate(("begin", "amid", "data", "commit")):
        start, output, job = 5 * number, _span(5 * number, 5 * number + 5), f"ends_{step}"
        _drive_until(step, case.make(), output, job)
        case.holds(*whole, *([(output, job)] if step == "commit" else []))
        sink = case.make()
        if sink.begin(_at(0), 0) == start:
            job = f"follows_{step}"
            assert _commit(sink, job, _write(sink, output, job)).status is _COMMITTED
        whole.append((output, job))
        assert case.make().positions([_at(0)]) == {_at(0): output.end}
    case.holds(*whole)


def drivers_race(case: SinkUnderTest) -> None:
    """Laws 1 to 4: four drivers, two partitions; and nobody waits for another to get out of the way."""
    goal, sinks = 24, [case.make() for _ in range(4)]
    wins: list[tuple[OutputRange, str]] = []

    def drive(sink: Sink, step: int) -> None:
        for partition in (0, 1):
            at = _at(partition)
            while (reached := _patiently(lambda: sink.positions([at])[at]) or 0) < goal:  # noqa: B023 - called at once
                output, job = _span(reached, min(reached + step, goal), partition), new_job_id()
                if _patiently(lambda: _commit(sink, job, _write(sink, output, job))).is_in:  # noqa: B023 - called at once
                    wins.append((output, job))

    _race([partial(drive, sink, 3 + n % 2) for n, sink in enumerate(sinks)])
    assert case.make().positions([_at(0), _at(1)]) == {_at(0): goal, _at(1): goal}
    case.holds(*wins)


def stopped_driver(case: SinkUnderTest) -> None:
    """A driver is stopped (SIGSTOP) between data and commit, for as long as another goes on; then it commits."""
    with _Driver(case, "stop") as driver:
        assert driver.hear() == "written 0"
        driver.wait_stopped()
        other = case.make()
        assert _commit(other, "other", _write(other, _span(0, 7), "other")).status is _COMMITTED
        driver.signal(signal.SIGCONT)
        assert driver.hear() == "conflict 7"
    case.holds((_span(0, 7), "other"))


def killed_drivers(case: SinkUnderTest, *, kills: int = 2, seed: int = 0) -> None:
    """Drivers that are killed (SIGKILL) as they commit, at any moment, one after the other; then one goes on."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(kills):
        with _Driver(case, "go") as driver:
            for _ in range(chance.randint(1, 3)):
                driver.hear_written()
            driver.signal(signal.SIGKILL)
    sink = case.make()
    reached = sink.positions([_at(0)])[_at(0)] or 0
    assert _commit(sink, "last", _write(sink, _span(reached, reached + 3), "last")).status is _COMMITTED
    offsets = sorted(offset for _, offset, _ in case.rows())
    assert offsets == list(range(reached + 3)), f"a reader finds {offsets}"


CHECKS: Final[tuple[Callable[[SinkUnderTest], None], ...]] = (
    a_new_sink_holds_nothing,
    ranges_chain_and_outlive_their_driver,
    nothing_is_visible_before_its_commit,
    the_writer_travels,
    a_commit_without_a_response_may_be_repeated,
    what_does_not_meet_is_in_conflict,
    partitions_of_a_job_are_independent,
    a_range_without_rows_counts,
    a_start_is_set_once,
    a_topic_made_anew_is_told_from_the_old,
    a_function_that_fails_leaves_nothing,
    a_driver_may_end_after_each_step,
    drivers_race,
    stopped_driver,
    killed_drivers,
)
"""All of them, to parametrize a test with."""


class _EndsHereError(BaseException):
    """As a process's end, no error to deal with."""


def _drive_until(step: str, sink: Sink, output: OutputRange, job: str) -> None:
    """What a driver and its executor do for a range, up to where they end."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _batches(output, job)
        if step == "amid":
            raise _EndsHereError

    sink.begin(_at(output.partition), 0)
    if step == "begin":
        return
    try:
        written = sink.writer().write(output, job=job, attempt=0, batches=batches())
    except _EndsHereError:
        return
    if step == "commit":
        assert _commit(sink, job, written).status is _COMMITTED


class _Driver:
    """A process that drives a sink, and tells of its steps."""

    def __init__(self, case: SinkUnderTest, what: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_drive, args=(case.make, what, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self) -> str:
        assert self._pipe.poll(_RESPONSE_SECONDS), "the driver says nothing"
        try:
            text: str = self._pipe.recv()
        except EOFError as error:
            raise AssertionError("the driver ended: its error is on standard error") from error
        return text

    def hear_written(self) -> None:
        while not self.hear().startswith("written"):
            pass

    def wait_stopped(self) -> None:
        os.waitid(os.P_PID, self._process.pid or 0, os.WSTOPPED)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid or 0, number)

    def __enter__(self) -> _Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()


def _drive(make: Callable[[], Sink], what: str, told: Connection) -> None:
    """Of the process. what: "go", range after range until it is killed; "stop", one, with a stop before its commit."""
    sink, stops = make(), what == "stop"
    while True:
        reached, job = sink.positions([_at(0)])[_at(0)] or 0, new_job_id()
        written = _write(sink, _span(reached, reached + 3), job)
        told.send(f"written {reached}")
        if stops:
            # To this thread: one to the process may find another, and this one goes on for some milliseconds.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        outcome = _commit(sink, job, written)
        told.send(f"{outcome.status.value} {outcome.position}")
        if stops:
            return


def _at(partition: int) -> TopicPartition:
    return TopicPartition("flights", partition)


def _span(start: int, end: int, partition: int = 0, topic_id: str = "") -> OutputRange:
    return OutputRange(topic="flights", partition=partition, start=start, end=end, topic_id=topic_id)


def _batches(output: OutputRange, job: str) -> Iterator[pa.RecordBatch]:
    for first in range(output.start, output.end, 2):
        offsets = list(range(first, min(first + 2, output.end)))
        rows = {"partition": [output.partition] * len(offsets), "offset": offsets, "job": [job] * len(offsets)}
        yield pa.RecordBatch.from_pydict(rows, schema=SCHEMA)


def _write(sink: Sink, output: OutputRange, job: str, *, attempt: int = 0) -> WrittenRange:
    return sink.writer().write(output, job=job, attempt=attempt, batches=_batches(output, job))


def _commit(sink: Sink, job: str, written: WrittenRange) -> CommitOutcome:
    return sink.commit(JobResult(job=job, written=(written,)))[written.range.topic_partition]


def _race(drivers: list[Callable[[], None]]) -> None:
    """Each on a thread of its own, to its end. Raises AssertionError where one raises, or comes to none."""
    errors: list[BaseException] = []

    def run(drive: Callable[[], None]) -> None:
        try:
            drive()
        except BaseException as error:  # noqa: BLE001 - raised below: a thread's own goes to standard error alone
            errors.append(error)

    # Daemons: one that hangs keeps no process from ending.
    racers = [threading.Thread(target=run, args=(drive,), daemon=True) for drive in drivers]
    for racer in racers:
        racer.start()
    deadline = time.monotonic() + _RESPONSE_SECONDS
    for racer in racers:
        racer.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise AssertionError(f"a driver ended by {type(errors[0]).__name__}: {errors[0]}") from errors[0]
    assert not any(racer.is_alive() for racer in racers), "a driver came to no end"


def _patiently(call: Callable[[], T]) -> T:
    """As the pipeline does: what may pass is tried again."""
    for _ in range(20):
        try:
            return call()
        except SinkError as error:
            if not error.retriable:
                raise
    return call()


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} was raised")
