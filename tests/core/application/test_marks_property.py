"""Whatever happens, in any order: a poll returns all that is buffered and not paused, and one that waits has something
to commit exactly where a position is not the one that was committed last. A poll looks only at partitions that are
marked (laws M1 and M2 of `revoke_lists.py`): a mark that is missing is a record, or a commit, that is late.
"""

from __future__ import annotations

from random import Random

import pytest
from application_script import Script, tp

from instride._core.events import Commit, Fetched

PARTITIONS = range(4)
INTERVAL = 5.0
STEPS = 60


class Application:
    """One of each move, with a model of what is buffered: where that begins and ends, and what is paused."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.script = Script(enable_auto_commit=True, auto_commit_interval=INTERVAL)
        self.script.subscribe()
        self.epochs = dict.fromkeys(PARTITIONS, 0)
        self.fetch_numbers = dict.fromkeys(PARTITIONS, 0)
        self.buffered: dict[int, tuple[int, int]] = {}
        self.paused: set[int] = set()
        self.committed: dict[int, tuple[int, int, int | None]] = {}
        for p in PARTITIONS:
            self.assign_anew(p)

    # -- moves

    def fetch(self, p: int) -> None:
        start, end = self.buffered[p]
        new_end = end + self.random.randint(1, 5)
        epoch, number = self.epochs[p], self.fetch_numbers[p]
        self.script.fetched(p, end, new_end, epoch=epoch, fetch_number=number)
        self.buffered[p] = start, new_end

    def pass_over(self, p: int) -> None:
        """A batch without a record to return."""
        start, end = self.buffered[p]
        if start != end:
            return
        after = Fetched(
            partition=tp(p),
            epoch=self.epochs[p],
            fetch_number=self.fetch_numbers[p],
            start=end,
            chunk=None,
            next_offset=end + 1,
        )
        self.script.up(after)
        self.buffered[p] = end + 1, end + 1

    def seek(self, p: int) -> None:
        offset = self.random.randrange(100)
        self.script.machine.seek(tp(p), offset)
        self.fetch_numbers[p] += 1
        self.buffered[p] = offset, offset

    def pause(self, p: int) -> None:
        self.script.machine.pause([tp(p)])
        self.paused.add(p)

    def resume(self, p: int) -> None:
        self.script.machine.resume([tp(p)])
        self.paused.discard(p)

    def assign_anew(self, p: int) -> None:
        """It was lost before, but for the first time."""
        self.buffered[p] = 0, 0
        if self.epochs[p]:
            self.script.lost(p, epoch=self.epochs[p])
            self.poll()
        self.epochs[p] += 1
        self.script.assigned(p, epoch=self.epochs[p])
        self.fetch_numbers[p] = 0
        self.paused.discard(p)
        self.poll()

    def poll_some(self, _: int) -> None:
        for p, start, end in self._poll(limit=self.random.randint(1, 4)):
            assert start == self.buffered[p][0]
            assert p not in self.paused
            self.buffered[p] = end, self.buffered[p][1]

    def wait_for_the_commit(self, _: int) -> None:
        self.script.now += INTERVAL
        self.poll()

    # -- what is to be so after each

    def poll(self) -> None:
        """It returns all that is there."""
        returned = {p: end for p, _, end in self._poll(limit=-1)}
        there = {p: end for p, (start, end) in self.buffered.items() if start < end and p not in self.paused}
        assert returned == there
        for p, end in returned.items():
            self.buffered[p] = end, end

    def waits_as_it_should(self) -> None:
        waiting = self.script.machine.poll(self.script.now, 1000.0, immediate=False, limit=0)
        until = next(waiting).until
        self._take_commits()
        assert {each.partition for each in self.script.machine.paused()} == self.paused
        known = {p.partition: at for p, at in self.script.machine.positions().items() if at[2] is not None}
        news = {p: at for p, at in known.items() if self.committed.get(p) != at}
        assert (until <= self.script.now + INTERVAL) == bool(news), (until, self.script.now, news)

    def _poll(self, *, limit: int) -> list[tuple[int, int, int]]:
        returned = self.script.poll(limit=limit)
        self._take_commits()
        return returned

    def _take_commits(self) -> None:
        for commit in self.script.take_posted(Commit):
            for each, entry in commit.entries.items():
                self.committed[each.partition] = entry.epoch, entry.seek_number, entry.offset


@pytest.mark.parametrize("seed", range(40))
def test_nothing_that_is_there_is_missed(seed: int) -> None:
    random = Random(seed)
    application = Application(random)
    moves = [
        *[application.fetch] * 4,
        *[application.poll_some] * 3,
        application.pass_over,
        application.seek,
        application.pause,
        application.resume,
        application.assign_anew,
        application.wait_for_the_commit,
    ]
    for _ in range(STEPS):
        random.choice(moves)(random.choice(PARTITIONS))
        if random.random() < 0.5:
            application.waits_as_it_should()
        if random.random() < 0.3:
            application.poll()
