"""How a blocking call is written without blocking: as a generator that says how long it would wait.

Laws
1. A call yields `Wait`; its driver resumes it with the time, when something came up or at `until`, if not sooner.
2. The driver alone knows clocks and threads: a thread's condition for `Consumer`, an event loop for `AsyncConsumer`,
   virtual time for simulations.
3. Where `awaited` is set the driver awaits that instead, in the task of the call, and throws what it raises into the
   call. A driver that cannot refuses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Call", "Wait"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """until: by the machine's clock. awaited: what a method of the listener returned, where that is asynchronous."""

    until: float
    awaited: Awaitable[object] | None = None


Call = Generator[Wait, float, T]
"""A call under way: yields waits, is sent the time, returns T."""
