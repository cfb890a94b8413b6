"""Handlers in processes. What is started when, the engine decides.

Laws
1. A thread of ours keeps one process: it takes jobs, sends them in one message, and reads a response for each. How many
   at once, the time of the last ones says: so many as take a moment together. It takes none before its process has
   begun: a hand-over would wait for what no handler has. All begin before the member joins its group (`begin`), so that
   no partition waits for them; a successor begins when there is work for it. Dead letters are handed over beside that:
   another thread does, as long as there are results to read. No thread waits for them (`LetterWriter`), nor for
   outputs, but where too many are in flight (`OutputWriter`).
2. Processes are spawned, not forked: they import the handler's module, and share nothing with this process.
3. When a process dies, the first job without a response has failed, by `HandlerDiedError`. The
   others were not begun, and are put back. Then comes its successor.
4. A process that cannot begin ends the run by its error; so does one that ends by itself before any has begun, since
   the next would, too. One that is killed before it has begun, or is a successor, is replaced, up to a limit; so is one
   that the system could not make. Whatever else a thread of ours cannot go on by ends the run, too. Where the system
   makes no more threads of ours, those that there are go on; where there is none, the run ends by that.
5. What is over a time-out, and what is in progress when this is closed, is killed with its process; so is a set-up.
6. The program may fork. The fork kills no process of ours, and what it has inherited keeps none from its end.
"""

from __future__ import annotations

import atexit
import logging
import marshal
import multiprocessing
import os
import pickle
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any, Final
from weakref import WeakSet

from instride._arguments import FOREVER
from instride._processing.attempts import Desk
from instride._processing.dead_letters import LetterWriter, Produce
from instride._processing.engine import Job, Task
from instride._processing.forks import process as this_process
from instride._processing.outputs import OutputWriter
from instride._processing.process_child import (
    DONE,
    PART,
    READY,
    SIGNALS,
    Spec,
    error_of,
    outputs_from,
    packed,
    serve,
    tasks_of,
)
from instride.errors import ConfigError, HandlerDiedError

__all__ = ["ProcessWorkers", "pickled"]

_logger = logging.getLogger("instride.processing")

_MOMENT: Final = 0.01
"""Seconds that the jobs of one message should take together."""
_LOOK: Final = 1.0
"""Seconds after which we look whether a process lives, besides waiting for its response."""
_GLANCE: Final = 0.05
"""The same, while we wait for its end."""
_PULSE: Final = 0.25
"""Seconds after which we look whether the run is to stop, besides waiting for processes to begin."""
_TELL: Final = 30.0
"""Seconds after which the log says that some have not begun."""
_PAUSE: Final = 1.0
"""Seconds, where the system could make no process, until that is tried again."""
_STILLBORN: Final = 5
"""So many processes in succession may die before they have begun."""
_GUARD: Final = (
    "Does the program's main module run the Processor also where it is only imported? "
    'Then write if __name__ == "__main__": before that call'
)


def pickled(spec: Spec) -> bytes:
    """Raises ConfigError for what another process cannot import."""
    try:
        return pickle.dumps(spec)
    except Exception as error:
        raise ConfigError(
            "processes: the handler, its middleware, deserializers and worker_lifespan must be functions of a module, "
            f"so that another process can import them: {error}"
        ) from error


class _Died(Exception):  # noqa: N818
    """The pipe is closed or broken. Its text: for the record's error."""


