"""What the bookkeeping keeps of one assignment: a partition at one member in one epoch."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from instride.records import TopicPartition

__all__ = ["Assignment", "Delivered", "InHand"]


class Delivered(NamedTuple):
    """A poll returned these offsets, both included. line: of the poll."""

    first: int
    last: int
    leader_epoch: int
    line: int


class InHand(NamedTuple):
    """A signal's handler runs while a poll is under way: what that poll has in hand of an assignment goes on at `next`.

    since: when the first of its handlers began. sought: whether its user has sought since. Then what has no higher seek
        number is of before that.
    """

    next: int | None
    seek_number: int
    paused: bool
    since: float
    sought: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Assignment:
    """generation: None where the member cannot tell. ended: "" while it is live.

    start, next: where it begins, and the offset that is due next. read_epoch: the leader epoch of what was read before
        `next`, -1 where it is not known. least_epoch: after a reset since its topic was recreated, that from which on
        records are not of the topic of before. cuts: how often its log had been truncated when it began there.
    done: finished ones from `start` on, without a gap.
    asked, asked_at: whether, and since when, its revoke is requested. undelayed: a poll showed that to the application,
        which did not delay it.
    superseded: another assignment of the partition is newer. excused: what it has returned may come again.
    delayed: whether its present revoke was, ever. deadline: by when it is to be let go of, as the member said.
    overdue: beats since then.
    passed: turns that did not return its records; while its revocation is requested, beats that did not let go of it.
    waiting_since: since when there are records that it could return.
    failed_at: when a commit of it failed last, with nothing returned since.
    not_begun: from where on what it returned was let go of before any work on it.
    begun: on which of its records work was begun, where its user tells. lost_work: on which of a truncated log it was
        begun, and has not ended since a reset. idle_delays: how often in a row it was delayed
        without any work. acknowledged: what the coordinator said last that it took.
    began_at_reset: when its revoke was requested it had a place, which no commit of the group had given it.
    began_at_committed: what was committed when it began.
    log_start: where the log began when a reset led it to another place.
    responses: what the coordinator said is committed, None for nothing. reset: why it was last to start elsewhere.
    moves: "asked" since then, "told" once it is known where that led, "" when something of there was returned.
    released: its listener was told of its revoke.
    paused: its user wants nothing of it at present.
    was_leaving: its member had begun to close before it was assigned; lost_leaving: before it was lost.
    sought: whether its user ever read on from elsewhere.
    earlier: after a seek or a reset, until a commit goes beyond: the first and last offset that a commit of before that
        may have.
    in_hand: from a signal's handler within a poll until that poll returns, raises or waits without records.
    left_below: where a reset led back to; what it had returned below that it commits only with what comes next.
    left: offsets that this poll returned, though its user had sought elsewhere: nothing that is done with them is a
        part of what he reads.
    """

    who: str
    partition: TopicPartition
    epoch: int
    generation: int | None
    was_leaving: bool = False
    lost_leaving: bool = False
    start: int | None = None
    next: int | None = None
    read_epoch: int = -1
    least_epoch: int = -1
    cuts: int = 0
    seek: int | None = None
    done: int = 0
    finished: set[int] = field(default_factory=set)
    committed: int = 0
    ended: str = ""
    superseded: bool = False
    requested: bool = False
    requested_at: float = 0.0
    undelayed: bool = False
    delayed: bool = False
    deadline: float | None = None
    overdue: int = 0
    passed: int = 0
    excused: bool = False
    waiting_since: float | None = None
    failed_at: float | None = None
    responses: list[int | None] = field(default_factory=list)
    reset: str = ""
    moves: Literal["", "asked", "told"] = ""
    released: bool = False
    not_begun: int | None = None
    begun: set[int] = field(default_factory=set)
    lost_work: set[int] = field(default_factory=set)
    idle_delays: int = 0
    acknowledged: int = 0
    began_at_reset: bool = False
    began_at_committed: int | None = None
    log_start: int | None = None
    paused: bool = False
    sought: bool = False
    earlier: tuple[int, int] | None = None
    in_hand: InHand | None = None
    left_below: int = 0
    left: set[int] = field(default_factory=set)
    lines: list[int] = field(default_factory=list)
    deliveries: list[Delivered] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.partition} of {self.who} in epoch {self.epoch}"

    def begin(self, offset: int) -> None:
        """It reads from here; what was done before is of another place."""
        self.start = self.next = self.committed = self.acknowledged = offset
        self.done = 0

    def finish(self, offset: int, holes: Set[int]) -> None:
        self.finished.add(offset)
        if self.start is None:
            return
        reached = self.start + self.done
        while reached in self.finished or reached in holes:
            reached += 1
        self.done = reached - self.start

    def covers(self, offset: int, holes: Set[int]) -> bool:
        """Whether a commit at the offset speaks of what was finished here, and of nothing else."""
        if self.start is None or offset < self.start:
            return False
        return all(at in holes for at in range(self.start + self.done, offset))

    def reads_elsewhere(self, holes: Set[int]) -> None:
        """Its user reads on from elsewhere; nothing of it counts as finished then. holes: it had passed over them."""
        if self.start is not None:
            reached = self.start + self.done
            while reached in holes:
                reached += 1
            self._leave(reached)
        self.sought = True
        self.moves_by("seek")
        self.start, self.next = None, None
        self.finished.clear()
        if self.in_hand is not None:
            self.in_hand = self.in_hand._replace(sought=True)

    def moves_by(self, reason: str) -> None:
        """It may start elsewhere: once, at the place that is told next."""
        self.reset, self.moves = reason, "asked"

    def reset_to(self, offset: int, *, is_cut: bool) -> None:
        """It is read on from here, since the log did not have what was due. Work on what it returned goes on. (What it
        returned from behind here is of a log that was truncated.) is_cut: it was truncated here, be it behind `next`
        where nothing but holes were lost."""
        committed, back = self.committed, is_cut or offset < max(self.next or 0, self.committed)
        if self.next is not None:
            self._leave(min(self.next, offset))
        self.begin(offset)
        if back:
            self.committed, self.left_below = min(committed, offset), offset
        self.lost_work |= {at for at in self.begun - self.finished if at >= offset}
        self.finished = {at for at in self.finished if at < offset}
        self.begun = {at for at in self.begun if at < offset}

    def _leave(self, reached: int) -> None:
        low, high = self.earlier or (self.committed, self.committed)
        self.earlier = min(low, self.committed), max(high, reached)

    def went_back_earlier(self, offset: int) -> None:
        """A commit of before its seek did, on purpose: those that were asked for between the two rise from there."""
        if self.earlier is not None:
            self.earlier = min(offset, self.earlier[0]), max(offset, self.earlier[1])

    def of_before_its_seek(self, seek_number: int) -> InHand | None:
        """What a poll had in hand when its user sought, if this is of it."""
        hand = self.in_hand
        return hand if hand is not None and hand.sought and seek_number <= hand.seek_number else None

    def is_of_before_its_seek(self, offset: int) -> bool:
        """Whether a commit at the offset may be of before the user sought, or before a reset."""
        return self.earlier is not None and self.earlier[0] <= offset <= self.earlier[1]

    def waits(self, since: float) -> None:
        """There are records that it could return, if it is to."""
        if not self.requested and not self.paused:
            self.waiting_since = since

    def delivery_of(self, offset: int) -> Delivered | None:
        """The last one with that offset."""
        return next((each for each in reversed(self.deliveries) if each.first <= offset <= each.last), None)
