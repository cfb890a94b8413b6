"""The tests of the core use its surface only: they say what a user or a broker can see, and the code behind may change.

`make coverage` counts what these tests run, so a line that it counts is one that the surface reaches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Those of the drawn pages are tests of tools, which they replace parts of.
FILES = sorted(path for path in HERE.rglob("*.py") if not path.name.startswith("test_drawn_"))
MOCKS = ("unittest.mock", "mock")


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def inside(value: ast.expr) -> bool:
    """A test's own class may have what it likes: self, cls, super()."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def reached(source: str) -> Iterator[str]:
    """Private names that are imported or reached for, and means to replace what is inside."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute() if private(node.attr) and not inside(node.value):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom():
                parts = [*(node.module or "").split("."), *(each.name for each in node.names)]
                if node.module in MOCKS or any(private(part) for part in parts):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Import() if any(each.name in MOCKS for each in node.names):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.arg(arg="monkeypatch"):
                yield f"line {node.lineno}: monkeypatch"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_nothing_private_is_reached_for(path: Path) -> None:
    assert list(reached(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "script.machine._state.lists",
        "from instride.core.network.group import _private",
        "from instride._member import Member",
        "from unittest.mock import patch",
        "import unittest.mock",
        "def test_one(monkeypatch): ...",
    ],
)
def test_what_is_not_the_surface_is_seen(source: str) -> None:
    assert len(list(reached(source))) == 1


def test_what_a_test_has_itself_is_its_own() -> None:
    own = "class A:\n    def f(self):\n        self._x = super()._y\n        return cls._z, self.__class__, a.__dict__"
    assert list(reached(own)) == []
