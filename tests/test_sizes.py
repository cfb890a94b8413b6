"""CONTRIBUTING's sizes: small functions, and names of tests that fit. A file is as long as its concept needs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [path for folder in ("src", "tools", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
MOST_LINES_OF_A_FUNCTION = 60
LONGEST_NAME_OF_A_TEST = 79


def test_no_function_is_too_long() -> None:
    """Its statements; the signature and the docstring do not count."""
    found = [f"{path.relative_to(ROOT)}: {name}" for path in FILES for name in long_functions(path)]
    assert found == []


def test_no_name_of_a_test_is_too_long() -> None:
    found = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found += [f"{path.name}: {node.name}"] * (len(node.name) > LONGEST_NAME_OF_A_TEST)
    assert found == []


def test_helpers_of_tests_say_what_they_offer_and_fixtures_are_where_pytest_looks() -> None:
    """A helper that tests import has `__all__`. A fixture is in a conftest.py, or beside tests."""
    tests = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    helpers = {path: text for path, text in tests.items() if not path.name.startswith(("test_", "conftest"))}
    everything = "\n".join(tests.values())
    imported = {path: text for path, text in helpers.items() if f"\nfrom {path.stem} import" in everything}
    assert len(imported) > 30
    assert [path.name for path, text in imported.items() if "\n__all__ = " not in text] == []
    with_fixtures = {
        path.stem for path, text in helpers.items() if "@pytest.fixture" in text and "def test_" not in text
    }
    assert with_fixtures <= {"attack_sinks"}


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and (body[-1].end_lineno or 0) - body[0].lineno >= MOST_LINES_OF_A_FUNCTION:
                yield node.name
