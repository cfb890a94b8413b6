"""The one clock. It counts the time in which the machine was suspended, and is never set back.

Session time-outs at the broker go on while a laptop sleeps; a clock that stops then would let this member believe
that it is still one.
"""

from __future__ import annotations

import time

__all__ = ["now"]

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds since some fixed moment."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
