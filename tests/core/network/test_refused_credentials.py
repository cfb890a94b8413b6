"""Credentials that are refused: who is told, how often, and that all goes on when they are good again."""

from __future__ import annotations

from typing import Any

import pytest
from network_script import NetworkScript, tp

from instride._core.events import (
    Assign,
    CallCompleted,
    ErrorRaised,
    FetchCommitted,
    FetchMetadata,
    FetchOffsets,
    Polled,
)
from instride._core.network.actions import Action, OpenConnection
from instride._wire import api
from instride.errors import AuthenticationError, ErrorCode


class Refusing(NetworkScript):
    """Every connection is refused until `good`; `tries` are the times."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.good = False
        self.tries: list[float] = []

    def _act(self, action: Action) -> None:
        if isinstance(action, OpenConnection) and not self.good:
            self.tries.append(self.now)
            self.machine.closed(action.key, AuthenticationError("no"), self.now)
        else:
            super()._act(action)

    def errors(self) -> list[Exception]:
        return [event.error for event in self.delivered if isinstance(event, ErrorRaised)]


def test_it_is_tried_again_a_second_later_at_the_earliest_and_without_end() -> None:
    script = Refusing(reconnect_backoff=0.001, retry_backoff=0.001)
    script.do(Assign(partitions={tp(0): 1}))
    script.pass_time(60.0)
    gaps = [later - earlier for earlier, later in zip(script.tries, script.tries[1:], strict=False)]
    assert 60 <= len(script.tries) <= 61
    assert min(gaps) >= 1.0


def test_who_polls_is_told_each_time_and_who_does_not_is_told_seldom() -> None:
    script = Refusing()
    script.do(Assign(partitions={tp(0): 1}))
    script.pass_time(60.0)
    silent = script.errors()
    assert 12 <= len(silent) <= 13, "every five seconds"
    script.do(Polled(at=script.now))
    script.pass_time(3.0)
    assert len(script.errors()) > len(silent)
    assert all(isinstance(error, AuthenticationError) for error in script.errors())


def test_calls_that_wait_end_with_it() -> None:
    script = Refusing()
    script.do(Assign(partitions={tp(0): 1}))
    deadline = script.now + 60.0
    script.do(
        FetchCommitted(call=1, deadline=deadline, partitions=(tp(0),)),
        FetchOffsets(call=2, deadline=deadline, timestamps={tp(0): -1}),
    )
    script.pass_time(3.0)
    completed = {event.call: event.error for event in script.delivered if isinstance(event, CallCompleted)}
    assert isinstance(completed[1], AuthenticationError)
    assert isinstance(completed[2], AuthenticationError)


def committed(script: NetworkScript, call: int) -> None:
    script.do(FetchCommitted(call=call, deadline=script.now + 3600.0, partitions=(tp(0),)))


def end_offsets(script: NetworkScript, call: int) -> None:
    script.do(FetchOffsets(call=call, deadline=script.now + 3600.0, timestamps={tp(0): -1}))


def topics(script: NetworkScript, call: int) -> None:
    script.do(FetchMetadata(call=call, deadline=script.now + 3600.0, topics=None, internal=True))


def commit(script: NetworkScript, call: int) -> None:
    script.commit({0: call}, epoch=1, timeout=3600.0)


@pytest.mark.parametrize("verb", [committed, end_offsets, topics, commit])
def test_a_program_that_calls_again_and_again_hears_of_each_attempt_once(verb: Any) -> None:
    script = Refusing()
    script.do(Assign(partitions={tp(0): 1}))
    raised, calls, until = 0, 1, script.now + 30.0
    script.pass_time(0.1)
    verb(script, calls)
    while script.now < until:
        script.pass_time(0.1)
        if script.take(CallCompleted):
            raised, calls = raised + 1, calls + 1
            verb(script, calls)
            assert not script.take(CallCompleted), "it waits for the next attempt"
    assert 10 <= raised <= len(script.tries)


def test_two_calls_that_wait_together_hear_of_the_same_attempt() -> None:
    script = Refusing()
    script.do(Assign(partitions={tp(0): 1}))
    deadline = script.now + 60.0
    script.do(*(FetchCommitted(call=call, deadline=deadline, partitions=(tp(0),)) for call in (1, 2)))
    script.pass_time(0.9)
    assert len(script.tries) == 1
    assert sorted(event.call for event in script.take(CallCompleted)) == [1, 2]


def test_a_group_that_may_not_be_read_is_told_once_for_each_search() -> None:
    script = NetworkScript()
    script.coordinator_error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    script.do(Assign(partitions={tp(0): 1}))
    raised, until = 0, script.now + 30.0
    committed(script, 1)
    while script.now < until:
        script.pass_time(0.1)
        for ended in script.take(CallCompleted):
            assert getattr(ended.error, "code", None) == ErrorCode.GROUP_AUTHORIZATION_FAILED
            raised += 1
            committed(script, raised + 1)
    assert 10 <= raised <= 60, "a search each second, at the most"
    script.coordinator_error = 0
    script.committed_offset = 3
    script.pass_time(5.0)
    assert [event.error for event in script.take(CallCompleted)] == [None]


def test_all_goes_on_when_they_are_good_again() -> None:
    script = Refusing()
    script.do(Assign(partitions={tp(0): 1}))
    script.pass_time(5.0)
    script.good = True
    script.pass_time(5.0)
    assert any(isinstance(each.request, api.Fetch) for each in script.waiting)
    before = len(script.errors())
    script.do(Polled(at=script.now))
    script.pass_time(5.0)
    assert len(script.errors()) == before


def test_what_was_refused_once_is_no_response_any_more_when_it_is_taken() -> None:
    script = Refusing()
    script.do(Assign(partitions={tp(0): 1}))
    script.pass_time(5.0)
    script.good = True
    script.coordinator_error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # so that a question has to wait
    script.pass_time(5.0)
    script.do(FetchCommitted(call=1, deadline=script.now + 60.0, partitions=(tp(0),)))
    script.pass_time(1.0)
    script.coordinator_error = 0
    script.pass_time(5.0)
    (response,) = (event for event in script.delivered if isinstance(event, CallCompleted))
    assert response.error is None
