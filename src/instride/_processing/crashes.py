"""Which record ends the processes that handle it: what the commits of a partition tell of owners that never came far.

A process that dies leaves nothing but its last commit. So before it starts what may kill it, a commit has to say so.

Laws
1. Pure: it decides what of one partition may be started, and what its commits say of that (a `Mark`).
2. An owner starts its first record when a commit has said up to which offset it will start records (`reach`), and
   nothing beyond. Once a commit has moved the offset, the mark is taken back, and every record may be started: steady
   running costs no commit.
3. An owner that ends cleanly takes its mark back. So whoever finds one follows an owner that died (or was evicted)
   before it came anywhere: all records below its reach are suspects. A suspect is started while nothing else of the
   partition is in progress, and when a commit has named it.
4. Whoever finds a record named follows an owner that died while it was in progress: it is accused. It is started while
   nothing else of the whole process is in progress, or waits to be committed. So a second death proves that it is the
   cause.

What may be done with the first startable record of a partition
    it is              and                                     then
    a suspect          others of the partition are in progress wait
                       it is accused, anything is in progress  wait
                       the commit does not name it yet         commit
                       the commit names it                     start
    no suspect         a suspect is in progress                wait
                       below the committed reach               start
                       beyond it                               commit, of a reach that is doubled each time
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from instride._processing.commit_metadata import NO_MARK, Mark

__all__ = ["Guard", "Permit"]


class Permit(Enum):
    """COMMIT: it may be started when a commit has said what is wanted now."""

    START = "start"
    WAIT = "wait"
    COMMIT = "commit"


class Guard:
    """Of one partition, from when it is taken until a commit has moved its offset. See the laws.

    found: what the commit of the owner before says. window: offsets that are started before the first commit.
    accused, deaths: the record under which owners died, and how many; -1, 0. has_died: whether the last one did.
    """

    __slots__ = (
        "_begun_at",
        "_committed",
        "_is_trial_at_work",
        "_reach",
        "_suspects",
        "_trial",
        "_tried",
        "_window",
        "accused",
        "deaths",
        "has_died",
    )

    def __init__(self, found: Mark, window: int) -> None:
        self.accused = found.named
        self.has_died = found.is_at_work
        # Who named the record and did not take that back has died under it, too.
        self.deaths = found.deaths + self.has_died
        alone = range(found.named, found.named + 1) if found.named >= 0 else range(0)
        # From 0: what lies below the committed offset never comes.
        self._suspects = range(found.reach) if found.reach >= 0 else alone
        self._tried: set[int] = set()
        self._window = window
        self._reach = found.reach
        self._trial = -1
        self._is_trial_at_work = False
        self._begun_at = -1
        self._committed = NO_MARK

    def is_suspect(self, offset: int) -> bool:
        return offset in self._suspects and offset not in self._tried

    def is_accused(self, offset: int) -> bool:
        return offset == self.accused and self.deaths > 0

    @property
    def is_named(self) -> bool:
        """Whether a commit says, or is to say, that a suspect is at work."""
        return self._trial >= 0

    @property
    def is_told(self) -> bool:
        """Whether a commit says of this owner that it has begun."""
        return self._committed.reach >= 0

    def permit(self, offset: int, *, is_busy: bool) -> Permit:
        """The table above. is_busy: others are in progress, of the partition, or (if it is accused) of the process."""
        if not self.is_suspect(offset):
            return self._permit_beyond(offset)
        if is_busy:
            return Permit.WAIT
        self._trial = offset
        told = self._committed
        return Permit.START if told.is_at_work and told.named == offset else Permit.COMMIT

    def _permit_beyond(self, offset: int) -> Permit:
        if self._is_trial_at_work:
            return Permit.WAIT
        if offset < self._committed.reach:
            return Permit.START
        if offset >= self._reach:
            # Doubled, since each reach costs the wait for a commit.
            self._reach, self._window = offset + self._window, 2 * self._window
        return Permit.COMMIT

    def joins(self, offset: int) -> bool:
        """Whether it may be started in a batch with one that may."""
        return not self._is_trial_at_work and offset < self._committed.reach and not self.is_suspect(offset)

    def started(self, offset: int) -> bool:
        """Whether it is a suspect, which is handled alone."""
        self._is_trial_at_work = self.is_suspect(offset)
        return self._is_trial_at_work

    def ended(self, offset: int, *, was_tried: bool = True) -> bool:
        """Its attempt has: whatever came of it, the process lives. Whether it was named.

        was_tried: else its handler was not called, and it stays what it is.
        """
        was_named = offset == self._trial
        if was_named:
            self._trial, self._is_trial_at_work = -1, False
        if was_tried:
            self._tried.add(offset)
            if offset == self.accused:
                self.accused, self.deaths = -1, 0
        return was_named

    def given_up(self) -> None:
        """What is in progress of the partition is: none of it has ended, so whoever is a suspect stays one."""
        self._trial, self._is_trial_at_work = -1, False

    def let_go(self) -> bool:
        """Who is named is not started now, and later commits do not say that it is at work. Until one is accepted, what
        others do would be blamed on it. False: it is at work."""
        if self._is_trial_at_work:
            return False
        self._trial = -1
        return True

    def mark(self, offset: int, *, is_ending: bool) -> Mark:
        """What a commit at this offset is to say. is_ending: no handler runs, and none is started any more."""
        told = self._mark(offset, is_ending=is_ending)
        # Its response may come late: what it names no more must not be started meanwhile.
        if not told.is_at_work or told.named != self._committed.named:
            self._committed = replace(self._committed, named=-1, is_at_work=False)
        return told

    def _mark(self, offset: int, *, is_ending: bool) -> Mark:
        # A commit at this offset says that it is finished.
        if self.accused < offset:
            self.accused, self.deaths = -1, 0
        named, deaths = self.accused, self.deaths
        if is_ending:
            return Mark(named=named, deaths=deaths) if deaths else NO_MARK
        if self._trial >= 0:
            return Mark(
                reach=max(self._reach, self._trial + 1),
                named=self._trial,
                deaths=deaths if named == self._trial else 0,
                is_at_work=True,
            )
        if self._reach < 0 or (offset >= self._suspects.stop and -1 < self._begun_at < offset):
            return Mark(named=named, deaths=deaths) if deaths else NO_MARK
        return Mark(reach=max(self._reach, offset), named=named, deaths=deaths)

    def accepted(self, mark: Mark, offset: int, *, is_ending: bool) -> bool:
        """The broker has it. Whether nothing has to be said any more."""
        if is_ending:
            self._begun_at, self._committed = -1, NO_MARK
            return False
        if not mark:
            return self._begun_at >= 0
        if self._begun_at < 0 and mark.reach >= 0:
            self._begun_at = offset
        self._committed = mark
        return False
