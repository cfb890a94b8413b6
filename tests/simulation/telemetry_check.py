"""Holds what telemetry told of a history against what the history says.

Laws
1. Each member's changes of each assignment follow one another as `NEXT` says, and end once, in REVOKED or LOST, with a
   `HandedOver` where the group had asked or it was lost.
2. A hand-over's request is that of the history, to the moment: the last one that the member had noticed, for a poll
   completes a revocation before it takes a later request; where it noticed none, the one that the group had not taken
   back at its end. So is its release, where the network side released it first. Its phases sum up to it.
3. `abandoned` is at least what polls returned in that epoch beyond the commits that the broker took, and at most all;
   where a log has holes, or its user sought, it counts offsets, and may be more (docs/telemetry.md).
4. Rebalances start and end by turns, and their phases sum up to them.
5. A delay is told to be at risk after half of its time, once for each request, and names what the user's reason names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from instride import TopicPartition
from instride.telemetry import (
    DelayAtRisk,
    HandedOver,
    OwnershipChange,
    OwnershipChanged,
    PartitionFlows,
    PartitionStalled,
    RebalanceEnded,
    RebalanceOutcome,
    RebalanceStarted,
    TelemetryEvent,
)
from instride.testing.simulation import Event, History

__all__ = ["disagreements"]

_C = OwnershipChange
NEXT = {
    None: {_C.ASSIGNED},
    _C.ASSIGNED: {_C.REVOKE_REQUESTED, _C.LOST},
    _C.REVOKE_REQUESTED: {_C.DELAYED, _C.COMPLETING, _C.REASSIGNED, _C.LOST},
    _C.DELAYED: {_C.COMPLETING, _C.REASSIGNED, _C.LOST},
    _C.COMPLETING: {_C.REVOKED, _C.LOST},
    _C.REASSIGNED: {_C.REVOKE_REQUESTED, _C.LOST},
    _C.REVOKED: {_C.ASSIGNED},
    _C.LOST: {_C.ASSIGNED},
}
Key = tuple[TopicPartition, int]


class Truth:
    """One member's part of the history."""

    def __init__(self, who: str, history: History) -> None:
        self.requested: dict[Key, list[float]] = defaultdict(list)
        self.reassigned: dict[Key, list[float]] = defaultdict(list)
        self.released: dict[Key, float] = {}
        self.returned: dict[Key, list[tuple[float, int, int]]] = defaultdict(list)
        self.commits: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
        self.uncounted: set[TopicPartition] = set()
        for event in history:
            if event.what == "hole" or (event.what == "seek" and event.who == who):
                self.uncounted.add(event.detail[0])
            if event.who == who:
                self._note(event)

    def _note(self, event: Event) -> None:
        match event.what:
            case "requested":
                for key in event.detail[0]:
                    self.requested[key].append(event.time)
            case "reassigned":
                for key in event.detail[0]:
                    self.reassigned[key].append(event.time)
            case "revoked" | "lost":
                for key in event.detail[0]:
                    self.released[key] = event.time
            case "poll":
                for partition, epoch, _, first, last, *_ in event.detail[0]:
                    self.returned[partition, epoch].append((event.time, first, last))
            case "commit":
                for partition, offset, code in event.detail[1]:
                    if code == 0:
                        self.commits[partition].append((event.time, offset))

    def request_pending(self, key: Key, time: float) -> float | None:
        """When the request was made that the group had not taken back by then."""
        requested = max((at for at in self.requested[key] if at <= time), default=None)
        kept = max((at for at in self.reassigned[key] if at <= time), default=-1.0)
        return None if requested is None or requested < kept else requested

    def returned_until(self, key: Key, time: float) -> set[int]:
        found = (range(first, last + 1) for at, first, last in self.returned[key] if at <= time)
        return {offset for each in found for offset in each}


def disagreements(who: str, history: History, told: Iterable[TelemetryEvent]) -> list[str]:
    """Each of which is a bug of telemetry, or of this check."""
    return _Check(who, Truth(who, history)).run(told)


