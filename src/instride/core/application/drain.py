"""Takes what came up out of the queue: answers and data take effect at once, the rest waits in the inbox."""

from __future__ import annotations

from typing import assert_never

from instride.core.application.inbox import Change, Completion, Data
from instride.core.application.partition import OwnedPartition
from instride.core.application.seeking import fetch_again
from instride.core.application.state import ApplicationState
from instride.core.events import (
    Answered,
    Assigned,
    CommitsSettled,
    Consumed,
    DeadlineMoved,
    ErrorRaised,
    Fetched,
    GivenBack,
    LeaseRenewed,
    Lost,
    Noticed,
    Parked,
    Positioned,
    Revoked,
    RevokeRequested,
    SubscriptionMatched,
    Wakeup,
)

__all__ = ["apply_early", "drain"]


def drain(state: ApplicationState) -> None:
    """Empty the queue (law 1 of `inbox`)."""
    inbox = state.inbox
    while state.queue:
        event = state.queue.popleft()
        match event:
            case Fetched() | Positioned() | Parked():
                _data(state, event)
            case Answered():
                _answered(state, event)
            case Lost() | RevokeRequested() | GivenBack() | Assigned() | CommitsSettled() | Revoked():
                _waits(state, event)
            case DeadlineMoved():
                _deadline_moved(state, event)
            case ErrorRaised():
                inbox.errors.append(event.error)
            case SubscriptionMatched():
                if event.pattern == state.pattern:  # else of a subscription that is over
                    state.topics = event.topics
            case Wakeup():
                inbox.woken = True
            case Noticed():
                state.holdings.noticed(event.event)
            case LeaseRenewed():
                pass  # it only wakes; the lease itself is compared
            case _:
                assert_never(event)


def _waits(state: ApplicationState, event: Lost | Change | Completion) -> None:
    """For the poll that takes it. Telemetry hears now when the network side knew of it."""
    match event:
        case Lost():
            state.inbox.losses.append(event)
        case RevokeRequested() | GivenBack() | Assigned():
            state.inbox.changes.append(event)
        case CommitsSettled() | Revoked():
            state.inbox.completions.append(event)
        case _:
            assert_never(event)
    if not isinstance(event, CommitsSettled):
        state.holdings.arrived(event)


def apply_early(state: ApplicationState, event: Assigned) -> None:
    """Data that came before its assignment was taken."""
    for partition, epoch in event.partitions.items():
        for data in state.inbox.pop_early(partition, epoch):
            _data(state, data)


def _data(state: ApplicationState, event: Data) -> None:
    held = state.lists.held.get(event.partition)
    if event.epoch > state.lists.newest.get(event.partition, -1):
        state.inbox.keep_early(event)
        return
    if held is None or held.epoch != event.epoch:
        return  # of an assignment that is over
    match event:
        case Fetched():
            _fetched(state, held, event)
        case Positioned():
            held.positioned(event.seek_number, event.offset, event.leader_epoch, reset=event.reset)
        case Parked():
            held.parked(event)
        case _:
            assert_never(event)


def _fetched(state: ApplicationState, held: OwnedPartition, event: Fetched) -> None:
    held.high_watermark = max(held.high_watermark, event.high_watermark)
    if not held.awaits(event.fetch_number):
        _dropped(state, event)
    elif not held.arrived(event.start, event.chunk, event.next_offset):
        _dropped(state, event)
        fetch_again(state, held)


def _dropped(state: ApplicationState, event: Fetched) -> None:
    """What is dropped leaves the buffer too, as the network side counts it."""
    if event.chunk is not None:
        left = (event.epoch, event.fetch_number, len(event.chunk), event.chunk.nbytes)
        state.post(Consumed(partitions={event.partition: left}))


def _answered(state: ApplicationState, event: Answered) -> None:
    state.holdings.answered(event)
    hook = state.on_answer.pop(event.call, None)
    if hook is not None:
        hook(event)
    if event.call in state.awaited:
        state.answers[event.call] = event


def _deadline_moved(state: ApplicationState, event: DeadlineMoved) -> None:
    for partition, epoch in event.partitions.items():
        held = state.lists.held.get(partition)
        if held is not None and held.epoch == epoch:
            held.deadline = event.deadline
