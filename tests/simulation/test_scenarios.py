"""Traps that other clients fell into, by the numbers of docs/simulation.md: each a script and its transcript.

`python tests/simulation/scenario_plays.py NAME...` writes down what is played now.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from scenario_script import play, read

FOLDER = Path(__file__).parent / "scenarios"
SCENARIOS = sorted(FOLDER.glob("trap_*.txt"))
PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_goes_as_it_is_written(path: Path) -> None:
    scenario = read(path)
    transcript, wrong = play(scenario)
    assert wrong == []
    assert by_speaker(transcript) == by_speaker(scenario.expected)


def by_speaker(transcript: str) -> dict[str, list[str]]:
    """What each says, in its order. Which of two members comes first at one moment is nobody's promise."""
    output: dict[str, list[str]] = defaultdict(list)
    for line in transcript.splitlines():
        who, what = line.split(maxsplit=1)
        output[who].append(what)
    return output


def test_each_is_named_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {path.stem for path in SCENARIOS} == set(re.findall(r"`(trap_\w+)`", text))
