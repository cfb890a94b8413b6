"""Telemetry's view of the partitions: folds every move of ownership to events, and to who holds what since when.

Laws
1. It observes and decides nothing: no other module reads it, and without it everything goes on alike.
2. Moves come from the ownership table alone (`RevokeLists`), so an event exists for each of them, in their order.
3. Partitions that change alike at one time are told in one event; a hand-over is told after the change that ends it.
   A move is noted by the write that moves, and told from the note, so that an interrupt leaves no move untold.
   Partitions that are assigned together are one move: one write tells it and takes it out of the queue.
4. Times: what the network side knew comes with its events' own fences; the rest is the time of the call.
5. `uncommitted` is never too low: of the records that polls returned in this epoch, those that an acknowledged commit
   covers are taken off, and nothing else is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from instride._core.application.calls import Write, at_once, first
from instride._core.application.partition import Delivery, OwnedPartition
from instride._core.events import Assigned, CallCompleted, Lost, Reassigned, RevocationRequested, Revoked
from instride._core.metrics.meters import ApplicationMeter
from instride._core.ownership import Ownership
from instride.commits import CommitEntry
from instride.records import TopicPartition
from instride.telemetry import (
    Blocker,
    DelayAtRisk,
    HandedOver,
    Hold,
    OwnershipChange,
    OwnershipChanged,
    RebalanceEnded,
    TelemetryEvent,
)

__all__ = ["CHANGES", "OwnershipView", "Reason", "blocker_of"]

Reason = str | Callable[[TopicPartition], object] | None
"""Why a revoke is delayed: a text, or a function that names what each partition waits for (`OffsetLedger.oldest`)."""

_Move = tuple[OwnedPartition, Ownership, Ownership, float]

Moved = RevocationRequested | Reassigned | Assigned | Lost | Revoked

_S = Ownership
_C = OwnershipChange
_PENDING: Final = (_S.REVOKE_NEXT, _S.REVOKE_THEREAFTER)
_ENDS: Final = frozenset({_C.REVOKED, _C.LOST})
# What the summary of a rebalance tells.
_NEWS: Final = frozenset({_C.ASSIGNED, _C.REVOKE_REQUESTED, _C.REASSIGNED})

# What a move of the ownership table says to somebody who watches. Moves that are not here say nothing.
CHANGES: Final[Mapping[tuple[Ownership | None, Ownership], tuple[OwnershipChange, ...]]] = {
    (None, _S.OWNED): (_C.ASSIGNED,),
    (_S.OWNED, _S.REVOKE_NEXT): (_C.REVOKE_REQUESTED,),
    (_S.OWNED, _S.COMPLETING): (_C.REVOKE_REQUESTED, _C.COMPLETING),  # close and unsubscribe request it themselves
    (_S.OWNED, _S.LOST): (_C.LOST,),
    (_S.REVOKE_NEXT, _S.REVOKE_THEREAFTER): (_C.DELAYED,),
    (_S.REVOKE_NEXT, _S.COMPLETING): (_C.COMPLETING,),
    (_S.REVOKE_NEXT, _S.OWNED): (_C.REASSIGNED,),
    (_S.REVOKE_NEXT, _S.LOST): (_C.LOST,),
    (_S.REVOKE_THEREAFTER, _S.COMPLETING): (_C.COMPLETING,),
    (_S.REVOKE_THEREAFTER, _S.OWNED): (_C.REASSIGNED,),
    (_S.REVOKE_THEREAFTER, _S.LOST): (_C.LOST,),
    (_S.COMPLETING, _S.REVOKED): (_C.REVOKED,),
    (_S.COMPLETING, _S.LOST): (_C.LOST,),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Begin:
    """A move, too: these were assigned, at that time."""

    owned: tuple[OwnedPartition, ...]
    at: float


@dataclass(slots=True, kw_only=True)
class _Network:
    """When the network side knew of each step of one assignment. None: not yet, or it did not say."""

    epoch: int
    generation: int = -1
    requested_at: float | None = None
    released_at: float | None = None


@dataclass(slots=True)
class _PartitionView:
    """One partition in one epoch, from ASSIGNED to its end."""

    owned: OwnedPartition
    since: float
    network: _Network
    state: OwnershipChange = _C.ASSIGNED
    uncommitted: int = 0
    furthest: int = -1
    committed: int = -1
    requested_at: float | None = None
    noticed_at: float | None = None
    delayed_at: float | None = None
    completing_at: float | None = None
    polls_delayed: int = 0
    blocker: Blocker | None = None

    def forget_request(self) -> None:
        self.requested_at = self.noticed_at = self.delayed_at = self.completing_at = self.blocker = None
        self.polls_delayed = 0

    def returned(self, delivery: Delivery) -> None:
        self.uncommitted += len(delivery.chunk)
        self.furthest = max(self.furthest, delivery.chunk.next_offset)

    def acknowledged(self, offset: int) -> None:
        """Law 5. A seek may have led back: then what lies between was returned, too."""
        if offset < self.committed:
            self.uncommitted += self.committed - offset
        self.committed = offset
        self.uncommitted = min(self.uncommitted, max(0, self.furthest - offset))

    def notice_request(self, now: float) -> None:
        """Where the group requested nothing, we begin to release it now."""
        self.noticed_at = now
        self.requested_at = now if self.network.requested_at is None else self.network.requested_at

    def request_time(self) -> float | None:
        """When the revocation was requested that is under way, or else the one that no poll has taken yet."""
        return self.network.requested_at if self.requested_at is None else self.requested_at


class OwnershipView:
    """Not thread-safe: the application machine owns it, besides `holds`, which any thread may read.

    now: the time of the present call; whoever runs a call moves it. meter: numbers over time; any thread may read.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._views: dict[TopicPartition, _PartitionView] = {}
        self.meter = ApplicationMeter(lambda: {tp.topic for tp in self._views})
        # Of each the epochs that are not over, in order: one, but for what no poll has taken yet.
        self._network: dict[TopicPartition, tuple[_Network, ...]] = {}
        self._commits: dict[int, Mapping[TopicPartition, CommitEntry]] = {}
        self._out: list[TelemetryEvent] = []
        self._changed_at = 0.0
        self._changed: list[tuple[OwnershipChange, set[TopicPartition]]] = []
        self._handed_over: dict[TopicPartition, HandedOver] = {}
        # Moves of ownership that were written and are to be told.
        self._moves: deque[_Move | _Begin] = deque()
        # Since the last rebalance ended: what it brought.
        self._news: dict[OwnershipChange, set[TopicPartition]] = {}

    # -- what is known

    def take(self) -> Sequence[TelemetryEvent]:
        """The events since the last call, in order."""
        self.catch_up()
        if not self._out and not self._changed:
            return ()
        self._flush()
        out = tuple(self._out)
        # It stays the same list: what is written when an event leaves the queue may be on its way to it.
        del self._out[: len(out)]
        return out

    def holds(self) -> dict[TopicPartition, Hold]:
        # A copy, in one step: the application's thread may add a view meanwhile.
        return {tp: self._hold(tp, view) for tp, view in sorted(self._views.copy().items())}

    def lags(self) -> dict[TopicPartition, int]:
        """Of each partition whose position and end are known: records between them. Any thread may ask."""
        lags = {tp: view.owned.lag for tp, view in self._views.copy().items()}
        return {tp: lag for tp, lag in lags.items() if lag is not None}

    def failed(self) -> int:
        """How many do not go on. Any thread may ask."""
        return sum(view.owned.failure() is not None for view in self._views.copy().values())

    def _hold(self, tp: TopicPartition, view: _PartitionView) -> Hold:
        deadline = view.owned.deadline
        return Hold(
            partition=tp,
            epoch=view.owned.epoch,
            generation=view.network.generation,
            state=view.state,
            since=view.since,
            requested_at=view.request_time(),
            deadline=None if deadline == float("inf") else deadline,
            blocker=view.blocker,
            uncommitted=view.uncommitted,
        )

    # -- from the network side

    def arrived(self, event: Moved) -> None:
        """An event of ownership came up; its effect follows when a poll takes it."""
        for tp, epoch in event.partitions.items():
            times = self._times(tp, epoch)
            match event:
                case Assigned():
                    times.generation = event.generation
                case RevocationRequested() if times.requested_at is None:
                    times.requested_at = event.at
                case Reassigned():
                    times.requested_at = None
                case Lost() | Revoked():
                    times.released_at = event.at
                case _:
                    pass

    def _times(self, partition: TopicPartition, epoch: int) -> _Network:
        known = self._network.get(partition, ())
        for each in known:
            if each.epoch == epoch:
                return each
        new = _Network(epoch=epoch)
        self._network[partition] = (*known, new)
        return new

    def noticed(self, events: Sequence[TelemetryEvent]) -> list[Write]:
        """Something that the network side saw itself. To be written when it leaves the queue: an interrupt before that
        tells none of them twice."""
        writes: list[Write] = []
        if isinstance(events[0], RebalanceEnded):
            events = [self._summary(events[0])]
            writes = [(setattr, self, "_news", {})]
        elif isinstance(events[0], DelayAtRisk):
            view = self._views.get(events[0].partition)
            if view is None or view.owned.epoch != events[0].epoch:
                return []
        self._flush()
        return [(self._out.extend, events), *writes]

    def _summary(self, ended: RebalanceEnded) -> RebalanceEnded:
        news = self._news
        return replace(
            ended,
            assigned=tuple(sorted(news.get(_C.ASSIGNED, ()))),
            revocation_requested=tuple(sorted(news.get(_C.REVOKE_REQUESTED, ()))),
            reassigned=tuple(sorted(news.get(_C.REASSIGNED, ()))),
            delayed=tuple(sorted(tp for tp, view in self._views.items() if view.state is _C.DELAYED)),
        )

    # -- moves of ownership

    def beginning(self, assigned: Collection[OwnedPartition]) -> list[Write]:
        """These were assigned: one move for all of them."""
        return [(self._moves.append, _Begin(owned=tuple(assigned), at=self.now))] if assigned else []

    def moving(self, owned: OwnedPartition, before: Ownership, after: Ownership) -> Write:
        """The ownership table takes a row for this partition."""
        return (self._moves.append, (owned, before, after, self.now))

    def catch_up(self) -> None:
        """Take note of the moves that were written. An interrupted one is taken note of again."""
        if not self._moves:  # as after nearly every write
            return
        now = self.now
        try:
            while (move := first(self._moves)) is not None:
                writes: list[Write] = []
                if isinstance(move, _Begin):
                    self.now = move.at
                    writes = self._begun(move.owned)
                else:
                    owned, before, after, self.now = move
                    self._moved(owned, before, after)
                with suppress(ValueError):  # a handler of a signal was quicker
                    at_once([(self._moves.index, move, 0, 1), *writes, (self._moves.popleft,)])
        finally:
            self.now = now

    def _begun(self, assigned: Sequence[OwnedPartition]) -> list[Write]:
        """All at once: there may be thousands."""
        partitions = [owned.partition for owned in assigned]
        if not self._handed_over.keys().isdisjoint(partitions):
            self._flush()  # their hand-over is told before their next assignment
        (change,) = CHANGES[None, _S.OWNED]
        return [
            (self._views.update, {owned.partition: self._view(owned) for owned in assigned}),
            self._telling(partitions, change),
            (self._news.setdefault(change, set()).update, partitions),
        ]

    def _moved(self, owned: OwnedPartition, before: Ownership, after: Ownership) -> None:
        # After an interrupt its end may have been told already.
        view = self._views.get(owned.partition) or self._view(owned)
        if after is _S.REVOKE_THEREAFTER and before is not after:
            view.polls_delayed += 1
            if view.delayed_at is not None:
                return  # told once for each request
        for change in CHANGES.get((before, after), ()):
            self._changes(view, change)

    def _view(self, owned: OwnedPartition) -> _PartitionView:
        tp, epoch = owned.partition, owned.epoch
        known = self._network.get(tp, ())
        if len(known) > 1 or (known and known[0].epoch < epoch):
            self._network[tp] = tuple(each for each in known if each.epoch >= epoch)
        return _PartitionView(owned, self.now, self._times(tp, epoch))

    def _changes(self, view: _PartitionView, change: OwnershipChange) -> None:
        view.state = change
        match change:
            case _C.REVOKE_REQUESTED:
                view.notice_request(self.now)
            case _C.DELAYED:
                view.delayed_at = self.now
            case _C.COMPLETING:
                view.completing_at = self.now
            case _C.REASSIGNED:
                view.forget_request()
            case _:
                pass
        at_once([self._telling([view.owned.partition], change)])
        if change in _NEWS:
            self._news.setdefault(change, set()).add(view.owned.partition)
        if change in _ENDS:
            self._end(view, change)

    def _end(self, view: _PartitionView, how: OwnershipChange) -> None:
        owned, released = view.owned, view.network.released_at
        self._views.pop(owned.partition, None)
        self._forget_times(owned.partition, owned.epoch)
        if how is _C.REVOKED and view.request_time() is None:
            return  # by assign: nobody gets it from us
        at, requested_at = self.now if released is None else released, view.request_time()
        noticed_at = _between(requested_at, view.noticed_at, at)
        handed_over = HandedOver(
            at=at,
            partition=owned.partition,
            epoch=owned.epoch,
            how=how,
            since=view.since,
            requested_at=requested_at,
            noticed_at=noticed_at,
            delayed_at=view.delayed_at,
            polls_delayed=view.polls_delayed,
            completing_at=_between(noticed_at, view.completing_at, at),
            blocker=view.blocker,
            abandoned=view.uncommitted,
        )
        self._handed_over[owned.partition] = handed_over
        self.meter.handed(handed_over)

    def _forget_times(self, partition: TopicPartition, epoch: int) -> None:
        known = tuple(each for each in self._network.pop(partition, ()) if each.epoch != epoch)
        if known:
            self._network[partition] = known

    def dropping(self, partitions: Iterable[OwnedPartition], *, lost: bool) -> list[Write]:
        """These are owned no more, though no row of the table says so: another assign, or the end of a close."""
        after = _S.LOST if lost else _S.REVOKED
        return [self.moving(each, _S.COMPLETING, after) for each in partitions]

    def because(self, partitions: Iterable[TopicPartition], reason: Reason) -> dict[TopicPartition, Blocker]:
        """Note what delays these wait for. Returns those whose blocker is another than before, for the network side."""
        news = {}
        for tp in partitions:
            view = self._views.get(tp)
            if view is None or view.state not in (_C.DELAYED, _C.REVOKE_REQUESTED):
                continue
            blocker = blocker_of(reason, tp)
            if blocker is not None and blocker != view.blocker:
                view.blocker = news[tp] = blocker
        return news

    # -- records and commits

    def returned(self, deliveries: Iterable[Delivery]) -> None:
        self.catch_up()
        for delivery in deliveries:
            view = self._views.get(delivery.partition)
            if view is not None and view.owned.epoch == delivery.epoch:
                view.returned(delivery)

    def commit_sent(self, call: int, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        self._commits[call] = entries

    def response_received(self, event: CallCompleted, *, ended: bool) -> None:
        """ended: false where its call waits for other partitions still: then what is told now is told again."""
        sent = self._commits.pop(event.call, {}) if ended else self._commits.get(event.call, {})
        for tp, error in event.committed.items():
            entry, view = sent.get(tp), self._views.get(tp)
            if error is None and entry is not None and view is not None and view.owned.epoch == entry.epoch:
                view.acknowledged(entry.offset)

    # -- telling

    def _telling(self, partitions: Sequence[TopicPartition], change: OwnershipChange) -> Write:
        """Law 3: into a group of its kind, if that comes after all that was said of the partitions."""
        if self._changed_at != self.now:
            self._flush()
            self._changed_at = self.now
        for known, group in reversed(self._changed):
            if not group.isdisjoint(partitions):
                break
            if known is change:
                return (group.update, partitions)
        return (self._changed.append, (change, set(partitions)))

    def _flush(self) -> None:
        for change, group in self._changed:
            self._out.append(OwnershipChanged(at=self._changed_at, change=change, partitions=tuple(sorted(group))))
        self._changed.clear()
        self._out += self._handed_over.values()
        self._handed_over.clear()


def _between(low: float | None, time: float | None, high: float) -> float | None:
    """Law 4: a call and a turn of the network side each have one time, that of their beginning. So a step may seem to
    come before the one that led to it, or after the end. Then it took no time.
    """
    return None if time is None else min(high, time if low is None else max(low, time))


def blocker_of(reason: Reason, partition: TopicPartition) -> Blocker | None:
    """What the user says a partition waits for. A function of the user's that raises gives no blocker."""
    if callable(reason):
        try:
            return _named(reason(partition))
        except Exception as error:  # noqa: BLE001 - telemetry never hurts consuming
            return Blocker(text=f"unknown: the reason given raised {type(error).__name__}")
    return None if reason is None else Blocker(text=reason)


def _named(found: Any) -> Blocker | None:
    """Law 5 of `instride.telemetry`: a record is named by its offset."""
    if found is None:
        return None
    start, end, offset = (getattr(found, name, None) for name in ("start", "end", "offset"))
    if isinstance(start, int) and isinstance(end, int):
        return Blocker(text=f"offsets {start} to {end - 1}", offset=start)
    if isinstance(offset, int):
        return Blocker(text=f"the record at offset {offset}", offset=offset)
    return Blocker(text=str(found))
