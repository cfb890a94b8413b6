"""A line that says the same again and again is one line in half a minute; the others are for who debugs."""

from __future__ import annotations

import logging

import pytest
from network_script import NetworkScript

from instride._core.network.actions import Log
from instride._core.network.context import Context

pytestmark = pytest.mark.part


def context() -> Context:
    return Context(NetworkScript().config, lambda: 0.5, lambda: 0.0)


def said(context: Context) -> list[tuple[int, str]]:
    return [(each.level, each.message) for each in context.out if isinstance(each, Log)]


def test_the_same_line_comes_again_after_half_a_minute_and_at_debug_between() -> None:
    shared = context()
    for shared.now in (0.0, 1.0, 29.9, 30.1, 31.0):
        shared.log(logging.WARNING, "no response")
    shared.log(logging.INFO, "another")
    levels = [level for level, text in said(shared) if text == "no response"]
    assert levels == [logging.WARNING, logging.DEBUG, logging.DEBUG, logging.WARNING, logging.DEBUG]
    assert said(shared)[-1] == (logging.INFO, "another")


def test_an_error_is_told_each_time() -> None:
    shared = context()
    for _ in range(2):
        shared.log(logging.ERROR, "t-0 has failed")
    assert said(shared) == [(logging.ERROR, "t-0 has failed")] * 2


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.ERROR])
def test_of_one_kind_come_twenty_lines_in_half_a_minute_and_how_many_did_not(level: int) -> None:
    shared = context()
    for number in range(1000):
        shared.log(level, f"partition t-{number} of topic 'x{number}' is bad")
    assert len(said(shared)) == 20
    shared.now = 31.0
    for _ in range(2):
        shared.log(level, "partition u-7 of topic 'y' is bad")
    last = [text for _, text in said(shared)][-2:]
    assert last[0] == "partition u-7 of topic 'y' is bad (and 980 more lines like this one before)"
    assert last[1] == "partition u-7 of topic 'y' is bad"


def test_texts_that_others_make_up_are_bounded_too() -> None:
    shared = context()
    words = ["".join(chr(97 + (number // 26**place) % 26) for place in range(4)) for number in range(2000)]
    for word in words:
        shared.log(logging.INFO, f"a broker says {word}")
    assert len(said(shared)) <= 330
