"""What the checker finds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Violation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """number: the invariant's, "S4". law: the same in a word. time: seconds, as in the history.

    lines: which events of the history it speaks of, the first being 1.
    """

    number: str
    law: str
    time: float
    text: str
    lines: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.time:.3f} s: {self.number}, {self.law}: {self.text}"
