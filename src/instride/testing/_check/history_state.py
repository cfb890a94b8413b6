"""The shared bookkeeping: what a history's events add up to. It judges nothing.

Laws
1. It is pure: the same events give the same state. It asks no clock and reads no file.
2. Each event is folded by one function (`folds`), which first tells the rules (`ask`) and then changes the state.
3. Where a member names an assignment that nothing was told of, the history is no history: HistoryError.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from instride.errors import HistoryError
from instride.records import TopicPartition
from instride.testing._check.assignment import Assignment
from instride.testing._check.events import Event
from instride.testing._check.parameters import Parameters
from instride.testing._check.steps import Again, Commit, Step

__all__ = ["Cut", "HistoryState", "SentBack"]

Ask = Callable[[str, Step], None]
Partitions = tuple[TopicPartition, ...]
_FOREVER = float("inf")


def _ask_nobody(name: str, step: Step) -> None:
    """A state by itself, which no rule reads."""


class SentBack(NamedTuple):
    """A commit that went back, and may be taken. allowed: its user allowed it, so records may be returned again."""

    offset: int
    allowed: bool


class Cut(NamedTuple):
    """A log was truncated: from `end` on it has nothing of a leader epoch older than this one. recreated: its topic
    was, so it is another log; start: where the one of before began."""

    end: int
    leader_epoch: int
    recreated: bool = False
    start: int = 0

    def takes(self, offset: int, leader_epoch: int) -> bool:
        """A record at this offset, of that epoch (-1: unknown)."""
        return self.end <= offset and 0 <= leader_epoch < self.leader_epoch


@dataclass(slots=True, kw_only=True)
class HistoryState:
    """line: of the present event, the first being 1.

    live, last: by member, what it has now, and what it had last, of each partition. newest: of each partition.
    delivered: whose assignment returned the offset last. again: what was returned twice.
    finished, prefix: which offsets are done, and the first that is not. ends, starts: of the log. holes: no records;
        never: none that there ever was, known by one who sees everything. cuts: where it was truncated, or recreated.
        former_holes: what was truncated had these.
    committed: the group's offsets. committed_epochs: the leader epoch of each, -1 where it is not known. sent_epochs:
        that which a member gave with an offset last.
    sent: the highest that anybody sent. sent_back: those below that, of a user who sought or allowed it, by sender and
        number, until one is known to be taken, or it is known that this one is not. stored: as looked up in the end.
    untold, to_tell: losses that the member's poll has to tell; those of assignments that had returned something.
    in_hand: by member, of which a poll may have records in hand, though a signal's handler has run since.
    heard: what the listener has. another_heard: what one may have that was replaced. alive: until when a member knows
        that it is one. networked_at: when its network thread last sent a request or had a response. delivered_until:
        the same, as it was when a poll returned last; what that thread told earlier is delivered.
    heartbeat_responses: how many a member had. produced: the ends that a log had, each with its time. beat_at: how
    many heartbeat responses a member had at its last beat. turn_at: when it had its last turn (`folds.turns`).
    rounds: how many rebalances began. changes: of membership, those of a subscription too. delays_over: revokes that
    ended after they had been delayed.
    ending: who was interrupted in a close or unsubscribe, and by when its membership is to have ended. members: the
    group's. interrupted: who ever was. leaving: who has begun to close. last_loads: of each member, before that.
    taken: by member and partition, what the coordinator took of it: the last that the member knows of, and those since.
    commits_at_all: who has sent a commit. tells_begins: whose users tell on which records work is begun.
    was_reset: by partition, to which place a reset of what the log did not have has led last.
    in_flight: each pending commit, as it was sent. own: offsets that a user chose himself, without a leader epoch.
    rewinds: by member and partition, offsets of commits that may go back, since their user has allowed that
    (`allow_rewind`), in the order in which he did. allowed_when_sent, allowed_when_moved: how many of these, when the
    last one was sent, and when it was last to start elsewhere.
    """

    ask: Ask = _ask_nobody
    line: int = 0
    ended: bool = False
    parameters: Parameters | None = None
    assignments: dict[tuple[str, TopicPartition, int], Assignment] = field(default_factory=dict)
    of_member: defaultdict[str, list[Assignment]] = field(default_factory=lambda: defaultdict(list))
    live: defaultdict[str, dict[TopicPartition, Assignment]] = field(default_factory=lambda: defaultdict(dict))
    last: dict[tuple[str, TopicPartition], Assignment] = field(default_factory=dict)
    newest: dict[TopicPartition, Assignment] = field(default_factory=dict)
    delivered: defaultdict[TopicPartition, dict[int, Assignment]] = field(default_factory=lambda: defaultdict(dict))
    again: list[Again] = field(default_factory=list)
    finished: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    prefix: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    holes: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    never: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    cuts: defaultdict[TopicPartition, list[Cut]] = field(default_factory=lambda: defaultdict(list))
    former_holes: defaultdict[TopicPartition, set[int]] = field(default_factory=lambda: defaultdict(set))
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    committed_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    sent_epochs: dict[tuple[str, TopicPartition, int], int] = field(default_factory=dict)
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    sent_back: defaultdict[TopicPartition, dict[tuple[str, int], SentBack]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    stored: dict[TopicPartition, int] | None = None
    untold: defaultdict[str, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))
    to_tell: defaultdict[str, list[tuple[float, Assignment]]] = field(default_factory=lambda: defaultdict(list))
    in_hand: defaultdict[str, list[Assignment]] = field(default_factory=lambda: defaultdict(list))
    paused: dict[str, Partitions] = field(default_factory=dict)
    heard: defaultdict[str, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))
    another_heard: defaultdict[str, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))
    networked_at: dict[str, float] = field(default_factory=dict)
    delivered_until: dict[str, float] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    steady: set[str] = field(default_factory=set)
    commits_at_all: set[str] = field(default_factory=set)
    tells_begins: set[str] = field(default_factory=set)
    taken_for_done: set[str] = field(default_factory=set)
    commits_unseen: bool = False
    alive: dict[str, float] = field(default_factory=dict)
    taken: defaultdict[tuple[str, TopicPartition], list[int]] = field(default_factory=lambda: defaultdict(list))
    in_flight: defaultdict[str, dict[int, dict[TopicPartition, Commit]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    was_reset: dict[TopicPartition, int] = field(default_factory=dict)
    own: defaultdict[str, set[tuple[TopicPartition, int]]] = field(default_factory=lambda: defaultdict(set))
    rewinds: defaultdict[tuple[str, TopicPartition], list[int]] = field(default_factory=lambda: defaultdict(list))
    allowed_when_sent: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    allowed_when_moved: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    evicted: dict[str, tuple[float, str]] = field(default_factory=dict)
    blind: dict[str, float] = field(default_factory=dict)
    rebalancing_since: float | None = None
    ending: dict[str, float] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    interrupted: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    rounds: int = 0
    changes: int = 0
    delays_over: int = 0
    samples: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    loads: defaultdict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))
    last_loads: dict[str, Event] = field(default_factory=dict)
    heartbeat_responses: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    produced: defaultdict[TopicPartition, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    beat_at: dict[str, int] = field(default_factory=dict)
    turn_at: dict[str, float] = field(default_factory=dict)

    @property
    def judged_by(self) -> Parameters:
        if self.parameters is None:
            raise HistoryError('a history begins with the event "history", which says what it may be judged by')
        return self.parameters

    def find(self, who: str, partition: TopicPartition, epoch: int) -> Assignment:
        """Law 3."""
        found = self.assignments.get((who, partition, epoch))
        if found is None:
            raise HistoryError(f"{who} was never assigned {partition} in epoch {epoch}")
        return found

    def each(self, who: str, epochs: tuple[tuple[TopicPartition, int], ...]) -> list[Assignment]:
        return [self.find(who, partition, epoch) for partition, epoch in epochs]

    def over(self, each: Assignment, how: str) -> None:
        """The assignment has ended."""
        each.ended = how
        each.lines.append(self.line)
        if self.live[each.who].get(each.partition) is each:
            del self.live[each.who][each.partition]

    def has_moved(self, who: str) -> bool:
        """Whether it ever read on from elsewhere, by a seek or a reset."""
        return any(each.reset for each in self.of_member[who])

    def has_work(self, each: Assignment) -> bool:
        """Whether a hand-over has to wait for it: something is at work, or not known to be committed. (Of a deleted
        topic, or of what was truncated, nothing is, and its user may not have heard.)"""
        if each.start is None or each.excused or each.begun - each.finished or each.lost_work:
            return True
        if self.recreated_since(each) is not None or self.is_of_deleted_topic(each.partition, each.read_epoch):
            return True
        is_lost = (
            each.next is not None and self.truncated_at(each.partition, each.next - 1, each.read_epoch) is not None
        )
        return is_lost or each.start + each.done > each.acknowledged

    def alive_until(self, who: str) -> float:
        return self.alive.get(who, _FOREVER)

    def start_of(self, partition: TopicPartition) -> int:
        """Where the log begins."""
        return self.starts.get(partition, 0)

    def next_record(self, partition: TopicPartition, offset: int) -> int:
        """The first from this one on that is no hole, whether it is there yet or not."""
        holes = self.holes.get(partition, ())
        while offset in holes:
            offset += 1
        return offset

    def has_records(self, partition: TopicPartition, offset: int) -> bool:
        """Whether there is something to read from this offset on."""
        return self.next_record(partition, offset) < self.ends.get(partition, 0)

    def reached(self, partition: TopicPartition) -> int:
        """The first offset that nobody has finished."""
        return self.prefix.get(partition, self.start_of(partition))

    def finish(self, partition: TopicPartition, offset: int) -> None:
        finished, holes = self.finished[partition], self.holes.get(partition, ())
        finished.add(offset)
        reached = self.reached(partition)
        while reached in finished or reached in holes:
            reached += 1
        self.prefix[partition] = reached

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """A user's seek, or a reset: what is passed over is nobody's work any more."""
        self.prefix[partition] = max(self.next_record(partition, offset), self.reached(partition))

    def truncate(self, partition: TopicPartition, cut: Cut) -> None:
        """What was known of the log from there on is true no more."""
        end = cut.end
        self.cuts[partition].append(cut)
        self.former_holes[partition] |= {at for at in self.holes[partition] if at >= end}
        for known in (self.holes, self.never, self.finished):
            known[partition] = {at for at in known[partition] if at < end}
        for ends in (self.ends, self.sent, self.prefix):
            if partition in ends:
                ends[partition] = min(end, ends[partition])
        self.produced[partition] = [each for each in self.produced[partition] if each[0] <= end]
        self.forget_deliveries(partition, end)

    def recreate(self, partition: TopicPartition, leader_epoch: int) -> None:
        """Nor is anything of the group's there."""
        self.truncate(partition, Cut(0, leader_epoch, recreated=True, start=self.start_of(partition)))
        for known in (self.starts, self.committed, self.committed_epochs, self.was_reset):
            known.pop(partition, None)
        self.sent_back.pop(partition, None)

    def is_of_deleted_topic(self, partition: TopicPartition, leader_epoch: int) -> bool:
        """Whether a record of that epoch (-1: unknown) is of a topic that was deleted since."""
        cuts = self.cuts.get(partition, ())
        return any(each.recreated and 0 <= leader_epoch < each.leader_epoch for each in cuts)

    def recreated_since(self, each: Assignment) -> Cut | None:
        """The first time that its topic was, since it began to read where it does."""
        return next((cut for cut in self.cuts.get(each.partition, [])[each.cuts :] if cut.recreated), None)

    def next_topic_of(self, each: Assignment) -> int:
        """The first leader epoch of the topic after the one that it read, or was led to, last. (It may have begun in
        any, of which it has returned nothing: what it asked for is told later, and a broker may not have heard.)"""
        known = max(each.read_epoch, each.least_epoch)
        cuts = self.cuts.get(each.partition, ())
        return next((cut.leader_epoch for cut in cuts if cut.recreated and cut.leader_epoch > known), known)

    def cuts_known_to(self, each: Assignment) -> int:
        """How often its log had been truncated when it began there, as far as what it read last tells: that may be of a
        topic that was deleted before."""
        for count, cut in enumerate(self.cuts.get(each.partition, [])[: each.cuts]):
            if cut.recreated and 0 <= each.read_epoch < cut.leader_epoch:
                return count
        return each.cuts

    def deleted_since(self, each: Assignment, offset: int) -> Cut | None:
        """The same of a topic that began at this offset. (At 0 each does.)"""
        cuts = self.cuts.get(each.partition, [])[each.cuts :]
        return next((cut for cut in cuts if cut.recreated and 0 < cut.start == offset), None)

    def cuts_before_recreation(self, each: Assignment, offset: int) -> int | None:
        """How often its log had been truncated when its topic was recreated, if one of these truncations was at this
        offset, since it began to read where it does: a broker that has not heard of the next topic resets it there."""
        ends = set()
        for count, cut in enumerate(self.cuts.get(each.partition, [])[each.cuts :], start=each.cuts):
            if cut.recreated:
                return count if offset in ends else None
            ends.add(cut.end)
        return None

    def truncated_at(
        self,
        partition: TopicPartition,
        offset: int,
        leader_epoch: int,
        *,
        first: int | None = None,
        seen: float = _FOREVER,
    ) -> int | None:
        """Where the log was truncated that had a record of that epoch (-1: unknown) at this offset; None: it has it.

        first: only so many truncations count. seen: only those up to that leader epoch.
        """
        cuts = [each for each in self.cuts.get(partition, [])[:first] if each.leader_epoch <= seen]
        return min((each.end for each in cuts if each.takes(offset, leader_epoch)), default=None)

    def is_of_truncated(self, commit: Commit) -> bool:
        """Whether it speaks of what the log has no more, or may: of a number that a user names, without an epoch,
        nobody can tell. A member that has not yet learned of the truncation may still commit it."""
        if commit.leader_epoch < 0:
            named = (commit.partition, commit.offset) in self.own[commit.event.who]
            sought = commit.each is not None and commit.each.sought
            return (named or sought) and any(cut.end < commit.offset for cut in self.cuts.get(commit.partition, ()))
        return self.truncated_at(commit.partition, commit.offset - 1, commit.leader_epoch) is not None

    def places_of_cuts(self, each: Assignment) -> set[int]:
        """Where one that goes on at `next` may be reset to, since its log was truncated there or before: nobody knows
        of how many of the truncations it has heard."""
        if each.next is None:
            return set()
        if each.read_epoch < 0:  # nobody knows which of them concern it
            return {cut.end for cut in self.cuts.get(each.partition, [])[each.cuts :]}
        holes, former = self.holes.get(each.partition, ()), self.former_holes.get(each.partition, ())
        reached = each.next
        while reached in holes or reached in former:
            reached += 1
        heard = range(1, len(self.cuts.get(each.partition, ())) + 1)
        found = (self.truncated_at(each.partition, reached, each.read_epoch, first=count) for count in heard)
        return {at for at in found if at is not None}

    def goes_on_at(self, partition: TopicPartition) -> int | None:
        """Where the next owner goes on that begins at what is committed; None where nothing is."""
        offset = self.committed.get(partition)
        if offset is None:
            return None
        cut = self.truncated_at(partition, offset - 1, self.committed_epochs.get(partition, -1))
        return offset if cut is None else cut

    def may_rewind(self, who: str, partition: TopicPartition, offset: int) -> bool:
        """A later commit may go in the place of one that may go back."""
        return any(at <= offset for at in self.rewinds[who, partition])

    def use_rewind(self, who: str, partition: TopicPartition, offset: int) -> None:
        """The first one that allows this offset allows nothing more."""
        here = who, partition
        place = self.rewinds[here].index(offset)
        del self.rewinds[here][place]
        for counts in (self.allowed_when_sent, self.allowed_when_moved):
            if place < counts.get(here, 0):
                counts[here] -= 1

    def forget_deliveries(self, partition: TopicPartition, offset: int) -> None:
        """A user seeks, or commits less on purpose: from there on each record may be returned once more; so may what he
        had not committed yet."""
        for at in [at for at in self.delivered[partition] if at >= offset]:
            del self.delivered[partition][at]

    def begins_late(self, partition: TopicPartition, offset: int) -> None:
        """The first that is known of a partition: what is before it is no concern of this history."""
        if self.judged_by.reset != "earliest" and partition not in self.prefix and partition not in self.starts:
            self.prefix[partition] = offset

    def lines_of(self, *assignments: Assignment | None) -> tuple[int, ...]:
        """Where the history speaks of these, and the present line."""
        lines = {self.line}
        for each in assignments:
            if each is not None:
                lines.update(each.lines)
                lines.update(delivered.line for delivered in each.deliveries[-1:])
        return tuple(sorted(lines))


Fold = Callable[[HistoryState, Event], None]
Folds = Mapping[str, Fold]