class _Process:
    """One process and its pipe."""

    def __init__(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # Nothing large, such as the handler may be: multiprocessing would wait until that is read. And it holds both
        # ends of its own pipe meanwhile: if the process died, for ever.
        self._process = context.Process(target=serve, args=(theirs,), name=f"instride-handler-{number}", daemon=True)
        with _signals_wait():
            self._process.start()
        self._maker = this_process["pid"]
        self.has_begun = False
        self._has_ended = False
        _living.add(self)
        # In this order, so that none is forgotten that is made while the program ends.
        if _ends.is_set():
            self.kill()
        # While a copy of their end is open here, no end of file comes when the process dies.
        theirs.close()

    def begin(self, spec: bytes) -> tuple[int, Any]:
        """What its set-up ends by. Raises _Died."""
        self._write_in_parts(spec)
        kind, content = self.result()
        self.has_begun = kind == READY
        return kind, content

    def _write_in_parts(self, message: bytes) -> None:
        """Its death might not break the write, for which it would wait: a fork of this program may hold their end."""
        for start in range(0, len(message) + 1, PART):
            # It has read all that came before this message: the first part has room.
            if start:
                self._await_room()
            self._write(message[start : start + PART])

    def _await_room(self) -> None:
        """Where something can be written at all, there is room for a part."""
        # It needs no file of its own, of which there may be none left.
        with selectors.PollSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_WRITE)
            while not selector.select(_LOOK):
                if not self._process.is_alive():
                    raise _Died(self._how_it_ended())

    def send(self, jobs: list[Job]) -> None:
        with suppress(_Died):  # its responses, or that there are none, tell
            self._write_in_parts(packed(jobs))

    def _write(self, message: bytes) -> None:
        try:
            self._pipe.send_bytes(message)
        except OSError:  # its responses, or that there are none, tell
            # It would wait for the rest of half a message.
            self.kill()

    def result(self, timeout: float | None = None) -> tuple[int, Any]:
        """Raises _Died, and TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._pipe.poll(_LOOK if until is None else max(0.0, min(_LOOK, until - time.monotonic()))):
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"the attempt took longer than {timeout:g} s; its process is killed")
                if not self._process.is_alive() and not self._pipe.poll(0):  # what it forked may hold the pipe
                    raise EOFError
            kind, content = marshal.loads(self._pipe.recv_bytes())  # noqa: S302 - of a process that we made
        except TimeoutError:  # an OSError
            raise
        # A plain OSError is raised where the pipe ends in the middle of a response; the others are of what is none.
        except (EOFError, OSError, ValueError, TypeError):
            raise _Died(self._how_it_ended()) from None
        return kind, content

    def _how_it_ended(self) -> str:
        # The pipe is closed a moment before the process has ended: until then it has no exit code.
        self._await_end(_LOOK)
        code = self._process.exitcode
        return "what it sent is no response" if code is None else f"its process ended with {code}"

    @property
    def has_ended_by_itself(self) -> bool:
        """Not by a signal, as one ends that has no memory left. Where somebody else reaps it, nobody knows."""
        code = self._process.exitcode
        return code is not None and code >= 0

    def kill(self) -> None:
        """Not in a fork of this program: it is not the fork's process. Nor after its end: its number may be reused."""
        if this_process["pid"] == self._maker and not self._has_ended:
            self._process.kill()

    def close(self, patience: float) -> None:
        """Tears it down."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as pipe:
            # A fork of this program has a copy of our end: a close alone would not be heard.
            pipe.shutdown(socket.SHUT_RDWR)
        self._pipe.close()
        self._await_end(patience)
        if not self._has_ended and self._process.is_alive():
            self.kill()
            self._await_end(FOREVER)

    def _await_end(self, patience: float) -> None:
        """Looks again and again: what a handler left behind may hold the pipe whose end tells that the process is over.

        And the pipe alone tells it where somebody else reaps our processes: SIGCHLD is ignored, or the program does so.
        """
        until = time.monotonic() + patience
        while not self._has_ended and self._process.is_alive() and (left := until - time.monotonic()) > 0:
            if wait([self._process.sentinel], min(_GLANCE, left)):
                self._process.join()
                self._has_ended = True  # `is_alive` does not know it where somebody else has reaped it
                return


@contextmanager
def _signals_wait() -> Iterator[None]:
    """For a process that this thread makes, until `serve` says what becomes of them: a Ctrl-C, say, is the parent's."""
    # What multiprocessing starts beside the first process makes this thread hear them again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_living: Final[WeakSet[_Process]] = WeakSet()
_ends: Final = threading.Event()
"""The program does."""


@atexit.register
def _end() -> None:
    """Before multiprocessing waits for them: a program that ends without closing its processor ends."""
    _ends.set()
    _kill_all()


def _kill_all() -> None:
    for process in list(_living):
        process.kill()


