"""Calls of the rebalance listener: what an event requires of it, and what is written before a call and at its end.

Laws
1. State is changed before a listener runs.
2. When a listener ends, the network side is told so even if the listener raised. The verb in which it ran raises the
   same, and no call is made twice. A StopIteration is raised as a RuntimeError, as that of a generator is (PEP 479).
3. What interrupts the verb before a call leaves the call in the queue: the next verb makes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from instride._core.application.calls import Call, Wait, Write, at_once_then
from instride._core.application.inbox import Completion
from instride._core.application.state import ApplicationState
from instride._core.events import PartitionsRevoked, Revoked

__all__ = ["Callback", "completed", "finish_callback", "run_callbacks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A call of the listener that is due. begins, ends: what is written before it and when it has ended."""

    call: Callable[[], Awaitable[object] | None]
    begins: Sequence[Write] = ()
    ends: Sequence[Write] = ()


def run_callbacks(state: ApplicationState) -> Call[bool]:
    """The listener's turn: what was written before it is not undone by what it raises, and no call is made twice.

    Whether it had one.
    """
    finish_callback(state)
    # After `finish_callback`, which ends a call that was interrupted before what it owes was told.
    heard = bool(state.callbacks)
    while state.callbacks:
        callback = state.callbacks[0]
        begins = [(state.callbacks.popleft,), *callback.begins, (setattr, state, "owed", callback.ends)]
        try:
            # What interrupts it comes before it, or is the listener's own.
            result = at_once_then(begins, callback.call)
            if isinstance(result, Awaitable):
                yield Wait(until=state.ownership_view.now, awaited=result)
        except StopIteration as error:
            raise RuntimeError("a listener raised StopIteration") from error
        finally:
            finish_callback(state)
    return heard


def finish_callback(state: ApplicationState) -> None:
    if state.owed:
        state.write([*state.owed, (setattr, state, "owed", ())])


def completed(state: ApplicationState, event: Completion) -> list[Write]:
    """The first of the completions is taken. A listener hears of it next; commits are taken while it runs."""
    taken = (state.inbox.completions.popleft,)
    if isinstance(event, Revoked):
        return [taken, *state.lists.revoked(event.partitions)[1]]
    owned = {tp: epoch for tp, epoch in event.partitions.items() if state.lists.holds(tp, epoch)}
    ends = [*state.lists.revoked(owned)[1], (state.send, PartitionsRevoked(partitions=owned))]
    if state.listener is None or not owned:
        return [taken, *ends]
    callback = Callback(
        call=partial(state.listener.on_partitions_revoked, sorted(owned)),
        begins=[(setattr, state, "in_revoke_listener", frozenset(owned))],
        ends=[(setattr, state, "in_revoke_listener", frozenset()), *ends],
    )
    return [taken, (state.callbacks.append, callback)]
