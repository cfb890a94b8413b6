"""When a poll is to be told at once: else the network thread hears of it in its next turn, and no poll costs a turn."""

from __future__ import annotations

from typing import Any

import pytest
from network_script import NetworkScript

from instride._core.events import Assign, Lost, Polled, Subscribe
from instride._core.network.actions import Action, OpenConnection
from instride._wire import api
from instride.errors import AuthenticationError, ErrorCode

pytestmark = pytest.mark.rule("20")

NEVER, AT_ONCE = float("inf"), float("-inf")


def test_a_member_hears_of_polls_once_in_a_twentieth_of_max_poll_interval() -> None:
    script = NetworkScript(max_poll_interval=300.0)
    script.member_of(1, 0)
    polled = script.now
    script.do(Polled(at=polled))
    assert script.machine.awaits_poll_at == polled + 15.0


def test_one_that_has_left_for_want_of_a_poll_awaits_the_next() -> None:
    script = NetworkScript(max_poll_interval=100.0)
    script.member_of(1, 0)
    script.do(Polled(at=script.now))
    script.pass_time(101.0)
    assert script.take(Lost)
    assert script.machine.awaits_poll_at == AT_ONCE
    script.do(Polled(at=script.now))
    assert script.machine.awaits_poll_at == script.now + 5.0


@pytest.mark.parametrize("longest", ["heartbeat_interval", "request_timeout", "session_timeout"])
def test_each_poll_is_told_where_no_turn_need_come_before_the_lease_ends(longest: str) -> None:
    """The lease would end although the application polls in time: polls would return nothing for a moment."""
    bounds: dict[str, Any] = {"heartbeat_interval": 3.0, "request_timeout": 9.0, "session_timeout": 9.0, longest: 95.0}
    if longest == "heartbeat_interval":
        bounds["session_timeout"] = 100.0
    script = NetworkScript(max_poll_interval=100.0, **bounds)
    script.member_of(1, 0)
    script.do(Polled(at=script.now))
    assert script.machine.awaits_poll_at == AT_ONCE


def test_a_poll_that_is_heard_of_late_counts_from_when_it_was() -> None:
    script = NetworkScript(max_poll_interval=10.0)
    script.member_of(1, 0)
    polled = script.now
    script.do(Polled(at=polled))
    script.now = polled + 9.0
    script.do(Polled(at=polled + 0.4))
    script.pass_time(1.3)
    assert not script.take(Lost), "10.4 s after the first poll, 9.9 after the second"
    script.pass_time(0.2)
    assert script.take(Lost)


def test_nobody_awaits_polls_where_there_is_no_group() -> None:
    script = NetworkScript()
    script.do(Assign(partitions={}))
    assert script.machine.awaits_poll_at == NEVER


def test_an_error_that_stands_awaits_polls_since_it_is_raised_again_after_one() -> None:
    script = NetworkScript()
    script.do(Subscribe(topics=frozenset({"t"}), listener=False))
    script.response(api.JoinGroup, api.JoinGroupResponse(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert script.machine.awaits_poll_at == AT_ONCE


class Refusing(NetworkScript):
    def _act(self, action: Action) -> None:
        if isinstance(action, OpenConnection):
            self.machine.closed(action.key, AuthenticationError("no"), self.now)
        else:
            super()._act(action)


def test_credentials_that_are_refused_await_polls_since_who_polls_is_told_again() -> None:
    script = Refusing()
    script.do(Assign(partitions={}))
    script.do(Subscribe(topics=frozenset({"t"}), listener=False))
    assert script.machine.awaits_poll_at == AT_ONCE
