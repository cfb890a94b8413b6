"""Handlers in processes: what comes back, and what becomes of records whose process dies, hangs or forks."""

from __future__ import annotations

import errno
import marshal
import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from enum import IntEnum, StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import process_handlers as handlers
import pytest
from engine_help import desk_of
from processing_help import P0, refuse_threads

from instride import ConsumerRecord, OffsetAndMetadata, OutputRecord, Processor, Retry
from instride._processing import process_child, process_workers
from instride._processing.engine import Engine, EnginePlan, Job, Verdict
from instride._processing.process_child import _FAILED, _UNREADABLE, DONE, Spec, _result, error_of, outputs_from, packed
from instride._processing.process_workers import ProcessWorkers, pickled
from instride._processing.retries import Failures
from instride._record_deserializer import RecordDeserializer
from instride.errors import ConfigError, DeserializationError, HandlerDiedError

PATIENCE = 120.0


def test_an_error_that_only_its_process_can_read_is_an_error_all_the_same() -> None:
    error = error_of(_FAILED, b"cno_such_module\nError\n.", [])
    assert isinstance(error, RuntimeError)
    assert "cannot be read here: ModuleNotFoundError: No module named 'no_such_module'" in str(error)


def result_of(handler: Any, reader: RecordDeserializer | None = None) -> tuple[int, Any]:
    """Of one record, as its process sends it."""
    spec = Spec(handler=handler, reader=reader or RecordDeserializer(None, None), around=None, output="o")
    plain = (("t", 0, 0), (0, 0, None, b"v", ()), (-1, 1, 0))
    kind, content = marshal.loads(copy_context().run(_result, spec, 1, False, [plain]))
    return kind, content


class Topic(StrEnum):
    AUDIT = "audit"


class Place(IntEnum):
    SECOND = 2


class Header(NamedTuple):
    name: str
    value: bytes | None


@pytest.mark.parametrize(
    "output",
    [
        OutputRecord(value=None, topic=Topic.AUDIT),
        OutputRecord(value=b"v", key=b"k", headers=((Topic.AUDIT, b"1"), Header("h", None)), partition=Place.SECOND),
    ],
)
def test_an_output_may_hold_members_of_enums_as_in_a_thread(output: OutputRecord) -> None:
    kind, content = result_of(lambda _: output)
    (found,) = outputs_from(content)
    assert (kind, found) == (DONE, replace(output, topic=output.topic or "o"))


class UnspeakableError(Exception):
    def __repr__(self) -> str:
        raise ValueError("it cannot be shown")


def unspeakable(_: bytes) -> None:
    raise UnspeakableError


def test_a_deserializers_error_that_cannot_be_shown_is_told_by_its_class() -> None:
    kind, (told, part, place, cause) = result_of(print, RecordDeserializer(None, unspeakable))
    assert (kind, part, place, cause) == (_UNREADABLE, "value", 0, "UnspeakableError")
    assert "t-0 at offset 0 cannot be deserialized: UnspeakableError" in told


