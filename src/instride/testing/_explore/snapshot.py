"""A world as a value, so that equal ones are explored once.

Laws
1. Everything counts that is reached from the members, the brokers and the judge: each attribute, each local of a call
   that waits, and which objects are the same.
2. What counts nothing: telemetry, metrics and logs, which nothing else reads; the history itself, of which the judge's
   state keeps what matters for the future; settings, which never change.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Set
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, Final

from instride.config import ConsumerConfig
from instride.testing._explore.world import World

__all__ = ["fingerprint"]

_PLAIN: Final = (int, float, str, bytes, type(None), bool, complex)
_LEFT_OUT: Final = frozenset(
    {
        "OwnershipView",
        "NetworkMeter",
        "ApplicationMeter",
        "Monitor",
        "Tap",
        "History",
        "Judge",
        "MemberAssignment",  # the judge's; the network machine's is another class, see `_is_the_judges`
        "Logger",
        "World",
        "Member",
        "SimulatedConsumer",
    }
)
"""Law 2. The world's own bookkeeping is in `_told`."""
_LEFT_OUT_NAMES: Final = frozenset({"meter", "ownership_view", "_bound", "_on_deliver", "_metadata_cache", "_calls"})


def fingerprint(world: World) -> int:
    """The same for equal worlds; for others another one, but for chance."""
    walk = _Walk()
    for name, each in world.members.items():
        told = (name, each.closed, each.ended, each.closed_before_the_end, each.listens)
        walk.walk((told, each.party))
    walk.walk((world.scheduler.now, world.brokers, [step[::2] for step in sorted(world.scheduler._steps)]))
    _told(world, walk)
    return hash(tuple(walk.out))


def _told(world: World, walk: _Walk) -> None:
    """What the judge's state knows of now."""
    assignment = world.judge.state
    for each in assignment.assignments.values():
        if not each.ended or each.ended == "lost":
            marks = (each.who, each.partition, each.epoch, each.start, each.next, each.done, each.committed)
            flags = (each.ended, each.requested, each.undelayed, each.delayed, each.excused, each.reset, each.earlier)
            walk.out.append((marks, flags, each.paused, each.superseded))
    walk.out.append((tuple(sorted(assignment.committed.items())), tuple(sorted(assignment.prefix.items()))))
    walk.out.append(
        (
            tuple(sorted(assignment.ending.items())),
            tuple(sorted(each for each in assignment.heard if assignment.heard[each])),
        )
    )


class _Walk:
    """out: what was met, in order."""

    def __init__(self) -> None:
        self.out: list[Any] = []
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []

    def walk(self, value: Any) -> None:
        out = self.out
        if isinstance(value, _PLAIN):
            out.append(value)
            return
        if isinstance(value, Enum):
            out.append(value.name)
            return
        known = self._met.get(id(value))
        if known is not None:
            out.append(("again", known))
            return
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        self._inside(value)

    def _inside(self, value: Any) -> None:
        out = self.out
        match value:
            case tuple() | list() | deque():
                out.append((type(value).__name__, len(value)))
                for each in value:
                    self.walk(each)
            case Counter() | defaultdict() | Mapping():
                out.append(("mapping", len(value)))
                for key, each in value.items():
                    self.walk(key)
                    self.walk(each)
            case Set():
                out.append(("set", tuple(sorted(map(repr, value)))))
            case FunctionType() | BuiltinFunctionType() | type() | ModuleType():
                out.append(getattr(value, "__qualname__", value.__name__))
            case MethodType():
                out.append(value.__name__)
                self.walk(value.__self__)
            case partial():
                self.walk((value.func, value.args, value.keywords))
            case GeneratorType():
                self._generator(value)
            case ConsumerConfig() | re.Pattern():
                out.append(type(value).__name__)
            case _:
                self._object(value)

    def _generator(self, value: GeneratorType[Any, Any, Any]) -> None:
        """Where it stands, and all that it knows there."""
        frame = value.gi_frame
        if frame is None:
            self.out.append((value.__qualname__, "over"))
            return
        self.out.append((value.__qualname__, frame.f_lasti))
        self.walk(dict(frame.f_locals))
        if value.gi_yieldfrom is not None:
            self.walk(value.gi_yieldfrom)

    def _object(self, value: Any) -> None:
        kind = type(value)
        self.out.append(kind.__name__)
        if kind.__name__ in _LEFT_OUT and not (
            kind.__name__ == "MemberAssignment" and kind.__module__.startswith("instride._core")
        ):
            return
        if kind.__module__ == "random":
            return
        for name in _names(kind):
            if name not in _LEFT_OUT_NAMES and hasattr(value, name):
                self.walk(getattr(value, name))
        for name, each in getattr(value, "__dict__", {}).items():
            if name not in _LEFT_OUT_NAMES:
                self.out.append(name)
                self.walk(each)


_SLOTS: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    """Of all slots."""
    if kind not in _SLOTS:
        found: list[str] = []
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            found += [slots] if isinstance(slots, str) else list(slots)
        _SLOTS[kind] = tuple(name for name in found if not name.startswith("__"))
    return _SLOTS[kind]
