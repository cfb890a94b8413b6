"""How the parts that speak with the coordinator say that a membership has ended."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Ends"]


class Ends(Protocol):
    """The group's own end of a membership."""

    def lost(self, why: str, now: float, *, forget_id: bool = False) -> None:
        """Every partition is lost; join again, as a new member where the id is forgotten."""
        ...

    def fail(self, error: Exception, now: float) -> None:
        """This group cannot be joined now: the user hears of it."""
        ...

    def well(self) -> None:
        """A Sync was answered, and its assignment is taken on."""
        ...
