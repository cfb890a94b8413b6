"""Threads for a sink's calls: how many there are, and that none keeps a process from ending."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
import time

import pytest
from run_help import PATIENCE

from instride.spark._daemon_pool import DaemonPool

STUCK = """
import threading, types
from instride.spark import _daemon_pool
from instride.records import TopicPartition
from instride.spark._committing import Committer
from instride.spark._report import RangeProblem
from instride.spark._starting import Starts

_daemon_pool._PATIENCE = 0.1
partition, called = TopicPartition("t", 0), threading.Semaphore(0)

class Stuck:  # a database behind a cut cable
    def positions(self, partitions, **more):
        called.release()
        threading.Event().wait()

job = types.SimpleNamespace(cancelled=False, range="t-0 [0, 1)", partition=partition)
committer = Committer(Stuck(), print)
committer.look(job, RangeProblem(kind="x", message="x", fatal=False))
consumer = types.SimpleNamespace(pause=print)
starts = Starts(consumer, Stuck(), topic_id=lambda _: "", tell=print, fail=print)
starts.begin([partition])
called.acquire()
called.acquire()
committer.close()
starts.close()
print("closed")
"""


UNDER_WAY = """
import atexit, threading, time

ended = []
atexit.register(lambda: print("at the end:", *ended))

from instride.spark._daemon_pool import DaemonPool

pools, called = [DaemonPool(2, "a"), DaemonPool(2, "b")], threading.Semaphore(0)

def work():
    called.release()
    time.sleep(0.3)  # what a call takes
    ended.append("done")

for pool in pools:
    for _ in range(3):
        pool.submit(work)
for _ in range(4):
    called.acquire()
pools[0].close()
del pool, pools
"""
"""One pool is closed and one is not, and in each a piece of work waits for a thread."""


def test_a_process_waits_at_its_end_for_calls_that_are_under_way() -> None:
    """A daemon that comes back from a library of C or Rust later than that may crash the process."""
    ended = subprocess.run([sys.executable, "-c", UNDER_WAY], timeout=60, check=True, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("at the end: done done done done\n", "")


def test_a_process_ends_while_calls_of_a_sink_hang() -> None:
    """A commit's and a start's. `run` has returned by then. They are waited for a bounded time."""
    ended = subprocess.run([sys.executable, "-c", STUCK], timeout=60, check=True, capture_output=True, text=True)
    assert ended.stdout.endswith("closed\n")
    assert "the process ends while 2 calls of a sink hang" in ended.stderr


def test_work_is_done_by_as_many_threads_as_it_needs_up_to_the_most() -> None:
    pool, gate = DaemonPool(3, "test-pool"), threading.Event()
    names = queue.SimpleQueue[str]()

    def work() -> None:
        names.put(threading.current_thread().name)
        gate.wait(PATIENCE)

    def began(count: int) -> set[str]:
        return {names.get(timeout=PATIENCE) for _ in range(count)}

    pool.submit(work)
    assert began(1) == {"test-pool-1"}
    for _ in range(5):
        pool.submit(work)
    assert began(2) == {"test-pool-2", "test-pool-3"}
    assert names.empty()
    gate.set()
    assert began(3) <= {"test-pool-1", "test-pool-2", "test-pool-3"}
    pool.close()


def test_an_error_takes_no_thread_away(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = DaemonPool(1, "test-pool"), threading.Event()

    def failing() -> None:
        raise SystemExit

    with caplog.at_level(logging.ERROR):
        pool.submit(failing)
        pool.submit(done.set)
        assert done.wait(PATIENCE)
    assert "a piece of work failed" in caplog.text
    pool.close()


def test_what_waits_when_the_pool_is_closed_is_never_done_and_threads_end() -> None:
    pool, begun, gate = DaemonPool(1, "test-pool"), threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        gate.wait(PATIENCE)
        done.append("what was under way")

    pool.submit(work)
    assert begun.wait(PATIENCE)
    pool.submit(lambda: done.append("what waited"))
    pool.close()
    pool.submit(lambda: done.append("what came late"))
    (thread,) = pool._threads
    gate.set()
    thread.join(PATIENCE)
    assert (thread.is_alive(), done) == (False, ["what was under way"])


def test_a_thread_that_cannot_be_started_is_none_of_the_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be joined either, so at the end of the process no pool was waited for."""

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, done, refused = DaemonPool(2, "test-pool"), threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(refused.set)
    pool.submit(done.set)
    assert done.wait(PATIENCE)
    assert not refused.is_set(), "whose caller was told that it is not done"
    pool.close()
    assert pool.join(time.monotonic() + PATIENCE) == 0


def test_where_no_more_threads_can_be_started_those_that_there_are_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool, gate, begun, done = DaemonPool(2, "test-pool"), threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        gate.wait(PATIENCE)

    pool.submit(first)
    assert begun.wait(PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        pool.submit(done.set)
    gate.set()
    assert done.wait(PATIENCE)
    pool.close()
    assert pool.join(time.monotonic() + PATIENCE) == 0
