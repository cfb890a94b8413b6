"""Whether a call that somebody has noted is under way still: a note may outlive it, where an exception ended the call
before it could take the note back."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["is_under_way"]


def is_under_way(entered: tuple[int, FrameType]) -> bool:
    """entered: the number of its thread, and its frame."""
    thread, verb = entered
    # A thread that has ended has none. Another that got its number does not have the verb on its stack.
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not verb:
        frame = frame.f_back
    return frame is not None
