"""No event is lost on its way to the application, and those of one kind keep their order, whenever a call looks."""

from __future__ import annotations

from collections import deque

import pytest
from application_script import tp
from hypothesis import given
from hypothesis import strategies as st

from instride._core.application.background_events import drain
from instride._core.application.state import ApplicationState
from instride._core.events import (
    Assigned,
    BackgroundEvent,
    CallCompleted,
    CommitsSettled,
    ErrorRaised,
    Lost,
    Reassigned,
    RevocationRequested,
    Revoked,
)
from instride._core.ownership import RebalanceProtocol
from instride._core.session_lease import Lease
from instride.config import ConsumerConfig

pytestmark = pytest.mark.part

KINDS = ["response", "error", "loss", "request", "back", "assigned", "settled", "revoked"]


def event(kind: str, number: int) -> BackgroundEvent:
    one = {tp(number): number}
    made: dict[str, BackgroundEvent] = {
        "response": CallCompleted(call=number),
        "error": ErrorRaised(error=LookupError(number)),
        "loss": Lost(partitions=one),
        "request": RevocationRequested(partitions=one, deadline=0.0),
        "back": Reassigned(partitions=one),
        "assigned": Assigned(generation=1, partitions=one),
        "settled": CommitsSettled(partitions=one),
        "revoked": Revoked(partitions=one),
    }
    return made[kind]


@pytest.mark.requirement("threading/29")
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans()), max_size=40))
def test_none_is_lost_and_their_order_is_kept(arrivals: list[tuple[str, bool]]) -> None:
    queue: deque[BackgroundEvent] = deque()
    config = ConsumerConfig(bootstrap_servers="b:1", group_id="g")
    state = ApplicationState(
        config,
        protocol=RebalanceProtocol.COOPERATIVE,
        queue=queue,
        send=lambda _event: None,
        wake=lambda: None,
        lease=Lease(),
    )
    sent = [event(kind, number) for number, (kind, _) in enumerate(arrivals)]
    state.awaited |= {each.call for each in sent if isinstance(each, CallCompleted)}
    for each, (_, look) in zip(sent, arrivals, strict=True):
        queue.append(each)
        if look:
            drain(state)
    drain(state)
    inbox = state.inbox
    assert not queue
    assert list(inbox.losses) == of(sent, Lost)
    assert list(inbox.changes) == of(sent, RevocationRequested, Reassigned, Assigned)
    assert list(inbox.completions) == of(sent, CommitsSettled, Revoked)
    assert list(inbox.errors) == [each.error for each in sent if isinstance(each, ErrorRaised)]
    assert list(state.completions.values()) == of(sent, CallCompleted)


def of(sent: list[BackgroundEvent], *kinds: type[BackgroundEvent]) -> list[BackgroundEvent]:
    return [each for each in sent if isinstance(each, kinds)]
