"""Takes background events out of their queue: responses and data take effect at once, the rest waits in the inbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import assert_never

from instride._core.application.calls import Write, at_once, first
from instride._core.application.inbox import Change, Completion, Data
from instride._core.application.partition import OwnedPartition
from instride._core.application.seeking import fetch_again
from instride._core.application.state import ApplicationState
from instride._core.events import (
    Assigned,
    BackgroundEvent,
    CallCompleted,
    CallsCompleted,
    CommitsSettled,
    Consumed,
    DeadlineMoved,
    DropBuffered,
    EndFound,
    EndsFound,
    ErrorRaised,
    Fetched,
    FetchesBegan,
    LeaseRenewed,
    Lost,
    Noticed,
    PartitionFailed,
    PartitionRecovered,
    PartlyCommitted,
    Positioned,
    PositionsFound,
    Reassigned,
    RevocationRequested,
    Revoked,
    SubscriptionMatched,
    Wakeup,
)
from instride.records import TopicPartition

__all__ = ["apply_early", "drain", "take"]


def drain(state: ApplicationState) -> None:
    """Empty the queue (law 1 of `inbox`), for any call but a poll: a poll that is under way looks again (its law 6)."""
    state.looked = False
    take(state)


def take(state: ApplicationState) -> None:
    """Empty the queue.

    An event leaves the queue when it was applied: what interrupts that leaves it there, to be applied again. A handler
    of a signal may call the consumer meanwhile, and so drain the event itself.
    """
    if state.inbox.early:
        apply_early(state, tuple(state.inbox.early))
    if state.inbox.completed:
        _settle_all(state)  # of a drain that was interrupted
    while state.queue and (event := first(state.queue)) is not None:
        unchanged, writes = _unchanged(state, event), _apply(state, event)
        with suppress(ValueError):  # that handler was quicker
            at_once([(state.queue.index, event, 0, 1), *unchanged, (state.queue.popleft,), *writes])
        if state.inbox.completed:
            _settle_all(state)


def _unchanged(state: ApplicationState, event: BackgroundEvent | Data) -> list[Write]:
    """Whether what comes of it is of the present buffer, or subscription, is looked at here, before that is written."""
    match event:
        case Fetched() | PartitionFailed() | PartitionRecovered():
            owned = state.lists.owned.get(event.partition)
            return [] if owned is None else [owned.unchanged()]
        case SubscriptionMatched():
            return [state.lists.polls.unchanged()]
        case _:
            return []


def _apply(state: ApplicationState, event: BackgroundEvent) -> list[Write]:
    """What is to be written when it leaves the queue; the rest is done here, and may be done again, also after newer
    events of the queue.
    """
    inbox = state.inbox
    match event:
        case PositionsFound() | EndsFound():
            return _together(state, event)
        case Positioned() | Fetched() | PartitionFailed() | PartitionRecovered() | DropBuffered():
            return _data(state, event)
        case Lost() | RevocationRequested() | Reassigned() | Assigned() | CommitsSettled() | Revoked():
            return _waiting(state, event)
        case DeadlineMoved():
            return _deadline_moved(state, event)
        case ErrorRaised():
            return [(inbox.errors.append, event.error)]
        case SubscriptionMatched():
            if event.pattern == state.pattern:  # else of a subscription that is over
                return [(setattr, state, "topics", event.topics)]
        case Wakeup():
            return [(setattr, inbox, "woken", True)]
        case Noticed() | FetchesBegan():
            return state.ownership_view.noticed(event.began if isinstance(event, FetchesBegan) else [event.event])
        case CallCompleted() | CallsCompleted() | PartlyCommitted():
            return [(inbox.completed.extend, _responses(event))]
        case LeaseRenewed():
            pass  # it only wakes: the lease itself is compared
        case _:
            assert_never(event)
    return []


def _responses(event: CallCompleted | CallsCompleted | PartlyCommitted) -> list[tuple[CallCompleted, bool]]:
    """And whether their calls have ended."""
    calls = (event,) if isinstance(event, CallCompleted) else event.calls
    return [(each, not isinstance(event, PartlyCommitted)) for each in calls]


def _waiting(state: ApplicationState, event: Lost | Change | Completion) -> list[Write]:
    """For the poll that takes it. Telemetry hears now when the network side knew of it."""
    if not isinstance(event, CommitsSettled):
        state.ownership_view.arrived(event)
    match event:
        case Lost():
            return [(state.inbox.losses.append, event)]
        case Assigned():
            # An assign() that this interrupts gives other epochs than it had computed.
            counted = [state.lists.counting(event.partitions), state.lists.polls.changing()]
            if event.unsubscribed < state.unsubscribed:
                return counted  # of a subscription that is over
            noted = (state.inbox.assigned.update, event.partitions)
            return [(state.inbox.changes.append, event), noted, *counted]
        case RevocationRequested() | Reassigned():
            return [(state.inbox.changes.append, event)]
        case CommitsSettled() | Revoked():
            return [(state.inbox.completions.append, event)]
        case _:
            assert_never(event)


def apply_early(state: ApplicationState, partitions: Iterable[TopicPartition]) -> None:
    """Data of these that came before their assignment was taken."""
    inbox = state.inbox
    for tp in partitions if inbox.early else ():
        for epoch in inbox.early_epochs(tp, state.lists.newest.get(tp, -1)):
            waiting = inbox.early.get(tp, {}).get(epoch, deque())
            while (event := first(waiting)) is not None:
                unchanged, writes = _unchanged(state, event), _data(state, event)
                with suppress(ValueError):  # a handler of a signal was quicker
                    at_once([(waiting.index, event, 0, 1), *unchanged, (waiting.popleft,), *writes])
            inbox.early.get(tp, {}).pop(epoch, None)
        if not inbox.early.get(tp, True):
            inbox.early.pop(tp, None)  # the last of its epochs was taken


def _together(state: ApplicationState, event: PositionsFound | EndsFound) -> list[Write]:
    told: Iterable[Data] = event.positions if isinstance(event, PositionsFound) else event.ends
    return [write for each in told for write in _data(state, each)]


def _data(state: ApplicationState, event: Data) -> list[Write]:
    owned = state.lists.owned.get(event.partition)
    # Its assignment came before it in the queue, and waits for the poll that takes it.
    newer = event.epoch > state.lists.newest.get(event.partition, -1)
    if newer and state.inbox.awaits(event.partition, event.epoch):
        return [state.inbox.keeping_early(event)]
    if owned is None or owned.epoch != event.epoch:
        return []  # of an assignment that is over
    match event:
        case Fetched():
            return _fetched(state, owned, event)
        case EndFound():
            return [(setattr, owned, "high_watermark", event.end)]
        case Positioned():
            state.mark_moved(owned)
            owned.positioned(
                event.seek_number, event.offset, event.leader_epoch, reset=event.reset, missing=event.missing
            )
        case PartitionFailed():
            return [state.lists.failing.marking(owned), *owned.failed(event)]
        case PartitionRecovered():
            return owned.recovered(event)
        case DropBuffered():
            return [(state.inbox.to_drop.append, event)]
        case _:
            assert_never(event)
    return []


def _fetched(state: ApplicationState, owned: OwnedPartition, event: Fetched) -> list[Write]:
    # A smaller one may be a guess (the fetcher's law 11). If the log was truncated, `EndFound` says so.
    end: Write = (setattr, owned, "high_watermark", max(owned.high_watermark, event.high_watermark))
    # Fetched before a seek, or before the revocation was requested.
    if not owned.awaits(event.fetch_number):
        return [end, *_dropping(state, event)]
    # It does not continue what is buffered: taken, it would skip records. They are fetched from there again.
    if event.start != owned.fetch_end():
        return [end, *_dropping(state, event), *fetch_again(state, owned)]
    arriving = owned.arriving(event.chunk, event.next_offset, event.leader_epoch)
    marks = (state.lists.filled.marking(owned), *state.marking_moved(owned))
    # A poll that this interrupts may be about to drop what is buffered: it counts that anew.
    return [end, *marks, owned.fetched_of(event.topic_id), state.lists.polls.changing(), arriving]


def _dropping(state: ApplicationState, event: Fetched) -> list[Write]:
    """What is dropped leaves the buffer too, as the network side counts it."""
    if event.chunk is None:
        return []
    left = (event.epoch, event.fetch_number, len(event.chunk), event.chunk.nbytes)
    return [(state.send, Consumed(partitions={event.partition: left}))]


def _settle_all(state: ApplicationState) -> None:
    """Each leaves before it is settled: a handler of a signal may settle the others meanwhile."""
    while True:
        try:
            event, ended = state.inbox.completed.popleft()
        except IndexError:
            return
        _settle(state, event, ended=ended)


def _settle(state: ApplicationState, event: CallCompleted, *, ended: bool) -> None:
    if ended and event.call in state.awaited:
        state.completions[event.call] = event
    state.ownership_view.response_received(event, ended=ended)
    hook = state.on_completion.pop(event.call, None) if ended else state.on_completion.get(event.call)
    if hook is not None:
        hook(event, ended=ended)


def _deadline_moved(state: ApplicationState, event: DeadlineMoved) -> list[Write]:
    return [(setattr, owned, "deadline", event.deadline) for owned in state.lists.matching(event.partitions)]