class Bench:
    """`ProcessWorkers` with an engine and no consumer: one record of P0 for each value. errors: of each offset."""

    def __init__(
        self,
        *values: str,
        handler: Any = handlers.handle,
        around: Any = handlers.around,
        timeout: float | None = None,
        processes: int = 1,
        **plan: Any,
    ) -> None:
        failures = Failures(retry=Retry(attempts=2, on=OSError, backoff=0.0), after="skip")
        self.engine = Engine(EnginePlan(order="none", failures=failures, **plan), lambda _: 1)
        self.lock = threading.RLock()
        self.errors: dict[int, list[BaseException]] = {}
        self.outputs: list[str] = []
        desk = desk_of(self.engine, self.lock, output="o")
        reader = RecordDeserializer(None, bytes.decode)
        spec = pickled(Spec(handler=handler, reader=reader, around=around, output="o"))
        self.workers = ProcessWorkers(desk, spec, self._produce, processes, 8, timeout)
        self._ended = threading.Condition(self.lock)
        self._end = self.engine.end
        self.engine.end = self._ends  # type: ignore[method-assign]
        topic, number = P0
        found = [
            ConsumerRecord(topic, number, at, epoch=1, value=each.encode("latin-1"), headers=(("h", None),))
            for at, each in enumerate(values)
        ]
        with self.lock:
            self.engine.submit(found)
            self.engine.locate(P0, OffsetAndMetadata(offset=0))
        self.workers.wake()

    def add(self, offset: int, value: str) -> None:
        with self.lock:
            self.engine.submit([ConsumerRecord(*P0, offset, epoch=1, value=value.encode("latin-1"))])
        self.workers.wake()

    def process(self) -> multiprocessing.process.BaseProcess:
        (found,) = [each for each in self.workers._keepers.values() if each is not None]
        return found._process

    def _ends(self, job: Job, error: BaseException | None, now: float, chance: float) -> Verdict | None:
        if error is not None:
            self.errors.setdefault(job.offset, []).append(error)
        verdict = self._end(job, error, now, chance)
        self._ended.notify_all()
        return verdict

    def _produce(self, output: OutputRecord) -> None:
        assert output.value is not None
        self.outputs.append(output.value.decode())

    def until(self, done: Callable[[], object]) -> None:
        with self._ended:
            assert self._ended.wait_for(done, PATIENCE), (self.engine.tally, self.errors)

    def until_over(self, records: int) -> None:
        tally = self.engine.tally
        self.until(lambda: tally.finished + tally.skipped == records)

    def until_failed(self) -> None:
        until = time.monotonic() + PATIENCE
        while self.engine.failure is None:
            assert time.monotonic() < until, (self.engine.tally, self.errors)
            threading.Event().wait(0.01)

    def close(self) -> None:
        self.workers.close(PATIENCE)
        assert not any(keeper.is_alive() for keeper in self.workers._keepers)


def test_a_process_settles_each_record_as_a_thread_does() -> None:
    bench = Bench("ok", "raise it", "ok", "\xff", "odd", "skip it", "retry", "ok", handler=wrapped())
    bench.until_over(8)
    bench.close()
    assert sorted(bench.outputs) == ["0 1 open+", "2 1 open+", "6 2 open+", "7 1 open+"]
    (error,) = bench.errors[1]
    assert (type(error), str(error)) == (ValueError, "it")
    assert "process_handlers.py" in error.__notes__[0]
    (error,) = bench.errors[3]
    assert isinstance(error, DeserializationError)
    assert (error.part, error.record.offset, error.record.value) == ("value", 3, b"\xff")
    (error,) = bench.errors[4]
    assert "odd 5" in str(error), "in words, where it cannot be pickled"
    assert bench.engine.tally.skipped == 4


def wrapped() -> Any:
    return Processor(handlers.handle, topics=["t"], middleware=[handlers.middleware])._definition.bound("g").handler


def test_what_a_handler_sets_the_next_one_in_its_process_does_not_see() -> None:
    bench = Bench("set", "ok")
    bench.until_over(2)
    bench.close()
    assert bench.outputs == ["0 1 a customer's", "1 1 open"]


def test_batches() -> None:
    bench = Bench("ok", "ok", "\xff", "ok", handler=handlers.handle_all, max_batch=4)
    bench.until_over(4)
    bench.close()
    assert sorted(bench.outputs) == ["0 1 open", "1 1 open", "3 1 open"]


def test_records_travel_many_in_a_message_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """While calls are short (here the clock stands still), messages grow to as many as there may be at once: 8."""
    messages: list[int] = []

    def counted(jobs: list[Job]) -> bytes:
        found = packed(jobs)
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(found)
        messages.append(len(jobs))
        return found

    monkeypatch.setattr(process_workers, "packed", counted)
    monkeypatch.setattr(process_workers, "time", SimpleNamespace(monotonic=lambda: 0.0))
    bench = Bench(*["ok"] * 40)
    bench.until_over(40)
    bench.close()
    assert messages == [1, 2, 4, 8, 8, 8, 8, 1]


@pytest.mark.slow
def test_a_record_that_kills_its_process_is_tried_three_times_and_harms_no_other() -> None:
    bench = Bench("ok", "kill", "ok", "kill-once", "fork", "ok", processes=2)
    bench.until_over(6)
    bench.close()
    assert {at: len(found) for at, found in bench.errors.items()} == {1: 3, 3: 1, 4: 3}
    assert {type(error) for found in bench.errors.values() for error in found} == {HandlerDiedError}
    assert sorted(bench.outputs) == ["0 1 open", "2 1 open", "3 2 open", "5 1 open"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "told"), [("cut-off", "its process ended with 9"), ("garbled", "what it sent is no response")]
)
def test_a_process_that_dies_in_the_middle_of_a_response_has_died(what: str, told: str) -> None:
    """Or sends what is none: nobody knows what would come after it."""
    bench = Bench("ok", what, "ok")
    bench.until_over(3)
    bench.close()
    assert {at: [type(error) for error in found] for at, found in bench.errors.items()} == {1: [HandlerDiedError] * 3}
    assert told in str(bench.errors[1][0])
    assert sorted(bench.outputs) == ["0 1 open", "2 1 open"]


