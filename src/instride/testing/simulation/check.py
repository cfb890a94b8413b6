"""Judges a history: what must hold under every interleaving, and nothing of how it came about.

Laws (docs/rebalance.md; S and L numbers are the invariants of docs/simulation.md)
1. Exactly once where nothing was lost (S1). A record is delivered again only when who had it before lost it, crashed,
   closed without an answer, saw a handler fail or a blocking commit fail (S2). All are finished at the end (L3).
2. A commit never goes back (S5), never reaches beyond a record that nobody finished (S4), and is never taken from an
   assignment that is over: not an older epoch's (S6), not after a hand-over (S8).
3. Offsets rise without a skip in each assignment, and begin at the committed offset (S3).
4. Nothing is returned after the revoke was requested (S7), nor of what the same poll lost, nor while it is paused. A
   poll tells what was lost of what earlier ones returned.
5. No partition has two owners, unless the older one lost it (S11).
6. In a history without faults what is not asked for goes on, whatever is held back (L1), no delay outlasts
   max_poll_interval (L2), and nobody is evicted (L4). A calm one loses nothing, and
   no commit of it fails: a rebalance is no reason. A rebalance waits for no delay.
7. A listener hears of each assignment once, and once of its end.
8. No thread dies or spins, and no call raises what the user cannot have caused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from instride.records import TopicPartition
from instride.testing.simulation.history import Event
from instride.testing.simulation.judged import Assignment, Violation

__all__ = ["Violation", "check"]

_LONGEST_GAP = 2.5
"""Seconds that a partition with records may stand still (law 6): a long poll, round trips, a turn of the others."""
_LONGEST_REBALANCE = 3.0
"""Seconds in which all have joined: heartbeats, a commit budget, round trips. A member that goes before it has used the
id that it was given is waited for until its session ends; so a rebalance during which one goes is not judged."""
_LATE = 0.5
"""How much later than max_poll_interval a revoke's end may be told: the network thread's turn comes when it comes."""
_SESSION, _BEAT = 2.5, 1.0
"""The session time-out and the longest heartbeat interval of all plans, each with the time that an answer takes."""


def check(history: Iterable[Event]) -> list[Violation]:
    """Everything that is wrong with the history, in the order of time; nothing where all is well."""
    checker = _Checker()
    for event in history:
        handler = checker.handlers.get(event.what)
        if handler is not None:
            handler(event)
    return sorted(checker.found, key=lambda violation: violation.time)


class _Checker:
    def __init__(self) -> None:
        self.found: list[Violation] = []
        self._kind = "faults"
        self._longest_delay = float("inf")
        self._rebalancing_since: float | None = None
        self._assignments: dict[tuple[str, TopicPartition, int], Assignment] = {}
        self._newest: dict[TopicPartition, Assignment] = {}
        self._live: dict[str, dict[TopicPartition, Assignment]] = defaultdict(dict)
        self._delivered: dict[TopicPartition, dict[int, Assignment]] = defaultdict(dict)
        self._again: list[tuple[float, int, Assignment, Assignment]] = []
        self._finished: dict[TopicPartition, set[int]] = defaultdict(set)
        self._prefix: dict[TopicPartition, int] = defaultdict(int)
        self._committed: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._untold: dict[str, list[TopicPartition]] = defaultdict(list)
        self._to_tell: dict[str, list[tuple[float, Assignment]]] = defaultdict(list)
        self._paused: dict[str, tuple[TopicPartition, ...]] = {}
        self._heard: dict[str, set[TopicPartition]] = defaultdict(set)
        self._steady: set[str] = set()
        self._evicted: dict[str, tuple[float, str]] = {}
        self._blind: dict[str, float] = {}
        self.handlers = {
            "evicted": self._evict,
            "blind": self._blind_beat,
            "gave up": self._gave_up,
            "plan": self._plan,
            "group": self._group,
            "started": self._started,
            "leaving": self._leaving,
            "died": self._died,
            "crashed": self._crashed,
            "closed": self._closed,
            "unsubscribes": self._unsubscribes,
            "unsubscribed": self._unsubscribed,
            "produced": self._produced,
            "assigned": self._assigned,
            "requested": self._requested,
            "given back": self._given_back,
            "positioned": self._positioned,
            "revoked": self._revoked,
            "lost": self._lost,
            "on assigned": self._on_assigned,
            "on revoked": self._on_gone,
            "on lost": self._on_gone,
            "still paused": self._still_paused,
            "poll": self._poll,
            "delay": self._delay,
            "done": self._done,
            "failed": self._failed,
            "cancelled": self._failed,
            "commit failed": self._commit_failed,
            "commit": self._commit,
            "end": self._end,
        }

    def _wrong(self, event: Event, law: str, text: str) -> None:
        self.found.append(Violation(law=law, time=event.time, text=text))

    # -- members

    def _plan(self, event: Event) -> None:
        self._kind = event.detail[1]
        self._longest_delay = event.detail[2] + _LATE

    def _group(self, event: Event) -> None:
        if event.detail[0] == "PreparingRebalance":
            self._rebalancing_since = event.time
        elif self._rebalancing_since is not None:
            waited = event.time - self._rebalancing_since
            if self._kind != "faults" and waited > _LONGEST_REBALANCE:
                self._wrong(event, "a rebalance waits for no delay", f"the members took {waited:.2f} s to join")
            self._rebalancing_since = None

    def _started(self, event: Event) -> None:
        if event.detail[0]:
            self._steady.add(event.who)

    def _leaving(self, event: Event) -> None:
        self._steady.discard(event.who)
        self._rebalancing_since = None

    def _died(self, event: Event) -> None:
        self._wrong(event, "nothing dies", f"{event.who}'s {event.detail[0]}: {event.detail[1]}")
        self._crashed(event)

    def _crashed(self, event: Event) -> None:
        for each in list(self._live[event.who].values()):
            self._over(each, "crashed")

    def _closed(self, event: Event) -> None:
        if not event.detail[0]:
            for (who, _, _), each in self._assignments.items():
                each.excused |= who == event.who
        self._gone(event)

    def _gone(self, event: Event) -> None:
        """Whatever is left with the group now was never taken by the application; its listener heard of all else."""
        if self._heard[event.who] and event.detail != (False,):
            self._wrong(event, "listeners hear once", f"{event.who}: nothing was told of {self._heard[event.who]}")
        self._heard[event.who].clear()
        for each in list(self._live[event.who].values()):
            self._over(each, "closed")

    def _unsubscribes(self, event: Event) -> None:
        self._rebalancing_since = None
        for each in self._live[event.who].values():
            each.waiting_since = None
            each.excused |= event.detail[0] == "resubscribe in haste"

    def _unsubscribed(self, event: Event) -> None:
        self._untold.pop(event.who, None)
        self._to_tell.pop(event.who, None)
        self._gone(event)

    def _over(self, each: Assignment, how: str) -> None:
        each.ended = how
        self._live[each.who].pop(each.partition, None)

    # -- assignments

    def _assigned(self, event: Event) -> None:
        generation, partitions = event.detail
        for partition, epoch in partitions:
            mine = self._live[event.who].get(partition)
            if mine is not None:
                self._wrong(event, "one owner", f"{mine} is assigned again")
            new = Assignment(who=event.who, partition=partition, epoch=epoch, generation=generation)
            older = self._newest.get(partition)
            if older is not None and older.who == event.who and older.epoch >= epoch:
                self._wrong(event, "epochs rise", f"{new} after {older}")
            self._assignments[event.who, partition, epoch] = self._live[event.who][partition] = new
            self._supersede(older, new)

    def _supersede(self, older: Assignment | None, new: Assignment) -> None:
        """An assignment of an older generation, of which a suspended member hears late, is over from the start."""
        if older is not None and older.generation > new.generation:
            new.superseded = True
            return
        if older is not None:
            older.superseded = True
        self._newest[new.partition] = new

    def _each(self, event: Event) -> list[Assignment]:
        return [self._assignments[event.who, partition, epoch] for partition, epoch in event.detail[0]]

    def _requested(self, event: Event) -> None:
        for each in self._each(event):
            self._gap(event, each)
            each.asked, each.asked_at = True, event.time
            each.waiting_since = None

    def _given_back(self, event: Event) -> None:
        for each in self._each(event):
            self._in_time(event, each)
            each.asked = False

    def _positioned(self, event: Event) -> None:
        partition, epoch, offset = event.detail
        each = self._assignments[event.who, partition, epoch]
        if each.start is None:
            each.start = each.next = offset
        if self._ends[partition] > offset:
            each.waiting_since = event.time

    def _revoked(self, event: Event) -> None:
        for each in self._each(event):
            self._in_time(event, each)
            self._over(each, "revoked")

    def _lost(self, event: Event) -> None:
        if self._kind in ("calm", "storm"):
            self._wrong(event, "a calm history loses nothing", f"{event.who} lost {event.detail[0]}")
        for each in self._each(event):
            self._in_time(event, each)
            self._over(each, "lost")
            self._untold[event.who].append(each.partition)
            if each.next != each.start:
                self._to_tell[event.who].append((event.time, each))

    def _in_time(self, event: Event, each: Assignment) -> None:
        """Law 6: no delay is without end (L2)."""
        if each.asked and self._kind != "faults" and event.time - each.asked_at > self._longest_delay:
            self._wrong(event, "a delay ends", f"{each} was asked for {event.time - each.asked_at:.2f} s ago")

    # -- records

    def _produced(self, event: Event) -> None:
        partition, end = event.detail
        self._ends[partition] = end
        owner = self._newest.get(partition)
        if owner is not None and owner.next is not None and not owner.asked and owner.waiting_since is None:
            owner.waiting_since = event.time

    def _still_paused(self, event: Event) -> None:
        self._paused[event.who] = event.detail[0]

    def _poll(self, event: Event) -> None:
        deliveries, asked, lost = event.detail
        paused = self._paused.pop(event.who, ())
        self._tells(event, lost)
        for partition in lost:
            if partition not in self._untold[event.who]:
                self._wrong(event, "lost once", f"{event.who} was told that it lost {partition}, and had not")
            else:
                self._untold[event.who].remove(partition)
        for partition, epoch, _, first, last in deliveries:
            if partition in paused:
                self._wrong(event, "nothing while paused", f"{partition} {first}-{last} was returned")
            if partition in asked or partition in lost:
                self._wrong(event, "nothing after the request", f"{partition} {first}-{last} came with its revoke")
            self._delivery(event, self._assignments[event.who, partition, epoch], first, last)
        for partition in asked:
            each = self._live[event.who].get(partition)
            if each is not None:
                each.undelayed = True

    def _tells(self, event: Event, lost: tuple[TopicPartition, ...]) -> None:
        due = [each for time, each in self._to_tell[event.who] if time < event.time]
        self._to_tell[event.who] = [later for later in self._to_tell[event.who] if later[1] not in due]
        for each in due:
            if each.partition not in lost:
                self._wrong(event, "losses are told", f"{each} was lost, and this poll does not say so")

    def _delivery(self, event: Event, each: Assignment, first: int, last: int) -> None:
        if each.ended == "revoked" or each.undelayed:
            self._wrong(event, "nothing after the request", f"{each}: {first}-{last} after its revoke")
        if each.superseded and not self._could_not_know(event):
            self._wrong(event, "one owner", f"{each}: {first}-{last} was returned after another member had it")
        if first != each.next:
            self._wrong(event, "no skip", f"{each}: {first} was returned where {each.next} was due")
        if first == each.start and not each.ended and self._committed.get(each.partition, 0) != first:
            committed = self._committed.get(each.partition, 0)
            self._wrong(event, "begins where committed", f"{each} begins at {first}; {committed} is committed")
        self._gap(event, each)
        each.waiting_since = event.time if last + 1 < self._ends[each.partition] and not each.asked else None
        each.next = last + 1
        before = self._delivered[each.partition]
        for offset in range(first, last + 1):
            if offset in before and not each.superseded:
                self._again.append((event.time, offset, before[offset], each))
            before[offset] = each

    def _on_assigned(self, event: Event) -> None:
        for partition in event.detail[0]:
            if partition in self._heard[event.who]:
                self._wrong(event, "listeners hear once", f"{event.who}: {partition} was assigned twice")
            self._heard[event.who].add(partition)

    def _on_gone(self, event: Event) -> None:
        for partition in event.detail[0]:
            if partition not in self._heard[event.who]:
                self._wrong(event, "listeners hear once", f"{event.who}: {partition} {event.what}, and was not there")
            self._heard[event.who].discard(partition)

    def _could_not_know(self, event: Event) -> bool:
        """Law 5: who misses a barrier, or the answer of its Join, hears of it by the next heartbeat, not sooner; and a
        coordinator that loads says that all is well."""
        evicted_at, why = self._evicted.get(event.who, (0.0, ""))
        if event.time - self._blind.get(event.who, -9.0) < _SESSION:
            return True
        return "in time" in why and event.time - evicted_at < _BEAT

    def _evict(self, event: Event) -> None:
        why = event.detail[0]
        self._evicted[event.who] = (event.time, why)
        if self._kind != "faults" and why != "it left":
            self._wrong(event, "heartbeats go on", f"{event.who} was evicted: {why}")

    def _blind_beat(self, event: Event) -> None:
        self._blind[event.who] = event.time

    def _gap(self, event: Event, each: Assignment) -> None:
        """Law 6."""
        if self._kind == "faults" or each.who not in self._steady or each.waiting_since is None or each.ended:
            return
        if event.time - each.waiting_since > _LONGEST_GAP:
            gap = event.time - each.waiting_since
            self._wrong(event, "the others go on", f"{each} stood still for {gap:.2f} s with records to read")

    def _delay(self, event: Event) -> None:
        for partition in event.detail[0]:
            each = self._live[event.who].get(partition)
            if each is not None:
                each.undelayed = False

    def _done(self, event: Event) -> None:
        partition, offset, epoch = event.detail
        self._assignments[event.who, partition, epoch].finish(offset)
        finished = self._finished[partition]
        finished.add(offset)
        while self._prefix[partition] in finished:
            self._prefix[partition] += 1

    def _failed(self, event: Event) -> None:
        partition, _, epoch = event.detail
        self._assignments[event.who, partition, epoch].excused = True

    def _gave_up(self, event: Event) -> None:
        for partition in event.detail[0]:
            if partition in self._live[event.who]:
                self._live[event.who][partition].excused = True

    # -- commits

    def _commit_failed(self, event: Event) -> None:
        if self._kind in ("calm", "storm"):
            self._wrong(event, "a calm commit succeeds", f"{event.who}: {event.detail[0]}")
        for each in self._live[event.who].values():
            each.excused = True
        for (who, _, _), each in self._assignments.items():
            each.excused |= who == event.who

    def _commit(self, event: Event) -> None:
        """Law 2."""
        for partition, offset, code in event.detail[1]:
            if code:
                continue
            before = self._committed.get(partition, 0)
            if offset < before:
                self._wrong(event, "commits rise", f"{event.who} takes {partition} back from {before} to {offset}")
            if offset > self._prefix[partition]:
                gap = self._prefix[partition]
                self._wrong(event, "no commit beyond a gap", f"{event.who}: {partition} at {offset}; {gap} is not done")
            owner = self._newest.get(partition)
            if owner is None or owner.who != event.who:
                self._wrong(event, "no commit after a hand-over", f"{event.who}: {partition} at {offset}; now {owner}")
            elif not owner.covers(offset):
                self._wrong(
                    event, "no commit of an older epoch", f"{offset} is none of {owner}, begun at {owner.start}"
                )
            self._committed[partition] = offset

    # -- the end

    def _end(self, event: Event) -> None:
        for each in self._assignments.values():
            if not each.ended:
                self._in_time(event, each)
        for time, offset, before, after in self._again:
            if before.ended not in ("lost", "crashed") and not before.excused:
                text = f"offset {offset}: {before} ({before.ended or 'live'}), and again {after}"
                self.found.append(Violation(law="exactly once", time=time, text=text))
        for partition, end in self._ends.items():
            if self._prefix[partition] < end:
                self._wrong(event, "all is done", f"{partition}: {self._prefix[partition]} of {end} are finished")
            elif end and self._committed.get(partition) != end:
                self._wrong(
                    event, "all is done", f"{partition}: {self._committed.get(partition)} of {end} is committed"
                )
