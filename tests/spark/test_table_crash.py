"""Delta and Iceberg: a process may end before and after every step that others can see.

A step is a call of the system, of deltalake, of the catalogue's database or of Iceberg's files. A driver and its
executor run once to count them, and then once for each: from the fatal one on, none is made. A run tries one step in
seven; the commit says at which it begins. `make sink-attack` tries each (`INSTRIDE_WHOLE=1`).
"""

from __future__ import annotations

import gc
import inspect
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from deltalake import DeltaTable
from parquet_help import Crash, SystemCalls
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from sqlalchemy import event
from sqlalchemy.engine.default import DefaultDialect
from table_help import delta, iceberg
from test_table_sinks import commit, span, write

from drawn_by_commit import WHOLE
from drawn_by_commit import commit as of_code
from instride.records import TopicPartition
from instride.spark._tables import delta as delta_module
from instride.spark.contract import SinkUnderTest
from instride.spark.parquet import _files as files
from instride.spark.sink import CommitStatus

AT = TopicPartition("flights", 0)
STRIDE = 1 if WHOLE else 7
FIRST = int(of_code(), 16) % STRIDE
Watch = Callable[["Steps"], AbstractContextManager[object]]


class Steps:
    """Counts them, and is dead from one on."""

    def __init__(self, fatal: int | None = None) -> None:
        self.made = 0
        self._fatal = fatal

    def __call__(self, *_: object) -> None:
        if self.made == self._fatal:
            raise Crash
        self.made += 1

    def around(self, real: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """A crash before a call, and one after it: it has done its work, and nobody heard of it."""
        self()
        result = real(*args, **named)
        self()
        return result


class Calls(SystemCalls):
    """A step before each call of the system."""

    def _due(self, _name: str) -> bool:
        return True


def watched(steps: Steps, *calls: tuple[type, str]) -> ExitStack:
    """Of an executor, and these calls. On leaving it they are as they were."""
    stack = ExitStack()
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(files, "os", Calls(act=steps))
    for owner, name in calls:
        wrapped = partial(steps.around, getattr(owner, name))
        of_class = isinstance(inspect.getattr_static(owner, name), classmethod)
        patch.setattr(owner, name, wrapped if of_class else lambda *args, _call=wrapped, **named: _call(*args, **named))
    return stack


def with_delta(steps: Steps) -> ExitStack:
    stack = watched(steps, *((DeltaTable, name) for name in ("create", "__init__", "create_write_transaction")))
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(delta_module, "os", Calls(act=steps))
    return stack


def with_iceberg(steps: Steps) -> ExitStack:
    """Of the catalogue before and after each statement, and before and after each transaction's commit."""
    stack = watched(steps, (PyArrowFile, "create"), (PyArrowFileIO, "delete"), (DefaultDialect, "do_commit"))
    for name in ("before_cursor_execute", "after_cursor_execute"):
        event.listen(sqlalchemy.Engine, name, steps)
        stack.callback(event.remove, sqlalchemy.Engine, name, steps)
    return stack


def drive(case: SinkUnderTest) -> None:
    """A driver that begins, or goes on where the sink is, and commits two ranges."""
    sink = case.make()
    reached = sink.begin(AT, 0)
    for end in (4, 7):
        if reached < end:
            (outcome,) = commit(sink, f"j{end}", write(sink, span(reached, end), f"j{end}"))
            assert outcome.status is CommitStatus.COMMITTED
            reached = end


def offsets(case: SinkUnderTest) -> list[int]:
    return sorted(offset for _, offset, _ in case.rows())


@pytest.mark.parametrize(("place", "watch"), [(delta, with_delta), (iceberg, with_iceberg)], ids=["delta", "iceberg"])
def test_a_crash_at_each_step_leaves_all_or_nothing_and_the_next_driver_goes_on(
    place: Callable[[Path], SinkUnderTest], watch: Watch, tmp_path: Path
) -> None:
    steps = Steps()
    with watch(steps):
        drive(place(tmp_path / "count"))
    found = []
    assert steps.made > 40, "few steps: is it still each?"
    for fatal in range(FIRST, steps.made, STRIDE):
        case = place(tmp_path / str(fatal))
        with watch(Steps(fatal)), pytest.raises(Crash) as dead:
            drive(case)
        # A process that has ended has no statement open, and no lock.
        traceback.clear_frames(dead.tb)
        gc.collect()
        reached = case.make().positions([AT])[AT] or 0
        assert offsets(case) == list(range(reached)), f"offsets and rows differ after a crash at step {fatal}"
        found.append(reached)
        drive(case)
        assert offsets(case) == list(range(7)), f"after a crash at step {fatal}"
    assert found == sorted(found)
    assert STRIDE > 1 or set(found) == {0, 4, 7}
