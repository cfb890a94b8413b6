"""Where auto_offset_reset leads.

Laws
1. "earliest" and "latest" are the ends of the log. By a duration (KIP-1106) it is the first record that was written
   within it, by the wall clock when the broker is asked; where there is none, the end of the log.
2. The wall clock is an argument, and nothing else here uses it.
"""

from __future__ import annotations

from instride.config import ConsumerConfig, reset_duration
from instride.core.events import BY_DURATION, EARLIEST, LATEST

__all__ = ["reset_position", "reset_timestamp"]


def reset_position(config: ConsumerConfig) -> int | None:
    """EARLIEST, LATEST or BY_DURATION; None where there is no policy."""
    if config.auto_offset_reset == "none":
        return None
    if config.auto_offset_reset == "earliest":
        return EARLIEST
    return LATEST if reset_duration(config.auto_offset_reset) is None else BY_DURATION


def reset_timestamp(config: ConsumerConfig, position: int, wall_clock: float) -> int:
    """What ListOffsets is asked for: milliseconds, or an end of the log. wall_clock: seconds since 1970."""
    if position != BY_DURATION:
        return position
    return max(0, int((wall_clock - (reset_duration(config.auto_offset_reset) or 0.0)) * 1000))