class _Check:
    def __init__(self, who: str, truth: Truth) -> None:
        self.who, self.truth = who, truth
        self.found: list[str] = []
        self.state: dict[TopicPartition, OwnershipChange | None] = defaultdict(lambda: None)
        self.since: dict[TopicPartition, float] = {}
        self.ended: list[tuple[TopicPartition, OwnershipChange]] = []
        self.rebalancing: RebalanceStarted | None = None
        self.at_risk: set[tuple[Key, float]] = set()

    def wrong(self, event: TelemetryEvent, why: str) -> None:
        self.found.append(f"{self.who}: {why}: {event}")

    def run(self, told: Iterable[TelemetryEvent]) -> list[str]:
        for event in told:
            match event:
                case OwnershipChanged():
                    self._changed(event)
                case HandedOver():
                    self._handed_over(event)
                case RebalanceStarted():
                    self._started(event)
                case RebalanceEnded():
                    self._ended(event)
                case DelayAtRisk():
                    self._at_risk(event)
                case PartitionStalled() | PartitionFlows():
                    pass
        self.found += [f"{self.who}: {how.value} without a hand-over: {tp}" for tp, how in self.ended]
        return self.found

    def _changed(self, event: OwnershipChanged) -> None:
        for tp in event.partitions:
            before, self.state[tp] = self.state[tp], event.change
            if event.change not in NEXT[before]:
                self.wrong(event, f"{tp} was {before and before.value}")
            if event.change is _C.ASSIGNED:
                self.since[tp] = event.at
            if event.change in (_C.REVOKED, _C.LOST):
                self.ended.append((tp, event.change))

    def _handed_over(self, event: HandedOver) -> None:
        key = (event.partition, event.epoch)
        if (event.partition, event.how) not in self.ended:
            self.wrong(event, "no change said so")
        else:
            self.ended.remove((event.partition, event.how))
        if event.since != self.since[event.partition]:
            self.wrong(event, "since when")
        noticed_at = event.at if event.noticed_at is None else event.noticed_at
        pending = self.truth.request_pending(key, noticed_at)
        expected = event.noticed_at if pending is None else pending  # who leaves begins without a request
        if event.requested_at != expected:
            self.wrong(event, f"it was requested at {expected}")
        released = self.truth.released.get(key)
        if released is not None and event.at > released + 1e-9:
            self.wrong(event, f"it was released at {released}")
        if abs(sum(event.phases.values()) - event.seconds) > 1e-6:
            self.wrong(event, f"phases {event.phases}")
        self._abandoned(event, key)

    def _abandoned(self, event: HandedOver, key: Key) -> None:
        """Law 3. A commit's response takes a while, so the broker may know more than the member did, never less."""
        returned = self.truth.returned_until(key, event.at)
        committed = [offset for at, offset in self.truth.commits[event.partition] if at <= event.at]
        least = {offset for offset in returned if not committed or offset >= committed[-1]}
        if event.abandoned < len(least):
            self.wrong(event, f"{len(least)} were returned and not committed")
        everything = sum(last + 1 - first for at, first, last in self.truth.returned[key])
        if event.abandoned > everything and event.partition not in self.truth.uncounted:
            self.wrong(event, f"only {everything} were returned")

    def _started(self, event: RebalanceStarted) -> None:
        if self.rebalancing is not None:
            self.wrong(event, "one was under way")
        self.rebalancing = event

    def _ended(self, event: RebalanceEnded) -> None:
        if self.rebalancing is None or self.rebalancing.at != event.started_at:
            self.wrong(event, "none had started then")
        self.rebalancing = None
        steps = [each for each in (event.joining, event.syncing, event.taking) if each is not None]
        if event.outcome is RebalanceOutcome.TAKEN and event.joins == 1 and len(steps) != 3:
            self.wrong(event, "it was taken, and a phase is missing")
        if sum(steps) > event.seconds + 1e-6:
            self.wrong(event, "its phases are longer than it is")

    def _at_risk(self, event: DelayAtRisk) -> None:
        requested = [at for at in self.truth.requested[event.partition, event.epoch] if at <= event.at]
        if not requested:
            self.wrong(event, "nobody requested it")
        elif ((event.partition, event.epoch), requested[-1]) in self.at_risk:
            self.wrong(event, "it was told already")
        else:
            self.at_risk.add(((event.partition, event.epoch), requested[-1]))
