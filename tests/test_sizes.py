"""CONTRIBUTING's sizes: small files, small functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [path for folder in ("src", "tools", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
MOST_LINES_OF_A_FILE, MOST_LINES_OF_A_FUNCTION = 400, 60
CATALOGUES = {"src/instride/config.py", "src/instride/core/events.py", "src/instride/wire/api.py"}
"""Lists of names (settings, events, messages), one after another, in which one looks things up."""


def test_no_file_is_too_long() -> None:
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {name for name, length in lengths.items() if length > MOST_LINES_OF_A_FILE}
    assert long == CATALOGUES, "divide the file, or take it from the list of catalogues"


def test_no_function_is_too_long() -> None:
    """Its statements; the signature and the docstring do not count."""
    found = [f"{path.relative_to(ROOT)}: {name}" for path in FILES for name in long_functions(path)]
    assert found == []


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and (body[-1].end_lineno or 0) - body[0].lineno >= MOST_LINES_OF_A_FUNCTION:
                yield node.name
