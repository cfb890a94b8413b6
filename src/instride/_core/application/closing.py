"""Leaving: revokes of everything with no next poll (docs/rebalance.md, rule 12).

Laws
1. Every owned partition, a delayed one too, completes its revoke: commits first, then the listener, then the group.
2. The whole is bounded by its deadline. When that ends first, the partitions that are left are lost, and the listener
   is told so: finished work may not be committed. The member leaves the group all the same.
3. A listener's error is raised at the end, when everything was done.
4. Whatever interrupts it, the network side is told to leave, and does so within the timeout. Only what comes before the
   first step of a close finds a consumer that goes on.
5. Until an unsubscribe has told the network side to leave, `subscribe` and `assign` are refused: it would undo them.
   What they begin after that, while the response is awaited, stands.

Which offsets are committed: `committing`, `commit_before_release`. That commits in flight are awaited before the member
leaves the group: `_core/network/closing.py`. Who does not leave, a static member: `_core/network/group.py`, law 3 of
`Group`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from instride._core.application.background_events import drain
from instride._core.application.calls import Call, Wait, Write
from instride._core.application.committing import commit_before_release
from instride._core.application.listener_calls import Callback, completed, finish_callback, run_callbacks
from instride._core.application.state import ApplicationState
from instride._core.events import CALLER_WAITS, CallCompleted, Close, CompleteRevoke, Lost, Unsubscribe
from instride.errors import ConsumerClosedError

__all__ = ["close", "leave_group", "stop", "unsubscribe"]


def unsubscribe(state: ApplicationState, now: float, timeout: float) -> Call[bool]:
    """True: every revoke was completed within the timeout."""
    deadline = now + timeout
    errors: list[Exception] = []
    completed = False
    try:
        completed = yield from _complete_all(state, now, deadline, errors)
    finally:
        call = leave_group(state, deadline)
    yield from _await_quietly(state, call, now, deadline)
    state.write_computed(partial(_forgetting_the_rest, state))
    if errors:
        raise errors[0]
    return completed


def close(state: ApplicationState, now: float, timeout: float, *, leave: bool | None) -> Call[bool]:
    """True: everything was sent, and the group was left where that was wanted, within the timeout."""
    deadline = now + timeout
    errors: list[Exception] = []
    completed = False
    try:
        completed = yield from _complete_all(state, now, deadline, errors)
    finally:
        call = stop(state, deadline, leave=leave)
    completion = yield from _await_quietly(state, call, now, deadline)
    _settle_the_rest(state)
    if errors:
        raise errors[0]
    return completed and completion is not None and completion.error is None


def leave_group(state: ApplicationState, deadline: float) -> int:
    """Law 4. Nothing is subscribed any more; the number of the response. Told again, it gets a response again."""
    call = state.next_call()
    state.awaited.add(call)
    told = Unsubscribe(call=call, deadline=deadline)
    over = [(setattr, state, "unsubscribed", call), (setattr, state, "unsubscribing", False)]
    state.write([(state.send, told), *over, *_forgetting(state)])
    return call


def stop(state: ApplicationState, deadline: float, *, leave: bool | None) -> int:
    """Law 4. The number of the response; it is told once."""
    if state.closing is not None:
        return state.closing
    call = state.next_call()
    state.awaited.add(call)  # as `await_completion` does
    told = Close(call=call, deadline=deadline, leave=leave)
    state.write([(state.send, told), (setattr, state, "closing", call), *_forgetting(state)])
    return call


def _complete_all(state: ApplicationState, now: float, deadline: float, errors: list[Exception]) -> Call[bool]:
    drain(state)
    # Of a listener that an interrupt ended: what was taken with its call is told before anything is given up.
    finish_callback(state)
    yield from _take_losses(state, errors)
    if state.assigned_by_hand:
        commit_before_release(state, now, state.lists.owned)
        return True
    state.write_computed(partial(_releasing_all, state, now, deadline))
    while True:
        drain(state)
        yield from _take_losses(state, errors)
        yield from _take_completions(state, errors)
        # What was assigned meanwhile and nobody saw is left with the group.
        state.inbox.changes.clear()
        if not state.lists.owned or now >= deadline:
            break
        now = state.ownership_view.now = yield Wait(until=deadline)
    return (yield from _nothing_is_left(state, errors))


def _releasing_all(state: ApplicationState, now: float, deadline: float) -> list[Write]:
    completing, writes = state.lists.release(state.lists.owned)
    commit_before_release(state, now, completing)
    if not state.lists.owned:
        return []
    # Also where a poll's step has let go of everything: nothing shall be assigned again before the end.
    return [*writes, (state.send, CompleteRevoke(partitions=completing, leaving_by=deadline))]


def _nothing_is_left(state: ApplicationState, errors: list[Exception]) -> Call[bool]:
    """Law 2."""
    late = {tp: owned.epoch for tp, owned in state.lists.owned.items()}
    state.inbox.losses.append(Lost(partitions=late))
    yield from _take_losses(state, errors)
    return not late


def _take_completions(state: ApplicationState, errors: list[Exception]) -> Call[None]:
    while state.inbox.completions:
        state.write(completed(state, state.inbox.completions[0]))
        yield from _run_callbacks(state, errors)


def _take_losses(state: ApplicationState, errors: list[Exception]) -> Call[None]:
    losses = tuple(state.inbox.losses)
    lost, writes = state.lists.losing(losses)
    lost |= state.gone  # an interrupted poll took these losses, and did not tell the listener
    writes += [*[(state.inbox.losses.popleft,) for _ in losses], (setattr, state, "gone", frozenset())]
    if lost and state.listener is not None:
        callback = Callback(call=partial(state.listener.on_partitions_lost, sorted(lost)))
        writes.append((state.callbacks.append, callback))
    state.write(writes)
    yield from _run_callbacks(state, errors)


def _run_callbacks(state: ApplicationState, errors: list[Exception]) -> Call[None]:
    """Of a poll that was interrupted too."""
    while state.callbacks or state.owed:
        try:
            yield from run_callbacks(state)
        except Exception as error:  # noqa: BLE001 - a listener's error is raised when everything is done
            errors.append(error)


def _await_quietly(state: ApplicationState, call: int, now: float, deadline: float) -> Call[CallCompleted | None]:
    """Like await_completion, but neither a wakeup nor an error stops a close."""
    state.awaited.add(call)
    while True:
        drain(state)
        completion = state.completions.pop(call, None)
        if completion is not None or now >= deadline + CALLER_WAITS:
            state.awaited.discard(call)
            return completion
        now = state.ownership_view.now = yield Wait(until=deadline + CALLER_WAITS)


def _settle_the_rest(state: ApplicationState) -> None:
    """Whoever handed a snapshot over hears of it, also where no response came in time."""
    while state.on_completion:
        call, hook = state.on_completion.popitem()
        error = ConsumerClosedError("the consumer was closed before this was done")
        hook(CallCompleted(call=call, error=error), ended=True)


def _forgetting_the_rest(state: ApplicationState) -> list[Write]:
    """What came up meanwhile (law 5)."""
    return [] if state.subscribed or state.assigned_by_hand else _forgetting(state)


def _forgetting(state: ApplicationState) -> list[Write]:
    empty: dict[str, Any] = {
        "topics": frozenset(),
        "pattern": None,
        "assigned_by_hand": False,
        "generation": -1,
        "member_id": "",
        "gone": frozenset(),
    }
    return [
        *state.lists.clearing(lost=not state.assigned_by_hand),
        *[(setattr, state, name, value) for name, value in empty.items()],
        (setattr, state, "owed", ()),
        (setattr, state, "in_revoke_listener", frozenset()),
        *[(each.clear,) for each in (state.callbacks, *state.inbox.of_ownership())],
    ]
