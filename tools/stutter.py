"""Makes threads and processes late, at random, so that a test which depends on how fast one of them is fails soon.

A pytest plugin, for hunting only (`make stutter`). The tests run in a random order: the files, and the tests of each.
While a test runs

- any Python thread of the test's process may sleep at any call of a Python function;
- any process that the tests started (a broker, a Spark, an example) may be stopped by SIGSTOP for a moment.

STUTTER_SEED says the order, the calls and the processes; STUTTER_CALLS how many calls there are for a sleep.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

SEED = os.environ.get("STUTTER_SEED", "0")
CALLS = int(os.environ.get("STUTTER_CALLS", "20000"))
LONGEST_SLEEP, LONGEST_STOP, BETWEEN_STOPS = 0.1, 0.8, 2.0
"""Seconds. Well under any session timeout and any wait of a test for a state."""


class Sleeper:
    """A trace function: sleeps at one call of many, and traces no lines."""

    def __init__(self, chance: random.Random, sleep: Callable[[float], None] = time.sleep) -> None:
        self._random = chance
        self._sleep = sleep
        self._left = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self._left -= 1  # by several threads at a time: a call more or less is all the same here
        if self._left < 0:
            self._left = int(self._random.expovariate(1 / CALLS))
            self._sleep(self._random.uniform(0, LONGEST_SLEEP))


def children_of(parent: int) -> Iterator[int]:
    """All processes below it that run: what a test has suspended stays so."""
    parents: dict[int, list[int]] = {}
    stopped: set[int] = set()
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = each.read_text().rpartition(")")[2].split()
            parents.setdefault(int(after_name[1]), []).append(int(each.parent.name))
            stopped.update([int(each.parent.name)] if after_name[0] == "T" else [])
    below = parents.get(parent, [])
    while below:
        yield from (each for each in below if each not in stopped)
        below = [child for each in below for child in parents.get(each, [])]


class Stopper(threading.Thread):
    def __init__(self, chance: random.Random) -> None:
        super().__init__(name="stutter", daemon=True)
        self._random = chance
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._random.uniform(0, BETWEEN_STOPS)):
            if below := sorted(children_of(os.getpid())):
                self._suspend(self._random.choice(below))

    def _suspend(self, process: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
            try:
                self._ended.wait(self._random.uniform(0, LONGEST_STOP))
            finally:
                os.kill(process, signal.SIGCONT)

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: Any) -> Iterator[None]:
    chance = _chance(item.nodeid)
    sleeper, stopper = Sleeper(chance), Stopper(chance)
    stopper.start()
    threading.settrace(sleeper)
    sys.settrace(sleeper)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        stopper.end()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same order in all processes of the run."""

    def place(item: pytest.Item) -> tuple[float, float]:
        return _chance(item.path.name).random(), _chance(item.nodeid).random()

    items.sort(key=place)


def _chance(what: str) -> random.Random:
    return random.Random(f"{SEED} {what}")  # noqa: S311 - no secret
