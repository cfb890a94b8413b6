"""Finds public names in the source: nothing is imported, so that every Python writes the same pages.

Laws
1. A module's public names are those of its `__all__`, in that order. An imported one is followed to where it is made.
2. A module's `.pyi`, where there is one, speaks for it.
3. A class's methods are its own public ones and those of its private bases (of an underscored name or module), nearest
   first, each name once. A public base is named, and has its own entry.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Definition", "Module", "Source"]

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.AnnAssign, ast.Assign)


@dataclass(frozen=True, slots=True)
class Definition:
    """What a public name is: its statement, the module that makes it, and the words below it."""

    name: str
    module: Module
    node: ast.stmt
    doc: str = ""


@dataclass(slots=True)
class Module:
    """One file: its statements by the names they make, and where its imports come from.

    gathered: the names that it takes from other modules by `import *`, and offers as they do.
    """

    name: str
    tree: ast.Module
    made: dict[str, ast.stmt] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    gathered: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        statements = list(_statements(self.tree.body))
        for statement, after in zip(statements, [*statements[1:], None], strict=True):
            if isinstance(statement, ast.ImportFrom) and statement.module:
                for alias in statement.names:
                    # Each `import *` is kept by its module's name: a file may have several.
                    name = statement.module if alias.name == "*" else alias.asname or alias.name
                    self.imported[name] = (statement.module, alias.name)
            elif isinstance(statement, _DEFINITIONS):
                self._make(statement, after)

    def _make(self, statement: ast.stmt, after: ast.stmt | None) -> None:
        for name in _names(statement):
            self.made[name] = statement
            self.docs[name] = _doc(statement, after)

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def gather(self, other: Module) -> None:
        """`from other import *`."""
        self.gathered += other.public()
        self.imported.update({name: (other.name, name) for name in other.public()})

    def public(self) -> list[str]:
        """The names of `__all__`; ValueError where there is none, for then nobody said what is public."""
        statement = self.made.get("__all__")
        if self.gathered:
            return list(self.gathered)
        if not isinstance(statement, ast.Assign):
            raise ValueError(f"{self.name} has no __all__")
        return list(ast.literal_eval(statement.value))


class Source:
    """The files below a folder such as `src`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        """Raises FileNotFoundError for what is no module of the folder."""
        if name not in self._modules:
            path = self._path(name)
            made = Module(name, ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
            self._modules[name] = made
            for home in [home for home, original in made.imported.values() if original == "*"]:
                made.gather(self.module(home))
        return self._modules[name]

    def find(self, module: Module, name: str) -> Definition:
        """Where a public name is made. Raises LookupError for a name that the module only promises."""
        if name in module.made:
            return Definition(name, module, module.made[name], module.docs[name])
        if name not in module.imported:
            raise LookupError(f"{module.name} has no {name}")
        home, original = module.imported[name]
        return self.find(self.module(home), original)

    def private_bases(self, module: Module, node: ast.ClassDef) -> Iterator[Definition]:
        """Bases whose methods a user can only know through this class."""
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0]
            if name in module.made or module.imported.get(name, ("",))[0].startswith("instride"):
                found = self.find(module, name)
                if name.startswith("_") or "._" in found.module.name:
                    yield found

    def _path(self, name: str) -> Path:
        base = self._root.joinpath(*name.split("."))
        places = [base.with_suffix(".pyi"), base.with_suffix(".py"), base / "__init__.py"]
        for path in places:
            if path.exists():
                return path
        raise FileNotFoundError(f"no module {name} below {self._root}")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The top level, with what stands below `if TYPE_CHECKING:`."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _statements(statement.body)
        else:
            yield statement


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
    return []


def _doc(statement: ast.stmt, after: ast.stmt | None) -> str:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(statement) or ""
    match after:  # the words below a constant
        case ast.Expr(value=ast.Constant(value=str(words))):
            return words
    return ""
