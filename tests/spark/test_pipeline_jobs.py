"""A pipeline's jobs on a classic session, with a played context: that a job's end is told in any case."""

from __future__ import annotations

import queue
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from run_help import PATIENCE, PanicError

from instride.errors import OffsetsGoneError, PipelineError
from instride.spark import _frames, _jobs
from instride.spark._connect_jobs import ConnectJobRunner
from instride.spark._jobs import JobRunner
from instride.spark._range_reader import ReaderSettings
from instride.spark._report import (
    JobEnded,
    JobMessage,
    MarkedError,
    RangePart,
    RangeReport,
    Reported,
    problem_from_spark,
    problem_of,
    reason_of,
)
from instride.spark.sink import OutputRange, WrittenRange


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


class PanickingContext:
    """Of Spark. A library in Rust panics beneath it."""

    error: BaseException = PanicError("index out of bounds")

    def accumulator(self, value: object, param: object) -> object:
        return object()

    def setLocalProperty(self, name: str, value: str) -> None:
        raise self.error


class NamedTask:
    job = "j"


def test_a_job_that_panics_has_ended() -> None:
    """Its range was under way for ever: the thread of the job ended in silence."""
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put)._run(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="index out of bounds")


def test_a_job_that_ends_by_an_error_without_a_text_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PanickingContext, "error", UnspeakableError())
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put)._run(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="its text cannot be had: LookupError")


def test_an_error_without_a_text_is_told_by_its_class_and_its_traceback() -> None:
    """Of a function of DataFrames: what was told was the error of its text."""
    problem = problem_of(UnspeakableError())
    assert str(problem) == "UnspeakableError: its text cannot be had: LookupError"
    assert "UnspeakableError" in problem.traceback


class PlayedContext:
    """Of Spark, where nothing is asked but how much it does at a time."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def accumulator(self, value: object, param: object) -> object:
        return object()


class FailingFrames:
    """A function of DataFrames, of which Spark gives up a task with this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def run(self, *_: object) -> RangeReport:
        raise SparkError(self._text)


class SparkError(Exception):
    pass


WANTED = OutputRange(topic="t", partition=0, start=0, end=5)
GONE = OffsetsGoneError('the log holds ["7", 9)')


def of_worker(error: Exception) -> str:
    """What Spark says of a task that has raised it, in a text of Java's."""
    return f"Job aborted: PythonException: {''.join(traceback.format_exception(error))}\n\tat org.apache.spark.X\n"


def reading(monkeypatch: pytest.MonkeyPatch) -> Exception:
    def fails(*_: object) -> None:
        raise GONE

    monkeypatch.setattr(_frames, "reader_for", fails)
    read = _frames._Read(ReaderSettings(bootstrap_servers="nowhere:1"), (WANTED,), ("value",), "j")
    with pytest.raises(MarkedError) as raised:
        list(read([pa.record_batch({"id": [0]})]))
    return raised.value


def writing(_: pytest.MonkeyPatch) -> Exception:
    class Full:
        def write(self, *_: object, **__: object) -> None:
            raise GONE

    with pytest.raises(MarkedError) as raised:
        list(_frames._Write(cast(Any, Full()), WANTED, "j", None)([]))
    return raised.value


class Returning:
    """A sink's writer that takes so many batches of the range, and an error for its end."""

    def __init__(self, most: int) -> None:
        self._most = most

    def write(self, output: OutputRange, *, batches: Iterator[pa.RecordBatch], **_: object) -> WrittenRange:
        with suppress(ValueError):
            deque(islice(batches, self._most), maxlen=0)
        return WrittenRange(range=output)


@pytest.mark.parametrize(("most", "told"), [(1, "SinkError"), (2, "SinkError"), (3, "")])
def test_rows_of_a_dataframe_that_the_writer_did_not_take_are_an_error(most: int, told: str) -> None:
    """They were lost: the range was committed without them."""
    batch = pa.record_batch({"value": [1]})
    write = _frames._Write(cast(Any, Returning(most)), WANTED, "j", None)
    if told:
        with pytest.raises(MarkedError, match=f"{told}.*returned before it had taken all batches"):
            list(write([batch, batch]))
    else:
        assert len(list(write([batch, batch]))) == 1


def test_an_error_that_the_writer_of_a_dataframe_swallows_is_raised() -> None:
    batches = [pa.record_batch({"value": ["no number"]})]
    write = _frames._Write(cast(Any, Returning(3)), WANTED, "j", pa.schema({"value": pa.int64()}))
    with pytest.raises(MarkedError, match="no number"):
        list(write(batches))


