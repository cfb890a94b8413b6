"""How often a member heartbeats: at `heartbeat_interval`, and faster while a hand-over is pending, since members hear
of the rebalance that completes it by a heartbeat (docs/rebalance.md, rule 19).

Laws
1. While its leader says that partitions are withheld, a member heartbeats every 250 ms. After 30 s without a new
   assignment the interval doubles with each heartbeat, up to the default.
2. A group sends at most 500 a second: in one so large that this needs it, the fast interval is longer, and each member
   begins at its own place in it. Small groups begin together, so that they hear of a rebalance together.
3. A leader of another client says nothing. Then a cooperative member takes it that a hand-over may be pending for 5 s,
   and that there are no more members with partitions than partitions; one that has none heartbeats every second.
4. An interval of the user's that is shorter is kept. What a broker's throttle time asks for is kept as well.
"""

from __future__ import annotations

from instride.core.network.context import Context
from instride.wire.group_notice import GroupNotice

__all__ = ["Pace"]

_FAST = 0.25
_SURPLUS = 1.0
_MOST_A_SECOND = 450  # below 500: what the members of a group send is not exactly even
_FAST_FOR = 30.0
_FAST_FOR_UNTOLD = 5.0


class Pace:
    """Not thread-safe: the network machine owns it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._interval = float("inf")
        self._fast_until = float("-inf")
        self._offset = 0.0

    def first(self, now: float) -> float:
        """When the first heartbeat after a Join is due."""
        self.calm_down()
        return now + self._default + self._offset

    def told(self, notice: GroupNotice, now: float) -> float:
        """A Sync brought a notice. Returns when the first heartbeat is due."""
        self._offset = notice.place / _MOST_A_SECOND % self._default
        if not notice.withheld:
            return self.first(now)
        self._hurry(max(_FAST, notice.members / _MOST_A_SECOND), now + _FAST_FOR)
        return now + min(_FAST, self._default) + self._offset

    def untold(self, partitions: int, *, has_some: bool, now: float) -> float:
        """A Sync of a cooperative group brought none (law 3). partitions: of our topics. Returns the first time."""
        spread = max(_FAST if has_some else _SURPLUS, partitions / _MOST_A_SECOND)
        self._hurry(spread, now + _FAST_FOR_UNTOLD)
        return now + self.interval(now) * (0.5 + self._context.random() / 2)

    def calm_down(self) -> None:
        """Nothing is known to be pending; or a rebalance is under way, which no heartbeat can speed up."""
        self._interval, self._fast_until = float("inf"), float("-inf")

    def interval(self, now: float) -> float:
        """From a heartbeat that is sent now to the next one."""
        if now >= self._fast_until:
            self._interval *= 2
        return min(self._interval, self._default)

    def _hurry(self, interval: float, until: float) -> None:
        self._interval, self._fast_until = interval, until

    @property
    def _default(self) -> float:
        return self._context.config.heartbeat_interval