def test_a_handler_that_leaves_ends_the_run_as_in_a_thread() -> None:
    bench = Bench("leave")
    bench.until(lambda: bench.engine.failure is not None)
    bench.close()
    assert isinstance(bench.engine.failure, SystemExit)


def test_what_a_handler_forks_and_returns_responds_once() -> None:
    bench = Bench("fork-and-return", "ok", "fork-and-return", "ok", handler=wrapped())
    bench.until_over(4)
    bench.close()
    assert sorted(bench.outputs) == [f"{number} 1 open+" for number in range(4)]


def test_what_a_handler_starts_can_be_terminated_and_itself_cannot() -> None:
    """`exec` keeps a signal that is ignored so, in whatever is started. One that is handled it sets back."""
    bench = Bench("terminate", "signalled", "ok")
    bench.until_over(3)
    bench.close()
    assert (bench.errors, len(bench.outputs)) == ({}, 3)


def test_a_time_out_kills_its_process_and_the_others_go_on(tmp_path: Path) -> None:
    bench = Bench(f"hang {tmp_path / 'a'}", timeout=1.0)
    bench.until_over(1)
    assert {type(error) for error in bench.errors[0]} == {TimeoutError}
    assert len(bench.errors[0]) == 2, "TimeoutError is an OSError: tried again as the policy says"
    bench.close()