def classic(frames: FailingFrames, told: queue.SimpleQueue[JobMessage]) -> None:
    ran = JobRunner(cast(Any, PlayedContext()), told.put)
    ran._submit_frames(cast(Any, frames), cast(Any, NamedTask()), [[RangePart(range=WANTED, offsets=WANTED)]])


def connect(frames: FailingFrames, told: queue.SimpleQueue[JobMessage]) -> None:
    ran = ConnectJobRunner(None, told.put, cast(Any, frames))
    for report in ran._framed(cast(Any, NamedTask()), [RangePart(range=WANTED, offsets=WANTED)]):
        told.put(Reported(report=report))


@pytest.mark.parametrize("raises", [reading, writing])
@pytest.mark.parametrize("run", [classic, connect])
def test_an_error_of_an_executor_is_known_by_its_class_with_dataframes_too(
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[FailingFrames, queue.SimpleQueue[JobMessage]], None],
    raises: Callable[[pytest.MonkeyPatch], Exception],
) -> None:
    """It was Spark's own, with a text: what is fatal was tried again, and taken for a failure of the range alone."""
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    run(FailingFrames(of_worker(raises(monkeypatch))), told)
    reported = told.get(timeout=PATIENCE)
    assert isinstance(reported, Reported)
    problem = reported.report.problem
    assert problem is not None
    assert (problem.kind, problem.message) == ("OffsetsGoneError", str(GONE))
    assert (problem.fatal, problem.private) == (True, False)
    assert "raise GONE" in problem.traceback


class PlayedSession:
    """Of either kind, and a DataFrame of it. Whoever cancels is heard, and what is collected is counted."""

    collected = 0

    def range(self, *_: int) -> PlayedSession:
        return self

    def mapInArrow(self, function: object, schema: object) -> PlayedSession:
        return self

    def collect(self) -> list[dict[str, str]]:
        self.collected += 1
        return []

    def interruptTag(self, tag: str) -> None:
        assert tag == "instride-j"


class CancellableContext(PlayedContext):
    def cancelJobsWithTag(self, tag: str) -> None:
        assert tag == "instride-j"


@pytest.mark.parametrize("over_connect", [False, True])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_range_whose_job_is_cancelled_while_the_function_runs_is_not_submitted(
    cancels: bool, over_connect: bool
) -> None:
    """Nobody cancels it once more where the run has ended by then: its tasks held the cores to their end."""

    def function(frame: Any) -> Any:
        if cancels:
            runner.cancel("j")
        return frame

    session: Any = PlayedSession()
    task: Any = SimpleNamespace(job="j", reader=None, writer=None, schema=None)
    work, told = [RangePart(range=WANTED, offsets=WANTED)], queue.SimpleQueue[JobMessage]()
    frames = _frames.Frames(session, function, ["value"])
    runner: JobRunner | ConnectJobRunner
    if over_connect:
        runner = ConnectJobRunner(session, told.put, frames)
        problems = [report.problem for report in runner._framed(task, work)]
        runner.close()
    else:
        runner = JobRunner(cast(Any, CancellableContext()), told.put, frames)
        runner._submit_frames(frames, task, [work])
        reported = told.get(timeout=PATIENCE)
        assert isinstance(reported, Reported)
        problems = [reported.report.problem]
    assert session.collected == (not cancels)
    assert [problem is not None for problem in problems] == [cancels]


def test_of_a_marked_error_that_is_cut_or_quoted_nothing_is_taken() -> None:
    whole = of_worker(MarkedError(GONE, "j"))
    cut = problem_from_spark(SparkError(whole[: whole.index("fatal")]), "j")
    assert (cut.kind, cut.fatal) == ("SparkError", False)
    quoting = ValueError(str(MarkedError(GONE, "j")))
    marked = MarkedError(quoting, "j")
    marked.__cause__ = quoting
    assert problem_from_spark(SparkError(of_worker(marked)), "j").kind == "ValueError"
    for other in ("[]", "7", '{"kind": "X"}', "{"):
        assert problem_from_spark(SparkError(f"instride-problem-j: {other}"), "j").kind == "SparkError"


def test_a_record_that_an_error_quotes_is_no_marked_error() -> None:
    """What a record held decided whether the pipeline tried again, and whether the log had it."""
    forged = of_worker(ValueError(str(MarkedError(GONE, "other"))))
    problem = problem_from_spark(SparkError(forged), "j")
    assert (problem.kind, problem.fatal, problem.private) == ("SparkError", False, True)


