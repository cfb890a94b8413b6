"""Leaving: revokes of everything with no next poll (docs/rebalance.md, rule 12).

Laws
1. Every held partition, a delayed one too, completes its revoke: commits first, then the listener, then the group.
2. The whole is bounded by its deadline. When that ends first, what is left is told to the log by the facade and
   the group is left all the same.
3. A listener's error is raised at the end, when everything was done.
4. When it is interrupted the network side is still told to leave, at once.
"""

from __future__ import annotations

from instride.core.application.calls import Call, Wait
from instride.core.application.committing import GRACE, commit_before_release
from instride.core.application.drain import drain
from instride.core.application.polling import run_revoked_listener
from instride.core.application.state import ApplicationState
from instride.core.events import Answered, Close, CommitsSettled, CompleteRevoke, Unsubscribe
from instride.errors import ConsumerClosedError
from instride.records import TopicPartition

__all__ = ["close", "unsubscribe"]


def unsubscribe(state: ApplicationState, now: float, timeout: float) -> Call[None]:
    deadline = now + timeout
    errors: list[Exception] = []
    try:
        yield from _complete_all(state, now, deadline, errors)
    except GeneratorExit:
        state.post(Unsubscribe(call=state.next_call(), deadline=now))
        _forget(state)
        raise
    call = state.next_call()
    state.post(Unsubscribe(call=call, deadline=deadline))
    yield from _await_quietly(state, call, now, deadline)
    _forget(state)
    if errors:
        raise errors[0]


def close(state: ApplicationState, now: float, timeout: float, *, leave: bool | None) -> Call[bool]:
    """True: everything was sent, and the group was left where that was wanted, within the timeout."""
    deadline = now + timeout
    errors: list[Exception] = []
    try:
        completed = yield from _complete_all(state, now, deadline, errors)
    except GeneratorExit:
        state.post(Close(call=state.next_call(), deadline=now, leave=leave))
        raise
    call = state.next_call()
    state.post(Close(call=call, deadline=deadline, leave=leave))
    answer = yield from _await_quietly(state, call, now, deadline)
    _forget(state)
    _settle_the_rest(state)
    state.closed = True
    if errors:
        raise errors[0]
    return completed and answer is not None and answer.error is None


def _complete_all(state: ApplicationState, now: float, deadline: float, errors: list[Exception]) -> Call[bool]:
    drain(state)
    _take_losses(state, errors)
    if state.assigned_by_hand:
        commit_before_release(state, now, state.lists.held)
        return True
    before = dict.fromkeys(state.lists.held)
    completing = state.lists.let_go(before)
    commit_before_release(state, now, completing)
    if completing:
        state.post(CompleteRevoke(partitions=completing, leaving=True))
    while state.lists.held and now < deadline:
        drain(state)
        _take_losses(state, errors)
        _take_completions(state, errors)
        # What was assigned meanwhile and nobody saw is left with the group.
        state.inbox.changes.clear()
        if state.lists.held:
            now = state.holdings.now = yield Wait(until=deadline)
    return not state.lists.held


def _take_completions(state: ApplicationState, errors: list[Exception]) -> None:
    while state.inbox.completions:
        event = state.inbox.completions.popleft()
        if isinstance(event, CommitsSettled):
            try:
                run_revoked_listener(state, event.partitions)
            except Exception as error:  # noqa: BLE001 - a listener's error is raised when everything is done
                errors.append(error)
        else:
            state.lists.revoked(event.partitions)


def _take_losses(state: ApplicationState, errors: list[Exception]) -> None:
    lost: set[TopicPartition] = set()
    while state.inbox.losses:
        lost |= state.lists.losing(state.inbox.losses.popleft().partitions)
    if lost and state.listener is not None:
        try:
            state.listener.on_partitions_lost(sorted(lost))
        except Exception as error:  # noqa: BLE001 - a listener's error is raised when everything is done
            errors.append(error)


def _await_quietly(state: ApplicationState, call: int, now: float, deadline: float) -> Call[Answered | None]:
    """Like await_answer, but neither a wakeup nor an error stops a close."""
    state.awaited.add(call)
    while True:
        drain(state)
        answer = state.answers.pop(call, None)
        if answer is not None or now >= deadline + GRACE:
            state.awaited.discard(call)
            return answer
        now = state.holdings.now = yield Wait(until=deadline + GRACE)


def _settle_the_rest(state: ApplicationState) -> None:
    """Whoever handed a snapshot over hears of it, also where no answer came in time."""
    while state.on_answer:
        call, hook = state.on_answer.popitem()
        hook(Answered(call=call, error=ConsumerClosedError("the consumer was closed before this was answered")))


def _forget(state: ApplicationState) -> None:
    state.lists.clear(lost=not state.assigned_by_hand)
    state.topics = frozenset()
    state.pattern = None
    state.assigned_by_hand = False
    state.generation, state.member_id = -1, ""
    state.inbox.changes.clear()
    state.inbox.completions.clear()
    state.inbox.losses.clear()
    state.inbox.early.clear()
