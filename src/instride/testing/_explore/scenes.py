"""Where to begin: worlds in each state of ownership, made by the words of `World.do`.

"settle" lets the network sides take all that comes; "assigned", until it has told of an assignment; "heartbeat" lets
time pass until it has told of a revoke.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from instride._core.events import Assigned, RevocationRequested
from instride.testing._explore.world import Scope, World

__all__ = ["SCENES", "Scene", "begin"]


class Scene(NamedTuple):
    """moves: those that lead there."""

    scope: Scope
    moves: tuple[str, ...]


_PATIENCE: Final = 100
"""Moves; a scene that needs more is wrong."""
_ALONE: Final = Scope()
_OWNED: Final = ("settle", "A.poll", "settle")
"""All is assigned, and the positions are found; nothing was returned yet."""
_READING: Final = (*_OWNED, "A.poll", "settle", "A.commit")
_REQUESTED: Final = (*_READING, "settle", "B joins", "heartbeat", "settle")
_LISTENING: Final = {
    "pauses and resumes": ("network", "pause", "network", "resume"),
    "seeks": ("network", "seek", "network"),
    "commits": ("commit", "network"),
    "is interrupted": ("interrupt",),
}

SCENES: Final[dict[str, Scene]] = {
    "joining": Scene(_ALONE, ()),
    "assigned and not taken": Scene(_ALONE, ("settle",)),
    "owned": Scene(_ALONE, _OWNED),
    "reading": Scene(_ALONE, _READING),
    "requested and not taken": Scene(_ALONE, _REQUESTED),
    "revoke next": Scene(_ALONE, (*_REQUESTED, "A.poll", "A.go on")),
    "revoke thereafter": Scene(_ALONE, (*_REQUESTED, "A.poll", "A.go on", "A.delay")),
    "completing": Scene(_ALONE, (*_REQUESTED, "A.poll", "A.go on", "A.poll", "A.go on")),
    "two members": Scene(Scope(manual=("A", "B")), (*_READING, "settle", "B joins", "heartbeat", "settle", "A.poll")),
    "assigned just now": Scene(_ALONE, ("assigned",)),
    **{f"a listener {name}": Scene(Scope(listener=words), ("assigned",)) for name, words in _LISTENING.items()},
    **{
        f"a listener {name} at a revoke": Scene(Scope(listener=words), (*_REQUESTED, "A.poll", "A.go on"))
        for name, words in _LISTENING.items()
    },
}


def begin(scene: Scene) -> World:
    world = World(scene.scope)
    for move in _possible(world, scene.moves):
        world.do(move)
    return world


def _possible(world: World, moves: tuple[str, ...]) -> Iterator[str]:
    """Plain moves of these words. "A.go on" is left out where no call waits."""
    for move in moves:
        match move:
            case "settle":
                yield from _settling(world)
            case "heartbeat":
                for _ in range(_PATIENCE):
                    if _has_come(world, RevocationRequested):
                        break
                    yield "time"
                    yield from _settling(world)
            case "assigned":
                while not _has_come(world, Assigned):
                    yield _network(world)[0]  # there is always one
            case "A.go on":
                for _ in range(5):
                    if world.members["A"].party.call is not None:
                        yield move
            case _:
                yield move


def _settling(world: World) -> Iterator[str]:
    for _ in range(_PATIENCE):
        words = _network(world)
        if not words:
            return
        yield words[0]


def _network(world: World) -> list[str]:
    """The moves of network sides."""
    return [each for each in world.moves() if ".take" in each or ".respond" in each]


def _has_come(world: World, kind: type[Assigned | RevocationRequested]) -> bool:
    return any(isinstance(each, kind) for each in world.members["A"].party.queue)
