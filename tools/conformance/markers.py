"""The markers of the tests, read from their source: no test module is imported, so it takes a moment only.

Laws
1. A marker is a decorator of a test, or an entry of its module's or class's `pytestmark`, or of `pytest.param`.
2. A folder that is called `kafka` or `spark` is of that ring as a whole, as its conftest marks it.
3. A marker's arguments are literals. What is computed cannot be read here, and raises ValueError with its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Proof", "proofs_in"]

_KINDS: Final = {"requirement": "{}", "vector": "vector/{}", "rule": "rule/{}"}
_RINGS: Final = ("kafka", "spark")

_Test = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Proof:
    """One test, and one requirement that it is marked with.

    path: of its file, below the folder that was read. ring: "kafka" or "spark" where it needs one, else "".
    """

    path: str
    test: str
    requirement: str
    ring: str


def proofs_in(folder: Path) -> list[Proof]:
    """Every marker of every test below a folder, sorted."""
    found = {
        proof for path in folder.rglob("test_*.py") for proof in _proofs(path, path.relative_to(folder).as_posix())
    }
    return sorted(found)


def _proofs(path: Path, name: str) -> Iterator[Proof]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    yield from _of_body(tree.body, [], name)


def _of_body(body: list[ast.stmt], outer: list[ast.expr], path: str) -> Iterator[Proof]:
    inherited = outer + [mark for statement in body for mark in _pytestmark(statement)]
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _of_body(statement.body, inherited + statement.decorator_list, path)
        elif isinstance(statement, _Test) and statement.name.startswith("test"):
            yield from _of_test(statement, inherited, path)


def _pytestmark(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign) and any(getattr(each, "id", "") == "pytestmark" for each in statement.targets):
        return [statement.value]
    return []


def _of_test(test: _Test, inherited: list[ast.expr], path: str) -> Iterator[Proof]:
    marks = [*inherited, *test.decorator_list]
    rings = [ring for ring in _RINGS if path.startswith(f"{ring}/") or any(_names(mark, ring) for mark in marks)]
    for mark in marks:
        for call in (each for each in ast.walk(mark) if isinstance(each, ast.Call)):
            for requirement in _requirements(call, path):
                yield Proof(path, test.name, requirement, rings[-1] if rings else "")


def _names(mark: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Attribute) and _is_mark(each, name) for each in ast.walk(mark))


def _is_mark(attribute: ast.Attribute, name: str) -> bool:
    return attribute.attr == name and getattr(attribute.value, "attr", "") == "mark"


def _requirements(call: ast.Call, path: str) -> Iterator[str]:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return
    for kind, form in _KINDS.items():
        if not _is_mark(function, kind):
            continue
        for argument in call.args:
            if not isinstance(argument, ast.Constant):
                raise ValueError(f"{path}:{call.lineno}: the argument of the marker {kind!r} is not a literal")
            yield form.format(argument.value)
