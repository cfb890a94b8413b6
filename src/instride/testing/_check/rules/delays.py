"""L1, L2 and L5: what holds others up."""

from __future__ import annotations

from typing import Final

from instride.testing._check.history_state import HistoryState
from instride.testing._check.rules.rule import rule
from instride.testing._check.steps import Change, Delivery, Passed

_ON_THE_WAY: Final = 2
"""Polls that may return before the user has heard of a commit's response."""
_TURNS: Final = 40
"""Of the member (`turns`): far more than any fetch, commit or hand-over needs, on however slow a machine."""


def _commit_failed(step: Delivery | Change | Passed, _state: HistoryState) -> bool:
    return step.each.failed_at is not None


def _no_commit_failed(step: Delivery | Change | Passed, _state: HistoryState) -> bool:
    return step.each.failed_at is None


def _revocation_is_requested(step: Change, _state: HistoryState) -> bool:
    return step.each.requested


def _turns(step: Passed | Delivery | Change) -> int:
    """None of them have passed where it goes on."""
    return step.turns if isinstance(step, Passed) else 0


def _has_turns(step: Passed | Delivery, state: HistoryState) -> bool:
    """It is known what there is to read, and that time passes."""
    return step.each.partition in state.produced and state.heartbeat_responses[step.each.who] > 0


def _goes_on(step: Passed | Delivery, state: HistoryState) -> bool:
    return _has_turns(step, state) and step.each.failed_at is None


def _goes_on_after(step: Passed | Delivery, state: HistoryState) -> bool:
    return _has_turns(step, state) and step.each.failed_at is not None


def _bounded(step: Passed | Change, _state: HistoryState) -> bool:
    return step.each.requested and step.each.deadline is not None


def _released(step: Passed | Change, state: HistoryState) -> bool:
    return step.each.requested and step.each.undelayed and state.heartbeat_responses[step.each.who] > 0


@rule("L1", "the others go on", "delivery", "requested", within="faultless", bound="gap", when=_no_commit_failed)
def l1(step: Delivery | Change, state: HistoryState) -> str | None:
    """While any number of partitions are to be revoked, delayed or completing, every other one goes on: where nothing
    fails, one with records to read stands still for no longer than `gap`, however long the others are delayed."""
    stood = _stood_still(step, state)
    return None if stood is None else f"{step.each} stood still for {stood:.2f} s with records to read"


@rule("L1", "no turn passes one over", "passed over", "delivery", within="faultless", when=_goes_on)
def l1_turns(step: Passed | Delivery, state: HistoryState) -> str | None:
    """The same without a clock, for real machines: while the member's turns go on (`turns`: its heartbeats
    have responses, its polls return, records that were written later go to others), a partition with records to read is
    not passed over in forty of them."""
    turns = _turns(step)
    return f"{step.each} has records to read, and {turns} turns returned none" if turns == _TURNS else None


@rule(
    "L5", "a failed commit stops nothing", "delivery", "requested", within="faultless", bound="gap", when=_commit_failed
)
def l5(step: Delivery | Change, state: HistoryState) -> str | None:
    """The same after a commit of the partition was refused, or its response lost: fetching goes on."""
    stood = _stood_still(step, state)
    if stood is None:
        return None
    return f"{step.each} stood still for {stood:.2f} s after a commit of it had failed at {step.each.failed_at:.3f}"


@rule("L5", "a failed commit stops no turn", "passed over", "delivery", within="faultless", when=_goes_on_after)
def l5_turns(step: Passed | Delivery, state: HistoryState) -> str | None:
    """The same in turns."""
    if _turns(step) != _TURNS:
        return None
    return f"{step.each}: a commit of it failed at {step.each.failed_at:.3f}, and {_TURNS} turns returned none"


def _stood_still(step: Delivery | Change, state: HistoryState) -> float | None:
    each, parameters = step.each, state.judged_by
    if parameters.gap is None or each.waiting_since is None or each.ended:
        return None
    if each.who not in state.steady:
        return None
    stood = step.event.time - each.waiting_since
    return stood if stood > parameters.gap else None


@rule(
    "L2",
    "a delay ends",
    *("reassigned", "revoked", "lost", "standing"),
    within="faultless",
    bound="delay",
    when=_revocation_is_requested,
)
def l2(step: Change, state: HistoryState) -> str | None:
    """A revoke is pending for no longer than the group allows (`delay`): it is released, reassigned, or lost."""
    waited, limit = step.event.time - step.each.requested_at, state.judged_by.delay or 0.0
    return f"{step.each} was requested {waited:.2f} s ago" if waited > limit else None


@rule("L2", "a delay keeps its deadline", "overdue", "revoked", "reassigned", "lost", within="faultless", when=_bounded)
def l2_deadline(step: Passed | Change, state: HistoryState) -> str | None:
    """The member says by when it must have let go ("deadline"). Past it, forty turns do not find it with the partition
    still in hand: it gives up what is delayed in the first one."""
    if _turns(step) != _TURNS:
        return None
    return f"{step.each} was to be let go of by {step.each.deadline:.3f}, and is not, {_TURNS} turns later"


@rule("L2", "only work holds a revoke up", "not let go of", "revoked", within="faultless", when=_released)
def l2_work(step: Passed | Change, state: HistoryState) -> str | None:
    """A hold depends on records that were handed out, and on nothing else: not on what is buffered, and not on how much
    is written. A revoke that the application did not delay again is complete within forty turns, commits that are
    under way aside."""
    return f"nobody delays {step.each}, and {_TURNS} turns did not end it" if _turns(step) == _TURNS else None


def _tells_what_it_begins(step: Change, state: HistoryState) -> bool:
    return step.event.who in state.tells_begins


@rule("L2", "queued work delays nothing", "delayed", when=_tells_what_it_begins)
def l2_queued(step: Change, state: HistoryState) -> str | None:
    """A user whose workers have queues delays a revoke for what was begun, or is finished and not committed: records
    that only wait hold no partition (rule 16). The response of a commit may be a poll on its way."""
    each = step.each
    if state.has_work(each) or each.idle_delays < _ON_THE_WAY:
        return None
    return f"{each} is delayed, and no work on it was begun that is not finished and committed"
