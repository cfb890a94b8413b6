"""Virtual time: steps of actors, done one after the other in the order of their time.

Laws
1. Time only passes between steps. A step is done at its time, never before; those of one time, in the order asked.
2. `random` is the only source of chance of a whole simulation.
3. There is no cancelling: who wanted a step looks, when it comes, whether it is still wanted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Scheduler"]


class Scheduler:
    """now: virtual seconds since the start."""

    __slots__ = ("_added", "_steps", "now", "random", "steps_done")

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)  # noqa: S311 - not for secrets: it must be repeatable
        self.steps_done = 0
        self._steps: list[tuple[float, int, Callable[[], None]]] = []
        self._added = 0

    def at(self, time: float, step: Callable[[], None]) -> None:
        """Do the step at that time, or now where that is past."""
        self._added += 1
        heappush(self._steps, (time if time > self.now else self.now, self._added, step))

    def after(self, delay: float, step: Callable[[], None]) -> None:
        self.at(self.now + delay, step)

    def run(self, until: float, stop: Callable[[], bool]) -> None:
        """Until that time, until nothing is left to do, or until `stop` says so after a step."""
        steps = self._steps
        while steps and steps[0][0] <= until:
            self.now, _, step = heappop(steps)
            self.steps_done += 1
            step()
            if stop():
                return
        self.now = max(self.now, until) if until != float("inf") else self.now

    def jitter(self, most: float) -> float:
        return self.random.random() * most
