"""The scenario decides by the history: here without processes and without a broker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from demo_stories import began, done, note, plan_in

from demo.history import Note
from demo.scenario import _Run


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    nothing: Any = SimpleNamespace()
    return _Run(plan_in(tmp_path), nothing, nothing)


def test_what_the_source_sent_since_the_last_look_is_not_worked_on(run: _Run) -> None:
    """The source had ended by the time that it was asked, after the look: its last flights counted as none."""
    run._history.apply([note(1, "source", Note.SENT, 0, 10), done(2, "A", 0, 0, 10)])
    assert not run._is_drained(), "it sends still"
    run._source.set_result(None)
    assert not run._is_drained(), "five flights are not in the history yet"
    run._history.apply([began(3, "A", 1, 0, 5), done(4, "A", 1, 0, 5), began(4, "A", 0, 5, 10)])
    assert not run._is_drained(), "some are at work once more"
    run._history.apply([done(5, "A", 0, 5, 10), note(6, "source", Note.SENT, 1, 5)])
    assert run._is_drained()