def test_a_close_kills_what_hangs(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    bench = Bench(f"hang {begun}")
    while not begun.exists():
        threading.Event().wait(0.01)
    with bench.lock:
        assert [task.offset for task in bench.engine.give_up()] == [0]
    bench.close()


def _handles_for_ever(value: str, *, forks: bool, test: Connection) -> None:
    bench = Bench("ok")
    bench.until_over(1)
    if forks and os.fork() == 0:
        test.poll(PATIENCE)
        os._exit(0)
    bench.add(1, value)
    bench.until_over(2)


@pytest.mark.parametrize("forks", [False, True])
def test_a_handlers_process_ends_with_the_one_that_was_killed(tmp_path: Path, forks: bool) -> None:
    """Else it works on beside its successor, for as long as its handler does. A fork of its parent's may live on."""
    os.mkfifo(tmp_path / "held")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    value, options = f"hold {tmp_path / 'held'}", {"forks": forks, "test": theirs}
    parent = context.Process(target=_handles_for_ever, args=(value,), kwargs=options)
    parent.start()
    theirs.close()
    try:
        with (tmp_path / "held").open("rb", buffering=0) as held:
            assert held.read(4) == b"held"
            parent.kill()
            assert select.select([held], [], [], PATIENCE / 2)[0] == [held]
            assert held.read(1) == b"", "its end is closed: it has ended"
    finally:
        parent.kill()
        parent.join()
        ours.close()


@pytest.mark.parametrize(
    ("parents", "looks"),
    [
        ([7, 7, 7], 3),  # its parent
        ([7, 7, 1], 2),  # which was killed
        ([8, 8, 8], 3),  # a wrapper around Python
        ([8, 8, 1], 2),
        ([1, 1, 1], 0),  # the parent was killed at once
    ],
)
def test_a_process_ends_when_what_began_it_is_gone(
    monkeypatch: pytest.MonkeyPatch, parents: list[int], looks: int
) -> None:
    found, seen = SimpleNamespace(pid=7, sentinel=object()), list[float]()

    def wait(_: object, seconds: float) -> bool:
        seen.append(seconds)
        return len(seen) == len(parents)  # its end is told at last

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(multiprocessing, "parent_process", lambda: found)
    monkeypatch.setattr(process_child, "wait", wait)
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(os, "getppid", lambda: parents[len(seen)])
    with pytest.raises(SystemExit):
        process_child._end_with_parent(os.getppid())
    assert len(seen) == looks


@contextmanager
def forked(does: Callable[[], object]) -> Iterator[int]:
    child = os.fork()
    if child == 0:
        try:
            does()
        finally:
            os._exit(0)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@forks
@pytest.mark.parametrize("end", [lambda _: process_workers._kill_all(), lambda bench: bench.workers.close()])
def test_a_fork_of_the_program_that_ends_kills_no_handler(end: Callable[[Bench], object]) -> None:
    bench = Bench("ok")
    bench.until_over(1)
    with bench.lock:  # a fork that ends amid a call has its keeper among the busy ones
        bench.workers._busy.update(bench.workers._keepers)
        with forked(lambda: end(bench)) as child:
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    bench.add(1, "ok")
    bench.until_over(2)
    bench.close()
    assert bench.errors == {}


@forks
def test_a_fork_of_the_program_that_lives_on_keeps_no_process_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the pipe, too. What is not heard to be closed would be killed, amid whatever its lifespan does."""
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    bench = Bench("ok", around=handlers.leaves_a_mark)
    bench.until_over(1)
    with forked(threading.Event().wait):
        bench.close()
    assert (tmp_path / "mark").exists()


def test_what_is_killed_from_outside_is_replaced() -> None:
    bench = Bench("ok")
    bench.until_over(1)
    pid = bench.process().pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)  # it ignores that
    os.kill(pid, signal.SIGKILL)
    bench.process().join(PATIENCE)
    bench.add(1, "ok")
    bench.until_over(2)
    bench.close()


@pytest.mark.parametrize("how", ["fork-on", "start-on"])
def test_what_a_handler_left_behind_keeps_no_dead_process_from_its_successor(how: str) -> None:
    """If it held the pipe, a large record could be written neither to its end nor in vain."""
    bench = Bench(how)
    bench.until_over(1)
    try:
        bench.process().kill()
        os.waitid(os.P_PID, bench.process().pid or 0, os.WEXITED | os.WNOWAIT)
        bench.add(1, "ok " + "x" * 1_000_000)
        bench.until_over(2)
    finally:
        os.kill(int(bench.outputs[0]), signal.SIGKILL)
        bench.close()
    assert [type(each) for each in bench.errors[1]] == [HandlerDiedError]
    assert bench.outputs[1:] == ["1 2 open"]


@pytest.mark.parametrize("how", ["fork-on", "start-on"])
def test_what_a_handler_left_behind_holds_up_no_close(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the pipe by which multiprocessing tells that a process has ended. No wait may rely on that alone."""
    bench, waits = Bench(how), list[float | None]()
    bench.until_over(1)
    process = bench.process()

    def join(seconds: float | None = None) -> None:
        waits.append(seconds)
        os.waitid(os.P_PID, process.pid or 0, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(process, "join", join)
    try:
        bench.close()
    finally:
        os.kill(int(bench.outputs[0]), signal.SIGKILL)
    assert set(waits) <= {process_workers._GLANCE}
    assert not process.is_alive()


@contextmanager
def ends_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def counted_processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each that is made."""
    made, real = list[int](), process_workers._Process

    def make(spec: bytes, number: int) -> process_workers._Process:
        made.append(number)
        return real(spec, number)

    monkeypatch.setattr(process_workers, "_Process", make)
    return made


def test_where_the_program_ignores_its_childrens_ends_a_death_is_known_all_the_same() -> None:
    """The system reaps them then, and multiprocessing believes for ever that they are alive."""
    with ends_ignored():
        bench = Bench("kill", "ok")
        bench.until_over(2)
        bench.close()
    assert [type(error) for error in bench.errors[0]] == [HandlerDiedError] * 3
    assert bench.outputs == ["1 1 open"]


def test_a_process_that_somebody_else_has_reaped_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another process's by then."""
    real, gone = os.kill, list[int]()

    def kill(pid: int, number: int) -> None:
        try:
            real(pid, number)
        except ProcessLookupError:
            gone.append(pid)
            raise

    monkeypatch.setattr(os, "kill", kill)
    with ends_ignored():
        bench = Bench("kill", "ok")
        bench.until_over(2)
        bench.close()
        process_workers._kill_all()
    assert gone == []


def test_a_process_of_whose_end_nothing_is_known_is_replaced_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted_processes(monkeypatch)
    with ends_ignored():
        bench = Bench("ok", around=handlers.dies)
        bench.until_failed()
        bench.close()
    assert "5 processes died before they had begun" in str(bench.engine.failure)
    assert made == [0] * 5


@pytest.mark.parametrize(("around", "error"), [(handlers.refuses, LookupError), (handlers.dies, HandlerDiedError)])
def test_a_process_that_cannot_begin_ends_the_run(around: Any, error: type[BaseException]) -> None:
    bench = Bench("ok", around=around)
    bench.until_failed()
    assert isinstance(bench.engine.failure, error)
    bench.close()
    assert (bench.engine.started, bench.engine.tally.attempts) == (0, 0)


def test_a_process_that_ends_by_itself_before_it_begins_ends_the_run_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Python could not import in one process it cannot import in the next: the main module, say."""
    made = counted_processes(monkeypatch)
    bench = Bench("ok", around=handlers.leaves)
    bench.until_failed()
    bench.close()
    assert isinstance(bench.engine.failure, HandlerDiedError)
    assert "ended with 1 before it had begun" in str(bench.engine.failure)
    assert 'if __name__ == "__main__":' in str(bench.engine.failure)
    assert made == [0]


def test_a_run_in_a_process_that_only_imports_the_main_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """So multiprocessing itself knows that a program has no guard."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match='if __name__ == "__main__":'):
        Processor(handlers.handle, topics=["t"]).running(bootstrap_servers="localhost:1", group_id="g")


def fail_to_make(monkeypatch: pytest.MonkeyPatch, times: int) -> list[OSError]:
    """The system has no process left for so many times."""
    real, raised = process_workers._Process, list[OSError]()

    def make(spec: bytes, number: int) -> process_workers._Process:
        if len(raised) < times:
            raised.append(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
            raise raised[-1]
        return real(spec, number)

    monkeypatch.setattr(process_workers, "_Process", make)
    monkeypatch.setattr(process_workers, "_PAUSE", 0.0)
    return raised


def test_a_process_that_cannot_be_made_is_made_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = fail_to_make(monkeypatch, 1)
    bench = Bench("ok", "ok")
    bench.until_over(2)
    bench.close()
    assert (len(raised), bench.errors) == (1, {})


def test_where_no_process_can_be_made_the_run_ends_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = fail_to_make(monkeypatch, 1_000)
    bench = Bench("ok")
    bench.until_failed()
    bench.close()
    assert isinstance(bench.engine.failure, HandlerDiedError)
    assert bench.engine.failure.__cause__ is raised[-1]
    assert (len(raised), bench.engine.started) == (5, 0)


def test_where_the_system_makes_no_more_threads_the_processes_that_there_are_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_threads(monkeypatch, left=1)
    bench = Bench("ok", "ok", "ok", processes=2)
    bench.workers.wake()
    bench.until_over(3)
    bench.close()
    assert (bench.errors, bench.engine.failure) == ({}, None)
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == [
        "the system makes no thread for another process of handlers: 1 of 2 go on (can't start new thread)"
    ], "once"


def test_where_the_system_makes_no_thread_at_all_the_run_ends_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch)
    bench = Bench("ok")
    assert isinstance(bench.engine.failure, RuntimeError)
    assert (bench.engine.started, bench.engine.queued) == (0, 1)
    bench.close()


def test_whatever_a_keeper_cannot_go_on_by_ends_the_run_and_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(jobs: list[Job]) -> bytes:
        if jobs[-1].offset > 0:
            raise MemoryError
        return packed(jobs)

    monkeypatch.setattr(process_workers, "packed", exhausted)
    bench = Bench("ok", "ok", "ok")
    bench.until_failed()
    bench.close()
    assert isinstance(bench.engine.failure, MemoryError)
    assert (bench.engine.started, bench.engine.queued, bench.outputs) == (0, 2, ["0 1 open"])


@pytest.mark.parametrize(
    ("handler", "options", "error", "told"),
    [
        (lambda record: None, {"processes": 2}, ConfigError, "functions of a module"),
        (handlers.handle, {"processes": 0}, ValueError, "processes"),
        (handlers.handle, {"processes": 4, "concurrency": 2}, ConfigError, "below processes"),
    ],
)
def test_wrong_processes_are_refused(handler: Any, options: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Processor(handler, topics=["t"], **options).running(bootstrap_servers="localhost:1", group_id="g")


def test_processes_are_not_for_coroutines() -> None:
    async def handle(record: ConsumerRecord[Any, Any]) -> None: ...

    with pytest.raises(ConfigError, match="plain functions"):
        Processor(handle, topics=["t"], processes=2)
