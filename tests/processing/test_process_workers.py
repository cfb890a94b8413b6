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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from enum import IntEnum, StrEnum
from functools import partial
from multiprocessing import resource_tracker, spawn
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import process_handlers as handlers
import pytest
from engine_help import Bench as EngineBench
from engine_help import desk_of, keyed
from processing_help import P0, refuse_threads

from instride import ConsumerRecord, OffsetAndMetadata, OutputRecord, Processor, Retry, RetryRecord, SkipRecord
from instride._processing import process_child, process_workers
from instride._processing.engine import Engine, EnginePlan, Job, Verdict
from instride._processing.process_child import (
    _FAILED,
    _UNREADABLE,
    DONE,
    PART,
    READY,
    Spec,
    _result,
    error_of,
    outputs_from,
    packed,
)
from instride._processing.process_workers import ProcessWorkers, pickled
from instride._processing.retries import Failures
from instride._record_deserializer import RecordDeserializer
from instride.errors import ConfigError, DeserializationError, HandlerDiedError

PATIENCE = 120.0


def test_an_error_that_only_its_process_can_read_is_an_error_all_the_same() -> None:
    error = error_of(_FAILED, b"cno_such_module\nError\n.", [])
    assert isinstance(error, RuntimeError)
    assert "cannot be read here: ModuleNotFoundError: No module named 'no_such_module'" in str(error)


class StatusError(Exception):
    """As libraries of HTTP have it."""

    def __init__(self, message: str, *, response: Any) -> None:
        super().__init__(message)
        self.response = response


class Later(RetryRecord):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(why, after=5.0)
        self.code = code


class Foreign(SkipRecord):
    def __init__(self, *, customer: int) -> None:
        super().__init__(f"customer {customer}")


class GoneError(FileNotFoundError):
    def __init__(self, *, path: str) -> None:
        super().__init__(errno.ENOENT, "gone", path)


class LeaveError(SystemExit):
    def __init__(self, *, status: int) -> None:
        super().__init__(status)


class NumberedError(Exception):
    """From its arguments one is made, of another text."""

    def __init__(self, number: Any) -> None:
        super().__init__(f"number {number}")


class Pooled:
    """As an error of urllib3's, which requests gives its own: read again, it lacks what its text was made of."""

    def __init__(self, pool: object = None) -> None:
        self.pool = pool

    def __repr__(self) -> str:
        return f"{self.pool}: max retries exceeded"

    def __reduce__(self) -> tuple[type[Pooled], tuple[()]]:
        return Pooled, ()


