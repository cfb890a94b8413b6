"""Sums, averages, greatest values and rates over the last half minute to minute, as the Java client keeps them.

Laws
1. One writer. Any thread may read at any time: what is read is one tuple, which is replaced as a whole.
2. Nothing is kept for a single value: to record costs one tuple, however many there are.
3. Values older than two windows count no more. Without values an average and a greatest value are NaN.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NOTHING", "WINDOW", "Stat"]

WINDOW: Final = 30.0
"""Seconds. A statistic speaks of the present window and the one before, as with Java's default settings."""

NOTHING: Final = float("nan")


class _State(NamedTuple):
    """number, total: of everything. Then of the present window, and of the one before."""

    number: int
    total: float
    start: float
    recent: int
    sum: float
    most: float
    start_before: float
    recent_before: int
    sum_before: float
    most_before: float


_LOW: Final = float("-inf")


class Stat:
    """A value that is recorded now and then. Times are in seconds of one clock that is never set back."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state: _State | None = None

    def record(self, value: float, now: float, *, times: int = 1) -> None:
        """times: so many values, whose sum (and greatest) is `value`."""
        state = self._rolled(now)
        self._state = _State(
            state.number + times,
            state.total + value,
            state.start,
            state.recent + times,
            state.sum + value,
            max(state.most, value),
            state.start_before,
            state.recent_before,
            state.sum_before,
            state.most_before,
        )

    def _rolled(self, now: float) -> _State:
        state = self._state
        if state is None:
            return _State(0, 0.0, now, 0, 0.0, _LOW, now, 0, 0.0, _LOW)
        if now - state.start < WINDOW:
            return state
        if now - state.start < 2 * WINDOW:
            kept = (state.start, state.recent, state.sum, state.most)
            return _State(state.number, state.total, state.start + WINDOW, 0, 0.0, _LOW, *kept)
        return _State(state.number, state.total, now, 0, 0.0, _LOW, now, 0, 0.0, _LOW)

    @property
    def number(self) -> int:
        """How many values there were."""
        return 0 if self._state is None else self._state.number

    @property
    def total(self) -> float:
        """Their sum."""
        return 0.0 if self._state is None else self._state.total

    def average(self, now: float) -> float:
        state = self._rolled(now)
        count = state.recent + state.recent_before
        return (state.sum + state.sum_before) / count if count else NOTHING

    def most(self, now: float) -> float:
        state = self._rolled(now)
        most = max(state.most, state.most_before)
        return most if state.recent + state.recent_before else NOTHING

    def rate(self, now: float) -> float:
        """Sum of the values in a second."""
        state = self._rolled(now)
        return (state.sum + state.sum_before) / _elapsed(state, now)

    def frequency(self, now: float) -> float:
        """Number of the values in a second."""
        state = self._rolled(now)
        return (state.recent + state.recent_before) / _elapsed(state, now)


def _elapsed(state: _State, now: float) -> float:
    """A window at least, so that the first values make no absurd rate (as Java)."""
    return max(now - state.start_before, WINDOW)
