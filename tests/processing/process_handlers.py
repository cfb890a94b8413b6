"""Handlers that other processes import. The record's value says what becomes of the attempt."""

from __future__ import annotations

import os
import signal
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
def refuses() -> Iterator[None]:
    if resource.get() == "none":
        raise LookupError("no database")
    yield


@contextmanager
def dies() -> Iterator[None]:
    os.kill(os.getpid(), signal.SIGKILL)
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
    if what == "fork":
        _fork_and_die()
    if what == "fork-and-return":
        os.fork()
    if what == "hang":
        Path(rest).touch()
        threading.Event().wait()
    return [OutputRecord(value=f"{record.offset} {attempt.number} {resource.get()}".encode(), headers=(("h", b"1"),))]


def handle_all(records: list[Record]) -> list[OutputRecord]:
    return [each for record in records for each in handle(record)]


def _fork_and_die() -> None:
    """The pipe stays open in the one that lives on, until it sees that its parent is gone."""
    parent = os.getpid()
    if os.fork() == 0:
        signal.alarm(5)
        threading.Event().wait()
    os.kill(parent, signal.SIGKILL)