def sent(error: BaseException) -> BaseException:
    """As it comes from the process whose handler raises it."""

    def handler(_: Any) -> None:
        raise error

    return error_of(*result_of(handler), [])


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (StatusError("503", response=503), {"response": 503}),
        (StatusError("503", response=threading.Lock()), {}),
        (ValueError(len), {}),
        (PermissionError(threading.Lock()), {}),
        (Later(3, "busy"), {"after": 5.0, "code": 3}),
        (Foreign(customer=7), {}),
        (GoneError(path="p"), {"errno": errno.ENOENT, "filename": "p"}),
        (LeaveError(status=3), {"code": 3}),
        (NumberedError(5), {}),
        (OSError(Pooled("host=a")), {"args": ("host=a: max retries exceeded",)}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_error_keeps_its_class_and_its_text(error: BaseException, attributes: dict[str, Any]) -> None:
    """Else `Retry(on=...)`, a breaker and the engine take it for another: its `__init__` may ask for anything."""
    again = sent(error)
    assert (type(again), str(again)) == (type(error), str(error))
    assert {name: getattr(again, name) for name in attributes} == attributes
    assert "in a process of the Processor" in again.__notes__[0]
    assert not isinstance(again, StatusError) or hasattr(again, "response") == bool(attributes)


class StatefulError(Exception):
    """As gRPC has it: what its text is made of cannot be pickled."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def __str__(self) -> str:
        return f"the state is {self.state.name}"


def test_an_error_whose_text_would_be_another_comes_in_words() -> None:
    again = sent(StatefulError(SimpleNamespace(name="UNAVAILABLE", lock=threading.Lock())))
    assert type(again) is RuntimeError
    assert str(again).endswith("StatefulError: the state is UNAVAILABLE")


def test_an_error_whose_class_nobody_can_import_comes_in_words() -> None:
    class LocalError(Exception): ...

    again = sent(LocalError("why"))
    assert type(again) is RuntimeError
    assert str(again).endswith("LocalError: why")


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


class MarkedError(Exception):
    def __repr__(self) -> str:
        return Topic.AUDIT


@pytest.mark.parametrize(("error", "shown"), [(UnspeakableError, "UnspeakableError"), (MarkedError, "audit")])
def test_a_deserializers_error_that_cannot_be_shown_is_told_by_its_class(error: type[Exception], shown: str) -> None:
    """One that shows itself by a str of its own is told by that."""

    def unspeakable(_: bytes) -> None:
        raise error

    kind, (told, part, place, cause) = result_of(print, RecordDeserializer(None, unspeakable))
    assert (kind, part, place, cause) == (_UNREADABLE, "value", 0, shown)
    assert f"t-0 at offset 0 cannot be deserialized: {error.__name__}" in told


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
    assert (type(error), str(error)) == (handlers.OddError, "odd 5")
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

    def make(number: int) -> process_workers._Process:
        made.append(number)
        return real(number)

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


def large() -> Any:
    """A handler that is more than the system's pipes and sockets hold: with a table that it was given, say."""
    return partial(handlers.handle_with, b"x" * 1_000_000)


def test_a_handler_may_be_larger_than_a_pipe() -> None:
    bench = Bench("ok", handler=large())
    bench.until_over(1)
    bench.close()
    assert bench.outputs == ["0 1 open"]


@forks
@pytest.mark.parametrize("is_forked", [False, True])
def test_a_process_that_dies_before_it_reads_its_handler_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forked: bool
) -> None:
    """No write to it may wait for ever: neither multiprocessing's, which holds both ends of its own pipe, nor ours,
    whose other end the program's fork may hold, if that came while the process was made."""
    resource_tracker.ensure_running()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o700)
    with ExitStack() as stack:

        def executable() -> bytes:
            if is_forked:
                stack.enter_context(forked(threading.Event().wait))
            return os.fsencode(python)

        monkeypatch.setattr(spawn, "get_executable", executable)
        bench = Bench("ok", handler=large())
        bench.until_failed()
        bench.close()
    assert isinstance(bench.engine.failure, HandlerDiedError)
    assert "ended with 3 before it had begun" in str(bench.engine.failure)


def make_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[threading.Event, threading.Event, list[process_workers._Process]]:
    """Set when it is about to make a process; to be set that it does; the processes."""
    real, made = process_workers._Process, list[process_workers._Process]()
    begins, may = threading.Event(), threading.Event()

    def make(number: int) -> process_workers._Process:
        begins.set()
        assert may.wait(PATIENCE)
        made.append(real(number))
        return made[-1]

    monkeypatch.setattr(process_workers, "_Process", make)
    return begins, may, made


