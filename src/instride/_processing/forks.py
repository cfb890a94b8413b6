"""A handler, or a middleware, may fork. Its child has this thread and no other: nothing of ours may go on in it.

Laws
1. What a user gave is guarded by itself, so that in a child no middleware and no transaction around it goes on.
2. A coroutine ends in a child where it awaits something, too: the event loop there is a copy of the parent's. So each
   step is looked at, by `coroutine_workers.py`. A task or a thread that a handler starts is not guarded.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

__all__ = ["end_child", "guarded", "process"]

process = {"pid": os.getpid()}
"""Of this process, also in a child that Python forked: a look at it costs a tenth of `os.getpid`, a system call."""
os.register_at_fork(after_in_child=lambda: process.update(pid=os.getpid()))


def guarded(function: Callable[..., Any], *, is_async: bool = False) -> Callable[..., Any]:
    """In a child that it forked it ends, and does not return. Pickled where the function can be."""
    return partial(_call_async if is_async else _call, function)


# Twice, for the `await`: one context manager for both takes twice the time of each call (0.55 and 0.25 us).
def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    # Not once for all calls: what is pickled is called in another process.
    me = process["pid"]
    try:
        returned = function(*arguments)
    except BaseException as error:
        if process["pid"] != me:
            end_child(error)
        raise
    if process["pid"] != me:
        end_child()
    return returned


async def _call_async(function: Callable[..., Any], *arguments: Any) -> Any:
    me = process["pid"]
    try:
        returned = await function(*arguments)
    except BaseException as error:
        if process["pid"] != me:
            end_child(error)
        raise
    if process["pid"] != me:
        end_child()
    return returned


def end_child(error: BaseException | None = None) -> NoReturn:
    """The handler has returned, or raised, in a child: there it was all. As a program ends: by its own status."""
    status = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        _tell(error)
    finally:
        # Whatever is raised meanwhile (by a second Ctrl-C, say): the child would go on as another processor.
        # Not sys.exit: `finally` blocks and exit handlers here are the parent's, whose consumer they would close.
        os._exit(status & 0xFF)


def _tell(error: BaseException | None) -> None:
    """As far as a child can be heard: its output may be closed, its disk full. `_exit` flushes nothing."""
    if error is not None and not isinstance(error, SystemExit):
        with suppress(Exception):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            if stream is not None:
                stream.flush()
