"""Breadth first: all states that lie one move further, then two, and so on.

Laws
1. Each state is made again from its moves for each move that may follow; the first path to it is a shortest.
2. A state is judged when it is new; and once more by what becomes of it (`World.finish`).
3. It ends at the depth, or when the time is up: then the depth that was done whole is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from instride.testing._explore.scenes import Scene, begin
from instride.testing._explore.snapshot import fingerprint
from instride.testing._explore.world import World
from instride.testing.check import Violation

__all__ = ["Found", "Report", "explore", "replay"]

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A sequence of moves after which a law is broken. at_once: before everything went on as it should."""

    moves: Path
    violation: Violation
    at_once: bool


@dataclass(slots=True, kw_only=True)
class Report:
    """depth: to which all states were seen. states: different ones. moves: that were made to see them."""

    depth: int = 0
    states: int = 0
    moves: int = 0
    whole: bool = True
    found: list[Found] = field(default_factory=list)


def replay(scene: Scene, moves: Path) -> World:
    world = begin(scene)
    for move in moves:
        world.do(move)
    return world


def explore(
    scene: Scene, *, depth: int, until: float = float("inf"), clock: Callable[[], float] = time.monotonic, most: int = 5
) -> Report:
    """until: by the clock. most: how many wrong ones to look for."""
    report = Report()
    first = begin(scene)
    seen = {fingerprint(first)}
    frontier: list[Path] = [()]
    report.states = 1
    for report.depth in range(depth):
        following: list[Path] = []
        for path in frontier:
            if clock() >= until or len(report.found) >= most:
                report.whole = False
                return report
            following += _children(scene, path, seen, report)
        frontier = following
    report.depth = depth
    return report


def _children(scene: Scene, path: Path, seen: set[int], report: Report) -> Iterator[Path]:
    """Those that are new, each judged."""
    for move in replay(scene, path).moves():
        world = replay(scene, path)
        world.do(move)
        report.moves += 1
        mark = fingerprint(world)
        if mark in seen:
            continue
        seen.add(mark)
        report.states += 1
        moves = (*path, move)
        wrong = _judged(world, moves)
        if wrong is None:
            yield moves
        else:
            report.found.append(wrong)


def _judged(world: World, moves: Path) -> Found | None:
    """Law 2."""
    found = world.violations()
    if found:
        return Found(moves=moves, violation=found[0], at_once=True)
    found = world.finish()
    return Found(moves=moves, violation=found[0], at_once=False) if found else None
