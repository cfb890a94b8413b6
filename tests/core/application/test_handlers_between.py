"""A signal's handler that seeks or delays between what a call computes and its writing: the call computes it anew.

The tests of every line are in test_signal_handlers.py. These trace no lines: `make coverage` has a trace of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from application_script import Script, epochs, tp

import instride
from instride._core.events import Assigned, CompleteRevoke, Consumed, PartitionFailed, Positioned, SetPosition
from instride._core.metrics.meters import NetworkMeter

pytestmark = pytest.mark.rule("13")

CORE = str(Path(instride.__file__).parent / "_core")


@contextmanager
def handler(after: str, acts: Callable[[], object]) -> Iterator[None]:
    """It comes once, as soon as the core's function of this name has computed something."""
    waiting = [acts]

    def profile(frame: FrameType, event: str, _: Any) -> None:
        here = frame.f_code.co_name == after and frame.f_code.co_filename.startswith(CORE)
        if here and event == "return" and waiting:
            waiting.pop()()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert not waiting, f"nothing has called {after}"


def owner(**settings: Any) -> Script:
    script = Script(**settings)
    script.subscribe()
    script.assigned(0)
    script.fetched(0, 0, 10)
    script.poll(limit=4)
    return script


def seek_to_400(script: Script) -> Callable[[], object]:
    return lambda: script.machine.seek(tp(0), 400)


def ends_at_400(script: Script) -> bool:
    """On both sides, by the same numbers."""
    *_, told = script.take_posted(SetPosition)
    _, seek_number, position = script.machine.positions()[tp(0)]
    return (told.seek_number, told.offset) == (seek_number, position) and position == 400


def test_a_seek_comes_after_the_one_that_interrupts_it() -> None:
    script = owner()
    with handler("_seeking", lambda: script.machine.seek(tp(0), 300)):
        script.machine.seek(tp(0), 400)
    told = [(each.seek_number, each.offset) for each in script.take_posted(SetPosition)]
    assert told == [(1, 300), (2, 400)]


def test_a_seek_stands_when_a_poll_takes_a_revocation() -> None:
    script = owner()
    script.revocation_requested(0)
    with handler("revocation_requested", seek_to_400(script)):
        script.poll()
    assert script.to_be_revoked() == {0}
    assert ends_at_400(script)


def test_a_seek_stands_when_a_poll_takes_a_reassignment() -> None:
    script = owner()
    script.revocation_requested(0)
    script.poll()
    script.delay(0)
    script.poll()
    script.reassigned(0)
    with handler("reassigned", seek_to_400(script)):
        script.poll()
    assert ends_at_400(script)


def test_a_seek_stands_when_a_poll_resets_what_is_out_of_range() -> None:
    script = owner()
    script.poll()
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=ValueError("gone"), reset=30))
    with handler("_resetting", seek_to_400(script)):
        script.poll()
    assert ends_at_400(script)


@pytest.mark.parametrize(("after", "limit"), [("go_on", 4), ("unchanged", 4), ("_collect", -1)])
def test_what_a_handler_assigns_stands_when_a_poll_has_taken_records_of_another(after: str, limit: int) -> None:
    script = Script(group_id=None)
    script.machine.assign([tp(0)])
    script.up(Positioned(partition=tp(0), epoch=1, seek_number=0, offset=0))
    script.fetched(0, 0, 20)
    script.poll(limit=4)
    with handler(after, lambda: script.machine.assign([tp(1)])):
        script.poll(limit=limit)
    assert script.assignment() == {1}


def test_a_delay_holds_when_a_poll_completes_revokes() -> None:
    script = owner()
    script.revocation_requested(0)
    script.poll()
    with handler("step", lambda: script.delay(0)):
        script.poll()
    assert not script.take_posted(CompleteRevoke)
    assert script.assignment() == {0}


def test_a_revoke_of_the_immediate_mode_completes_once() -> None:
    script = owner()
    script.immediate = True
    script.revocation_requested(0)
    with handler("release", seek_to_400(script)):
        script.poll()
    assert [each.partitions for each in script.take_posted(CompleteRevoke)] == [{tp(0): 1}]


def test_a_close_lets_go_once_of_what_a_handler_sought_in() -> None:
    script = owner()
    with handler("release", seek_to_400(script)):
        script.start(script.machine.close(script.now, 10.0, leave=True))
    (told,) = script.take_posted(CompleteRevoke)
    assert told.partitions == {tp(0): 1}


def test_what_a_handler_drains_while_a_poll_takes_a_loss_is_taken_later() -> None:
    script = owner()
    script.lost(0)

    def drains() -> None:
        script.up(Assigned(generation=2, partitions=epochs(1, epoch=2)))
        assert script.assignment() == {0}

    with handler("forgetting", drains):
        script.poll()
    script.poll()
    assert script.assignment() == {1}


def test_what_comes_early_while_a_poll_takes_a_loss_waits_for_its_assignment() -> None:
    script = owner()
    script.lost(0)
    script.assigned(0, epoch=2)
    script.lost(0, epoch=2)

    def drains() -> None:
        script.assigned(0, epoch=3)
        script.fetched(0, 0, 5, epoch=3)
        assert script.assignment() == {0}

    with handler("forgetting", drains):
        script.poll()
    assert script.poll() == [(0, 0, 5)]


@pytest.mark.parametrize("computes", ["untold", "unmetered"])
def test_what_a_seek_drops_while_a_poll_tells_what_it_took_is_not_told_later(computes: str) -> None:
    script = owner(prefetch="total")
    with handler(computes, seek_to_400(script)):
        script.poll(limit=2)
    script.take_posted(Consumed)
    script.fetched(0, 400, 403, fetch_number=1)
    assert script.poll() == [(0, 400, 403)]
    assert [each.partitions[tp(0)][1:3] for each in script.take_posted(Consumed)] == [(1, 3)]
    metrics = script.machine.metrics(NetworkMeter(), script.now)
    returned = {value for name, value in metrics.items() if name.name == "records-consumed-total"}
    assert returned == {4 + 2 + 3}


def test_one_of_many_that_is_not_assigned_is_refused_before_a_change() -> None:
    script = owner()
    script.machine.refuse_unassigned([tp(0)])
    with pytest.raises(ValueError, match="t-5 is not assigned"):
        script.machine.refuse_unassigned([tp(0), tp(5)])
