"""What the handlers of `processor_members` do, in whichever thread, loop or process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

SLEEP, COMPUTE = 0.005, 0.001
"""Seconds of a handler; of computing, of its thread's CPU time."""


def work(kind: str) -> None:
    """What a plain handler does."""
    if kind == "sleep":
        time.sleep(SLEEP)
        return
    until = time.thread_time() + COMPUTE
    while time.thread_time() < until:
        pass


async def work_in_loop(kind: str) -> None:
    if kind == "sleep":
        await asyncio.sleep(SLEEP)
    else:
        work(kind)


def compute_there(record: Any) -> Any:
    return _done_there(record, "compute")


def sleep_there(record: Any) -> Any:
    return _done_there(record, "sleep")


def _done_there(record: Any, kind: str) -> Any:
    from instride import OutputRecord

    work(kind)
    return OutputRecord(value=b"%d %d" % (record.partition, record.offset))
