"""What an operator reads: one line for a trouble that lasts, one when it is over, none for an end that was wanted."""

from __future__ import annotations

import logging

import pytest
from network_script import NetworkScript

from instride._core.events import Close, ErrorRaised, PartitionsAssigned
from instride._wire import api
from instride.errors import TransportError

FENCED_INSTANCE_ID, NOT_COORDINATOR = 82, 16


def lines(script: NetworkScript, level: int) -> list[str]:
    found = [text for text, each in zip(script.logs, script.levels, strict=True) if each >= level]
    script.logs.clear()
    script.levels.clear()
    return found


@pytest.mark.requirement("surface/log-lines")
def test_an_outage_is_a_line_in_half_a_minute_and_its_end_another() -> None:
    script = NetworkScript(metadata_max_age=1.0)
    script.member_of(1, 0)
    lines(script, logging.INFO)
    script.reachable = False
    for link in sorted(script.open, key=repr):
        script.machine.closed(link, script.refusal, script.now)
    script.pass_time(20.0)
    warnings = [text for text in lines(script, logging.WARNING) if text.startswith("metadata from")]
    assert 1 <= len(warnings) <= 2, "of the broker, and of the bootstrap server"
    script.reachable = True
    script.pass_time(5.0)
    (again,) = [text for text in lines(script, logging.INFO) if text.startswith("metadata is available again")]
    assert again.endswith(" s")


@pytest.mark.requirement("surface/log-lines")
def test_closing_is_no_trouble() -> None:
    script = NetworkScript(metadata_max_age=1.0)
    script.member_of(1, 0)
    script.hold_metadata = True
    script.pass_time(1.5)
    assert {"Metadata", "Fetch"} <= set(script.waits())
    lines(script, logging.INFO)
    script.do(Close(call=1, deadline=script.now + 5))
    script.response(api.LeaveGroup, api.LeaveGroupResponse())
    script.pass_time(6.0)
    assert script.stopped
    assert lines(script, logging.INFO) == []


def test_a_refused_join_names_the_error() -> None:
    script = NetworkScript()
    script.subscribe()
    script.response(api.JoinGroup, api.JoinGroupResponse(error=NOT_COORDINATOR))
    assert "JoinGroup had the response NotCoordinatorError (error code 16)" in script.logs


@pytest.mark.requirement("surface/log-lines")
def test_what_a_broker_makes_up_fills_no_log() -> None:
    script = NetworkScript(retry_backoff=0.001, retry_backoff_max=0.001)
    script.member_of(1, 0)
    lines(script, logging.DEBUG)
    for number in range(500):
        word = "".join(chr(97 + (number // 26**place) % 26) for place in range(3))
        script.response(api.Fetch, TransportError(word))
        script.pass_time(0.01)
    assert len([text for text in lines(script, logging.DEBUG) if text.startswith("fetch from")]) <= 330


@pytest.mark.requirement("surface/advice")
def test_a_fenced_member_is_told_of_which_group_and_what_to_do() -> None:
    script = NetworkScript(group_instance_id="one")
    script.subscribe()
    script.rebalance(1, 0)
    script.do(PartitionsAssigned(generation=1))
    script.heartbeat(FENCED_INSTANCE_ID)
    (told,) = script.take(ErrorRaised)
    assert "group 'g'" in str(told.error)
    assert "group_instance_id" in str(told.error)
