"""What the checker keeps of an assignment, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from instride.records import TopicPartition

__all__ = ["Assignment", "Violation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """law: which of the above is broken, in a word. time: virtual seconds."""

    law: str
    time: float
    text: str

    def __str__(self) -> str:
        return f"{self.time:.3f} s: {self.law}: {self.text}"


@dataclass(slots=True, kw_only=True)
class Assignment:
    """One partition at one member in one epoch. ended: "" while it is live."""

    who: str
    partition: TopicPartition
    epoch: int
    generation: int
    start: int | None = None
    next: int | None = None
    done: int = 0
    finished: set[int] = field(default_factory=set)
    ended: str = ""
    superseded: bool = False
    asked: bool = False
    asked_at: float = 0.0
    undelayed: bool = False
    excused: bool = False
    waiting_since: float | None = None

    def __str__(self) -> str:
        return f"{self.partition} of {self.who} in epoch {self.epoch}"

    def finish(self, offset: int) -> None:
        self.finished.add(offset)
        while self.start is not None and self.start + self.done in self.finished:
            self.done += 1

    def covers(self, offset: int) -> bool:
        """Whether a commit at the offset speaks of what was finished here, and of nothing else."""
        return self.start is not None and self.start <= offset <= self.start + self.done
