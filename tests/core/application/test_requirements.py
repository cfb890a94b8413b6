"""What KIP-983 is for, in its smallest form."""

from __future__ import annotations

import pytest
from application_script import Script, epochs

from instride._core.events import CompleteRevoke


@pytest.mark.requirement("KIP-983/3")
def test_more_is_returned_while_earlier_records_are_worked_on(script: Script) -> None:
    """Nothing of them is committed, and nothing of them need be."""
    script.assigned(0)
    script.fetched(0, 0, 10)
    assert script.poll(limit=4) == [(0, 0, 4)]
    assert script.poll(limit=4) == [(0, 4, 8)]
    script.fetched(0, 10, 20)
    assert script.poll() == [(0, 8, 10), (0, 10, 20)]


@pytest.mark.requirement("KIP-983/13")
def test_a_delay_may_be_requested_as_often_as_the_work_needs(script: Script) -> None:
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    for _ in range(20):
        assert script.to_be_revoked() == {0}
        assert script.delay(0)
        script.poll()
    assert script.take_posted(CompleteRevoke) == []
    script.poll()
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(0)]


@pytest.mark.requirement("KIP-983/1")
@pytest.mark.rule("21")
def test_the_poll_after_a_hold_returns_what_is_kept_at_once(script: Script) -> None:
    """The revoke completes meanwhile."""
    script.assigned(0, 1)
    script.poll()
    script.revocation_requested(0)
    script.poll()
    script.delay(0)
    script.poll()
    script.fetched(1, 0, 5)
    before = script.now
    assert script.poll(timeout=10.0) == [(1, 0, 5)]
    assert script.now == before
    assert [event.partitions for event in script.take_posted(CompleteRevoke)] == [epochs(0)]
