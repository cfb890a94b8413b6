"""Bugs that the simulation found, each at the lowest level that shows it."""

from __future__ import annotations

import pytest
from network_script import NetworkScript, tp

from instride.core.events import Polled
from instride.wire import api

REBALANCE_IN_PROGRESS = 27


def test_after_the_poll_interval_the_thread_sleeps_until_the_application_polls() -> None:
    """Seed 7: the deadline stayed in the past, and the network thread turned without a pause."""
    script = NetworkScript(max_poll_interval=5.0, commit_budget=1.0)
    script.member_of(1, 0)
    for _ in range(3):
        script.pass_time(3.0)
        if "Heartbeat" in script.waits():
            script.answer(api.Heartbeat, api.HeartbeatAnswer())
    assert script.machine.deadline() > script.now
    script.do(Polled())
    script.asked(api.JoinGroup)


@pytest.mark.rule("fence yourself")
@pytest.mark.parametrize("pending", ["join", "sync"])
def test_a_process_suspended_during_a_join_or_sync_has_no_lease_when_it_goes_on(pending: str) -> None:
    """Seed 754: the lease was without end while a join was pending, so a member that had been evicted returned records."""
    script = NetworkScript()
    script.member_of(1, 0)
    script.heartbeat(REBALANCE_IN_PROGRESS)
    if pending == "sync":
        script.join(2)
    assert script.lease.holds(script.now)
    script.now += script.config.session_timeout + 1.0  # no turn of the thread meanwhile
    assert not script.lease.holds(script.now), "the application may be the first to run"
    script.settle()
    assert not script.lease.holds(script.now), "what is pending may be answered long since"
    if pending == "join":
        script.join(2)
    script.sync(0)
    script.heartbeat()
    assert script.lease.holds(script.now)
    assert script.machine._book.held[tp(0)].epoch == 1, "and nothing was lost"
