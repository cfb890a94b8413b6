"""CONTRIBUTING: every attribute is set in its constructor. A reader of a class sees its whole state in one place.

A constructor is `__init__`, or the fields of a dataclass or of a class that Cython compiles. Attributes of Python's and
libraries' objects stand in `FOREIGN`. Not looked at: structs of C, and the modules that benchmarks take apart.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [path for folder in ("src", "tools", "demo", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
FOREIGN = {"__cause__", "__module__", "__name__", "argtypes", "autocommit", "check_hostname", "daemon", "getaddrinfo"}
FOREIGN |= {"minimum_version", "restype"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_every_attribute_is_set_in_its_constructor() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    assert list(set_later(trees)) == []


def test_an_attribute_that_is_set_later_is_found() -> None:
    source = """
class Base:
    inherited: int
    def __init__(self): self.known = 1
class Late(Base):
    def begin(self):
        self.known, self.inherited = 2, 3
        self.late: int = 4
        (self.first, self.second), other.strange = (5, 6), 7
        other.known += 8
"""
    found = list(set_later({ROOT / "late.py": ast.parse(source)}))
    assert found == [f"late.py: {name}" for name in ("Late.late", "Late.first", "Late.second", "strange")]


def set_later(trees: dict[Path, ast.Module]) -> Iterator[str]:
    """By file, the attributes that no constructor sets: of `self` by its class and what it inherits from."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
    every = FOREIGN.union(*(attributes(node) for nodes in classes.values() for node in nodes))
    for path, tree in trees.items():
        for owner, target in stores(tree):
            of_self = owner is not None and isinstance(target.value, ast.Name) and target.value.id == "self"
            if not of_self and ("benchmarks" in path.parts or path.name in ("compiled_pump.py", "arrow_array.py")):
                continue
            if target.attr not in (known(owner, classes) | FOREIGN if of_self and owner else every):
                yield f"{path.relative_to(ROOT)}: {f'{owner.name}.' if of_self and owner else ''}{target.attr}"


def known(node: ast.ClassDef, classes: dict[str, list[ast.ClassDef]]) -> set[str]:
    """What the constructors of the class and of those that it inherits from set. Classes of one name count as one."""
    bases = (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases)
    return set(attributes(node)).union(
        *(known(each, classes) for base in bases if base != node.name for each in classes.get(base, ()))
    )


def attributes(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id
        elif isinstance(each, ast.Assign):
            yield from (target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, Function) and each.name in ("__init__", "__new__", "__cinit__"):
            yield from (target.attr for _, target in stores(each))
        elif isinstance(each, Function) and any("setter" in ast.unparse(one) for one in each.decorator_list):
            yield each.name


def stores(tree: ast.AST, owner: ast.ClassDef | None = None) -> Iterator[tuple[ast.ClassDef | None, ast.Attribute]]:
    """Each attribute that is assigned, with the class around it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield owner, child
        yield from stores(child, child if isinstance(child, ast.ClassDef) else owner)
