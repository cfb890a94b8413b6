"""The network side's part of telemetry: phases of rebalances, delays that take long, partitions that stand still.

Laws
1. It observes and decides nothing. It wants no turn of its own: what depends on time is seen in the next turn, and a
   member of a group has one with every heartbeat.
2. It goes on whatever the application does: what must be known while nobody polls is logged here, at once. The event
   goes up as well, and the listener hears of it in the application's next call.
3. A delay is warned of once for each request, when half of its time has passed.
4. A partition stands still when it is owned, not paused, behind or without a position or a fetch that succeeds, and
   nothing about it moved for `stalled_after`. That makes one event, and one more when it is over.
5. The first fetch of a partition that the group assigned makes an event when it is put on a connection. The
   first fetches of one turn are one event: a new assignment may be of thousands.

Laws of the phases of a rebalance (`Phases`), which are read off the group's states
P1. They follow states, not causes: so they are the same for every protocol and for whatever makes the group move.
P2. A rebalance goes from the first join to the poll that takes the assignment, to the next join, or to the membership's
    end, whichever comes first. Each that started ends once.
P3. A sync that is refused leads back to the join: the same rebalance, with one join more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, assert_never

from instride._core.events import (
    Assigned,
    DeadlineMoved,
    DelayExplained,
    FetchesBegan,
    Lost,
    Noticed,
    Reassigned,
    RevocationRequested,
    Revoked,
)
from instride._core.network.actions import Transmit
from instride._core.network.assigned_partitions import AssignedPartition
from instride._core.network.assigned_partitions import Phase as Position
from instride._core.network.cluster import Cluster
from instride._core.network.context import Context, OwnershipEvent
from instride._core.network.group import Group, GroupState
from instride._core.ownership import Ownership
from instride._core.telemetry_lines import formatted
from instride._wire import api
from instride.records import TopicPartition
from instride.telemetry import (
    Blocker,
    DelayAtRisk,
    FetchBegan,
    PartitionFlows,
    PartitionStalled,
    RebalanceEnded,
    RebalanceOutcome,
    RebalanceStarted,
    StallCause,
    TelemetryEvent,
)

__all__ = ["Monitor", "Phase", "Phases", "STEPS"]

# -- phases of a rebalance


class Phase(Enum):
    QUIET = "no rebalance is under way, as far as this member knows"
    JOINING = "until the Join response"
    SYNCING = "until the Sync response"
    TAKING = "until a poll takes the assignment"


_P, _G, _O = Phase, GroupState, RebalanceOutcome

# The next phase when the group is seen in another state, and how a rebalance has ended by that. A pair that is not here
# means nothing.
STEPS: Final[Mapping[tuple[Phase, GroupState], tuple[Phase, RebalanceOutcome | None]]] = {
    (_P.QUIET, _G.PREPARING_REBALANCE): (_P.JOINING, None),
    (_P.JOINING, _G.COMPLETING_REBALANCE): (_P.SYNCING, None),
    (_P.JOINING, _G.UNJOINED): (_P.QUIET, _O.FAILED),
    (_P.SYNCING, _G.ASSIGNING_PARTITIONS): (_P.TAKING, None),
    (_P.SYNCING, _G.PREPARING_REBALANCE): (_P.JOINING, None),
    (_P.SYNCING, _G.UNJOINED): (_P.QUIET, _O.FAILED),
    (_P.TAKING, _G.STABLE): (_P.QUIET, _O.TAKEN),
    (_P.TAKING, _G.PREPARING_REBALANCE): (_P.JOINING, _O.SUPERSEDED),
    (_P.TAKING, _G.UNJOINED): (_P.QUIET, _O.FAILED),
}


class Phases:
    """Not thread-safe: the network machine owns it."""

    def __init__(self) -> None:
        self.phase = Phase.QUIET
        self._began = 0.0
        self._reason = ""
        self._joins = 0
        self._marks: list[float] = []

    def seen(
        self, state: GroupState, generation: int, reason: str, now: float
    ) -> list[RebalanceStarted | RebalanceEnded]:
        """The group is in this state now."""
        found = STEPS.get((self.phase, state))
        if found is None:
            return []
        before, (self.phase, outcome) = self.phase, found
        events: list[RebalanceStarted | RebalanceEnded] = []
        if outcome is not None:
            events.append(self._end(outcome, generation, now))
        if before is Phase.SYNCING and self.phase is Phase.JOINING:  # P3
            self._joins += 1
            self._marks.clear()
        elif self.phase is Phase.JOINING:
            events.append(self._start(generation, reason, now))
        elif outcome is None:
            self._marks.append(now)
        return events

    def _start(self, generation: int, reason: str, now: float) -> RebalanceStarted:
        self._began, self._reason, self._joins = now, reason, 1
        self._marks.clear()
        return RebalanceStarted(at=now, generation=generation, reason=reason)

    def _end(self, outcome: RebalanceOutcome, generation: int, now: float) -> RebalanceEnded:
        times = [self._began, *self._marks]
        if outcome is RebalanceOutcome.TAKEN:
            times.append(now)
        took = [after - before for before, after in pairwise(times)]
        joining, syncing, taking = [*took, None, None, None][:3]
        return RebalanceEnded(
            at=now,
            started_at=self._began,
            generation=generation,
            reason=self._reason,
            outcome=outcome,
            joins=self._joins,
            joining=joining,
            syncing=syncing,
            taking=taking,
        )


# -- delays and partitions

_LOOKS: Final = 8
"""Partitions are looked at so many times in each `stalled_after`."""


@dataclass(slots=True, kw_only=True)
class _Revoke:
    """One whose revocation the group requested."""

    epoch: int
    requested_at: float
    deadline: float
    blocker: Blocker | None = None
    told: bool = False

    @property
    def at_risk_at(self) -> float:
        """Law 3: when half of its time is over."""
        return (self.requested_at + self.deadline) / 2


@dataclass(slots=True, kw_only=True)
class _Progress:
    """mark: what moves when the partition does. told: the stall was told of."""

    mark: tuple[object, ...]
    since: float
    epoch: int
    told: bool = False


class Monitor:
    """Not thread-safe: the network machine owns it."""

    def __init__(
        self,
        context: Context,
        group: Group,
        cluster: Cluster,
        assigned: Callable[[], Mapping[TopicPartition, AssignedPartition]],
    ) -> None:
        self._context = context
        self._group = group
        self._cluster = cluster
        self._assigned = assigned
        self._phases = Phases()
        self.state = group.state  # as `look` saw it last
        self.poll_at = float("-inf")  # when `poll` has something to do next, if no event is delivered
        self._revokes: dict[TopicPartition, _Revoke] = {}
        self._risk_at = float("inf")  # when one of them may be at risk
        self._progress: dict[TopicPartition, _Progress] = {}
        self._next_look = 0.0
        self._unfetched: dict[api.Partition, tuple[TopicPartition, int, float]] = {}  # with epoch, assigned at

    # -- rebalances

    def look(self, now: float) -> None:
        """After everything that could have moved the group."""
        if self._group.state is not self.state:
            self.state = self._group.state
            for event in self._phases.seen(self.state, self._group.generation, self._group.reason, now):
                if isinstance(event, RebalanceEnded):
                    self._context.connections.meter.rebalanced(event)
                self._context.deliver(Noticed(event=event))

    # -- revokes

    def explained(self, event: DelayExplained) -> None:
        for tp, blocker in event.blockers.items():
            revoke = self._revokes.get(tp)
            if revoke is not None and revoke.epoch == event.partitions[tp]:
                revoke.blocker = blocker

    def delivered(self, event: OwnershipEvent) -> None:
        """Hears of each before the application does."""
        self.poll_at = float("-inf")
        match event:
            case RevocationRequested():
                for tp, epoch in event.partitions.items():
                    self._revokes[tp] = _Revoke(epoch=epoch, requested_at=self._context.now, deadline=event.deadline)
                self._risk_at = float("-inf")  # looked at with the next turn
            case Assigned():
                self._unfetched |= {tp: (tp, epoch, self._context.now) for tp, epoch in event.partitions.items()}
            case DeadlineMoved():
                for tp in event.partitions.keys() & self._revokes.keys():
                    self._revokes[tp].deadline = event.deadline
                self._risk_at = float("-inf")
            case Reassigned() | Revoked() | Lost():
                for tp in event.partitions:
                    self._revokes.pop(tp, None)
                    if not isinstance(event, Reassigned):
                        self._unfetched.pop(tp, None)
            case _:
                assert_never(event)

    # -- time

    def poll(self, now: float) -> None:
        self.look(now)
        if self._unfetched:
            self._look_for_first_fetches(now)
        if now >= self._risk_at:
            self._look_at_revokes(now)
        if now >= self._next_look:
            self._next_look = now + self._context.config.stalled_after / _LOOKS
            self._look_at_partitions(now)
        self.poll_at = float("-inf") if self._unfetched else min(self._risk_at, self._next_look)

    def _look_at_revokes(self, now: float) -> None:
        self._forget_ended()
        for tp, revoke in self._revokes.items():
            if not revoke.told and now >= revoke.at_risk_at:
                revoke.told = True
                left = max(0.0, revoke.deadline - now)
                self._warn(
                    DelayAtRisk(at=now, partition=tp, epoch=revoke.epoch, seconds_left=left, blocker=revoke.blocker)
                )
        untold = (revoke.at_risk_at for revoke in self._revokes.values() if not revoke.told)
        self._risk_at = min(untold, default=float("inf"))

    def _look_for_first_fetches(self, now: float) -> None:
        """Law 5."""
        sent = [action.request for action in self._context.out if isinstance(action, Transmit)]
        fetched = [each for request in sent if isinstance(request, api.Fetch) for each in request.partitions]
        began, wall_clock = [], self._context.wall_clock()
        for each in fetched:
            found = self._unfetched.pop((each.topic, each.partition), None)
            if found is not None and self._is_assigned(*found[:2]):
                tp, epoch, assigned_at = found
                self._context.connections.meter.fetch_began(tp, wall_clock)
                began.append(FetchBegan(at=now, partition=tp, epoch=epoch, assigned_at=assigned_at))
        if began:
            self._context.deliver(FetchesBegan(began=tuple(began)))

    def _forget_ended(self) -> None:
        """Of what an unsubscribe gives up no event says that it ended."""
        for tp in [tp for tp, revoke in self._revokes.items() if not self._is_assigned(tp, revoke.epoch)]:
            del self._revokes[tp]
        for tp in [tp for tp, epoch, _ in self._unfetched.values() if not self._is_assigned(tp, epoch)]:
            del self._unfetched[tp]

    def _is_assigned(self, partition: TopicPartition, epoch: int) -> bool:
        assigned = self._assigned().get(partition)
        return assigned is not None and assigned.epoch == epoch

    def _look_at_partitions(self, now: float) -> None:
        self._forget_ended()
        assigned = self._assigned()
        for tp in [tp for tp in self._progress if tp not in assigned]:
            self._flows(tp, self._progress.pop(tp), now)
        for each in assigned.values():
            self._look_at(each, now)

    def _look_at(self, assigned: AssignedPartition, now: float) -> None:
        """Law 4."""
        cause = self._cause(assigned)
        # An offset that is called out of range again and again is a stall as well.
        phase = Position.FETCHING if assigned.phase is Position.VERIFY_RANGE else assigned.phase
        phase = Position.FAILED if assigned.trouble is not None else phase  # whatever a try of it is about
        mark = (assigned.epoch, assigned.fetch_number, assigned.offset, assigned.records, phase, cause)
        known = self._progress.get(assigned.partition)
        if known is None or known.mark != mark:
            if known is not None:
                self._flows(assigned.partition, known, now)
            self._progress[assigned.partition] = _Progress(mark=mark, since=now, epoch=assigned.epoch)
        elif cause is not None and not known.told and now - known.since >= self._patience(cause):
            known.told = True
            self._warn(
                PartitionStalled(
                    at=now,
                    partition=assigned.partition,
                    epoch=assigned.epoch,
                    seconds=now - known.since,
                    cause=cause,
                    offset=assigned.offset,
                    end=assigned.known_end,
                    waiting=assigned.records,
                    error=assigned.fetch_error if cause is StallCause.FETCH_FAILS else "",
                )
            )

    def _patience(self, cause: StallCause) -> float:
        """A broker may keep a fetch for so long as it was told to."""
        config = self._context.config
        return config.stalled_after + (config.fetch_max_wait if cause is StallCause.FETCH_FAILS else 0.0)

    def _cause(self, assigned: AssignedPartition) -> StallCause | None:
        """Why it would stand still; None where it has no reason to move."""
        if assigned.state is not Ownership.OWNED or assigned.paused:
            return None
        if assigned.phase is Position.FAILED or assigned.trouble is not None:
            return StallCause.FAILED
        if assigned.phase not in (Position.FETCHING, Position.VERIFY_RANGE):
            return StallCause.NO_POSITION
        if assigned.records:
            return StallCause.NOT_TAKEN
        if self._cluster.leader(assigned.partition) is None:
            return StallCause.NO_LEADER
        if assigned.fetch_error:
            return StallCause.FETCH_FAILS
        return StallCause.NOT_FETCHED if assigned.lagging else None

    def _flows(self, partition: TopicPartition, known: _Progress, now: float) -> None:
        if known.told:
            self._warn(PartitionFlows(at=now, partition=partition, epoch=known.epoch, seconds=now - known.since))

    def _warn(self, event: TelemetryEvent) -> None:
        """Law 2."""
        level, text = formatted(event)
        self._context.log(level if level >= logging.INFO else logging.INFO, text)
        self._context.deliver(Noticed(event=event))
