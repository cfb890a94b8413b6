"""Counts what Python executes, so that a test of cost needs no clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(action: Callable[[], object]) -> int:
    """How many instructions of instride's own functions are executed by it. What is written in C is not counted."""
    executed = 0

    def called(frame: FrameType, _event: str, _arg: Any) -> Any:
        if "instride" not in frame.f_globals.get("__name__", "").split("."):
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
