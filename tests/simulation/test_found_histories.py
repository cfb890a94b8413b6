"""Histories that were wrong once, shrunk and kept, are right for ever: tests/simulation/found.

Each file is the plan of one history, as `python -m instride.testing.simulate` prints it when one fails; its name says
what was found. `--plan FILE` shows the transcript.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from instride.testing._simulation.corpus import decode
from instride.testing.simulate import main
from instride.testing.simulation import check, run, transcript

FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))
CHANCES = 10


@pytest.mark.drawn(6)
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_it_is_right_now(path: Path) -> None:
    """With the chance that it was found with, and with others."""
    plan = decode(path.read_text(encoding="utf-8"))
    for seed in (plan.seed, *range(CHANCES)):
        history = run(replace(plan, seed=seed))
        found = check(history)
        assert not found, f"chance {seed}\n{transcript(history, found)}"


def test_one_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plan", str(FOUND[0])]) == 0
    assert "group is Stable" in capsys.readouterr().out
