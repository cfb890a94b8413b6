"""`make stutter` stops what the tests have started, and nothing that a test has stopped itself."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stutter


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_that_a_test_has_suspended_is_not_touched(eventually: Callable[[Callable[[], bool]], None]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in stutter.children_of(os.getpid())
        child.send_signal(signal.SIGSTOP)
        eventually(lambda: state(child.pid) == "T")
        assert child.pid not in stutter.children_of(os.getpid())
        child.send_signal(signal.SIGCONT)
        child.communicate(b"\n")


def test_of_many_calls_a_few_sleep_and_each_seed_says_which() -> None:
    def slept_at(seed: int) -> list[int]:
        sleeps: list[float] = []
        sleeper = stutter.Sleeper(random.Random(seed), sleeps.append)
        slept = []
        for number in range(100_000):
            before = len(sleeps)
            sleeper(sys._getframe(), "call", None)
            slept.extend([number] * (len(sleeps) - before))
        return slept

    assert slept_at(1) == slept_at(1) != slept_at(2)
    assert 2 <= len(slept_at(1)) <= 20
