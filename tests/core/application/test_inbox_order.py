"""No event is lost on its way to the application, and those of one kind keep their order, whenever a call looks."""

from __future__ import annotations

import pytest
from application_script import Script, tp
from hypothesis import given
from hypothesis import strategies as st

from instride.core.application.drain import drain
from instride.core.events import (
    Answered,
    Assigned,
    BackgroundEvent,
    CommitsSettled,
    ErrorRaised,
    GivenBack,
    Lost,
    Revoked,
    RevokeRequested,
)

KINDS = ["answer", "error", "loss", "request", "back", "assigned", "settled", "revoked"]


def event(kind: str, number: int) -> BackgroundEvent:
    one = {tp(number): number}
    made: dict[str, BackgroundEvent] = {
        "answer": Answered(call=number),
        "error": ErrorRaised(error=LookupError(number)),
        "loss": Lost(partitions=one),
        "request": RevokeRequested(partitions=one, deadline=0.0),
        "back": GivenBack(partitions=one),
        "assigned": Assigned(generation=1, partitions=one),
        "settled": CommitsSettled(partitions=one),
        "revoked": Revoked(partitions=one),
    }
    return made[kind]


@pytest.mark.requirement("threading/29")
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=40))
def test_none_is_lost_and_their_order_is_kept(arrivals: list[tuple[str, bool]]) -> None:
    script = Script()
    state = script.machine._state
    sent = [event(kind, number) for number, (kind, _) in enumerate(arrivals)]
    state.awaited |= {each.call for each in sent if isinstance(each, Answered)}
    for each, (_, look) in zip(sent, arrivals, strict=True):
        script.queue.append(each)
        if look:
            drain(state)
    drain(state)
    inbox = state.inbox
    assert not script.queue
    assert list(inbox.losses) == of(sent, Lost)
    assert list(inbox.changes) == of(sent, RevokeRequested, GivenBack, Assigned)
    assert list(inbox.completions) == of(sent, CommitsSettled, Revoked)
    assert list(inbox.errors) == [each.error for each in sent if isinstance(each, ErrorRaised)]
    assert list(state.answers.values()) == of(sent, Answered)


def of(sent: list[BackgroundEvent], *kinds: type[BackgroundEvent]) -> list[BackgroundEvent]:
    return [each for each in sent if isinstance(each, kinds)]