def test_the_lock_is_free_while_a_process_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """That may take seconds. Else no poll returned, and no commit ended, meanwhile."""
    begins, may, _ = make_slowly(monkeypatch)
    bench = Bench("ok")
    assert begins.wait(PATIENCE)
    is_free = bench.lock.acquire(timeout=PATIENCE / 2)
    if is_free:
        bench.lock.release()
    may.set()
    bench.until_over(1)
    bench.close()
    assert is_free


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of `handlers.waits`."""
    os.mkfifo(tmp_path / "gate")
    monkeypatch.setenv("GATE", str(tmp_path / "gate"))
    return tmp_path / "gate"


def test_processes_that_have_died_are_begun_anew_only_for_what_there_is() -> None:
    """Where memory is short, all at once would be killed again."""
    bench = EngineBench(order="none")
    bench.submit(keyed(P0, "--"))
    workers, keepers = workers_of(bench, lambda _: None), [threading.Thread() for _ in range(3)]
    workers._keepers |= dict.fromkeys(keepers)
    for keeper in keepers[:2]:
        assert workers._take(keeper, 0, deque())
    assert not workers._finds(0, deque())
    workers._keepers[keepers[0]] = Scripted()  # type: ignore[assignment]
    assert not workers._finds(0, deque()), "it has none in progress yet"
    jobs = deque[Job]()
    assert workers._take(keepers[0], 1, jobs)
    assert not workers._finds(0, jobs), "the other one is for the other record"
    bench.submit(keyed(P0, "-", start=2))
    assert workers._finds(0, jobs)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[process_workers._Process]:
    """A fork of the program holds its end of the pipe: when it dies, no write breaks."""
    spawning, kept = multiprocessing.get_context("spawn"), list[int]()

    def pipe() -> tuple[Any, Any]:
        ours, theirs = spawning.Pipe()
        kept.append(os.dup(theirs.fileno()))
        return ours, theirs

    context = SimpleNamespace(Pipe=pipe, Process=spawning.Process)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)
    process = process_workers._Process(0)
    yield process
    process.close(0.0)
    os.close(*kept)


def dies_soon(process: process_workers._Process) -> None:
    """And reads nothing before that."""
    stopped = process._process.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (stopped, signal.SIGKILL)).start()


@pytest.mark.timeout(30)
def test_a_process_that_dies_before_it_has_read_its_handler_is_no_wait_without_end(
    held: process_workers._Process,
) -> None:
    dies_soon(held)
    with pytest.raises(process_workers._Died):
        held.begin(b"." * 1_000_000)


@pytest.mark.timeout(30)
def test_a_process_that_dies_before_it_has_read_its_records_is_no_wait_without_end(
    held: process_workers._Process,
) -> None:
    spec = Spec(handler=handlers.handle, reader=RecordDeserializer(None, None), around=None, output="o")
    assert held.begin(pickled(spec))[0] == READY
    bench = EngineBench()
    bench.submit([ConsumerRecord(*P0, 0, epoch=1, value=b"." * 1_000_000)])
    dies_soon(held)
    held.send([bench.take()])
    with pytest.raises(process_workers._Died):
        held.result()


def test_a_process_that_is_made_while_the_program_ends_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """multiprocessing waits for it, and it hears no SIGTERM."""
    monkeypatch.setattr(process_workers, "_ends", threading.Event())
    process_workers._ends.set()
    process = process_workers._Process(0)
    process._process.join(PATIENCE / 4)
    assert process._process.exitcode == -signal.SIGKILL
    process.close(0.0)


def test_signals_before_a_process_has_begun_do_nothing_to_it_as_later_ones() -> None:
    """Ctrl-C comes to all processes of a terminal: while they begin, the run ended by an error of theirs."""
    process = process_workers._Process(0)
    started = process._process.pid
    assert started is not None
    for number in process_child.SIGNALS:
        os.kill(started, number)
    spec = Spec(handler=handlers.handle, reader=RecordDeserializer(None, None), around=None, output="o")
    try:
        assert process.begin(pickled(spec)) == (READY, None)
    finally:
        process.close(PATIENCE)
    assert process._process.exitcode == 0


@pytest.mark.parametrize("size", [PART - 1, PART, PART + 1, 2 * PART])
def test_a_message_of_any_size_comes_as_it_was_sent(size: int) -> None:
    ours, theirs = multiprocessing.Pipe()
    process: Any = SimpleNamespace(_pipe=ours, _await_room=lambda: None, _write=ours.send_bytes)
    messages = [b"x" * size, b"next"]
    with ours:
        for message in messages:
            process_workers._Process._write_in_parts(process, message)
    with theirs:
        assert [process_child._message(theirs) for _ in messages] == messages


def test_a_record_is_not_in_progress_before_its_process_has_begun(gate: Path) -> None:
    """Else a hand-over waited for a handler that nobody had called. Nor does it ask for one process after the other."""
    bench = Bench("ok", around=handlers.waits, processes=2)
    with gate.open("wb"):
        bench.workers.wake()
        assert (bench.engine.started, bench.engine.queued, len(bench.workers._keepers)) == (0, 1, 1)
    bench.until_over(1)
    bench.close()
    assert bench.outputs == ["0 1 open"]


class Beginning:
    """`ProcessWorkers.begin` on a thread of its own, before there is any record."""

    def __init__(self, around: Any = handlers.around, stops: Callable[[], bool] = lambda: False) -> None:
        self.engine = Engine(EnginePlan(order="none"), lambda _: 1)
        desk = desk_of(self.engine, threading.RLock(), output="o")
        spec = pickled(Spec(handler=handlers.handle, reader=RecordDeserializer(None, None), around=around, output="o"))
        self.workers = ProcessWorkers(desk, spec, None, 2, 8, None)
        self.thread = threading.Thread(target=self.workers.begin, args=(stops,), name="begin", daemon=True)
        self.thread.start()

    @property
    def begun(self) -> list[bool]:
        return [each is not None and each.has_begun for each in self.workers._keepers.values()]

    def returns(self) -> bool:
        self.thread.join(PATIENCE / 2)
        return not self.thread.is_alive()

    def close(self) -> None:
        self.workers.close(PATIENCE)
        assert self.returns()


def test_all_processes_begin_before_there_is_a_record(gate: Path) -> None:
    """A partition of a member that has just joined would wait for them."""
    beginning = Beginning(handlers.waits)
    until = time.monotonic() + PATIENCE
    while beginning.thread.is_alive():
        assert time.monotonic() < until
        with suppress(OSError):  # nobody has opened it
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        threading.Event().wait(0.01)
    assert beginning.returns()
    assert beginning.begun == [True, True]
    beginning.close()


def test_a_stop_waits_for_no_process_that_begins(gate: Path) -> None:
    answers = iter([False, False, False])
    beginning = Beginning(handlers.waits, stops=lambda: next(answers, True))
    with gate.open("wb"):
        assert beginning.returns()
        assert beginning.begun == [False, False]
        beginning.close()


def test_what_has_stopped_begins_no_process() -> None:
    beginning = Beginning(stops=lambda: True)
    assert beginning.returns()
    assert beginning.begun == []
    beginning.close()


@pytest.mark.usefixtures("gate")
def test_a_close_waits_for_no_process_that_begins() -> None:
    beginning = Beginning(handlers.waits)
    beginning.workers.close()
    assert beginning.returns()
    beginning.close()


@pytest.mark.usefixtures("gate")
def test_processes_that_are_slow_to_begin_are_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_workers, "_PULSE", 0.001)
    monkeypatch.setattr(process_workers, "_TELL", 0.002)
    pulses = iter([False] * 10)
    beginning = Beginning(handlers.waits, stops=lambda: next(pulses, True))
    assert beginning.returns()
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "2 of 2 processes of handlers have not begun yet: the member joins its group when they have"
    ]
    beginning.close()


def test_processes_that_cannot_begin_end_the_run_before_it_joins() -> None:
    beginning = Beginning(handlers.refuses)
    assert beginning.returns()
    assert isinstance(beginning.engine.failure, LookupError)
    beginning.close()


def test_one_process_that_cannot_begin_ends_the_run_whatever_the_others_do(gate: Path) -> None:
    """The set-up of another may take an hour."""
    beginning = Beginning(handlers.one_refuses)
    assert beginning.returns()
    assert isinstance(beginning.engine.failure, LookupError)
    assert beginning.begun == [False, False]
    with gate.open("wb"):
        beginning.close()


@pytest.mark.parametrize("left", [0, 1])
def test_where_the_system_makes_no_more_threads_those_that_there_are_begin(
    left: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_threads(monkeypatch, left=left + 1)  # one is the test's
    beginning = Beginning()
    assert beginning.returns()
    assert beginning.begun == [True] * left
    assert isinstance(beginning.engine.failure, RuntimeError) == (left == 0)
    assert ("1 of 2 go on" in caplog.text) == (left == 1)
    beginning.close()


def until_ended(bench: Bench) -> None:
    (keeper,) = bench.workers._keepers
    keeper.join(PATIENCE / 2)
    assert not keeper.is_alive()
    assert (bench.engine.started, bench.engine.queued, bench.engine.failure) == (0, 1, None)


def test_a_close_kills_what_is_in_its_set_up(gate: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench("ok", around=handlers.waits)
    with gate.open("wb"):
        bench.workers.close()
        until_ended(bench)
    assert caplog.records == []


@pytest.mark.usefixtures("gate")
def test_a_process_that_is_made_while_this_is_closed_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its set-up would never end."""
    begins, may, made = make_slowly(monkeypatch)
    bench = Bench("ok", around=handlers.waits)
    assert begins.wait(PATIENCE)
    bench.workers.close()
    may.set()
    until_ended(bench)
    assert [each._process.is_alive() for each in made] == [False]


