"""docs/simulation.md: its example runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"


def test_the_example_of_a_users_own_loop_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)
    names["test_my_loop"]()
