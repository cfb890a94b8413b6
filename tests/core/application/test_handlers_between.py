"""A signal's handler that seeks or delays between what a call computes and its writing: the call computes it anew.

The tests of every line are in test_signal_handlers.py. These need no trace of the lines: `make coverage` has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from application_script import Script, tp

from instride._core.application.calls import Write
from instride._core.application.state import ApplicationState
from instride._core.events import CompleteRevoke, PartitionFailed, SetPosition

pytestmark = pytest.mark.rule("13")

Handlers = list[Callable[[], object]]


def nothing() -> None:
    """A poll computes first what its step completes: that is not to be interrupted."""


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Handlers:
    """Each is called once, the last one first, as soon as a call has computed something and is about to write it."""
    waiting: Handlers = []
    write_if = ApplicationState.write_if

    def interrupted(self: ApplicationState, unchanged: Write, writes: Iterable[Write]) -> bool:
        computed = list(writes)
        if waiting:
            waiting.pop()()
        return write_if(self, unchanged, computed)

    monkeypatch.setattr(ApplicationState, "write_if", interrupted)
    return waiting


def owner() -> Script:
    script = Script()
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


def test_a_seek_comes_after_the_one_that_interrupts_it(handlers: Handlers) -> None:
    script = owner()
    handlers.append(lambda: script.machine.seek(tp(0), 300))
    script.machine.seek(tp(0), 400)
    told = [(each.seek_number, each.offset) for each in script.posted if isinstance(each, SetPosition)]
    assert told == [(1, 300), (2, 400)]
    assert ends_at_400(script)


def test_a_seek_stands_when_a_poll_takes_a_revocation(handlers: Handlers) -> None:
    script = owner()
    script.revocation_requested(0)
    handlers += [seek_to_400(script), nothing]
    script.poll()
    assert script.to_be_revoked() == {0}
    assert ends_at_400(script)


def test_a_seek_stands_when_a_poll_takes_a_reassignment(handlers: Handlers) -> None:
    script = owner()
    script.revocation_requested(0)
    script.poll()
    script.delay(0)
    script.poll()
    script.reassigned(0)
    handlers += [seek_to_400(script), nothing]
    script.poll()
    assert ends_at_400(script)


def test_a_seek_stands_when_a_poll_resets_what_is_out_of_range(handlers: Handlers) -> None:
    script = owner()
    script.poll()
    script.up(PartitionFailed(partition=tp(0), epoch=1, fetch_number=0, error=ValueError("gone"), reset=30))
    handlers += [seek_to_400(script), nothing]
    script.poll()
    assert ends_at_400(script)


def test_a_delay_holds_when_a_poll_completes_revokes(handlers: Handlers) -> None:
    script = owner()
    script.revocation_requested(0)
    script.poll()
    handlers.append(lambda: script.delay(0))
    script.poll()
    assert not script.take_posted(CompleteRevoke)
    assert script.assignment() == {0}


def test_a_revoke_of_the_immediate_mode_completes_once(handlers: Handlers) -> None:
    script = owner()
    script.immediate = True
    script.revocation_requested(0)
    # The one before the last where it computes what is dropped, the first where it computes what completes.
    handlers += [seek_to_400(script), nothing, nothing]
    script.poll()
    assert [each.partitions for each in script.take_posted(CompleteRevoke)] == [{tp(0): 1}]


def test_a_close_lets_go_once_of_what_a_handler_sought_in(handlers: Handlers) -> None:
    script = owner()
    handlers.append(seek_to_400(script))
    script.start(script.machine.close(script.now, 10.0, leave=True))
    (told,) = script.take_posted(CompleteRevoke)
    assert told.partitions == {tp(0): 1}
