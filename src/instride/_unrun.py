"""What a call of the user's code may return without having run any of it. Such a record must not count as finished."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

__all__ = ["refuse_unrun"]


def refuse_unrun(returned: Any) -> None:
    """Raises TypeError for a coroutine or a generator that a handler returned: nothing of its code has run."""
    if isinstance(returned, CoroutineType | GeneratorType):
        returned.close()
    elif not isinstance(returned, AsyncGeneratorType):
        return
    raise TypeError(
        f"the handler returned a {type(returned).__name__.replace('_', ' ')}, of which nothing has run: a handler is a "
        "plain function, or one defined by async def where coroutines are awaited, without yield"
    )
