"""A module's page of docs/api as text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from api_reference.source import Definition, Module, Source

__all__ = ["page", "summary"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_WIDTH: Final = 110


def page(source: Source, name: str) -> str:
    """Everything public of a module, with its words."""
    module = source.module(name)
    lines = [f"# {name}", "", "Made by `make docs` from the docstrings; do not edit.", "", module.doc, ""]
    for each in module.public():
        lines += _entry(source, source.find(module, each), each)
    return "\n".join(lines).rstrip() + "\n"


def summary(module: Module) -> str:
    """The first line of a module's words."""
    return module.doc.partition("\n")[0]


def _entry(source: Source, found: Definition, name: str) -> Iterator[str]:
    match found.node:
        case ast.ClassDef() as node:
            yield from _class(source, found, node, name)
        case ast.FunctionDef() | ast.AsyncFunctionDef() as node:
            yield from _function(node, name, level=2)
        case node:
            yield from _constant(found, node, name)


def _constant(found: Definition, node: ast.stmt, name: str) -> Iterator[str]:
    yield f"## {name}\n"
    text = ast.unparse(node)
    if len(text) <= _WIDTH:
        yield f"```python\n{text}\n```\n"
    if found.doc:
        yield f"{found.doc}\n"


def _class(source: Source, found: Definition, node: ast.ClassDef, name: str) -> Iterator[str]:
    yield f"## {name}\n"
    hidden = {each.name for each in source.private_bases(found.module, node)}
    shown = [text for text in map(ast.unparse, node.bases) if text.partition("[")[0] not in hidden]
    bases = f"({', '.join(shown)})" if shown else ""
    yield f"```python\nclass {name}{bases}\n```\n"
    if found.doc:
        yield f"{found.doc}\n"
    yield from _fields(node)
    for method in _methods(source, found.module, node):
        if method.name != "__init__":
            yield from _function(method, f"{name}.{method.name}", level=3)
        elif ast.get_docstring(method) or not name.endswith("Error"):  # errors are caught, not made, by users
            yield from _function(method, f"{name}()", level=3)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The public names of a class's body, and its properties without words, as a table."""
    rows = []
    for each in node.body:
        match each:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if name[0] != "_":
                rows.append((name, _cell(annotation), _cell(value)))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name[0] != "_":
                rows.append((name, "", _cell(value)))
            case ast.FunctionDef(name=name, returns=annotation) if _is_plain_property(each):
                rows.append((name, _cell(annotation), ""))
    if rows:
        lines = [f"| `{name}` | {annotation} | {value} |" for name, annotation, value in rows]
        yield "\n".join(["| field | type | value |", "|---|---|---|", *lines, ""])


def _is_plain_property(function: _Function) -> bool:
    return _is_property(function) and not ast.get_docstring(function)


def _is_property(function: _Function) -> bool:
    return any(ast.unparse(each) == "property" for each in function.decorator_list)


def _cell(node: ast.expr | None) -> str:
    return f"`{ast.unparse(node)}`".replace("|", "\\|") if node else ""


def _methods(source: Source, module: Module, node: ast.ClassDef) -> list[_Function]:
    found: dict[str, _Function] = {}
    for each in _family(source, module, node):
        for statement in each.body:
            if isinstance(statement, _Function) and (statement.name[0] != "_" or statement.name == "__init__"):
                found.setdefault(statement.name, statement)
    # The constructor first.
    return sorted(
        (each for each in found.values() if not _is_plain_property(each)), key=lambda each: each.name != "__init__"
    )


def _family(source: Source, module: Module, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    yield node
    for base in source.private_bases(module, node):
        if isinstance(base.node, ast.ClassDef):
            yield from _family(source, base.module, base.node)


def _function(node: _Function, name: str, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield f"```python\n{_signature(node, name)}\n```\n"
    doc = ast.get_docstring(node)
    if doc:
        yield f"{doc}\n"


def _signature(node: _Function, name: str) -> str:
    """As it is called: without self, broken where it is long."""
    arguments = _without_self(node)
    result = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    if _is_property(node):
        return f"{name}: {ast.unparse(node.returns) if node.returns else ''}".rstrip(": ")
    called = name.removesuffix("()")
    line = f"{called}({', '.join(arguments)}){result}"
    if len(line) <= _WIDTH:
        return line
    inside = "".join(f"    {each},\n" for each in arguments)
    return f"{called}(\n{inside}){result}"


def _without_self(node: _Function) -> list[str]:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = list(zip(positional, [*defaults, *arguments.defaults], strict=True))
    if pairs and pairs[0][0].arg in ("self", "cls"):
        pairs = pairs[1:]
    texts = [_argument(each, default) for each, default in pairs]
    if arguments.vararg:
        texts.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        texts.append("*")
    texts += [_argument(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        texts.append(f"**{_argument(arguments.kwarg, None)}")
    return texts


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    if default is None:
        return f"{argument.arg}{kind}"
    return f"{argument.arg}{kind}{' = ' if kind else '='}{ast.unparse(default)}"
