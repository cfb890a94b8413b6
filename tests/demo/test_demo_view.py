"""The live view: a table where there is a terminal, plain lines where there is none."""

import io

import pytest
from demo_stories import change, delay, done, mark, note
from rich.console import Console

from demo.history import History, Note
from demo.view import View

STORY = [
    note(0, "A", Note.READY),
    change(1, "A", "assigned", 0, 1),
    note(1, "source", Note.SENT, 0, 500),
    done(2, "A", 0, 0, 400),
    change(3, "A", "requested", 1),
    delay(3, "A", 1),
    mark(3, "[B] joins"),
]


def test_without_a_terminal_each_change_has_a_line() -> None:
    out, run = io.StringIO(), History()
    view = View("The [flights]", Console(file=out, width=120))
    with view:
        view.show(run, run.apply(STORY), 4.0)
        view.show(run, [], 5.0)
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines == [
        "== The [flights]",
        *(
            "3.0 s  A is ready",
            "3.0 s  A: assigned: 0, 1",
            "3.0 s  A: to be revoked: 1",
            "3.0 s  A: delayed: 1",
            "3.0 s  [B] joins",
        ),
    ]


def test_on_a_terminal_a_letter_tells_each_partitions_owner() -> None:
    out, run = io.StringIO(), History()
    view = View("The flights", Console(file=out, width=120, force_terminal=True))
    with view:
        view.show(run, run.apply(STORY), 13.0)
    text = out.getvalue()
    for expected in ("Aa  400 flights written; lag 100", "[B] joins", "\x1b[?25l"):
        assert expected in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_the_terminal_is_as_it_was_after_an_interruption() -> None:
    out = io.StringIO()

    def interrupted() -> None:
        view = View("The flights", Console(file=out, force_terminal=True))
        with view:
            view.show(History(), [], 1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "\x1b[?25h" in out.getvalue()
