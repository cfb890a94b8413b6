"""What an operator reads: one line for a trouble that lasts, one when it is over, none for an end that was wanted."""

from __future__ import annotations

import logging

import pytest
from network_script import NetworkScript

from instride.core.events import Close, ErrorRaised, PartitionsAssigned
from instride.core.network.actions import Log
from instride.core.network.context import Context
from instride.wire import api

FENCED_INSTANCE_ID, NOT_COORDINATOR = 82, 16


def lines(script: NetworkScript, level: int) -> list[str]:
    found = [text for text, each in zip(script.logs, script.levels, strict=True) if each >= level]
    script.logs.clear()
    script.levels.clear()
    return found


def context() -> Context:
    return Context(NetworkScript().config, lambda: 0.5, lambda: 0.0)


def said(context: Context) -> list[tuple[int, str]]:
    return [(each.level, each.message) for each in context.out if isinstance(each, Log)]


def test_the_same_line_comes_again_after_half_a_minute_and_at_debug_between() -> None:
    shared = context()
    for shared.now in (0.0, 1.0, 29.9, 30.1, 31.0):
        shared.log(logging.WARNING, "no answer")
    shared.log(logging.INFO, "another")
    levels = [level for level, text in said(shared) if text == "no answer"]
    assert levels == [logging.WARNING, logging.DEBUG, logging.DEBUG, logging.WARNING, logging.DEBUG]
    assert said(shared)[-1] == (logging.INFO, "another")


def test_an_error_is_told_each_time() -> None:
    shared = context()
    for _ in range(2):
        shared.log(logging.ERROR, "t-0 is parked")
    assert said(shared) == [(logging.ERROR, "t-0 is parked")] * 2


def test_what_was_said_long_ago_is_forgotten() -> None:
    shared = context()
    for number in range(300):
        shared.now = float(number)
        shared.log(logging.INFO, f"line {number}")
    assert len(shared._said) <= 31


@pytest.mark.requirement("surface/log-lines")
def test_an_outage_is_a_line_in_half_a_minute_and_its_end_another() -> None:
    script = NetworkScript(metadata_max_age=1.0)
    script.member_of(1, 0)
    lines(script, logging.INFO)
    script.reachable = False
    for link in list(script.machine._context.connections._links):
        script.machine.closed(link, script.refusal, script.now)
    script.pass_time(20.0)
    warnings = [text for text in lines(script, logging.WARNING) if text.startswith("metadata from")]
    assert 1 <= len(warnings) <= 2, "of the broker, and of the bootstrap server"
    script.reachable = True
    script.pass_time(5.0)
    (again,) = [text for text in lines(script, logging.INFO) if text.startswith("metadata is answered again")]
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
    script.answer(api.LeaveGroup, api.LeaveGroupAnswer())
    script.pass_time(6.0)
    assert script.stopped
    assert lines(script, logging.INFO) == []


def test_a_refused_join_names_the_error() -> None:
    script = NetworkScript()
    script.subscribe()
    script.answer(api.JoinGroup, api.JoinGroupAnswer(error=NOT_COORDINATOR))
    assert "JoinGroup was answered with NotCoordinatorError (error code 16)" in script.logs


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
