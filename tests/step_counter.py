"""Counts what Python executes, so that a test of cost needs no clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import instride

__all__ = ["calls", "steps"]

_OURS = str(Path(instride.__file__).parent)


def steps(action: Callable[[], object]) -> int:
    """How many instructions of instride's own functions are executed by it. What is written in C is not counted."""
    return _steps_traced(action) if sys.version_info < (3, 12) else _steps_monitored(action)


def _steps_traced(action: Callable[[], object]) -> int:
    executed = 0

    def called(frame: FrameType, _event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return step

    def step(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal executed
        executed += event == "opcode"
        return step

    before = sys.gettrace()
    sys.settrace(called)
    try:
        action()
    finally:
        sys.settrace(before)
    return executed


def _steps_monitored(action: Callable[[], object]) -> int:
    """From Python 3.12 on a trace function misses instructions of functions that ran before it was set."""
    executed = 0
    monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool, event = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION

    def step(code: CodeType, _offset: int) -> object:
        nonlocal executed
        if not code.co_filename.startswith(_OURS):
            return monitoring.DISABLE
        executed += 1
        return None

    monitoring.use_tool_id(tool, "steps")
    monitoring.register_callback(tool, event, step)
    monitoring.set_events(tool, event)
    try:
        action()
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(tool)
        monitoring.restart_events()
    return executed


def calls(action: Callable[[], object]) -> int:
    """How many functions are called by it, also of those that are written in C."""
    made = 0

    def count(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return made