def test_a_run_in_a_process_that_only_imports_the_main_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """So multiprocessing itself knows that a program has no guard."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ConfigError, match='if __name__ == "__main__":'):
        Processor(handlers.handle, topics=["t"]).running(bootstrap_servers="localhost:1", group_id="g")


def fail_to_make(monkeypatch: pytest.MonkeyPatch, times: int) -> list[OSError]:
    """The system has no process left for so many times."""
    real, raised = process_workers._Process, list[OSError]()

    def make(number: int) -> process_workers._Process:
        if len(raised) < times:
            raised.append(BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"))
            raise raised[-1]
        return real(number)

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


class Scripted:
    """What a keeper sees of a process: these results, one after the other."""

    def __init__(self, *results: Any) -> None:
        self._results = iter(results)

    def send(self, jobs: list[Job]) -> None: ...

    def result(self, _: float | None) -> Any:
        found = next(self._results)
        if isinstance(found, BaseException):
            raise found
        return found() if callable(found) else found

    def kill(self) -> None: ...

    def close(self, _: float) -> None: ...


def workers_of(bench: EngineBench, produce: Callable[[Any], None]) -> ProcessWorkers:
    return ProcessWorkers(desk_of(bench.engine, dead_letters="dead"), b"", produce, 1, 8, 1.0)


def handle_scripted(produce: Callable[[Any], None], *results: Any) -> Engine:
    """A record for each result, in one message; what fails is a dead letter."""
    bench = EngineBench(after="dead-letter", order="none")
    bench.submit(keyed(P0, "-" * len(results)))
    workers_of(bench, produce)._handle(Scripted(*results), deque(bench.takes()))  # type: ignore[arg-type]
    return bench.engine


FAILED = marshal.loads(process_child._failed(ValueError("it")))
WELL: Any = (DONE, [])


def test_results_are_read_while_a_dead_letter_is_written() -> None:
    """It may take minutes. Else what has ended were in progress as long, and abandoned by a stop. Nor does it wait for
    results, whose handlers may take as long."""
    is_begun, is_read, found = threading.Event(), threading.Event(), list[bool]()

    def third() -> Any:
        found.append(is_begun.wait(PATIENCE / 2))
        is_read.set()
        return FAILED

    def produce(_: Any) -> None:
        is_begun.set()
        found.append(is_read.wait(PATIENCE / 2))

    engine = handle_scripted(produce, FAILED, WELL, third, WELL)
    assert found == [True] * 3
    assert (engine.tally.finished, engine.tally.dead_lettered, engine.started) == (2, 2, 0)


def test_without_a_thread_dead_letters_are_written_when_all_results_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_threads(monkeypatch)
    letters = list[int]()
    engine = handle_scripted(lambda letter: letters.append(letter.record.offset), FAILED, WELL, FAILED)
    assert letters == [0, 2]
    assert (engine.tally.finished, engine.tally.dead_lettered, engine.started) == (1, 2, 0)


@pytest.mark.parametrize("after", [(), (WELL,)])
def test_what_ends_the_writing_of_dead_letters_ends_the_run(after: tuple[Any, ...]) -> None:
    """And the others are handed over: in another thread, it would leave them in progress for ever."""
    bench, tried = EngineBench(after="dead-letter", order="none"), list[Any]()
    bench.submit(keyed(P0, "-" * (2 + len(after))))

    def wrote(task: Any, *_: Any) -> None:
        tried.append(task)
        raise MemoryError

    bench.engine.wrote = wrote  # type: ignore[method-assign, assignment]
    results = Scripted(FAILED, FAILED, *after)
    workers_of(bench, lambda _: None)._handle(results, deque(bench.takes()))  # type: ignore[arg-type]
    assert (len(tried), type(bench.engine.failure)) == (2, MemoryError)


def test_a_dead_letter_of_what_was_given_up_meanwhile_is_not_written() -> None:
    """The next owner writes it, and here it would keep other partitions waiting."""
    tasks, written = [SimpleNamespace(over=False), SimpleNamespace(over=False)], list[Any]()

    def write(task: Any) -> None:
        written.append(task)
        tasks[1].over = True

    letters = process_workers._Letters(write)
    for task in tasks:
        letters.add(task)  # type: ignore[arg-type]
    letters.write_all()
    assert written == tasks[:1]


def test_what_a_death_leaves_is_put_back_before_a_dead_letter_is_written() -> None:
    """Others could handle it meanwhile."""
    bench = EngineBench(after="dead-letter", order="none")
    bench.submit(keyed(P0, "--"))
    found = list[tuple[int, int]]()
    workers = workers_of(bench, lambda _: found.append((bench.engine.started, bench.engine.queued)))
    workers._handle(Scripted(TimeoutError()), deque(bench.takes()))  # type: ignore[arg-type]
    assert found == [(1, 1)]
    assert (bench.engine.tally.dead_lettered, bench.engine.started) == (1, 0)


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
