"""What a history says of itself: how it was seen, what it may be judged by, and within which times."""

from __future__ import annotations

from typing import Any, NamedTuple

from instride.errors import HistoryError
from instride.testing._check.vocabulary import VERSION

__all__ = ["Parameters"]


class Parameters(NamedTuple):
    """The first event of a history, "history". A time that is None is not judged. All are seconds.

    source: for people. kind: "calm": nothing fails, nobody is late; "storm": the same, with many members that come for
        a moment; "slow": nothing fails, but work may outlast what the group allows; "faults".
    view: "broker": one writer sees everything in its order, commits where the coordinator takes them; "clients": each
        member writes what it sees, a commit when its response comes.
    reset: what the members do where nothing is committed; None where that is not known.
    gap: how long a partition with records may stand still. rebalance: in which all members have joined.
    delay: how long a revoke may be pending. session: the session time-out, with the time that a response takes.
    beat: the longest interval of heartbeats, with the time that a response takes.
    """

    version: int = VERSION
    source: str = ""
    kind: str = "faults"
    view: str = "clients"
    reset: str | None = None
    gap: float | None = None
    rebalance: float | None = None
    delay: float | None = None
    session: float | None = None
    beat: float | None = None

    @property
    def calm(self) -> bool:
        return self.kind in ("calm", "storm")

    @property
    def faultless(self) -> bool:
        return self.kind != "faults"

    @classmethod
    def of(cls, detail: tuple[Any, ...]) -> Parameters:
        if len(detail) != len(cls._fields) or detail[0] != VERSION:
            raise HistoryError(f'this is no "history" of version {VERSION}: {detail}')
        return cls(*detail)
