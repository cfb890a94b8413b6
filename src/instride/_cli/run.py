"""`instride run module:app --workers N`: processes of a processor, each a member of the group of its own.

What a signal, or a worker's end, leads to: `supervisor.py`; in the worker itself: `_processing/running_processor.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated, TypeAlias

import typer

from instride._cli.supervisor import CANNOT_BEGIN, FAILED, Action, Start, Supervisor, Word
from instride_command import EARLY

__all__ = ["run"]

News: TypeAlias = "SimpleQueue[tuple[int, int] | None]"
"""A worker's slot and its exit code; None for a signal to us."""

_NOT_STARTED = 127
_OF_ITS_OWN = (0, FAILED, CANNOT_BEGIN)
"""How a worker ends that did not die."""
_PULSE = 0.25
"""Seconds. A signal that comes just before we fall asleep does not wake us; its handler is called when we wake up."""


def run(
    app: Annotated[str, typer.Argument(help="module:name of a Processor, such as billing:app")],
    workers: Annotated[int, typer.Option(min=1, max=1024, help="processes, each a member of the group")] = 1,
    bootstrap_servers: Annotated[str | None, typer.Option(help="host:port, with commas")] = None,
    group_id: Annotated[str | None, typer.Option()] = None,
    settings: Annotated[str | None, typer.Option(help="module:name of a dict of settings, or of a function")] = None,
    grace: Annotated[float, typer.Option(min=0.0, help="seconds from a stop until workers are killed")] = 60.0,
) -> None:
    """Run a Processor in processes. SIGTERM and SIGINT stop them, a second one cancels; one that dies is replaced.

    The exit status is 0 after a stop, 1 when a processor ended by an error or had to be killed, 2 when it cannot begin.
    """
    command = [
        sys.executable,
        "-m",
        "instride._cli.worker",
        app,
        settings or "",
        bootstrap_servers or "",
        group_id or "",
    ]
    raise typer.Exit(code=_Processes(command).run(Supervisor(workers=workers, grace=grace)))


class _Processes:
    """Does what the supervisor says. Signals and ends are news, and are looked at one by one."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._news: News = SimpleQueue()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._ended_at: dict[int, float] = {}

    def run(self, supervisor: Supervisor) -> int:
        with _heard(self._news):
            now = time.monotonic()
            self._do(supervisor.signalled(now) if EARLY else supervisor.begin(now))
            while supervisor.exit_code is None:
                self._do(self._next(supervisor))
            self._let_programs_end()
            self._bury(before=float("inf"))
        return supervisor.exit_code

    def _next(self, supervisor: Supervisor) -> list[Action]:
        if os.getpid() == 1:
            _reap_orphans({each.pid for each in self._workers.values()})
        due = supervisor.next_due()
        timeout = _PULSE if due is None else max(0.0, min(due - time.monotonic(), _PULSE))
        try:
            told = self._news.get(timeout=timeout)
        except Empty:
            now = time.monotonic()
            self._bury(before=now - _PULSE)
            return supervisor.passed(now)
        now = time.monotonic()
        if told is None:
            return supervisor.signalled(now)
        self._ended_at[told[0]] = now
        actions = supervisor.ended(*told, now)
        pause = supervisor.pause_of(told[0], now)
        after = "" if pause is None else f"; its successor starts in {pause:.1f} s"
        if told[1] or after:
            _tell(f"worker {told[0]} ended {_because(told[1])}{after}")
        return actions

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                self._start(action.slot)
            elif action.slot in self._workers:
                _tell_worker(self._workers[action.slot], action.word)

    def _start(self, slot: int) -> None:
        """In a process group of its own: of Ctrl-C in a terminal only we are told. No buffer: a word is there at once,
        and none is left to be written when the pipe is closed."""
        try:
            environment = {**os.environ, "INSTRIDE_WORKER": str(slot)}
            worker = subprocess.Popen(
                [*self._command, str(slot)], stdin=subprocess.PIPE, process_group=0, env=environment, bufsize=0
            )
        except OSError as error:  # no memory, or too many processes
            self._not_started(slot, error)
            return
        try:
            threading.Thread(target=lambda: self._news.put((slot, _ended(worker))), daemon=True).start()
        except RuntimeError as error:  # no thread is left, and nobody would hear of its end
            with worker:
                worker.kill()
            self._not_started(slot, error)
            return
        self._workers[slot] = worker

    def _let_programs_end(self) -> None:
        """Those of the workers that died last: they have had their SIGTERM a moment ago."""
        died = [
            ended_at
            for slot, ended_at in self._ended_at.items()
            if slot in self._workers and self._workers[slot].returncode is None
        ]
        if died:
            time.sleep(max(0.0, max(died) + _PULSE - time.monotonic()))

    def _bury(self, *, before: float) -> None:
        """Workers that had ended by then, and so before their successors start. What has not taken the SIGTERM of
        `_ended` is killed."""
        for slot in [each for each, ended_at in self._ended_at.items() if ended_at <= before]:
            del self._ended_at[slot]
            if (worker := self._workers.pop(slot, None)) is not None:  # it may not have been started
                with worker:
                    _kill_group(worker)

    def _not_started(self, slot: int, error: Exception) -> None:
        _tell(f"worker {slot} was not started: {error}")
        self._news.put((slot, _NOT_STARTED))


def _tell_worker(worker: subprocess.Popen[bytes], word: Word) -> None:
    if word is Word.KILL:
        _kill_group(worker)
        return
    assert worker.stdin is not None
    with suppress(BrokenPipeError):  # it has ended; its exit code is on its way
        worker.stdin.write(word.value)


def _ended(worker: subprocess.Popen[bytes]) -> int:
    """Its exit code, when it has ended. If it died, the programs that its handlers have started are to end: they would
    work on beside its successor. Python's resource tracker is among them; it takes no SIGTERM, and ends by itself when
    it has freed the shared memory. Such a worker is not reaped yet: until then its number is no other's. (On macOS:
    from Python 3.13 on.)"""
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):  # it was reaped as it ended, since SIGCHLD is ignored
            ended = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
            assert ended is not None
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            if code not in _OF_ITS_OWN:
                _signal_group(worker, signal.SIGTERM)
                return code
    return worker.wait()


def _kill_group(worker: subprocess.Popen[bytes]) -> None:
    if worker.returncode is None:  # else its number may be another's
        _signal_group(worker, signal.SIGKILL)


def _signal_group(worker: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # It ends at this moment. PermissionError: of a group of which all have ended, on macOS.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, number)


def _reap_orphans(workers: Container[int]) -> None:
    """A container's first process gets those of all others. A worker is left to the thread that waits for it; what
    comes after it in the kernel's list is reaped the next time."""
    with suppress(ChildProcessError):  # there is no child
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in workers:
            os.waitpid(ended.si_pid, os.WNOHANG)


def _because(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"with status {code}"


def _tell(text: str) -> None:
    """A line that cannot be written (a full disk, a log's reader that is gone) ends no worker."""
    with suppress(OSError):
        typer.echo(f"instride run: {text}", err=True)


@contextmanager
def _heard(news: News) -> Iterator[None]:
    def heard(number: int, _: FrameType | None) -> None:
        news.put(None)

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
