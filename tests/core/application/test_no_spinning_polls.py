"""A poll that waits looks again only when something is due: whatever its state, it does not spin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from application_script import tp
from hypothesis import example, given
from hypothesis import strategies as st
from test_deserializing import ReadingScript

from instride.errors import KafkaError

LISTENED = 60.0
MOST_LOOKS = 40
"""In that time: a poll says three times in max_poll_interval that it is alive, commits, and tries again what failed."""

Step = Callable[[ReadingScript], object]


def fails(script: ReadingScript) -> None:
    """A poll takes what is there, and raises what cannot be read."""
    with suppress(KafkaError):
        script.read()


def ends_lease(script: ReadingScript) -> None:
    script.lease.expires = script.now


def renews_lease(script: ReadingScript) -> None:
    script.lease.expires = script.now + 1000


def later(script: ReadingScript) -> None:
    script.now += 3.0


STEPS: dict[str, Step] = {
    "fails": fails,
    "lease ends": ends_lease,
    "lease is renewed": renews_lease,
    "time passes": later,
    "pauses": lambda script: script.machine.pause([tp(0)]),
    "resumes": lambda script: script.machine.resume([tp(0)]),
    "revocation of 0": lambda script: script.revocation_requested(0),
    "revocation of 1": lambda script: script.revocation_requested(1),
    "delays": lambda script: script.delay(0),
    "loses 1": lambda script: script.lost(1),
}

ONCE = {"revocation of 0", "revocation of 1", "loses 1"}
"""The network side says it once of an assignment."""


def looks_in(script: ReadingScript, seconds: float, *, immediate: bool) -> int:
    """How often one poll, of whose wait nothing but the time makes an end, looks again."""
    until, looks = script.now + seconds, 0
    call: Any = script.machine.poll(script.now, seconds, immediate=immediate, limit=-1, read=script.reader.read)
    with suppress(StopIteration, KafkaError):
        wait = next(call)
        while script.now < until and looks <= MOST_LOOKS:
            looks += 1
            script.now = max(script.now, wait.until)
            wait = call.send(script.now)
    return looks


@pytest.mark.rule("20")
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=8),
    auto_commit=st.booleans(),
    immediate=st.booleans(),
)
@example(steps=["fails", "fails", "fails", "revocation of 0"], auto_commit=False, immediate=True)
def test_a_poll_that_waits_does_not_spin(steps: list[str], auto_commit: bool, immediate: bool) -> None:
    script = ReadingScript((0, 2), (1, 0), enable_auto_commit=auto_commit)
    script.lease.expires = script.now + 1000
    script.arrives(0, 0, 5)
    script.arrives(1, 0, 2)
    for place, step in enumerate(steps):
        if step in ONCE and step in steps[:place]:
            continue
        with suppress(KafkaError, ValueError):
            STEPS[step](script)
    assert looks_in(script, LISTENED, immediate=immediate) <= MOST_LOOKS
