"""`lint-imports` looks at every module: none is forgotten at the root. And no two modules import each other."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_module_and_package_of_the_root_has_a_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    named = {
        name for each in contracts for key in ("source_modules", "modules", "layers") for name in each.get(key, ())
    }
    covered = {part.strip() for name in named for part in name.split("|")}
    package = ROOT / "src" / "instride"
    modules = {f"instride.{path.stem}" for path in package.glob("*.py") if path.stem != "__init__"}
    packages = {f"instride.{path.parent.name}" for path in package.glob("*/__init__.py")}
    assert modules | packages <= covered


def test_no_modules_import_each_other_wherever_the_import_stands() -> None:
    """Inside of a function too; not what only the type checker reads."""
    package = ROOT / "src" / "instride"
    modules = {_name(path): path for path in package.rglob("*.py")}
    graph = {name: set(_imported(path, modules.keys())) - {name} for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # a CycleError shows the circle


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path, modules: Collection[str]) -> Iterator[str]:
    for node in _nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module in modules:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in modules else node.module


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _nodes(child)
