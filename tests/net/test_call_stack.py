"""Whether a call that was noted is under way: also from another thread, and when its note outlived it."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from instride._net.call_stack import is_under_way

Note = tuple[int, FrameType]


def noted() -> Note:
    return threading.get_ident(), sys._getframe()


def test_a_call_is_under_way_until_it_returns() -> None:
    def inner(note: Note) -> bool:
        return is_under_way(note)

    def outer() -> tuple[Note, bool]:
        note = threading.get_ident(), sys._getframe()
        return note, inner(note)

    note, within = outer()
    assert within
    assert not is_under_way(note)


def test_a_call_of_another_thread_is_seen_and_that_of_an_ended_one_is_over() -> None:
    notes: list[Note] = []
    begun, may_end = threading.Event(), threading.Event()

    def verb() -> None:
        notes.append((threading.get_ident(), sys._getframe()))
        begun.set()
        may_end.wait(60)

    thread = threading.Thread(target=verb)
    thread.start()
    assert begun.wait(60)
    assert is_under_way(notes[0])
    may_end.set()
    thread.join(60)
    assert not is_under_way(notes[0])


def test_another_call_of_the_same_function_is_not_the_one_that_was_noted() -> None:
    first = noted()

    def again() -> bool:
        return is_under_way(first)

    assert not again()
