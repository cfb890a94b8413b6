"""`position` waits for what the network side looks for, and for nothing that will never come."""

from __future__ import annotations

import pytest
from application_script import Script, tp

from instride._core.events import ErrorRaised, PartitionFailed, Wakeup
from instride.errors import NoOffsetForPartitionError, WakeupError


@pytest.fixture
def script() -> Script:
    made = Script(auto_offset_reset="none")
    made.machine.assign([tp(0)])
    return made


@pytest.mark.requirement("threading/23")
def test_a_wakeup_ends_the_wait_for_a_position_once(script: Script) -> None:
    call = script.machine.position(script.now, tp(0), 60.0)
    next(call)
    script.up(Wakeup())
    with pytest.raises(WakeupError):
        call.send(script.now + 1.0)
    assert script.poll() == []


def test_a_partition_without_offset_and_policy_has_no_position_to_wait_for(script: Script) -> None:
    error = NoOffsetForPartitionError("t-0 has no committed offset")
    call = script.machine.position(script.now, tp(0), 60.0)
    next(call)
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error))
    with pytest.raises(NoOffsetForPartitionError):
        call.send(script.now + 1.0)


def test_what_stands_in_the_way_is_raised_again_and_again_and_does_not_grow(script: Script) -> None:
    """It is the same object. Each time its traceback became longer, for as long as the program asked."""
    error = NoOffsetForPartitionError("t-0 has no committed offset")
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=error))
    depths = []
    for _ in range(3):
        script.up(ErrorRaised(error=error))
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError) as raised:
                script.run(script.machine.position(script.now, tp(0), 60.0))
            depths.append(len(raised.traceback))
    assert len(set(depths)) == 1
