"""The one clock. It counts the time in which the machine was suspended, and is never set back.

Session time-outs at the broker go on while a laptop sleeps; a clock that stops then would let this member believe
that it is still one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

__all__ = ["LONGEST_WAIT", "now"]

# Only Linux has it. Elsewhere `monotonic` is the best there is, and may stand still while the machine sleeps.
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)

now: Final[Callable[[], float]] = time.monotonic if _BOOTTIME is None else partial(time.clock_gettime, _BOOTTIME)
"""Seconds since some fixed moment. It is asked at every wait, so it is a function in C."""

LONGEST_WAIT: Final = 60.0
"""Seconds after which whoever waits looks at this clock again. The system's waits do not count a suspension, so what
fell due in one is met by then. Nor do they take an infinite time."""
