"""How a blocking call is written without blocking: as a generator that says how long it would wait.

Laws
1. A call yields `Wait`; its driver resumes it with the time, when something came up or at `until`, if not sooner.
2. The driver alone knows clocks and threads: a thread's condition for `Consumer`, virtual time for simulations.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Call", "Wait"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """until: by the machine's clock."""

    until: float


Call = Generator[Wait, float, T]
"""A call under way: yields waits, is sent the time, returns T."""
