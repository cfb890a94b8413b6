"""docs/simulation.md: its examples run, and the one for a user's own loop finds a loop that loses records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(code: str) -> None:
    names: dict[str, Any] = {}
    code = code.replace("range(100)", "range(30)")  # enough to find a wrong loop, and a third of the time
    exec(compile(code, str(PAGE), "exec"), names)
    tests = [each for name, each in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int) -> None:
    run(EXAMPLES[number])


def test_a_loop_that_commits_before_it_handles_is_found() -> None:
    """What the first example is for."""
    code = EXAMPLES[0]
    begin, commit = (
        code.index("        for record in records:"),
        code.index("        try:\n            yield from consumer.commit"),
    )
    end = code.index("    yield from consumer.close")
    wrong = code[:begin] + code[commit:end] + code[begin:commit] + code[end:]
    with pytest.raises(AssertionError, match=r"no commit beyond a gap|all is done"):
        run(wrong)