class _Letters:
    """Dead letters of the jobs of one message. To hand one over may take minutes, in which other results come.

    write: raises nothing.
    """

    def __init__(self, write: Callable[[Task], object]) -> None:
        self._write = write
        self._due = SimpleQueue[Task | None]()
        self._writer: threading.Thread | None = None

    def add(self, task: Task) -> None:
        self._due.put(task)

    def write_beside(self) -> None:
        """From now on in a thread, if any is due."""
        if self._writer is None and not self._due.empty():
            writer = threading.Thread(target=self._write_until_told, name="instride-letters", daemon=True)
            with suppress(RuntimeError):  # the system has no thread left: `write_all` writes them
                writer.start()
                self._writer = writer

    def write_all(self) -> None:
        """Returns when all are handed over, or were not taken."""
        self._due.put(None)
        if self._writer is None:
            self._write_until_told()
        else:
            self._writer.join()

    def _write_until_told(self) -> None:
        while (task := self._due.get()) is not None:
            if not task.over:  # since another one was written, for minutes perhaps
                self._write(task)


class ProcessWorkers:
    """Plain functions, in so many processes. at_once: jobs in one message, at most. timeout: seconds of one attempt."""

    def __init__(
        self, desk: Desk, spec: bytes, produce: Produce | None, processes: int, at_once: int, timeout: float | None
    ) -> None:
        self._desk = desk
        self._spec = spec
        self._processes = processes
        self._at_once = at_once
        self._timeout = timeout
        self._work = threading.Condition(desk.lock)
        self._writer = LetterWriter(desk, produce, self._go_on)
        self._outputs = OutputWriter(desk, produce, processes, self._go_on)
        self._keepers: dict[threading.Thread, _Process | None] = {}
        self._busy: set[threading.Thread] = set()
        self._beginning: set[threading.Thread] = set()
        self._patience = 0.0
        self._writes_beside = False
        self._closed = False
        self._has_begun = False
        self._told_of_fewer = False

    def begin(self, stops: Callable[[], bool]) -> None:
        """All processes. Returns once each has begun, or where the run ends: by one that cannot begin (law 4), by
        `close`, or when `stops` says so. That is asked in pulses: a signal's handler must wake nobody by a lock.
        """
        refused: RuntimeError | None = None
        with self._work:
            try:
                while len(self._keepers) < self._processes and not self._ends(stops):
                    self._beginning.add(self._add_keeper())
            except RuntimeError as error:
                refused = error
        if refused is not None:
            self._go_on_with_fewer(refused)
        pulses = 0
        with self._work:
            while self._beginning and not self._ends(stops):
                if not self._work.wait(_PULSE):
                    pulses += 1
                    if pulses == _TELL / _PULSE:
                        self._tell_of_slow_ones()

    def _ends(self, stops: Callable[[], bool]) -> bool:
        return self._closed or stops() or self._desk.engine.failure is not None

    def _tell_of_slow_ones(self) -> None:
        text = "%d of %d processes of handlers have not begun yet: the member joins its group when they have"
        _logger.warning(text, len(self._beginning), self._processes)

    def wake(self) -> None:
        self._writer.look()
        self._outputs.look()
        refused: RuntimeError | None = None
        with self._work:
            engine = self._desk.engine
            if self._closed or not engine.has_next(self._desk.clock()):
                return
            try:
                # A keeper that is not busy waits for work, or for its process.
                idle = len(self._keepers) - len(self._busy)
                for _ in range(min(engine.queued + len(engine.to_write) - idle, self._processes - len(self._keepers))):
                    self._add_keeper()
                if engine.to_write and len(self._busy) == self._processes:
                    self._write_beside()
            except RuntimeError as error:
                refused = error
            self._work.notify_all()
        if refused is not None:
            self._go_on_with_fewer(refused)

    def _write_beside(self) -> None:
        """Under the lock. What is due since outputs were refused: a hand-over may wait for that, and for no handler of
        another partition. Raises RuntimeError as `_add_keeper` does."""
        if not self._writes_beside:
            threading.Thread(target=self._write_due, name="instride-letters", daemon=True).start()
            self._writes_beside = True

    def _write_due(self) -> None:
        while (task := self._next_due()) is not None:
            self._writer.write(task)

    def _next_due(self) -> Task | None:
        with self._work:
            due = self._desk.engine.to_write
            self._writes_beside = bool(due)
            return due.popleft() if due else None

    def _add_keeper(self) -> threading.Thread:
        """Under the lock. Raises RuntimeError where the system has no thread left."""
        number = len(self._keepers)
        keeper = threading.Thread(target=self._keep, args=(number,), name=f"instride-keeper-{number}", daemon=True)
        keeper.start()
        # Once it has started: where the system has no thread left, none is listed.
        self._keepers[keeper] = None
        return keeper

    def _go_on_with_fewer(self, error: RuntimeError) -> None:
        """The next wake-up tries again. Without any thread the run ends: nobody would handle a record."""
        if not self._keepers:
            self._desk.fail(error)
        elif not self._told_of_fewer:
            self._told_of_fewer = True
            text = "the system makes no thread for another process of handlers: %d of %d go on (%s)"
            _logger.warning(text, len(self._keepers), self._processes, error)

    def _go_on(self) -> None:
        """What waited for a letter, or outputs, is startable: the next of its key, say. (No store is to be told.)"""
        with self._work:
            if self._desk.engine.has_next(self._desk.clock()):
                self._wake_keeper()

    def _wake_keeper(self) -> None:
        """Under the lock."""
        # Who has no process may leave it to others (`_needs_another`).
        self._work.notify(1 if all(self._keepers.values()) else len(self._keepers))

    def cancel(self, tasks: Sequence[Task]) -> None:
        """A call that runs is not interrupted; its result is ignored. The end kills it."""

    def close(self, patience: float = 0.0) -> None:
        """Processes without work are torn down, within so many seconds; the others are killed (law 5)."""
        with self._work:
            self._closed, self._patience = True, patience
            self._outputs.close()
            self._work.notify_all()
            for keeper, process in self._keepers.items():
                if process is not None and (keeper in self._busy or not process.has_begun):
                    process.kill()
        until = time.monotonic() + 2 * patience
        for keeper in list(self._keepers):
            keeper.join(max(0.0, until - time.monotonic()))

    def _keep(self, number: int) -> None:
        me, jobs = threading.current_thread(), deque[Job]()
        try:
            self._serve(me, number, jobs)
        except BaseException as error:  # law 4
            _logger.exception("the thread of a process of handlers cannot go on")
            process = self._keepers[me]
            if process is not None:
                process.kill()
                process.close(self._patience)
            self._desk.fail(error)
            self._put_back(jobs)

    def _note_begun(self, me: threading.Thread) -> None:
        """Under the lock."""
        if me in self._beginning:
            self._beginning.discard(me)
            self._work.notify_all()

    def _serve(self, me: threading.Thread, number: int, jobs: deque[Job]) -> None:
        """jobs: what it has in progress, here to be filled."""
        process, at_once = None, 1
        with self._work:
            begins = me in self._beginning
        while begins or self._take(me, 0 if process is None else at_once, jobs):
            begins = False
            if process is None:
                process = self._begun(me, number)
                if process is None:
                    return
                continue
            began, many = time.monotonic(), len(jobs)
            if not self._handle(process, jobs):
                process = self._keepers[me] = None
            seconds = (time.monotonic() - began) / many
            at_once = max(1, min(self._at_once, 2 * at_once, int(_MOMENT / max(seconds, 1e-6))))
        if process is not None:
            process.close(self._patience)

    def _take(self, me: threading.Thread, most: int, jobs: deque[Job]) -> bool:
        """Waits for what may be started, and takes so much of it. False when this is closed."""
        with self._work:
            self._busy.discard(me)
            self._note_begun(me)
            while not self._closed and not self._finds(most, jobs):
                self._work.wait()
            if jobs:
                self._busy.add(me)
            elif not self._closed:
                self._beginning.add(me)
            return not self._closed

    def _finds(self, most: int, jobs: deque[Job]) -> bool:
        """Under the lock. Without a process it takes none (law 1), and knows whether there is one."""
        desk = self._desk
        if most == 0:
            leave = bool(desk.engine.to_write) or desk.may_start()
            return leave and desk.engine.has_next(desk.clock()) and self._needs_another()
        while len(jobs) < most and (job := desk.next_task()) is not None:
            jobs.append(job)
        return bool(jobs)

    def _needs_another(self) -> bool:
        """Under the lock. Whether there is more than those take that have a process without work, or will have one."""
        ready = sum(each is not None and keeper not in self._busy for keeper, each in self._keepers.items())
        coming = sum(self._keepers[each] is None for each in self._beginning)
        return self._desk.engine.queued + len(self._desk.engine.to_write) > ready + coming

    def _put_back(self, jobs: deque[Job]) -> None:
        with self._work:
            while jobs:
                self._desk.engine.put_back(jobs.popleft())
            self._work.notify_all()

    def _begun(self, me: threading.Thread, number: int) -> _Process | None:
        """A process whose set-up has ended. None where the run ends by it, or is closed (law 4)."""
        failed: BaseException = HandlerDiedError(f"{_STILLBORN} processes died before they had begun")
        for _ in range(_STILLBORN):
            try:
                process = self._made(me, number)
            except OSError as error:  # the system has no process left, no memory or no file
                _logger.warning("a process of handlers was not made: %s", error)
                failed.__cause__ = error
                time.sleep(_PAUSE)
                continue
            if process is None:
                return None
            try:
                kind, content = process.begin(self._spec)
            except _Died as died:
                process.kill()
                process.close(0.0)
                if self._closed:
                    return None
                _logger.warning("a process of handlers was not begun: %s", died)
                if process.has_ended_by_itself and not self._has_begun:
                    failed = HandlerDiedError(f"{died} before it had begun; its standard error says why. {_GUARD}")
                    break
                continue
            if kind == READY:
                self._has_begun = True
                return process
            failed = error_of(kind, content, [])
            process.close(self._patience)
            break
        self._desk.fail(failed)
        return None

    def _made(self, me: threading.Thread, number: int) -> _Process | None:
        """None where this is closed. Raises OSError."""
        # Not under the lock, for which polls and commits wait: where memory is short it may take long.
        process = None if self._closed else _Process(number)
        with self._work:
            if not self._closed:
                # In one step with the look at `_closed`: `close` kills what it finds in `_keepers`.
                self._keepers[me] = process
                return process
        if process is not None:
            process.kill()
            process.close(0.0)
        return None

    def _handle(self, process: _Process, jobs: deque[Job]) -> bool:
        """Until all have ended, or are put back. Whether the process lives."""
        process.send([job for job in jobs if not job.writes_dead_letter])
        lives, letters = True, _Letters(self._writer.write)
        try:
            while jobs and lives:
                letters.write_beside()
                job, is_ours = jobs[0], True
                if job.writes_dead_letter:
                    jobs.popleft()
                else:
                    lives, is_ours = self._ends_next(process, jobs)
                if is_ours and isinstance(job, Task) and job.writes_dead_letter and not job.over:
                    letters.add(job)
            if not lives:
                self._put_back(jobs)
        finally:
            letters.write_all()
        return lives

    def _ends_next(self, process: _Process, jobs: deque[Job]) -> tuple[bool, bool]:
        """By its result, or by the death of the process. Whether that lives, and whether the job is ours still."""
        job = jobs[0]
        try:
            kind, content = process.result(self._timeout)
        except (_Died, TimeoutError) as died:
            jobs.popleft()
            self._has_died(process, job, died)
            return False, True
        jobs.popleft()
        return True, self._has_result(job, kind, content)

    def _has_died(self, process: _Process, job: Job, why: Exception) -> None:
        process.kill()
        process.close(self._patience)
        where = f"{job.lane.partition} at offset {job.offset}"
        _logger.warning("%s: %s", where, why)
        self._end(job, why if isinstance(why, TimeoutError) else HandlerDiedError(f"{where}: {why}"))

    def _has_result(self, job: Job, kind: int, content: Any) -> bool:
        """False: its outputs are not acknowledged yet. `OutputWriter` tells of its end, perhaps before this returns,
        and another keeper writes its letter."""
        error: BaseException | None = None
        if kind != DONE:
            error = error_of(kind, content, tasks_of(job))
        elif not job.over:
            try:
                if not self._outputs.hand_over(job, outputs_from(content)):
                    return False
            except BaseException as caught:  # noqa: BLE001 - the engine decides what becomes of it
                error = caught
        self._end(job, error)
        return True

    def _end(self, job: Job, error: BaseException | None) -> None:
        with self._desk.lock:
            verdict, attention = self._desk.end(job, error)
            self._wake_keeper()
        if verdict is not None:
            self._desk.note(job, verdict)
        if attention:
            self._desk.attention()
