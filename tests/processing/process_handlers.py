"""Handlers that other processes import. The record's value says what becomes of the attempt."""

from __future__ import annotations

import os
import signal
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from instride import ConsumerRecord, OutputRecord, RetryRecord, SkipRecord, current_attempt

Record = ConsumerRecord[Any, Any]
resource: ContextVar[str] = ContextVar("resource", default="none")


class OddError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"odd {code}")


@contextmanager
def around() -> Iterator[None]:
    resource.set("open")
    yield


@contextmanager
def leaves_a_mark() -> Iterator[None]:
    yield
    Path(os.environ["MARK"]).touch()


@contextmanager
def waits() -> Iterator[None]:
    """Whoever opens that pipe knows that this has begun, and it waits until he closes it."""
    Path(os.environ["GATE"]).read_bytes()
    resource.set("open")
    yield


@contextmanager
def one_refuses() -> Iterator[None]:
    """The second process that asks; the first waits as `waits` does."""
    try:
        Path(os.environ["GATE"]).with_name("first").touch(exist_ok=False)
    except FileExistsError:
        raise LookupError("no database") from None
    with waits():
        yield


@contextmanager
def refuses() -> Iterator[None]:
    if resource.get() == "none":
        raise LookupError("no database")
    yield


@contextmanager
def dies() -> Iterator[None]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield


@contextmanager
def leaves() -> Iterator[None]:
    leave: Callable[[int], object] = os._exit
    leave(1)
    yield


def middleware(record: Record, following: Callable[[Record], Any]) -> Any:
    resource.set(resource.get() + "+")
    try:
        return following(record)
    finally:
        resource.set("open")


def handle(record: Record) -> list[OutputRecord]:
    what, _, rest = record.value.partition(" ")
    attempt = current_attempt()
    if what == "raise":
        raise ValueError(rest)
    if what == "odd":
        raise OddError(code=5)
    if what == "skip":
        raise SkipRecord(rest)
    if what == "retry" and attempt.number == 1:
        raise RetryRecord(after=0.0)
    if what == "leave":
        sys.exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kill-once" and attempt.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what in _SURVIVOR:
        return [OutputRecord(value=b"%d" % _SURVIVOR[what]())]
    if what in _DO:
        _DO[what]()
    if what == "hold":
        signal.alarm(300)  # it shall not outlive a test that has failed
        with Path(rest).open("wb", buffering=0) as pipe:
            pipe.write(b"held")
            threading.Event().wait()
    if what == "hang":
        Path(rest).touch()
        threading.Event().wait()
    return [OutputRecord(value=f"{record.offset} {attempt.number} {resource.get()}".encode(), headers=(("h", b"1"),))]


def handle_all(records: list[Record]) -> list[OutputRecord]:
    return [each for record in records for each in handle(record)]


def handle_with(_: bytes, record: Record) -> list[OutputRecord]:
    return handle(record)


def _fork_and_die() -> None:
    """The pipe stays open in the one that lives on, as in one that a library forks, of which Python knows nothing."""
    parent = os.getpid()
    os.dup(_pipe())
    if os.fork() == 0:
        signal.alarm(5)
        threading.Event().wait()
    os.kill(parent, signal.SIGKILL)


def _fork_on() -> int:
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        threading.Event().wait()
    return child


def _start_on() -> int:
    """As `os.system("... &")` does, but it tells its process."""
    return subprocess.Popen(["sleep", "300"], close_fds=False).pid


def _die_in_a_response() -> None:
    os.write(_pipe(), struct.pack("!i", 1_000) + b"x" * 10)
    os._exit(9)


def _send_no_response() -> None:
    os.write(_pipe(), struct.pack("!i", 3) + b"zzz")


def _pipe() -> int:
    """That of `serve`."""
    (found,) = [each for each in range(3, 64) if _is_socket(each)]
    return found


def _start_and_terminate() -> None:
    with subprocess.Popen(["sleep", "600"]) as started:
        started.terminate()
        try:
            assert started.wait(20) == -signal.SIGTERM
        finally:
            started.kill()


def _be_signalled() -> None:
    """While it reads, and while it waits: neither ends by that."""
    reader, writer = os.pipe()
    begun = threading.Barrier(2)

    def signal_twice() -> None:
        begun.wait()
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        os.write(writer, b"x")

    thread = threading.Thread(target=signal_twice)
    thread.start()
    begun.wait()
    assert os.read(reader, 1) == b"x"
    thread.join()


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


_SURVIVOR: dict[str, Callable[[], int]] = {"fork-on": _fork_on, "start-on": _start_on}
_DO: dict[str, Callable[[], object]] = {
    "fork": _fork_and_die,
    "fork-and-return": os.fork,
    "cut-off": _die_in_a_response,
    "garbled": _send_no_response,
    "terminate": _start_and_terminate,
    "signalled": _be_signalled,
    "set": lambda: resource.set("a customer's"),
}
