"""Draws the structure of the package: its folders, and which imports which. Prints Mermaid, for docs/models.md.

    python tools/draw_structure.py src/instride

Laws
1. A room is a folder with what is below it; the core is a room for each of its folders. Of the files beside the
   package's `__init__.py`, those that the core, the wire and the net import are the public types, the others are doors.
2. An arrow goes from a room to one that it imports, at run time: what stands under `TYPE_CHECKING` does not count.
3. What follows from two other arrows is not drawn, but for rooms that import each other in a circle: their arrows are
   all drawn, thick.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

__all__ = ["drawn", "main", "rooms"]

DOORS = "doors"
TYPES = "public types"
BELOW = ("core", "wire", "net")
Graph = Mapping[str, set[str]]


def main(folder: str) -> None:
    print("\n".join(drawn(Path(folder))))


def drawn(root: Path) -> Iterator[str]:
    """The lines of a Mermaid flowchart. root: the folder of the package, whose name is the package's."""
    found = rooms(root)
    graph = {
        room: {_room(root, other) for file in files for other in _imported(root, file)} - {room}
        for room, files in found.items()
    }
    reach = {room: _reachable(graph, room) for room in graph}
    names = {room: f"r{number}" for number, room in enumerate(found)}
    yield "flowchart TD"
    for room, files in found.items():
        yield f'    {names[room]}["{room}<br/>{len(files)} files, {sum(map(_lines, files)):,} lines"]'
    for room, others in graph.items():
        for other in sorted(others):
            if room in reach[other]:
                yield f"    {names[room]} ==> {names[other]}"
            elif not any(_is_on_the_way(reach, room, between, other) for between in others - {other}):
                yield f"    {names[room]} --> {names[other]}"


def _is_on_the_way(reach: Graph, room: str, between: str, other: str) -> bool:
    """Whether one arrow follows from another. Of rooms in a circle the first one has the arrow."""
    circle = between in reach[other]
    return other in reach[between] and room not in reach[between] and (not circle or between < other)


def rooms(root: Path) -> dict[str, list[Path]]:
    """The files of each room, by its name."""
    found: dict[str, list[Path]] = {}
    for file in sorted(root.rglob("*.py")):
        found.setdefault(_room(root, file.relative_to(root)), []).append(file)
    return found


def _room(root: Path, file: Path) -> str:
    """file: below the root."""
    if len(file.parts) == 1:
        return TYPES if file in _types(root) else DOORS
    return "/".join(file.parts[: -1 if file.parts[0].endswith("core") else 1])


@cache
def _types(root: Path) -> frozenset[Path]:
    """Law 1."""
    found: set[Path] = set()
    waiting = [file for file in root.rglob("*.py") if file.relative_to(root).parts[0].lstrip("_") in BELOW]
    while waiting:
        more = {each for each in _imported(root, waiting.pop()) if len(each.parts) == 1} - found
        found |= more
        waiting.extend(root / each for each in more)
    return frozenset(found - {Path("__init__.py")})


def _lines(file: Path) -> int:
    return file.read_text(encoding="utf-8").count("\n")


def _imported(root: Path, file: Path) -> set[Path]:
    """Files below the root."""
    found = set()
    for module in _modules(ast.parse(file.read_text(encoding="utf-8"))):
        parts = module.split(".")[1:]
        while module.split(".")[0] == root.name:
            for target in (Path(*parts).with_suffix(".py") if parts else None, Path(*parts, "__init__.py")):
                if target is not None and (root / target).is_file():
                    found.add(target)
                    break
            else:
                parts.pop()
                continue
            break
    return found


def _modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        else:
            yield from _modules(node)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        if (room := waiting.pop()) not in found:
            found.add(room)
            waiting.extend(graph.get(room, ()))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
