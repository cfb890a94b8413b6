"""A handler that forks: in the child, which is the copy of its thread alone, nothing goes on when the handler ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from engine_help import Bench, desk_of, keyed
from processing_help import P0

from instride import PartitionExecutor
from instride._processing.lifespan import SyncLifespan
from instride._processing.thread_workers import ThreadWorkers

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


def returns() -> None: ...


def exits() -> None:
    sys.exit(3)


def exits_well() -> None:
    sys.exit()


def exits_by_text() -> None:
    sys.exit("by a text")


def raises() -> None:
    raise OSError("in the child")


ENDS = [(returns, 0), (exits, 3), (exits_well, 0), (exits_by_text, 1), (raises, 1)]


class Forks:
    """A handler: of its first call a child ends in this way; the second must be called in this process only."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.parent = os.getpid()
        self.status = -1
        self.is_handled = False
        self.done = threading.Event()

    def __call__(self, record: Any) -> None:
        if os.getpid() != self.parent:
            os._exit(99)
        if record.offset == 1:
            self.is_handled = True
            return
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # kills it, if it goes on
            self.end()
            return
        self.status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.done.set()


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_a_child_of_a_processors_handler_ends_with_it(end: Callable[[], None], status: int) -> None:
    found, handler = Bench(order="partition"), Forks(end)
    found.submit(keyed(P0, "aa"))
    workers = ThreadWorkers(desk_of(found.engine), handler, None, 1, SyncLifespan())
    workers.wake()
    workers.close(60.0)
    for thread in workers._threads:
        thread.join(60.0)
    assert (handler.status, handler.is_handled) == (status, True)


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_a_child_of_an_executors_handler_ends_with_it(end: Callable[[], None], status: int) -> None:
    handler = Forks(end)
    with PartitionExecutor(handler, max_workers=1, drain_timeout=60.0) as work:
        work.submit(keyed(P0, "a"))
        assert handler.done.wait(60.0)
    assert handler.status == status
