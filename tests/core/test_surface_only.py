"""The tests of the core use its surface only: they say what a user or a broker can see, and the code behind may change.

None reaches for a private name. One that looks at a part by itself is marked so, and `make coverage` does not count it:
so each line that it counts is one that the surface reaches.
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
PACKAGES = ("_core", "_net", "_wire", "_simulation")
"""Private to users. What the tests may use of them, SURFACE says."""

# Modules (or packages), or names of one: the two machines, what goes in and comes out, tables, assignors, metrics.
SURFACE = {
    "instride._core.application.calls",
    "instride._core.application.ownership_view.CHANGES",
    "instride._core.application.ownership_view.blocker_of",
    "instride.listeners",
    "instride._core.application.machine",
    "instride._core.application.partition.Delivery",
    "instride._core.assignors",
    "instride._core.events",
    "instride._core.session_lease",
    "instride._core.metrics",
    "instride._core.network.actions",
    "instride._core.network.coordinator.CoordinatorInput",
    "instride._core.network.coordinator.CoordinatorState",
    "instride._core.network.coordinator.TRANSITIONS",
    "instride._core.network.coordinator.next_coordinator_state",
    "instride._core.network.machine",
    "instride._core.network.ranges.RangeChunk",
    "instride._core.network.group.GroupInput",
    "instride._core.network.group.GroupState",
    "instride._core.network.group.TRANSITIONS",
    "instride._core.network.group.next_group_state",
    "instride._core.ownership",
    "instride._core.telemetry_lines",
}


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
                if node.module in MOCKS or any(private(part) and part not in PACKAGES for part in parts):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Import() if any(each.name in MOCKS for each in node.names):
                yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.arg(arg="monkeypatch"):
                yield f"line {node.lineno}: monkeypatch"


def inner(source: str) -> Iterator[str]:
    """Names of the core that are imported and are not its surface."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("instride._core"):
            for each in node.names:
                name = f"{node.module}.{each.name}"
                if not any(name == part or name.startswith(f"{part}.") for part in SURFACE):
                    yield name


def is_of_a_part(source: str) -> bool:
    return "\npytestmark = pytest.mark.part\n" in source


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_nothing_private_is_reached_for(path: Path) -> None:
    assert list(reached(path.read_text())) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_who_looks_at_a_part_by_itself_is_marked_and_nobody_else(path: Path) -> None:
    source = path.read_text()
    assert bool(list(inner(source))) == is_of_a_part(source), list(inner(source))


def test_what_is_inside_is_seen() -> None:
    assert list(inner("from instride._core.network.cluster import Cluster")) == [
        "instride._core.network.cluster.Cluster"
    ]
    assert list(inner("from instride._core.network.machine import NetworkMachine")) == []
    assert list(inner("from instride._core.application.partition import Delivery")) == []


@pytest.mark.parametrize(
    "source",
    [
        "script.machine._state.lists",
        "from instride._core.network.group import _private",
        "from instride._consumer_base import BlockingConsumer",
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
