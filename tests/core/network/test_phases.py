"""The phases of a rebalance by themselves: which moves of the group begin and end them."""

from __future__ import annotations

import pytest

from instride._core.network.group import GroupState
from instride._core.network.telemetry_monitor import STEPS, Phase, Phases
from instride.telemetry import RebalanceEnded, RebalanceOutcome, RebalanceStarted

pytestmark = pytest.mark.part


@pytest.mark.requirement("surface/rebalances-told")
def test_each_phase_of_a_rebalance_is_timed() -> None:
    phases = Phases()
    assert phases.seen(GroupState.PREPARING_REBALANCE, -1, "subscribe", 10.0) == [
        RebalanceStarted(at=10.0, generation=-1, reason="subscribe")
    ]
    assert phases.seen(GroupState.COMPLETING_REBALANCE, 4, "subscribe", 13.0) == []
    assert phases.seen(GroupState.ASSIGNING_PARTITIONS, 4, "subscribe", 13.5) == []
    (ended,) = phases.seen(GroupState.STABLE, 4, "subscribe", 14.5)
    assert ended == RebalanceEnded(
        at=14.5,
        started_at=10.0,
        generation=4,
        reason="subscribe",
        outcome=RebalanceOutcome.TAKEN,
        joins=1,
        joining=3.0,
        syncing=0.5,
        taking=1.0,
    )
    assert ended.seconds == 4.5


def test_a_sync_that_is_refused_is_the_same_rebalance() -> None:
    phases = Phases()
    for state, at in (
        (GroupState.PREPARING_REBALANCE, 1.0),
        (GroupState.COMPLETING_REBALANCE, 2.0),
        (GroupState.PREPARING_REBALANCE, 3.0),
        (GroupState.COMPLETING_REBALANCE, 5.0),
        (GroupState.ASSIGNING_PARTITIONS, 6.0),
    ):
        events = phases.seen(state, 7, "r", at)
    assert events == []
    (ended,) = phases.seen(GroupState.UNJOINED, -1, "r", 8.0)
    assert isinstance(ended, RebalanceEnded)
    assert (ended.joins, ended.joining, ended.syncing, ended.taking) == (2, 4.0, 1.0, None)
    assert ended.outcome is RebalanceOutcome.FAILED


def test_a_rebalance_that_nobody_took_is_superseded() -> None:
    phases = Phases()
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.ASSIGNING_PARTITIONS):
        phases.seen(state, 1, "one", 1.0)
    ended, started = phases.seen(GroupState.PREPARING_REBALANCE, 1, "two", 2.0)
    assert isinstance(ended, RebalanceEnded)
    assert (ended.outcome, ended.reason, ended.taking) == (RebalanceOutcome.SUPERSEDED, "one", None)
    assert started == RebalanceStarted(at=2.0, generation=1, reason="two")
    assert phases.phase is Phase.JOINING


def test_a_state_that_means_nothing_is_no_step() -> None:
    """The states that the table leaves out are those that a phase does not end in."""
    phases = Phases()
    for state in (GroupState.STABLE, GroupState.UNJOINED, GroupState.ASSIGNING_PARTITIONS):
        assert phases.seen(state, 1, "r", 1.0) == []
        assert phases.phase is Phase.QUIET
    assert {phase for phase, _ in STEPS} == set(Phase)
