"""What a call of the user's code may return without having run any of it: what was to happen would never have.
Such a record must not count as finished."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

__all__ = ["is_asynchronous", "refuse_coroutine"]


def is_asynchronous(called: Callable[..., Any]) -> bool:
    """Whether it is defined by async def, or is an object whose `__call__` is."""
    of_objects = getattr(type(called), "__call__", None)  # noqa: B004 - whether that is a coroutine function
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(of_objects)


def refuse_coroutine(returned: Any) -> None:
    """Raises TypeError for a coroutine or a generator that a handler returned: nothing of its code has run."""
    if isinstance(returned, CoroutineType | GeneratorType):
        returned.close()
    elif not isinstance(returned, AsyncGeneratorType):
        return
    raise TypeError(
        f"the handler returned a {type(returned).__name__.replace('_', ' ')}, of which nothing has run: a handler is a "
        "plain function, or one defined by async def where coroutines are awaited, without yield"
    )