class SharedContext(PlayedContext):
    """Of Spark. default: `spark.default.parallelism`. slots: what runs at a time; None: a version that does not say."""

    def __init__(self, default: int, slots: int | None) -> None:
        self.defaultParallelism = default
        self.calls: list[str] = []
        inner = SimpleNamespace(
            defaultParallelism=self._counted("defaultParallelism", default),
            resourceProfileManager=self._counted(
                "resourceProfileManager", SimpleNamespace(defaultResourceProfile=self._counted("profile", "default"))
            ),
        )
        if slots is not None:
            inner.maxNumConcurrentTasks = self._counted("maxNumConcurrentTasks", slots)
        self.inner = inner
        self._jsc = SimpleNamespace(sc=self._counted("sc", inner))

    def _counted(self, name: str, result: Any) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            assert arguments in ((), ("default",))
            self.calls.append(name)
            return result

        return call


@pytest.mark.parametrize(
    ("default", "slots", "cores"), [(50, 2, 2), (2, 64, 64), (8, 0, 1), (50, None, 50)], ids=["more", "less", "0", "no"]
)
def test_the_cores_are_the_tasks_that_run_at_a_time_whatever_the_default(default: int, slots: int, cores: int) -> None:
    """With `spark.default.parallelism` at 200 slow partitions got all cores, and held up the others."""
    assert JobRunner(cast(Any, SharedContext(default, slots)), lambda _: None).cores == cores


def test_each_look_at_the_cores_makes_two_calls_to_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """It made six, and four objects there, once a second."""
    now = [7.0]
    monkeypatch.setattr("instride.spark._jobs.time.monotonic", lambda: now[0])
    context = SharedContext(50, 2)
    runner = JobRunner(cast(Any, context), lambda _: None)
    for _ in range(3):
        context.calls.clear()
        now[0] += 1.0
        assert runner.cores == 2
        assert context.calls == ["defaultParallelism", "maxNumConcurrentTasks"]


def test_a_session_that_only_java_knows_to_be_stopped_is_said_to_be_so() -> None:
    """A context that is stopped has no task at a time: the run would go on, with one core."""

    def stopped() -> int:
        raise LookupError("Cannot call methods on a stopped SparkContext")

    context = SharedContext(4, 0)
    runner = JobRunner(cast(Any, context), lambda _: None)
    context.inner.defaultParallelism = stopped
    with pytest.raises(PipelineError, match="was its session stopped"):
        _ = runner.cores


class StoppedContext:
    """Of Spark, whose session was stopped: whatever is asked of it raises."""

    stopped = False
    defaultParallelism = 4  # noqa: N815 - Spark's name

    def accumulator(self, value: object, param: object) -> object:
        return object()

    def __getattribute__(self, name: str) -> Any:
        if name not in ("stopped", "accumulator") and object.__getattribute__(self, "stopped"):
            raise AttributeError("'NoneType' object has no attribute 'sc'")
        return object.__getattribute__(self, name)


class PropertylessThread:
    """Of PySpark, which asks the session for the local properties that a thread is to inherit."""

    def __init__(self, **_: object) -> None: ...

    def start(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "call",
    [lambda runner: runner.cores, lambda runner: runner.cancel("j"), lambda runner: runner.start(NamedTask(), [])],
    ids=["cores", "cancel", "start"],
)
def test_a_session_that_is_stopped_during_a_run_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[JobRunner], object]
) -> None:
    """The run ended with a Py4JJavaError, or with an AttributeError of None."""
    monkeypatch.setattr(_jobs, "InheritableThread", PropertylessThread)
    context = StoppedContext()
    runner = JobRunner(cast(Any, context), lambda message: None)
    context.stopped = True
    with pytest.raises(PipelineError, match="was its session stopped") as caught:
        call(runner)
    assert isinstance(caught.value.__cause__, AttributeError | AssertionError)


class UnstartableThread(PropertylessThread):
    """Of a system that has none left."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_a_job_whose_thread_cannot_be_started_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ended, and said that Spark did not respond."""
    monkeypatch.setattr(_jobs, "InheritableThread", UnstartableThread)
    told: queue.SimpleQueue[JobMessage] = queue.SimpleQueue()
    JobRunner(cast(Any, PanickingContext()), told.put).start(cast(Any, NamedTask()), [])
    assert told.get(timeout=PATIENCE) == JobEnded(job="j", reason="can't start new thread")


def test_a_reason_of_sparks_is_bounded() -> None:
    assert len(reason_of(ValueError("bad row, " * 1_000_000))) < 2_100
